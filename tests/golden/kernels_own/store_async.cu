// Asynchronous stores and reductions into a neighbour's shared memory, whose bytes complete the neighbour's mbarrier.
#include "device.cuh"

extern "C" __global__ void store_async(const u32* in, u32* out) {
  __shared__ alignas(16) u32 received[32 * 4];
  __shared__ u32 sum;
  __shared__ alignas(8) u64 barrier;
  const u32 rank = cluster_rank(), lane = threadIdx.x, full = shared_address(&barrier);
  if (lane == 0) {
    sum = 0;
    mbarrier_init(full, 1);
    mbarrier_expect(full, 32 * 16 + 32 * 4);
    fence_mbarrier_init();
  }
  cluster_arrive();
  cluster_wait();
  const u32 x = in[blockIdx.x * 32 + lane], other_full = mapped(full, rank ^ 1);
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   mapped(shared_address(&received[lane * 4]), rank ^ 1)), "r"(x), "r"(x + 1), "r"(x * 2), "r"(lane), "r"(other_full) : "memory");
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(
                   mapped(shared_address(&sum), rank ^ 1)), "r"(x), "r"(other_full) : "memory");
  mbarrier_wait(full, 0);
  for (int i = 0; i < 4; ++i) out[blockIdx.x * 160 + i * 32 + lane] = received[i * 32 + (lane * 7 + i) % 32];
  out[blockIdx.x * 160 + 128 + lane] = sum + lane;
  cluster_arrive();
  cluster_wait();
}
