// Constant and global tables with initial values, pointers among them; static and dynamic shared memory side by side; a variable that is written.
#include "device.cuh"

struct Entry { float weight; short shift; char name[6]; };

__constant__ Entry ENTRIES[4] = {{1.5f, 3, "one"}, {-2.25f, -7, "two"}, {0.0625f, 11, "three"}, {1e10f, 0, "four"}};
__constant__ u64 POWERS[5] = {1, 1000, 1000000, 1000000000, 1000000000000};
__device__ int squares[10] = {0, 1, 4, 9, 16, 25};  // the rest is zero
__device__ const int cubes[3] = {1, 8, 27};
__device__ const int* const pointers[3] = {&squares[2], cubes, &squares[5]};
__device__ double totals[2] = {0.5, -0.5};
__device__ u32 written;
__constant__ float scale;

extern "C" __global__ void tables(const u32* in, double* out, int n) {
  extern __shared__ u64 dynamic[];
  __shared__ char letters[24];
  __shared__ short shifts[4];
  const u32 thread = threadIdx.x;
  if (thread < 24) letters[thread] = ENTRIES[thread / 6].name[thread % 6];
  if (thread < 4) shifts[thread] = ENTRIES[thread].shift;
  dynamic[thread] = POWERS[in[thread] % 5] + thread;
  __syncthreads();
  const u32 x = in[thread];
  double value = dynamic[n - 1 - thread] * static_cast<double>(ENTRIES[x % 4].weight) + shifts[(x >> 4) % 4] + letters[x % 24];
  value += pointers[x % 3][x % 3 == 1 ? 2 : 3] + squares[x % 10] + totals[x & 1] + scale;
  out[thread] = value;
  if (thread == 0) written = squares[3] + 33;
  __syncthreads();
  out[n + thread] = *reinterpret_cast<volatile u32*>(&written);
}
