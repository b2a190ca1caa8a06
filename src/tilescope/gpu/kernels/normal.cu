// Normal random numbers, as the elements of a matrix: what a benchmark multiplies. Zeros would take less power.

// Two independent normal numbers of a seed and a place (Box-Muller), the first of them.
__device__ float normal_number(unsigned long long seed, unsigned long long place) {
  unsigned long long h = seed * 0x9E3779B97F4A7C15ull + place * 0xD1342543DE82EF95ull + 1;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  h ^= h >> 32;
  const float radius = static_cast<float>((h >> 40) + 1) / 16777217.0f, angle = static_cast<float>(h & 0xFFFFFF) / 16777216.0f;
  return sqrtf(-2.0f * logf(radius)) * cospif(2.0f * angle);
}

__device__ unsigned bits_of(float value, int type) {
  unsigned short half = 0;
  switch (type) {
    case 0: asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value)); return half;
    case 1: asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value)); return half;
    case 2: return __float_as_uint(value) & 0xFFFFE000u;  // tf32
    case 3: asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(half) : "f"(0.0f), "f"(value)); return half;
    case 4: asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(half) : "f"(0.0f), "f"(value)); return half;
    default: return static_cast<unsigned char>(static_cast<signed char>(fminf(fmaxf(rintf(value * 32.0f), -127.0f), 127.0f)));
  }
}

// `type`: bf16, f16, tf32, e4m3, e5m2, s8; `words` of 32 bits are written, with one, two or four elements each.
extern "C" __global__ void fill_normal(unsigned* memory, unsigned long long words, int type, int bits, unsigned long long seed) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  const int elements = 32 / bits;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < words; i += step) {
    unsigned word = 0;
    for (int j = 0; j < elements; ++j) {
      word |= bits_of(normal_number(seed, i * elements + j), type) << (j * bits % 32);
    }
    memory[i] = word;
  }
}
