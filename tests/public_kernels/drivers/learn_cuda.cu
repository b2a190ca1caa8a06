// Kernels of gau-nernst's learn-cuda, called as its Python module calls them.
#include SOURCE

template <class A, class B, class C, class... Rest>
static int call_with_three(void (*function)(A *, B *, C *, Rest...), const void *a, const void *b, void *c, Rest... rest) {
  function((A *)a, (B *)b, (C *)c, rest...);
  return 0;
}

extern "C" {
#if defined(GEMM)
int run(const void *a, const void *b, void *c, int m, int n, int k) { return call_with_three(GEMM, a, b, c, m, n, k); }
#elif defined(SUM)
int run(const float *values, float *sums, int rows, int columns, int tile, int threads) {
  SUM(values, sums, rows, columns, tile, threads);
  return 0;
}
#elif defined(SOFTMAX)
int run(const float *values, float *result, float *workspace, int rows, int columns) {
  SOFTMAX(values, result, workspace, rows, columns);
  return 0;
}
#elif defined(ATTENTION)
int run(const void *q, const void *k, const void *v, void *o, int batch, int queries, int keys, int dim) {
  using T = const nv_bfloat16 *;
  ATTENTION((T)q, (T)k, (T)v, (nv_bfloat16 *)o, batch, queries, keys, dim);
  return 0;
}
#endif
}
