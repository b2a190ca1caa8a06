// The rest of mbarrier's forms: counts, arrive_drop, expect_tx and complete_tx by hand, pending_count, noComplete, inval.
#include "device.cuh"

extern "C" __global__ void mbarrier_forms(u32* out, u64* words) {
  __shared__ alignas(8) u64 barriers[4];
  const u32 thread = threadIdx.x, b0 = shared_address(&barriers[0]), b1 = b0 + 8, b2 = b0 + 16, b3 = b0 + 24;
  if (thread == 0) {
    mbarrier_init(b0, 96);
    mbarrier_init(b1, 32);
    mbarrier_init(b2, 1);
    mbarrier_init(b3, 5);
  }
  __syncthreads();
  u64 token;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], 3;" : "=l"(token) : "r"(b0) : "memory");
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(b0), "l"(token) : "memory");
  if (thread % 4 == 3) {  // a quarter of the threads leaves the barrier for good
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(b1) : "memory");
  } else {
    for (int phase = 0; phase < 3; ++phase) {
      asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(b1) : "memory");
      mbarrier_wait(b1, phase & 1);
    }
  }
  __syncthreads();
  if (thread == 0) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 64;" ::"r"(b2) : "memory");
    mbarrier_arrive(b2);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" ::"r"(b2) : "memory");
    u32 before, after;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(before) : "r"(b2) : "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(b2) : "memory");
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(after) : "r"(b2) : "memory");
    out[0] = before;
    out[1] = after;
    u32 pending;
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 2;" : "=l"(token) : "r"(b3) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(token));
    out[2] = pending;
    asm volatile("mbarrier.arrive_drop.noComplete.shared::cta.b64 %0, [%1], 1;" : "=l"(token) : "r"(b3) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(token));
    out[3] = pending;
    for (u32 barrier = b0; barrier <= b3; barrier += 8) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
    for (int i = 0; i < 4; ++i) words[i] = *const_cast<volatile u64*>(&barriers[i]);  // inval writes the state back
  }
}
