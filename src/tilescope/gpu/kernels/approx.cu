// Approximate functions over all fractions of one sign and exponent; suites/approx_suite.py numbers the functions.
#define FUNCTION(NUMBER, OPCODE) \
  case NUMBER: asm(OPCODE " %0, %1;" : "=r"(y) : "r"(x)); break;

__device__ __forceinline__ u32 result_of(int function, u32 x) {
  u32 y = 0;
  switch (function) {
    FUNCTION(0, "rcp.approx.ftz.f32")
    FUNCTION(1, "rsqrt.approx.ftz.f32")
    FUNCTION(2, "sqrt.approx.ftz.f32")
    FUNCTION(3, "lg2.approx.ftz.f32")
    FUNCTION(4, "ex2.approx.ftz.f32")
    FUNCTION(5, "sin.approx.ftz.f32")
    FUNCTION(6, "cos.approx.ftz.f32")
    FUNCTION(7, "tanh.approx.f32")
    FUNCTION(8, "rcp.approx.f32")
    FUNCTION(9, "rsqrt.approx.f32")
    FUNCTION(10, "sqrt.approx.f32")
    FUNCTION(11, "lg2.approx.f32")
    FUNCTION(12, "ex2.approx.f32")
    FUNCTION(13, "sin.approx.f32")
    FUNCTION(14, "cos.approx.f32")
  }
  return y;
}

// 64 blocks share a case. sums[2 * c] adds y * (2 i + 1) over all fractions i, sums[2 * c + 1] adds y: a wrong sign or exponent
// of a whole case changes the second.
extern "C" __global__ void sums(const int* functions, const u32* exponents, u64* sums) {
  int number = blockIdx.x / 64;
  u32 first = exponents[number] << 23;
  u64 weighted = 0, plain = 0;
  for (u32 i = blockIdx.x % 64 * blockDim.x + threadIdx.x; i < 1u << 23; i += 64 * blockDim.x) {
    u64 y = result_of(functions[number], first | i);
    weighted += y * (2ull * i + 1);
    plain += y;
  }
  atomicAdd(&sums[2 * number], weighted);
  atomicAdd(&sums[2 * number + 1], plain);
}

extern "C" __global__ void words(int function, u32 exponent, u32* words) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < 1u << 23; i += gridDim.x * blockDim.x)
    words[i] = result_of(function, exponent << 23 | i);
}
