// Named barriers: parts of a block that wait for each other, producers that only arrive, and reductions over the arriving threads.
#include "device.cuh"

extern "C" __global__ void named_barriers(const u32* in, u32* out) {
  __shared__ u32 values[64], last[128];
  const u32 thread = threadIdx.x, warp = thread / 32, x = in[blockIdx.x * 128 + thread];
  u32 count, all, any;
  asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 100; barrier.red.popc.u32 %0, 0, p; }" : "=r"(count) : "r"(x) : "memory");
  asm volatile("{ .reg .pred p, q; setp.gt.u32 p, %1, 2; bar.red.and.pred q, 1, 128, p; selp.u32 %0, 1, 0, q; }" : "=r"(all) : "r"(x) : "memory");
  asm volatile("{ .reg .pred p, q; setp.gt.u32 p, %1, 250; bar.red.or.pred q, 2, 128, !p; selp.u32 %0, 1, 0, q; }" : "=r"(any) : "r"(x) : "memory");
  const u32 by_c = __syncthreads_count(x & 1) + __syncthreads_and(x < 256) * 1000 + __syncthreads_or(x == 3) * 10000;
  for (int round = 0; round < 3; ++round) {
    if (warp < 2) {  // producers: they go on at once
      asm volatile("barrier.sync 5, 128;" ::: "memory");  // the values of the last round were read
      values[thread] = x + round;
      asm volatile("bar.arrive 4, 128;" ::: "memory");
    } else {  // consumers
      asm volatile("barrier.arrive 5, 128;" ::: "memory");
      asm volatile("bar.sync 4, 128;" ::: "memory");
      count = count * 3 + values[(thread * 5 + round) % 64];
      asm volatile("bar.sync 6, 64;" ::: "memory");
    }
  }
  const u32 number = 8 + warp / 2;  // a barrier named by a register
  last[thread] = x;
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(64) : "memory");
  out[blockIdx.x * 128 + thread] = count * 7 + all * 2 + any + by_c + last[thread ^ 63];
}
