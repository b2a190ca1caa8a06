#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;

// C = alpha * A B + beta * C; a block of four warps makes 32 x 32 of C, each warp 16 x 16, with tiles in shared memory.
extern "C" __global__ void gemm(const half* a, const half* b, float* c, int m, int n, int k, float alpha, float beta) {
  __shared__ half a_tile[32][16 + 8];
  __shared__ half b_tile[16][32 + 8];
  int warp_row = threadIdx.x / 64 * 16;
  int warp_column = threadIdx.x / 32 % 2 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (int first = 0; first < k; first += 16) {
    for (int i = threadIdx.x; i < 32 * 16; i += blockDim.x) {
      a_tile[i / 16][i % 16] = a[(blockIdx.y * 32 + i / 16) * k + first + i % 16];
      b_tile[i / 32][i % 32] = b[(first + i / 32) * n + blockIdx.x * 32 + i % 32];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_part;
    wmma::load_matrix_sync(a_part, &a_tile[warp_row][0], 24);
    wmma::load_matrix_sync(b_part, &b_tile[0][warp_column], 40);
    wmma::mma_sync(sums, a_part, b_part, sums);
    __syncthreads();
  }
  float* place = c + (blockIdx.y * 32 + warp_row) * n + blockIdx.x * 32 + warp_column;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> before;
  wmma::load_matrix_sync(before, place, n, wmma::mem_row_major);
  for (int i = 0; i < sums.num_elements; i++) before.x[i] = alpha * sums.x[i] + beta * before.x[i];
  wmma::store_matrix_sync(place, before, n, wmma::mem_row_major);
}
