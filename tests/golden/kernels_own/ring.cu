// A warp-specialised product: one warp loads by TMA into a ring of three slots, a warpgroup multiplies; the ring wraps four times.
#include "device.cuh"

constexpr int STAGES = 3, STAGE_BYTES = 8192 + 4096;  // A 64 x 64, B 32 x 64, bf16, swizzle 128B

__device__ __forceinline__ void wgmma(float (&d)[16], u64 a, u64 b, int scale) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(scale));
}

extern "C" __global__ void __launch_bounds__(256, 2) ring(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float* c, int k_tiles) {
  extern __shared__ __align__(1024) u8 smem[];
  __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
  const u32 base = shared_address(smem);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbarrier_init(shared_address(&full[i]), 1);
      mbarrier_init(shared_address(&empty[i]), 128);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {  // the producer's warpgroup gives registers back
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128) {
      for (int i = 0; i < k_tiles; ++i) {
        const int slot = i % STAGES;
        mbarrier_wait(shared_address(&empty[slot]), i / STAGES + 1 & 1);
        mbarrier_expect(shared_address(&full[slot]), STAGE_BYTES);
        tma_load_2d(base + slot * STAGE_BYTES, &a_map, shared_address(&full[slot]), i * 64, blockIdx.x * 64);
        tma_load_2d(base + slot * STAGE_BYTES + 8192, &b_map, shared_address(&full[slot]), i * 64, blockIdx.y * 32);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
  float d[16];
  for (int i = 0; i < k_tiles; ++i) {
    const int slot = i % STAGES;
    mbarrier_wait(shared_address(&full[slot]), i / STAGES & 1);
    const u32 a = base + slot * STAGE_BYTES, b = a + 8192;
    wgmma_fence();
    for (int k = 0; k < 4; ++k) wgmma(d, descriptor(a + 32 * k, 16, 1024, 1), descriptor(b + 32 * k, 16, 1024, 1), i + k);
    wgmma_commit();
    wgmma_wait<0>();
    mbarrier_arrive(shared_address(&empty[slot]));
  }
  const int row = blockIdx.x * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = blockIdx.y * 32 + threadIdx.x % 4 * 2;
  for (int i = 0; i < 16; ++i) c[(row + i / 2 % 2 * 8) * gridDim.y * 32 + column + i / 4 * 8 + i % 2] = d[i];
}
