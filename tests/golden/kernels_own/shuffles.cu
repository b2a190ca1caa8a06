// shfl.sync in all directions, widths and masks, with its predicate; 64-bit and half values too.
#include <cuda_fp16.h>

#include "device.cuh"

__device__ __forceinline__ u32 shuffled(u32 value, u32 lane, u32 bounds, u32 mask, u32* in_range) {
  u32 result;
  asm volatile(
      "{ .reg .pred p; shfl.sync.idx.b32 %0|p, %2, %3, %4, %5; selp.u32 %1, 1, 0, p; }"
      : "=r"(result), "=r"(*in_range) : "r"(value), "r"(lane), "r"(bounds), "r"(mask));
  return result;
}

__device__ __forceinline__ u32 shuffled_up(u32 value, u32 delta, u32 bounds, u32* in_range) {
  u32 result;
  asm volatile(
      "{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, %3, %4, -1; selp.u32 %1, 1, 0, p; }"
      : "=r"(result), "=r"(*in_range) : "r"(value), "r"(delta), "r"(bounds));
  return result;
}

extern "C" __global__ void shuffles(const u32* in, u32* out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, threads = gridDim.x * blockDim.x;
  const u32 x = in[i];
  u32 row = 0;
  const auto store = [&](u32 value) { out[row++ * threads + i] = value; };
  for (int width = 4; width <= 32; width *= 2) {
    store(__shfl_sync(~0u, x, lane * 7 + 3, width));
    store(__shfl_up_sync(~0u, x, 3, width));
    store(__shfl_down_sync(~0u, x, 5, width));
    store(__shfl_xor_sync(~0u, x, 6, width));
  }
  u32 in_range;
  store(shuffled(x, x, 0x1F, ~0u, &in_range));
  store(in_range);
  store(shuffled(x, lane + 9, 0x180F, ~0u, &in_range));  // groups of 8 lanes, the last 16 of them cut off
  store(in_range);
  store(shuffled_up(x, x & 7, 0, &in_range));
  store(in_range);
  if (lane < 20) store(__shfl_sync(0xFFFFF, x, 19 - lane) + __shfl_down_sync(0xFFFFF, x, 1));
  if (lane % 3 == 1) store(__shfl_xor_sync(0x92492492, x, 0) ^ __shfl_sync(0x92492492, x, 7));
  const double wide = __shfl_xor_sync(~0u, x * 1.5, 16);
  store(__double2hiint(wide));
  store(__double2loint(wide));
  const __half2 halves = __shfl_down_sync(~0u, __floats2half2_rn(x & 255, lane), 8);
  store(static_cast<u32>(__half2float(halves.x) * 64 + __half2float(halves.y)));
}
