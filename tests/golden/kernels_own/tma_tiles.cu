// Tensor copies: two- and three-dimensional loads over the edge of a tensor, cache hints, prefetch, a store and a reduction.
#include "device.cuh"

extern "C" __global__ void tma_tiles(
    const __grid_constant__ TensorMap source, const __grid_constant__ TensorMap volume, const __grid_constant__ TensorMap target,
    const __grid_constant__ TensorMap sums, u32* out) {
  extern __shared__ __align__(1024) u8 smem[];
  __shared__ alignas(8) u64 barrier;
  const u32 tile = shared_address(smem), cube = tile + 4096, full = shared_address(&barrier), thread = threadIdx.x;
  if (thread == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&source) : "memory");
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&source), "r"(0), "r"(0) : "memory");
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int column = blockIdx.x * 32 - 8, row = blockIdx.y * 32 - 5;  // the first tiles begin before the tensor
  if (thread == 0) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    mbarrier_expect(full, 4096 + 2048);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(tile),
        "l"(&source), "r"(full), "r"(column), "r"(row), "l"(policy) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(cube),
        "l"(&volume), "r"(full), "r"(8), "r"(3), "r"(static_cast<int>(blockIdx.x) - 1) : "memory");
  }
  mbarrier_wait(full, 0);
  const u32 block = blockIdx.y * gridDim.x + blockIdx.x;
  const u32* words = reinterpret_cast<const u32*>(smem);
  for (int i = thread; i < 1536; i += blockDim.x) out[block * 1536 + i] = words[i];
  for (int i = thread; i < 1024; i += blockDim.x) {
    float* at = reinterpret_cast<float*>(smem) + i;
    *at = *at * 2 + 1;  // in place: the order of a swizzled tile does not matter here
  }
  fence_proxy_async();
  __syncthreads();
  if (thread == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&target), "r"(tile),
                 "r"(blockIdx.x * 32), "r"(blockIdx.y * 32) : "memory");
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&sums), "r"(tile),
                 "r"(0), "r"(blockIdx.y * 8) : "memory");
    bulk_commit();
    bulk_wait_read();
  }
}
