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

// A wait that acquires what other blocks of the cluster released: with less, a read may find an old line in the L1.
__device__ __forceinline__ int passes_cluster(u32 barrier, u32 parity) {
  int passes;
  asm volatile(
      "{.reg .pred p; mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p;}"
      : "=r"(passes) : "r"(barrier), "r"(parity) : "memory");
  return passes;
}

// The odd block of a cluster writes global memory and arrives at the even block's mbarrier, both with the default scope (0) or
// with .cluster (1); the even block waits, and counts how often it reads what was written in the round before.
extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(2, 1, 1)
    remote_arrivals(int has_scope, int rounds, u32* written, u32* stale) {
  __shared__ __align__(8) u64 full, empty;
  u32 own_full = shared_address(&full), own_empty = shared_address(&empty), rank = blockIdx.x % 2, there;
  if (threadIdx.x == 0) {
    barrier_init(own_full, 1);
    barrier_init(own_empty, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    u32 other = rank ? own_full : own_empty, count = 0, seen;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(other), "r"(1 - rank));
    for (int round = 0; round < rounds; round++) {
      u32 parity = round & 1;
      if (rank) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(written), "r"(round + 1) : "memory");
        if (has_scope)
          asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        else
          asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        while (!barrier_passes(own_empty, parity)) {
        }
      } else {
        while (!(has_scope ? passes_cluster(own_full, parity) : barrier_passes(own_full, parity))) {
        }
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(seen) : "l"(written) : "memory");
        count += seen != round + 1;
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
      }
    }
    if (rank == 0) *stale = count;
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
