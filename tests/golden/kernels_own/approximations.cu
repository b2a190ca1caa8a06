// Functions that the card computes approximately: the results are close, not equal, to those of another machine.
extern "C" __global__ void approximations(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const float x = in[i];
  out[i] = expf(x);
  out[threads + i] = erff(x) + atanf(x);
  out[2 * threads + i] = cbrtf(x);
  out[3 * threads + i] = tanhf(x);
  out[4 * threads + i] = rsqrtf(fabsf(x));
  out[5 * threads + i] = powf(fabsf(x), 1.3f);
  out[6 * threads + i] = __sinf(x) + __cosf(x) + __logf(fabsf(x)) + __fdividef(x, 3.0f);
  out[7 * threads + i] = 1.0f / (1.0f + __expf(-x));
}
