// Sequences of operations on one mbarrier, one thread a case; suites/barriers.py numbers the operations.
enum { INIT, ARRIVE, EXPECT_TX, COMPLETE_TX, ARRIVE_DROP, ARRIVE_EXPECT_TX };

#define WITH_TOKEN(OPERATION) \
  asm volatile(OPERATION ".shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(barrier), "r"(x) : "memory"); break;
#define WITHOUT_TOKEN(OPERATION) \
  asm volatile(OPERATION ".relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory"); break;

// A step is 5 bytes: the upper half of the token, and which parities pass.
extern "C" __global__ void sequences(const int* ops, const u32* arguments, int length, u8* steps, u64* words) {
  __shared__ __align__(16) u64 barriers[1];
  u32 barrier = shared_address(barriers);
  for (int i = blockIdx.x * length; i < (blockIdx.x + 1) * length; i++) {
    u32 x = arguments[i];
    u64 token = 0;
    switch (ops[i]) {
      case INIT: barrier_init(barrier, x); break;
      case ARRIVE: WITH_TOKEN("mbarrier.arrive")
      case EXPECT_TX: WITHOUT_TOKEN("mbarrier.expect_tx")
      case COMPLETE_TX: WITHOUT_TOKEN("mbarrier.complete_tx")
      case ARRIVE_DROP: WITH_TOKEN("mbarrier.arrive_drop")
      case ARRIVE_EXPECT_TX: WITH_TOKEN("mbarrier.arrive.expect_tx")
    }
    for (int byte = 0; byte < 4; byte++) steps[5 * i + byte] = token >> (32 + 8 * byte);
    steps[5 * i + 4] = barrier_passes(barrier, 0) | barrier_passes(barrier, 1) << 1;
  }
  words[blockIdx.x] = barrier_word(barrier);
  // A fault of the barrier is reported while its block lives: one that exits at once may get away with it.
  u64 start = nanoseconds();
  while (nanoseconds() - start < 20000) {
  }
}
