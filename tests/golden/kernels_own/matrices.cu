// ldmatrix, stmatrix and movmatrix: one, two and four 8x8 matrices, as they lie and transposed.
#include "device.cuh"

extern "C" __global__ void matrices(const u32* in, u32* out) {
  __shared__ alignas(16) u32 tile[256];
  __shared__ alignas(16) u32 target[6][128];
  const u32 lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) tile[i * 32 + lane] = in[i * 32 + lane];
  for (int i = 0; i < 6 * 4; ++i) (&target[0][0])[i * 32 + lane] = i;
  __syncwarp();
  const u32 at = shared_address(tile) + (lane * 5 % 32) * 16 + 256 * (lane & 1), to = shared_address(target) + lane * 16;
  u32 r[14];
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[1]), "=r"(r[2]) : "r"(at) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]) : "r"(at) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[7]) : "r"(at) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];" : "=r"(r[8]), "=r"(r[9]) : "r"(at) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]) : "r"(at) : "memory");
  u32 moved;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(r[3]));
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(to), "r"(r[0]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to + 512), "r"(r[1]), "r"(r[2]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + 1024), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(to + 1536), "r"(r[7]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to + 2048), "r"(r[8]), "r"(r[9]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + 2560), "r"(r[3]), "r"(r[11]), "r"(r[12]), "r"(r[13]) : "memory");
  __syncwarp();
  for (int i = 0; i < 14; ++i) out[i * 32 + lane] = r[i];
  out[14 * 32 + lane] = moved;
  for (int i = 0; i < 24; ++i) out[(15 + i) * 32 + lane] = (&target[0][0])[i * 32 + lane];
}
