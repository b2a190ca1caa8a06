// Arrays of one thread, indexed by values known only at run time: they lie in local memory.
__device__ __noinline__ void swap_at(int* values, int i, int j) {
  const int kept = values[i];
  values[i] = values[j];
  values[j] = kept;
}

extern "C" __global__ void local_arrays(const int* in, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int values[8];
  short places[8];
#pragma unroll 1
  for (int j = 0; j < 8; ++j) {
    values[j] = in[8 * i + j];
    places[j] = static_cast<short>(j);
  }
#pragma unroll 1
  for (int j = 1; j < 8; ++j) {  // insertion sort: another number of steps for every thread
    for (int k = j; k > 0 && values[k - 1] > values[k]; --k) {
      swap_at(values, k - 1, k);
      const short kept = places[k];
      places[k] = places[k - 1];
      places[k - 1] = kept;
    }
  }
  int sum = 0;
#pragma unroll 1
  for (int j = 0; j < 8; ++j) {
    out[8 * i + j] = values[places[j]] + places[values[j] & 7];
    sum = sum * 31 + values[(j * 7 + i) & 7];
  }
  out[8 * gridDim.x * blockDim.x + i] = sum;
}
