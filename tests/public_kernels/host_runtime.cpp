// The CUDA runtime as far as host code needs it to launch a kernel where no card is: device memory is host memory,
// and a launch or a tensor map is handed to whoever set the callbacks below. cuda_host.py does.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

using LaunchCallback = void (*)(const char *name, const unsigned *grid, const unsigned *block, const unsigned *cluster,
                                void **arguments, size_t smem_bytes);
using MapCallback = int (*)(void *map, int data_type, unsigned rank, size_t address, const cuuint64_t *dims,
                            const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
                            int interleave, int swizzle, int l2_promotion, int oob_fill);

static LaunchCallback on_launch;
static MapCallback on_map;
static int capability[2];  // major, minor
static constexpr int PROCESSORS = 132;  // as many as an H200 has
static constexpr int MOST_SMEM_BYTES = 232448;

extern "C" void set_callbacks(LaunchCallback launch, MapCallback map, int major, int minor) {
  on_launch = launch;
  on_map = map;
  capability[0] = major;
  capability[1] = minor;
}

static std::map<const void *, std::string> &kernel_names() {
  static std::map<const void *, std::string> names;  // registered before other static objects exist
  return names;
}

static void launch(const void *function, dim3 grid, dim3 block, dim3 cluster, void **arguments, size_t smem_bytes) {
  const unsigned extents[3][3] = {
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, {cluster.x, cluster.y, cluster.z}};
  on_launch(kernel_names()[function].c_str(), extents[0], extents[1], extents[2], arguments, smem_bytes);
}

static thread_local struct {
  dim3 grid, block;
  size_t smem_bytes;
  void *stream;
} configuration;

extern "C" {

void **__cudaRegisterFatBinary(void *) {
  static void *handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 0; }
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *,
                            int *) {
  kernel_names()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem_bytes, CUstream_st *stream) {
  configuration = {grid, block, smem_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *smem_bytes, void *stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *smem_bytes = configuration.smem_bytes;
  *static_cast<void **>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *function) { return __cudaGetKernel(kernel, function); }
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t smem_bytes,
                               cudaStream_t) {
  launch((const void *)kernel, grid, block, {0, 0, 0}, arguments, smem_bytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t smem_bytes,
                             cudaStream_t) {
  launch(function, grid, block, {0, 0, 0}, arguments, smem_bytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  dim3 cluster{0, 0, 0};
  for (unsigned i = 0; i < config->numAttrs; i++) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto &extents = config->attrs[i].val.clusterDim;
      cluster = dim3(extents.x, extents.y, extents.z);
    }
  }
  launch(function, config->gridDim, config->blockDim, cluster, arguments, config->dynamicSmemBytes);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t size) {
  *pointer = aligned_alloc(256, (size + 255) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFree(void *) { return cudaSuccess; }
cudaError_t cudaMemset(void *pointer, int value, size_t size) {
  memset(pointer, value, size);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t size, cudaStream_t) {
  return cudaMemset(pointer, value, size);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
  memcpy(to, from, size);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "no error"; }
const char *cudaGetErrorName(cudaError_t) { return "no error"; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability[0]; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability[1]; break;
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = MOST_SMEM_BYTES; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: *value = 1024;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  memset(properties, 0, sizeof *properties);
  properties->major = capability[0];
  properties->minor = capability[1];
  properties->multiProcessorCount = PROCESSORS;
  properties->sharedMemPerBlockOptin = MOST_SMEM_BYTES;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  memset(attributes, 0, sizeof *attributes);
  attributes->ptxVersion = attributes->binaryVersion = 10 * capability[0] + capability[1];
  attributes->maxThreadsPerBlock = 1024;
  attributes->maxDynamicSharedSizeBytes = MOST_SMEM_BYTES;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int, size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *, const cudaLaunchConfig_t *) {
  *clusters = PROCESSORS / 2;
  return cudaSuccess;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType data_type, cuuint32_t rank, void *address,
                                const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return (CUresult)on_map(map, data_type, rank, (size_t)address, dims, strides, box, element_strides, interleave,
                          swizzle, promotion, fill);
}
CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "an error of the driver";
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  bool is_known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = is_known ? (void *)cuTensorMapEncodeTiled : nullptr;
  if (result) *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
}
