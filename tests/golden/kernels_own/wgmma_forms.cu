// wgmma with A in registers and by descriptor, transposed operands, negations, a cleared accumulator, and two groups under way.
#include "device.cuh"

struct Sums { float d[8]; };

#define D8(s) "+f"((s).d[0]), "+f"((s).d[1]), "+f"((s).d[2]), "+f"((s).d[3]), "+f"((s).d[4]), "+f"((s).d[5]), "+f"((s).d[6]), "+f"((s).d[7])
#define WGMMA "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "

extern "C" __global__ void wgmma_forms(const u32* in, const u32* registers, float* out) {
  extern __shared__ __align__(1024) u32 smem[];
  const u32 thread = threadIdx.x;
  for (int i = thread; i < 1024; i += 128) smem[i] = in[i];
  u32 a[4];
  for (int i = 0; i < 4; ++i) a[i] = registers[thread * 4 + i];
  fence_proxy_async();
  __syncthreads();
  const u32 base = shared_address(smem);
  const u64 a_rows = descriptor(base, 128, 256, 0);         // 64 x 16, K-major: core matrices 128 bytes apart along k
  const u64 a_columns = descriptor(base, 1024, 1024, 1);    // 16 x 64, MN-major, swizzle 128B
  const u64 b_rows = descriptor(base + 2048, 128, 256, 0);  // 16 x 16, K-major
  const u64 b_columns = descriptor(base + 3072, 512, 256, 3);  // 16 x 16, MN-major, swizzle 32B
  Sums plain{}, cleared, negated{}, both{}, in_registers{};
  for (int i = 0; i < 8; ++i) cleared.d[i] = plain.d[i] = negated.d[i] = both.d[i] = in_registers.d[i] = i;
  wgmma_fence();
  asm volatile(WGMMA "%8, %9, 1, 1, 1, 0, 0;" : D8(plain) : "l"(a_rows), "l"(b_rows));
  asm volatile(WGMMA "%8, %9, 0, 1, 1, 0, 0;" : D8(cleared) : "l"(a_rows), "l"(b_rows));
  asm volatile(WGMMA "%8, %9, 1, -1, 1, 0, 1;" : D8(negated) : "l"(a_rows), "l"(b_columns));
  wgmma_commit();
  asm volatile(WGMMA "%8, %9, 1, 1, -1, 1, 1;" : D8(both) : "l"(a_columns), "l"(b_columns));
  asm volatile(WGMMA "{%8, %9, %10, %11}, %12, 1, -1, -1, 1;"
               : D8(in_registers) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_columns));
  wgmma_commit();
  wgmma_wait<1>();  // the first three
  for (int i = 0; i < 8; ++i) {
    out[thread * 8 + i] = plain.d[i];
    out[1024 + thread * 8 + i] = cleared.d[i];
    out[2048 + thread * 8 + i] = negated.d[i];
  }
  wgmma_wait<0>();
  for (int i = 0; i < 8; ++i) {
    out[3072 + thread * 8 + i] = both.d[i];
    out[4096 + thread * 8 + i] = in_registers.d[i];
  }
}
