// A convolution's window gathered by TMA: two offsets of an im2col load, and a store of what was gathered.
#include "device.cuh"

extern "C" __global__ void im2col(const __grid_constant__ TensorMap image, u32* out) {
  extern __shared__ __align__(1024) u8 smem[];
  __shared__ alignas(8) u64 barrier;
  const u32 full = shared_address(&barrier), tile = shared_address(smem), thread = threadIdx.x;
  if (thread == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int tap = 0; tap < 4; ++tap) {
    if (thread == 0) {
      const u16 right = tap % 2, down = tap / 2 * 2;
      mbarrier_expect(full, 2048);
      asm volatile(
          "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
          " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(tile), "l"(&image), "r"(full), "r"(0),
          "r"(static_cast<int>(blockIdx.x * 3) - 1), "r"(2), "r"(0), "h"(right), "h"(down) : "memory");
    }
    mbarrier_wait(full, tap & 1);
    for (int i = thread; i < 512; i += blockDim.x) {
      out[(blockIdx.x * 4 + tap) * 512 + i] = reinterpret_cast<const u32*>(smem)[i];
    }
    __syncthreads();  // everybody has read before the next copy lands
  }
}
