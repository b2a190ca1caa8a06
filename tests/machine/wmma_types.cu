// One product of every type that nvcuda::wmma has: D = A B, of one warp.
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda::wmma;

template <int m, int n, int k, class Type, class ALayout, class BLayout, class Sum, class Stored>
__device__ void multiply(const Stored* a, const Stored* b, Sum* d, int a_stride, int b_stride) {
  fragment<matrix_a, m, n, k, Type, ALayout> left;
  fragment<matrix_b, m, n, k, Type, BLayout> right;
  fragment<accumulator, m, n, k, Sum> sum;
  load_matrix_sync(left, a, a_stride);
  load_matrix_sync(right, b, b_stride);
  fill_fragment(sum, Sum(0));
  mma_sync(sum, left, right, sum);
  store_matrix_sync(d, sum, n, mem_row_major);
}

extern "C" __global__ void of_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  multiply<32, 8, 16, __nv_bfloat16, col_major, row_major>(a, b, d, 32, 8);
}

extern "C" __global__ void of_f16(const half* a, const half* b, half* d) {
  multiply<16, 16, 16, half, col_major, row_major>(a, b, d, 16, 16);
}

extern "C" __global__ void of_f64(const double* a, const double* b, double* d) {
  multiply<8, 8, 4, double, col_major, row_major>(a, b, d, 8, 8);
}

extern "C" __global__ void of_s8(const signed char* a, const signed char* b, int* d) {
  multiply<8, 32, 16, signed char, col_major, row_major>(a, b, d, 8, 32);
}

extern "C" __global__ void of_tf32(const float* a, const float* b, float* d) {
  multiply<16, 16, 8, precision::tf32, col_major, row_major>(a, b, d, 16, 16);
}

extern "C" __global__ void of_s4(const void* a, const void* b, int* d) {
  multiply<8, 8, 32, experimental::precision::s4, row_major, col_major>(a, b, d, 32, 32);
}

extern "C" __global__ void of_b1(const void* a, const void* b, int* d) {
  fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> left;
  fragment<matrix_b, 8, 8, 128, experimental::precision::b1, col_major> right;
  fragment<accumulator, 8, 8, 128, int> sum;
  load_matrix_sync(left, a, 128);
  load_matrix_sync(right, b, 128);
  fill_fragment(sum, 0);
  bmma_sync(sum, left, right, sum, experimental::bmmaBitOpAND);
  store_matrix_sync(d, sum, 8, mem_row_major);
}
