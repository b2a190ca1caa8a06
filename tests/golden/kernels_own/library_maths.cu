// Functions of CUDA's math library: PTX around approximate functions, so every bit follows. One array of results for each.
extern "C" __global__ void library_maths(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  out[i] = expf(x);
  out[n + i] = __expf(x);
  out[2 * n + i] = tanhf(x);
  out[3 * n + i] = erff(x);
  out[4 * n + i] = sinf(x);
  out[5 * n + i] = cosf(x);
  out[6 * n + i] = logf(x);
  out[7 * n + i] = sqrtf(x);
  out[8 * n + i] = 1.0f / x;
  out[9 * n + i] = x / 3.1f;
}
