// mma.sync of many types: registers come straight from memory, so a block is one instruction a type.
#include "device.cuh"

#define MMA_4_2_4(form, a, c, d)                                                                                              \
  asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"               \
               : "=r"((d)[0]), "=r"((d)[1]), "=r"((d)[2]), "=r"((d)[3])                                                       \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((a)[4]), "r"((a)[5]), "r"((c)[0]), "r"((c)[1]), "r"((c)[2]), \
                 "r"((c)[3]))

#define MMA_4_2_2(form, a, c, d)                                                                             \
  asm volatile("mma.sync.aligned." form " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"                   \
               : "=r"((d)[0]), "=r"((d)[1])                                                                  \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((a)[4]), "r"((a)[5]), "r"((c)[0]), "r"((c)[1]))

#define MMA_2_1_4(form, a, c, d)                                                                             \
  asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"              \
               : "=r"((d)[0]), "=r"((d)[1]), "=r"((d)[2]), "=r"((d)[3])                                      \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[4]), "r"((c)[0]), "r"((c)[1]), "r"((c)[2]), "r"((c)[3]))

// 6 words of A and B and 4 of C for every lane; 4 of D
extern "C" __global__ void mma_types(const u32* halves, const u32* bfloats, const u32* floats, const u32* bytes, const double* doubles, u32* out) {
  const u32 lane = threadIdx.x;
  u32* d = out + lane * 4;
  const u32 *h = halves + lane * 6, *b = bfloats + lane * 6, *f = floats + lane * 6, *s = bytes + lane * 6, *c = floats + 192 + lane * 4;
  MMA_4_2_4("m16n8k16.row.col.f32.f16.f16.f32", h, c, d);
  MMA_4_2_2("m16n8k16.row.col.f16.f16.f16.f16", h, h, d + 128);
  MMA_2_1_4("m16n8k8.row.col.f32.f16.f16.f32", h, c, d + 256);
  MMA_4_2_4("m16n8k16.row.col.f32.bf16.bf16.f32", b, c, d + 384);
  MMA_2_1_4("m16n8k8.row.col.f32.bf16.bf16.f32", b, c, d + 512);
  MMA_4_2_4("m16n8k8.row.col.f32.tf32.tf32.f32", f, c, d + 640);
  MMA_2_1_4("m16n8k4.row.col.f32.tf32.tf32.f32", f, c, d + 768);
  MMA_4_2_4("m16n8k32.row.col.s32.s8.s8.s32", s, s, d + 896);
  MMA_4_2_4("m16n8k32.row.col.satfinite.s32.u8.s8.s32", s, s, d + 1024);
  MMA_2_1_4("m16n8k16.row.col.s32.s8.u8.s32", s, s, d + 1152);
  MMA_4_2_4("m16n8k64.row.col.s32.s4.u4.s32", s, s, d + 1280);
  MMA_4_2_4("m16n8k256.row.col.s32.b1.b1.s32.xor.popc", s, s, d + 1408);
  MMA_4_2_4("m16n8k256.row.col.s32.b1.b1.s32.and.popc", s, s, d + 1536);
  const double* w = doubles + lane * 4;
  double e[2];
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
               : "=d"(e[0]), "=d"(e[1]) : "d"(w[0]), "d"(w[1]), "d"(w[2]), "d"(w[3]));
  *reinterpret_cast<double2*>(d + 1664) = make_double2(e[0], e[1]);
}
