// Votes, matches and reductions over the lanes of a warp, whole and in parts.
#include "device.cuh"

extern "C" __global__ void votes(const int* in, u32* out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, threads = gridDim.x * blockDim.x;
  const int x = in[i];
  u32 row = 0;
  const auto store = [&](u32 value) { out[row++ * threads + i] = value; };
  store(__ballot_sync(~0u, x & 1));
  store(__any_sync(~0u, x == 7));
  store(__all_sync(~0u, x > -100));
  store(__uni_sync(~0u, x > 0));
  store(__activemask());
  store(__match_any_sync(~0u, x & 7));
  store(__match_any_sync(~0u, static_cast<u64>(x & 3) << 40));
  int same;
  store(__match_all_sync(~0u, lane / 64, &same));
  store(same);
  store(__match_all_sync(~0u, x, &same));
  store(same);
  store(__reduce_add_sync(~0u, x));
  store(__reduce_min_sync(~0u, x));
  store(__reduce_max_sync(~0u, x));
  store(__reduce_add_sync(~0u, static_cast<u32>(x)));
  store(__reduce_min_sync(~0u, static_cast<u32>(x)));
  store(__reduce_max_sync(~0u, static_cast<u32>(x)));
  store(__reduce_and_sync(~0u, x | 0x10u));
  store(__reduce_or_sync(~0u, x & 0xF0u));
  store(__reduce_xor_sync(~0u, static_cast<u32>(x)));
  u32 elected, leader;
  asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p; }" : "=r"(leader), "=r"(elected) : "r"(~0u));
  store(elected);
  store(leader);
  const u32 odd = __ballot_sync(~0u, x & 1);
  if (x & 1) {  // masks that differ from warp to warp
    store(__reduce_add_sync(odd, x));
    store(__ballot_sync(odd, x > 50));
    __syncwarp(odd);
  } else {
    store(__reduce_max_sync(~odd, x));
    store(__match_any_sync(~odd, x & 6));
  }
}
