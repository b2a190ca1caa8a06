// Blocks of a cluster hand values to each other by remote stores and remote arrivals on the receiver's mbarrier, four times round.
#include "device.cuh"

extern "C" __global__ void cluster_arrivals(const u32* in, u32* out, int rounds) {
  __shared__ alignas(8) u64 full, empty;
  __shared__ u32 box[32];
  const u32 rank = cluster_rank(), lane = threadIdx.x;
  if (lane == 0) {
    mbarrier_init(shared_address(&full), 32);
    mbarrier_init(shared_address(&empty), 1);
    fence_mbarrier_init();
  }
  cluster_arrive();
  cluster_wait();
  const u32 other = rank ^ 1;
  const u32 other_box = mapped(shared_address(&box[lane]), other), other_full = mapped(shared_address(&full), other);
  const u32 other_empty = mapped(shared_address(&empty), other);
  u32 value = in[blockIdx.x * 32 + lane];
  for (int round = 0; round < rounds; ++round) {
    asm volatile(  // the other block has read its box: its reader told this block
        "{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
            shared_address(&empty)), "r"(round + 1 & 1) : "memory");
    asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(other_box), "r"(value) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other_full) : "memory");
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, 1000; @!p bra again; }" ::"r"(
            shared_address(&full)), "r"(round & 1) : "memory");
    value = value * 3 + box[31 - lane];
    __syncwarp();
    if (lane == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other_empty) : "memory");
  }
  out[blockIdx.x * 32 + lane] = value;
  cluster_arrive();  // nobody leaves while the other may still arrive here
  cluster_wait();
}
