// Forms of atom and red that C++ does not write: orders and scopes, vectors, 128 bits, shared memory by name.
#include "device.cuh"

extern "C" __global__ void atomics_forms(const float* in, float* sums, u64* wide, u32* out) {
  __shared__ u32 counter;
  __shared__ u64 longs[2];
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = in[i];
  if (threadIdx.x == 0) counter = 0;
  if (threadIdx.x < 2) longs[threadIdx.x] = 5;
  __syncthreads();
  const float* at = sums + i % 4 * 4;
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x), "f"(2 * x), "f"(1.0f), "f"(-x) : "memory");
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(sums + 16), "f"(x), "f"(3.0f) : "memory");
  asm volatile("red.release.gpu.global.add.noftz.v2.f16x2 [%0], {%1, %1};" ::"l"(sums + 20), "r"(0x3C003C00) : "memory");
  asm volatile("red.release.cta.shared.add.u32 [%0], %1;" ::"r"(shared_address(&counter)), "r"(i) : "memory");
  asm volatile("red.shared.max.u64 [%0], %1;" ::"r"(shared_address(&longs[0])), "l"(u64(i) << 33) : "memory");
  asm volatile("red.shared.inc.u32 [%0], %1;" ::"r"(shared_address(&longs[1])), "r"(1000) : "memory");
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(out + i), "r"(i) : "memory");
  asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(out + i), "r"(i), "r"(old + 1) : "memory");
  asm volatile(
      "{ .reg .b128 a, b, c; mov.b128 b, {%2, %3}; mov.b128 c, {%5, %5};\n"
      "atom.global.cas.b128 a, [%4], b, c; mov.b128 {%0, %1}, a; }"
      : "=l"(wide[4 * i + 2]), "=l"(wide[4 * i + 3]) : "l"(u64(0)), "l"(u64(i % 2)), "l"(wide + 4 * i), "l"(u64(i) * 3 + 1) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    out[gridDim.x * blockDim.x + 4 * blockIdx.x] = counter;
    out[gridDim.x * blockDim.x + 4 * blockIdx.x + 1] = static_cast<u32>(longs[0] >> 32);
    out[gridDim.x * blockDim.x + 4 * blockIdx.x + 2] = static_cast<u32>(longs[1]);
  }
}
