// wgmma of the other types: tf32, 8-bit floats and integers, bits, and sums in f16.
#include "device.cuh"

#define D4(d) "+r"((d)[0]), "+r"((d)[1]), "+r"((d)[2]), "+r"((d)[3])
#define WGMMA(form, tail, d, b) \
  asm volatile("wgmma.mma_async.sync.aligned." form " {%0, %1, %2, %3}, %4, %5, 1" tail ";" : D4(d) : "l"(a), "l"(b))

extern "C" __global__ void wgmma_types(const u32* bytes, const u32* floats, const u32* halves, u32* out) {
  extern __shared__ __align__(1024) u32 smem[];
  const u32 thread = threadIdx.x;
  const u32* sources[3] = {bytes, floats, halves};
  for (int part = 0; part < 3; ++part) {
    for (int i = thread; i < 576; i += 128) smem[part * 576 + i] = sources[part][i];
  }
  fence_proxy_async();
  __syncthreads();
  const u32 base = shared_address(smem);
  u32 d[8][4];
  for (int i = 0; i < 32; ++i) d[i / 4][i % 4] = 0;
  wgmma_fence();
  {
    const u64 a = descriptor(base, 128, 256, 0), b = descriptor(base + 2048, 128, 256, 0);  // 64 and 8 rows of 32 bytes
    WGMMA("m64n8k32.f32.e4m3.e4m3", ", 1, 1", d[0], b);
    WGMMA("m64n8k32.f32.e5m2.e4m3", ", -1, 1", d[1], b);
    WGMMA("m64n8k32.s32.s8.s8", "", d[2], b);
    WGMMA("m64n8k32.s32.u8.s8.satfinite", "", d[3], b);
    WGMMA("m64n8k256.s32.b1.b1.and.popc", "", d[4], b);
  }
  {
    const u64 a = descriptor(base + 2304, 128, 256, 0), b = descriptor(base + 2304 + 2048, 128, 256, 0);
    WGMMA("m64n8k8.f32.tf32.tf32", ", 1, 1", d[5], b);
  }
  {
    const u64 a = descriptor(base + 4608, 128, 256, 0), b = descriptor(base + 4608 + 2048, 128, 256, 0);
    WGMMA("m64n8k16.f32.bf16.bf16", ", 1, 1, 0, 0", d[6], b);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, %2, %3, 1, 1, 1, 0, 0;" : "+r"(d[7][0]), "+r"(d[7][1]) : "l"(a), "l"(b));
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) out[i * 128 + thread] = d[i / 4][i % 4];
}
