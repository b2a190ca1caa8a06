// The C++ library's barrier and asynchronous copies, as people write them: two stages, a completion that all threads wait for.
#include <cuda/barrier>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void library_barrier(const int* in, int* out, int tiles) {
  __shared__ alignas(16) int tile[2][128];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier ready[2];
  if (threadIdx.x == 0) {
    init(&ready[0], blockDim.x);
    init(&ready[1], blockDim.x);
  }
  __syncthreads();
  const auto fetch = [&](int number) {
    cuda::memcpy_async(&tile[number % 2][threadIdx.x], &in[number * 128 + threadIdx.x], sizeof(int), ready[number % 2]);
  };
  fetch(0);
  int sum = 0;
  for (int number = 0; number < tiles; ++number) {
    if (number + 1 < tiles) fetch(number + 1);
    ready[number % 2].arrive_and_wait();
    sum = sum * 3 + tile[number % 2][(threadIdx.x * 5 + number) % 128];
    __syncthreads();  // the next round fills the other half again
  }
  out[threadIdx.x] = sum;
}
