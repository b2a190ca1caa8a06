// GEMMs of DeepGEMM, with the tensor maps that its own host code makes: D = A B^T.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include KERNEL

using namespace deep_gemm;

static CUtensorMap make_map(const void *pointer, CUtensorMapDataType type, int size, int columns, int rows,
                            int box_columns, int box_rows, CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[1] = {cuuint64_t(columns) * size};
  const cuuint32_t box[2] = {cuuint32_t(box_columns), cuuint32_t(box_rows)}, steps[2] = {1, 1};
  cuTensorMapEncodeTiled(&map, type, 2, const_cast<void *>(pointer), dims, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

static int launch(const void *kernel, int blocks, int threads, int smem_bytes, int cluster, void **arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = smem_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

constexpr auto K_MAJOR = cute::UMMA::Major::K;
constexpr int SMEM_BYTES = 200000;

#if defined(SM90_BF16)
template <int CLUSTER>
static int run_bf16(const void *a, const void *b, void *d, uint32_t m, uint32_t n, uint32_t k) {
  constexpr int BLOCKS = 2;
  auto kernel = &sm90_bf16_gemm_impl<K_MAJOR, K_MAJOR, 0, 0, 0, 1, 128, 128, 64, 128, 128, 128, 4, 128, 256, CLUSTER,
                                     false, BLOCKS, GemmType::Normal, false, cutlass::bfloat16_t>;
  const auto type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  auto map_a = make_map(a, type, 2, k, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_b = make_map(b, type, 2, k, n, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_d = make_map(d, type, 2, n, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  int *grouped = nullptr;
  void *arguments[] = {&grouped, &m, &n, &k, &map_a, &map_b, &map_d};
  return launch((const void *)kernel, BLOCKS, 384, SMEM_BYTES, CLUSTER, arguments);
}
extern "C" int bf16(const void *a, const void *b, void *d, int m, int n, int k) { return run_bf16<1>(a, b, d, m, n, k); }
extern "C" int bf16_multicast(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_bf16<2>(a, b, d, m, n, k);
}
#elif defined(SM90_FP8)
extern "C" int fp8(const void *a, const void *b, void *d, const float *scales_a, float *scales_b, int rows, int columns,
                   int depth) {
  constexpr int BLOCKS = 2;
  uint32_t m = rows, n = columns, k = depth;
  auto kernel = &sm90_fp8_gemm_1d2d_impl<K_MAJOR, 0, 0, 0, 1, 128, 128, 128, 128, 128, 128, 4, 128, 256, 1, false, BLOCKS,
                                         GemmType::Normal, cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>;
  auto map_a = make_map(a, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, k, m, 128, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_b = make_map(b, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, k, n, 128, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_d = make_map(d, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_scales = make_map(scales_a, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, m, k / 128, 128, 1, CU_TENSOR_MAP_SWIZZLE_NONE);
  int *grouped = nullptr;
  void *arguments[] = {&scales_b, &grouped, &m, &n, &k, &map_a, &map_b, &map_d, &map_scales};
  return launch((const void *)kernel, BLOCKS, 384, SMEM_BYTES, 1, arguments);
}
#elif defined(SM100_BF16)
template <int CLUSTER>
static int run_bf16(const void *a, const void *b, void *d, uint32_t m, uint32_t n, uint32_t k) {
  constexpr int BLOCKS = 2;
  auto kernel = &sm100_bf16_gemm_impl<K_MAJOR, K_MAJOR, 0, 0, 0, 128, 128, 64, 1, 128, 128, 128, 4, 128, 128, CLUSTER,
                                      false, BLOCKS, 128, false, false, GemmType::Normal, false, cutlass::bfloat16_t, 100>;
  const auto type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  auto map_a = make_map(a, type, 2, k, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_b = make_map(b, type, 2, k, n, 64, 128 / CLUSTER, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_d = make_map(d, type, 2, n, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  int *grouped = nullptr;
  void *arguments[] = {&grouped, &m, &n, &k, &map_a, &map_b, &map_d};
  return launch((const void *)kernel, BLOCKS, 256, SMEM_BYTES, CLUSTER, arguments);
}
extern "C" int bf16(const void *a, const void *b, void *d, int m, int n, int k) { return run_bf16<1>(a, b, d, m, n, k); }
extern "C" int bf16_pair(const void *a, const void *b, void *d, int m, int n, int k) {
  return run_bf16<2>(a, b, d, m, n, k);
}
#elif defined(SM100_FP8)
// Scale factors of 128 elements of k, four to a word, those of neighbouring rows beside each other.
template <int CLUSTER>
static int run_fp8(const void *a, const void *b, void *d, const void *scales_a, const void *scales_b, uint32_t m, uint32_t n,
                   uint32_t k) {
  constexpr int BLOCKS = 2;
  using E4m3 = cutlass::float_e4m3_t;
  auto kernel = &sm100_fp8_fp4_gemm_1d1d_impl<K_MAJOR, K_MAJOR, 128, 128, 128, 0, 0, 0, 128, 128, 128, 1, 128, 128, 128, 4, 128,
                                              128, CLUSTER, false, BLOCKS, false, false, GemmType::Normal, false, E4m3, E4m3,
                                              cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>;
  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8, words = CU_TENSOR_MAP_DATA_TYPE_INT32;
  const int along = (k + 511) / 512;
  auto map_a = make_map(a, bytes, 1, k, m, 128, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_b = make_map(b, bytes, 1, k, n, 128, 128 / CLUSTER, CU_TENSOR_MAP_SWIZZLE_128B);
  auto map_sfa = make_map(scales_a, words, 4, m, along, 128, 1, CU_TENSOR_MAP_SWIZZLE_NONE);
  auto map_sfb = make_map(scales_b, words, 4, n, along, 128, 1, CU_TENSOR_MAP_SWIZZLE_NONE);
  auto map_d = make_map(d, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, m, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  int *grouped = nullptr;
  void *arguments[] = {&grouped, &m, &n, &k, &map_a, &map_b, &map_sfa, &map_sfb, &map_d};
  return launch((const void *)kernel, BLOCKS, 256, SMEM_BYTES, CLUSTER, arguments);
}
extern "C" int fp8(const void *a, const void *b, void *d, const void *sfa, const void *sfb, int m, int n, int k) {
  return run_fp8<1>(a, b, d, sfa, sfb, m, n, k);
}
extern "C" int fp8_pair(const void *a, const void *b, void *d, const void *sfa, const void *sfb, int m, int n, int k) {
  return run_fp8<2>(a, b, d, sfa, sfb, m, n, k);
}
#endif
