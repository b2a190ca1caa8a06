// Warps of a block that pass work on through flags in shared memory, polling with pauses.
#include "device.cuh"

extern "C" __global__ void flags(const u32* in, u32* out, int rounds) {
  __shared__ u32 box[4][32];
  __shared__ u32 flag[4];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) flag[warp] = 0;
  __syncthreads();
  u32 value = in[threadIdx.x];
  for (int round = 1; round <= rounds; ++round) {  // a relay: 0, 1, 2, 3, and round again
    const u32 before = (warp + 3) % 4, expected = warp == 0 ? round - 1 : round;
    if (lane == 0) {
      u32 seen;
      while (true) {
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(shared_address(&flag[before])) : "memory");
        if (seen >= expected) break;
        __nanosleep(100);
      }
    }
    __syncwarp();
    value = value * 5 + (round > 1 || warp > 0 ? box[before][31 - lane] : 0);
    box[warp][lane] = value;
    __syncwarp();
    if (lane == 0) asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(&flag[warp])), "r"(round) : "memory");
  }
  out[threadIdx.x] = value;
}
