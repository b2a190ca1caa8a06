// A product whose K is split over blocks that add their parts in order: each waits for the one before it, through global memory.
#include "device.cuh"

extern "C" __global__ void split_k_semaphore(const float* a, const float* b, float* c, int* turns, int n, int k, int part) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y;
  const int turn = gridDim.z - 1 - blockIdx.z;  // the last block of the grid comes first
  float sum = 0;
  for (int i = turn * part; i < min(k, (turn + 1) * part); ++i) sum = __fmaf_rn(a[row * k + i], b[i * n + column], sum);
  int* semaphore = &turns[blockIdx.y * gridDim.x + blockIdx.x];
  if (threadIdx.x == 0) {
    int seen;
    do {
      asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory");
    } while (seen != turn);
  }
  __syncthreads();
  if (turn > 0) sum += __ldcg(&c[row * n + column]);
  c[row * n + column] = sum;
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(semaphore) : "memory");
}
