// printf from a kernel, in the order of one thread, and an assertion that holds.
#include <cassert>
#include <cstdio>

extern "C" __global__ void printing(const int* in, int* out) {
  const int x = in[threadIdx.x];
  assert(x >= 0);
  out[threadIdx.x] = x + 1;
  if (threadIdx.x != 5) return;
  printf("plain\n");
  printf("%d %u %x %X %o %c|%5d|%-5d|%05d|%+d\n", -x, x, x, x, x, 'A' + x % 26, x, x, x, x);
  printf("%lld %llu %llx %hd\n", -123456789012LL, 18446744073709551615ULL, 0xABCDEF0123ULL, static_cast<short>(-7));
  printf("%f %.3f %e %g %10.2f %G\n", x * 0.5, x / 3.0f, 12345.678, 1e-5, -2.5, 1e20);
  printf("%s and %s, 100%%\n", "a string", x > 0 ? "another" : "none");
}
