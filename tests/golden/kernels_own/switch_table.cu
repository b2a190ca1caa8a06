// A dense switch in a loop, a small interpreter: the compiler makes a branch table of it, and threads of a warp take all its ways.
extern "C" __global__ void switch_table(const unsigned char* programs, const int* in, int* out, int length) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int a = in[i], b = i, c = 1;
  for (int step = 0; step < length; ++step) {
    switch (programs[i % 7 * length + step]) {
      case 0: a += b; break;
      case 1: b ^= a << 3; break;
      case 2: c = a * b + 1; break;
      case 3: if (a < b) step += 1; break;
      case 4: b = a; a = c; c = b; break;
      case 5: out[i] = a; break;
      case 6: a = a > 0 ? -a : a / 3; break;
      case 7: c += step; break;
      case 8: b = __popc(a) * c; break;
      case 9: a = b % 1000; [[fallthrough]];
      case 10: a = a * 31 + c; break;
      case 11: c = c > b ? c - b : b; break;
      case 12: return;
      case 13: b = b / (c | 1); break;
      case 14: a = __brev(a) >> 9; break;
      case 15: c = -c; break;
    }
  }
  out[gridDim.x * blockDim.x + i] = a + 3 * b + 7 * c;
}
