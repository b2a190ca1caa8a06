// Sequences of operations on one mbarrier, one thread a case; the operations are those of the recordings.
enum { INIT, ARRIVE, EXPECT_TX, COMPLETE_TX, ARRIVE_DROP, ARRIVE_EXPECT_TX };

extern "C" __global__ void sequences(const int* ops, const u32* arguments, const int* lengths, int longest, u64* tokens,
                                     u8* passes, u64* words) {
  __shared__ __align__(16) u64 barriers[1];
  u32 barrier = shared_address(barriers);
  u64 first = (u64)blockIdx.x * longest;
  for (int i = 0; i < lengths[blockIdx.x]; i++) {
    u32 x = arguments[first + i];
    u64 token = 0;
    switch (ops[first + i]) {
      case INIT: barrier_init(barrier, x); break;
      case ARRIVE:
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(barrier), "r"(x) : "memory");
        break;
      case EXPECT_TX:
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory");
        break;
      case COMPLETE_TX:
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory");
        break;
      case ARRIVE_DROP:
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;"
                     : "=l"(token) : "r"(barrier), "r"(x) : "memory");
        break;
      case ARRIVE_EXPECT_TX:
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"
                     : "=l"(token) : "r"(barrier), "r"(x) : "memory");
    }
    tokens[first + i] = token;
    passes[first + i] = barrier_passes(barrier, 0) | barrier_passes(barrier, 1) << 1;
  }
  words[blockIdx.x] = barrier_word(barrier);
}
