// Threads of a warp that go different ways: nested branches, early exits, loops of different lengths, a switch by table.
extern "C" __global__ void divergence(const int* in, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int x = in[i];
  int sum = 0;
  for (int step = 0; step < (x & 31) + 1; ++step) {
    if (step % 3 == 0) {
      if (x & 1) {
        sum += step * x;
      } else if (x & 2) {
        sum ^= step;
      } else {
        continue;
      }
    } else if (step % 7 == 6 && (x & 4)) {
      break;
    }
    sum += x >> (step & 7);
  }
  if (sum % 17 == 5) {
    out[i] = sum;
    return;
  }
  unsigned steps = 0;  // Collatz: from 0 to some hundred steps, another number for every thread
  for (unsigned value = (x & 1023) + 1; value != 1; ++steps) value = value & 1 ? 3 * value + 1 : value / 2;
  out[i] = sum * 1000 + steps;
}
