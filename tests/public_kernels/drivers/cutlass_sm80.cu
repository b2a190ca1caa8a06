// A GEMM of CUTLASS 2 for Ampere: D = A B^T, half precision, by cp.async and mma.sync.
#include <cutlass/gemm/device/gemm.h>

extern "C" int multistage(const void *a, const void *b, void *d, int m, int n, int k) {
  using Half = cutlass::half_t;
  using Gemm = cutlass::gemm::device::Gemm<Half, cutlass::layout::RowMajor, Half, cutlass::layout::ColumnMajor, Half,
                                           cutlass::layout::RowMajor, float, cutlass::arch::OpClassTensorOp,
                                           cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 32>,
                                           cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>>;
  Gemm gemm;
  return int(gemm({{m, n, k}, {(const Half *)a, k}, {(const Half *)b, k}, {(Half *)d, n}, {(Half *)d, n}, {1.0f, 0.0f}}));
}
