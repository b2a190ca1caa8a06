// GEMMs of CUTLASS 3 for Hopper: D = A B^T, half precision, by collectives that TMA feeds.
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

using namespace cute;
using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Arch = cutlass::arch::ARCH;

template <class Tile, class Cluster, class MainloopSchedule, class EpilogueSchedule>
int run_gemm(const void *a, const void *b, void *d, int m, int n, int k) {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float,
      float, void, Row, 8, Half, Row, 8, EpilogueSchedule>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Half, Row, 8, Half, Column, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      MainloopSchedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
  auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
  auto stride_d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1});
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {m, n, k, 1},
                                     {(const Half *)a, stride_a, (const Half *)b, stride_b},
                                     {{1.0f, 0.0f}, nullptr, {}, (Half *)d, stride_d}};
  arguments.hw_info.sm_count = 4;
  Gemm gemm;
  if (Gemm::get_workspace_size(arguments) != 0) return 100;
  auto status = gemm.initialize(arguments);
  if (status != cutlass::Status::kSuccess) return int(status);
  return int(gemm.run());
}

#ifdef HOPPER
extern "C" int warp_specialized(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_gemm<Shape<_128, _128, _64>, Shape<_1, _1, _1>, cutlass::gemm::KernelTmaWarpSpecialized,
                  cutlass::epilogue::TmaWarpSpecialized>(a, b, d, m, n, k);
}
extern "C" int pingpong(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_gemm<Shape<_64, _128, _64>, Shape<_1, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                  cutlass::epilogue::TmaWarpSpecialized>(a, b, d, m, n, k);
}
extern "C" int cooperative(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_gemm<Shape<_128, _128, _64>, Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                  cutlass::epilogue::TmaWarpSpecializedCooperative>(a, b, d, m, n, k);
}
#else
extern "C" int one_sm(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_gemm<Shape<_128, _128, _64>, Shape<_1, _1, _1>, cutlass::gemm::KernelTmaWarpSpecialized1SmSm100,
                  cutlass::epilogue::TmaWarpSpecialized1Sm>(a, b, d, m, n, k);
}
extern "C" int two_sm(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_gemm<Shape<_256, _128, _64>, Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecialized2SmSm100,
                  cutlass::epilogue::TmaWarpSpecialized2Sm>(a, b, d, m, n, k);
}
#endif
