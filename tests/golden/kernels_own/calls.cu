// Functions that stay functions: structs and arrays by value, several results, pointers into the caller's frame, calls of calls.
struct Pair { double first; int second; };
struct Row { int values[6]; char tag; };

__device__ __noinline__ Pair pair_of(int x, float y) { return {x * 0.5 + y, x ^ 0x55}; }

__device__ __noinline__ int total(Row row, Pair pair) {
  int sum = row.tag;
  for (int value : row.values) sum = sum * 3 + value;
  return sum + pair.second + static_cast<int>(pair.first);
}

__device__ __noinline__ void divide(int x, int y, int* quotient, int* remainder) {
  *quotient = x / y;
  *remainder = x % y;
}

__device__ __noinline__ unsigned root(unsigned x) {
  unsigned low = 0, high = 65536;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    if (middle * middle > x) high = middle; else low = middle;
  }
  return low;
}

__device__ __noinline__ unsigned hypotenuse(int x, int y) { return root(x * x + y * y) + root(1000 + x); }

__device__ __noinline__ long long widened(short x, unsigned char y, long long z) { return x * 1000LL + y - z; }

__device__ __noinline__ bool is_odd(int x) { return x & 1; }

extern "C" __global__ void calls(const int* in, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  Row row;
  for (int j = 0; j < 6; ++j) row.values[j] = x >> j;
  row.tag = static_cast<char>(i);
  const Pair pair = pair_of(x, i * 0.25f);
  int quotient, remainder;
  divide(x, i + 1, &quotient, &remainder);
  out[4 * i] = total(row, pair) + quotient;
  out[4 * i + 1] = remainder;
  if (is_odd(x)) {
    out[4 * i + 2] = hypotenuse(x, i);  // by some threads of a warp only
  } else {
    out[4 * i + 2] = static_cast<int>(widened(static_cast<short>(x), static_cast<unsigned char>(i), x));
  }
  out[4 * i + 3] = is_odd(quotient) ? 1 : -1;
}
