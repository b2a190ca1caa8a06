#include <cassert>
#include <cstdio>

__constant__ float table[5] = {1.5f, -2.0f, 3.25f};
__device__ const char* names[2] = {"alpha", "beta"};
__device__ int matrix[2][3] = {{1, 2}, {3}};
__device__ int* pointer = &matrix[1][1];
__device__ double half = 0.5;
struct __attribute__((packed)) Packed {
  char first;
  int* second;
};
__device__ Packed packed = {7, &matrix[0][1]};

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ int (*functions[2])(int) = {fibonacci, fibonacci};

__device__ __forceinline__ float scaled(float value, int n) { return value * table[n]; }
__device__ __forceinline__ float twice_scaled(float value, int n) {
  float once = scaled(value, n);
  return scaled(once, n + 1);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 2)
    calls(int* out, float* values, int n, float4 by_value) {
  __shared__ int tile[64][2];
  int local[8];
  for (int i = 0; i < 8; i++) local[i] = out[i] * n;
  switch (n) {
    case 0: asm volatile("mov.u32 %0, 10;" : "=r"(local[1])); break;
    case 1: asm volatile("mov.u32 %0, 11;" : "=r"(local[2])); break;
    case 2: asm volatile("mov.u32 %0, 12;" : "=r"(local[0])); break;
    case 3: printf("three %d\n", n); break;
    case 4: asm volatile("mov.u32 %0, 14;" : "=r"(local[3])); break;
    case 5: asm volatile("mov.u32 %0, 15;" : "=r"(local[4])); break;
    case 6: asm volatile("mov.u32 %0, 16;" : "=r"(local[5])); break;
    case 7: asm volatile("mov.u32 %0, 17;" : "=r"(local[6])); break;
    default: assert(n < 3);
  }
  tile[threadIdx.x % 64][0] = local[n & 7] + fibonacci(n);
  __syncthreads();
  values[threadIdx.x] = twice_scaled(values[threadIdx.x], n) + by_value.y;
  if (n == 77) out[9] = functions[n & 1](n);
  out[5] = names[n % 2][0] + *pointer + *packed.second + (int)half;
  out[threadIdx.x] = tile[n & 63][0];
  if (n == 9) __trap();
}
