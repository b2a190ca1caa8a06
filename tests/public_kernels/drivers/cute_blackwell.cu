// CuTe's tutorials of Blackwell's tensor core: D = A B^T by the host code of the tutorial itself.
#define main tutorial_main
#include TUTORIAL
#undef main

extern "C" int product(const cutlass::half_t *a, const cutlass::half_t *b, float *d, int m, int n, int k) {
  auto layout_a = make_layout(make_shape(m, k), make_stride(k, Int<1>{}));
  auto layout_b = make_layout(make_shape(n, k), make_stride(k, Int<1>{}));
  auto layout_d = make_layout(make_shape(m, n), make_stride(n, Int<1>{}));
  gemm_host_f16xf16_f32_f32_tnt(a, layout_a, b, layout_b, d, layout_d, d, layout_d, 1.0f, 0.0f);
  return 0;
}
