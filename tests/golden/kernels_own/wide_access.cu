// Loads and stores of 1 to 16 bytes, vectors, cache operators, and a 128-bit register.
#include "device.cuh"

struct alignas(8) Record { short a; char b; u32 c; u64 d; };

extern "C" __global__ void wide_access(const u8* in, u8* out, const Record* records) {
  __shared__ alignas(16) uint4 rows[64];
  const u32 thread = threadIdx.x;
  const u8* at = in + thread * 64;
  u8* to = out + thread * 128;
  const uint4 v4 = *reinterpret_cast<const uint4*>(at);
  const ulonglong2 l2 = __ldg(reinterpret_cast<const ulonglong2*>(at + 16));
  const short4 s4 = __ldcs(reinterpret_cast<const short4*>(at + 32));
  const char2 c2 = __ldcg(reinterpret_cast<const char2*>(at + 40));
  const double d = __ldlu(reinterpret_cast<const double*>(at + 48));
  const volatile u16* v16 = reinterpret_cast<const volatile u16*>(at + 56);
  rows[63 - thread] = make_uint4(v4.w, v4.z, v4.y, v4.x);
  __syncthreads();
  *reinterpret_cast<uint4*>(to) = rows[(thread * 3) % 64];
  __stwt(reinterpret_cast<ulonglong2*>(to + 16), make_ulonglong2(l2.y, l2.x));
  __stcs(reinterpret_cast<short2*>(to + 32), make_short2(s4.w + s4.x, s4.y - s4.z));
  to[36] = c2.y;
  *reinterpret_cast<volatile char*>(to + 37) = static_cast<char>(c2.x >> 1);  // signed
  *reinterpret_cast<u16*>(to + 38) = v16[0] ^ v16[1];
  __stcg(reinterpret_cast<double*>(to + 40), d);
  u64 low, high;
  asm volatile("{ .reg .b128 q; ld.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }" : "=l"(low), "=l"(high) : "l"(at) : "memory");
  asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2}; st.global.b128 [%0], q; }" ::"l"(to + 48), "l"(high), "l"(low) : "memory");
  u32 a, b, c, e;
  asm volatile("ld.global.v4.u8 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(e) : "l"(at + 44) : "memory");
  asm volatile("st.global.v2.b16 [%0], {%1, %2};" ::"l"(to + 64), "h"(static_cast<u16>(a * 256 + b)), "h"(static_cast<u16>(c * 256 + e)) : "memory");
  asm volatile("ld.global.L1::no_allocate.L2::128B.v2.s32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(at + 8) : "memory");
  asm volatile("st.global.L1::evict_first.b32 [%0], %1;" ::"l"(to + 68), "r"(a - b) : "memory");
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(c) : "l"(at + 4) : "memory");
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(e) : "l"(at + 12) : "memory");
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to + 72), "r"(c * 3 + e) : "memory");
  int s8;
  asm volatile("ld.global.s8 %0, [%1];" : "=r"(s8) : "l"(at + 3) : "memory");
  const Record record = records[thread];
  *reinterpret_cast<int*>(to + 76) = s8;
  *reinterpret_cast<Record*>(to + 80) = Record{static_cast<short>(record.a * 2), static_cast<char>(record.b - 1), record.c ^ 1, ~record.d};
}
