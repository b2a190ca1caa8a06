// A tile that one block loads for others: every block of a cluster brings a quarter and sends it to the blocks of a mask.
#include "device.cuh"

extern "C" __global__ void multicast(const __grid_constant__ TensorMap map, u32* out) {
  extern __shared__ __align__(1024) u8 smem[];
  __shared__ alignas(8) u64 barrier;
  const u32 full = shared_address(&barrier), base = shared_address(smem), rank = cluster_rank(), thread = threadIdx.x;
  for (int i = thread; i < 1024; i += blockDim.x) reinterpret_cast<u32*>(smem)[i] = 0xAAAA0000 + i;
  if (thread == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  cluster_arrive();
  cluster_wait();
  if (thread == 0) {
    mbarrier_expect(full, 3 * 1024);  // every block is left out of one of the four masks
    const u16 mask = static_cast<u16>(0xF & ~(1u << (rank + 1) % 4));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(
            base + rank * 1024), "l"(&map), "r"(full), "r"(0), "r"(static_cast<int>(blockIdx.x) * 8), "h"(mask) : "memory");
  }
  mbarrier_wait(full, 0);
  for (int i = thread; i < 1024; i += blockDim.x) out[blockIdx.x * 1024 + i] = reinterpret_cast<const u32*>(smem)[i];
  cluster_arrive();
  cluster_wait();
}
