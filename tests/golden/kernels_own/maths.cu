// Functions of the mathematical library that are made of plain arithmetic: large arguments with tables and slow paths, doubles.
extern "C" __global__ void maths(const float* in, float* out, const double* wide, double* wide_out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const float x = in[i];
  out[i] = sinf(x);
  out[threads + i] = cosf(x * 1e6f);
  out[2 * threads + i] = logf(fabsf(x));
  out[3 * threads + i] = log1pf(fabsf(x)) + fdimf(x, 1);
  out[4 * threads + i] = roundf(x) + nextafterf(x, 0);
  out[5 * threads + i] = ldexpf(x, -3);
  out[6 * threads + i] = __fdiv_rn(x, 3.3f) + __fsqrt_rn(fabsf(x)) + __frcp_rn(x);
  const double d = wide[i];
  wide_out[i] = d / (d * d + 1);
  wide_out[threads + i] = sqrt(fabs(d)) + floor(d) + fma(d, d, -d) + rint(d) + fmin(d, 2.0);
  wide_out[2 * threads + i] = static_cast<double>(static_cast<long long>(d * 1e15)) + static_cast<float>(d) + static_cast<unsigned>(fabs(d));
}
