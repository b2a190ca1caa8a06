// mma.sync of 8-bit floats with f32 sums, all pairs of types.
#include "device.cuh"

#define MMA(form, row)                                                                                                          \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." form ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])); \
  for (int i = 0; i < 4; ++i) out[(row) * 128 + lane * 4 + i] = d[i]

extern "C" __global__ void mma_fp8(const u32* operands, const float* sums, float* out) {
  const u32 lane = threadIdx.x;
  const u32* a = operands + lane * 6;
  const float* c = sums + lane * 4;
  float d[4];
  MMA("e4m3.e4m3", 0);
  MMA("e5m2.e5m2", 1);
  MMA("e4m3.e5m2", 2);
  MMA("e5m2.e4m3", 3);
}
