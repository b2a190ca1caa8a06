// Instructions on bits that C++ rarely writes: fields, permutes, three-way logic, funnel shifts, dot products of bytes, carries.
#include "device.cuh"

#define OP3(form) asm volatile(form " %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); store(r)
#define OP2(form) asm volatile(form " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); store(r)
#define OP1(form) asm volatile(form " %0, %1;" : "=r"(r) : "r"(a)); store(r)

extern "C" __global__ void bit_fields(const u32* in, u32* out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const u32 a = in[i], b = in[threads + i], c = in[2 * threads + i];
  u32 r, row = 0;
  const auto store = [&](u32 value) { out[row++ * threads + i] = value; };
  OP3("bfe.u32"); OP3("bfe.s32"); OP3("prmt.b32"); OP3("prmt.b32.f4e"); OP3("prmt.b32.rc16"); OP3("prmt.b32.ecl");
  OP3("shf.l.wrap.b32"); OP3("shf.r.clamp.b32"); OP3("dp4a.s32.s32"); OP3("dp4a.u32.s32"); OP3("dp2a.lo.s32.u32"); OP3("dp2a.hi.u32.u32");
  OP3("sad.s32"); OP3("sad.u32"); OP3("mad24.lo.s32"); OP3("mad.hi.u32"); OP3("mad.lo.s32"); OP3("slct.u32.s32");
  OP2("mul24.hi.u32"); OP2("mul.hi.s32"); OP2("min.s32"); OP2("rem.s32"); OP2("div.u32"); OP2("bmsk.clamp.b32"); OP2("szext.wrap.s32");
  OP2("shl.b32"); OP2("shr.s32"); OP2("add.sat.s32"); OP2("sub.sat.s32"); OP2("min.s16x2"); OP2("add.u16x2");
  OP1("brev.b32"); OP1("popc.b32"); OP1("clz.b32"); OP1("bfind.u32"); OP1("bfind.s32"); OP1("bfind.shiftamt.u32"); OP1("cnot.b32"); OP1("abs.s32");
  asm volatile("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); store(r);
  asm volatile("lop3.b32 %0, %1, %2, %3, 0x1D;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); store(r);
  asm volatile("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "r"(a >> 27)); store(r);
  asm volatile("fns.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b & 31), "r"(static_cast<int>(c & 7) - 3)); store(r);
  const u64 x = u64(a) << 32 | b, y = u64(b) << 32 | c;
  u64 w;
  asm volatile("bfe.s64 %0, %1, %2, %3;" : "=l"(w) : "l"(x), "r"(b), "r"(c)); store(static_cast<u32>(w >> 32)); store(static_cast<u32>(w));
  asm volatile("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(w) : "l"(x), "l"(y), "r"(c & 63), "r"(a & 63)); store(static_cast<u32>(w >> 32)); store(static_cast<u32>(w));
  asm volatile("mul.hi.u64 %0, %1, %2;" : "=l"(w) : "l"(x), "l"(y)); store(static_cast<u32>(w >> 32)); store(static_cast<u32>(w));
  store(__clzll(x)); store(__popcll(y)); store(static_cast<u32>(__brevll(x))); store(__ffs(a)); store(static_cast<u32>(x / (y | 1))); store(static_cast<u32>(static_cast<long long>(x) % static_cast<long long>(y | 3)));
  u32 s0, s1, s2;  // 96-bit sum, difference and product
  asm volatile("add.cc.u32 %0, %3, %4; addc.cc.u32 %1, %4, %5; addc.u32 %2, %3, %5;" : "=&r"(s0), "=&r"(s1), "=&r"(s2) : "r"(a), "r"(b), "r"(c));
  store(s0); store(s1); store(s2);
  asm volatile("sub.cc.u32 %0, %3, %4; subc.cc.u32 %1, %4, %5; subc.u32 %2, %3, %5;" : "=&r"(s0), "=&r"(s1), "=&r"(s2) : "r"(a), "r"(b), "r"(c));
  store(s0); store(s1); store(s2);
  asm volatile("mad.lo.cc.u32 %0, %3, %4, %5; madc.hi.cc.u32 %1, %3, %4, %5; addc.u32 %2, 0, 0;" : "=&r"(s0), "=&r"(s1), "=&r"(s2) : "r"(a), "r"(b), "r"(c));
  store(s0); store(s1); store(s2);
}
