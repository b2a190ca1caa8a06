// cp.async whose end arrives at an mbarrier: with arrivals that the barrier expects (noinc), and with arrivals that raise the count.
#include "device.cuh"

extern "C" __global__ void cp_async_barrier(const u32* in, u32* out, int rounds) {
  __shared__ alignas(16) u32 tile[2][128];
  __shared__ alignas(8) u64 expected[2], raised;
  const u32 thread = threadIdx.x;
  if (thread == 0) {
    mbarrier_init(shared_address(&expected[0]), 32);
    mbarrier_init(shared_address(&expected[1]), 32);
    mbarrier_init(shared_address(&raised), 64);
  }
  __syncthreads();
  u32 sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const int slot = round % 2;
    const u32 barrier = shared_address(&expected[slot]);
    if (thread < 32) {  // the warp that copies
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[slot][thread * 4])),
                   "l"(in + round * 128 + thread * 4) : "memory");
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
    }
    asm volatile("{ .reg .pred p; again: mbarrier.test_wait.parity.shared.b64 p, [%0], %1; @!p bra again; }" ::"r"(barrier), "r"(round / 2 & 1) : "memory");
    sum = sum * 3 + tile[slot][(thread * 5 + round) % 128];
    __syncthreads();  // the slot may be filled again
  }
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&tile[0][thread])), "l"(in + thread) : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(shared_address(&raised)) : "memory");
  u64 token;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(shared_address(&raised)) : "memory");
  asm volatile("{ .reg .pred p; again: mbarrier.test_wait.shared.b64 p, [%0], %1; @!p bra again; }" ::"r"(shared_address(&raised)), "l"(token) : "memory");
  out[thread] = sum + tile[0][63 - thread];
}
