// Every atomic operation on global memory: sums that many threads make, and old values where a word has one thread.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device.cuh"

extern "C" __global__ void atomics_global(const u32* in, u32* words, u64* longs, u32* old, u64* old_longs) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 x = in[i];
  const int slot = i % 8;
  atomicAdd(&words[slot], x);  // many threads a word: the order does not matter
  atomicSub(&words[8 + slot], x);
  atomicMin(&words[16 + slot], x);
  atomicMax(&words[24 + slot], x);
  atomicMin(reinterpret_cast<int*>(&words[32 + slot]), static_cast<int>(x));
  atomicMax(reinterpret_cast<int*>(&words[40 + slot]), static_cast<int>(x));
  atomicAnd(&words[48 + slot], x | 0xF0F);
  atomicOr(&words[56 + slot], x & 0xFF00FF);
  atomicXor(&words[64 + slot], x);
  atomicInc(&words[72 + slot], 9);
  atomicDec(&words[80 + slot], 5);
  atomicAdd(reinterpret_cast<float*>(&words[88 + slot]), static_cast<float>(x & 1023));  // whole numbers: exact
  atomicAdd(reinterpret_cast<__half2*>(&words[96 + slot]), __floats2half2_rn(x & 3, 1));
  atomicAdd(reinterpret_cast<__nv_bfloat162*>(&words[104 + slot]), __floats2bfloat162_rn(x & 1, 1));
  atomicAdd(reinterpret_cast<__half*>(&words[112 + slot]), __float2half(x & 7));
  atomicAdd(reinterpret_cast<__nv_bfloat16*>(&words[120 + slot]), __float2bfloat16(x & 1));
  atomicAdd(&longs[slot], static_cast<u64>(x) << 20);
  atomicMax(&longs[8 + slot], static_cast<u64>(x) << 12);
  atomicMin(reinterpret_cast<long long*>(&longs[16 + slot]), static_cast<long long>(static_cast<int>(x)) << 16);
  atomicXor(&longs[24 + slot], static_cast<u64>(x) * x);
  atomicAnd(&longs[32 + slot], ~static_cast<u64>(x & 0x11));
  atomicOr(&longs[40 + slot], static_cast<u64>(x) << 32);
  atomicAdd(reinterpret_cast<double*>(&longs[48 + slot]), x * 0.5);

  u32* mine = old + 16 * i;  // one thread a word: the old values are known
  mine[0] = atomicExch(&mine[8], x);
  mine[1] = atomicCAS(&mine[8], x, x + 1);
  mine[2] = atomicCAS(&mine[8], x, 12345);
  mine[3] = atomicInc(&mine[9], x);
  mine[4] = atomicDec(&mine[9], 3);
  mine[5] = atomicAdd(&mine[10], 7);
  mine[6] = __float_as_uint(atomicExch(reinterpret_cast<float*>(&mine[11]), 2.5f));
  mine[7] = atomicCAS(reinterpret_cast<u16*>(&mine[12]), static_cast<u16>(mine[12] & 0xFFFF), static_cast<u16>(x));
  u64* own = old_longs + 4 * i;
  own[1] = atomicCAS(&own[0], own[0], static_cast<u64>(x) << 33);
  own[2] = atomicExch(&own[0], own[0] + 5);
  own[3] = atomicAdd(&own[0], ~0ull);

  for (u32 seen = *const_cast<volatile u32*>(&words[128]), assumed = ~seen; seen != assumed;) {  // a compare-and-swap loop that many threads enter
    assumed = seen;
    seen = atomicCAS(&words[128], assumed, assumed + (x & 0xFFF));
  }
}
