// 64 x 64 bf16 tile, K-major
// Swizzle 128B: a row of 128 bytes is one span.
// 1 copy of box 64 x 64 (128 bytes a request).
// Shared memory: 4 x 8192 = 32768 bytes and 32 of mbarriers, aligned to 1024; blocks that fit an SM: 6.
//
// The kernel brings every tile of a matrix to shared memory as planned, and multiplies it by an identity matrix, so that the results are its elements.
// The program compares all of them and returns 1 if one is wrong.
//
//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o tile tile.cu && ./tile

constexpr int TILE_MN = 64, TILE_K = 64;  // elements, K-major: k is contiguous
constexpr int STAGES = 4;
constexpr int STAGE_BYTES = 8192;  // one tile, aligned to 1024 bytes
constexpr int IDENTITY_OFFSET = 32768;  // behind the stages
constexpr int FULL_OFFSET = 33280;  // a barrier a stage: the tile has arrived
constexpr int EMPTY_OFFSET = 33312;  // and: the tile was read
constexpr int SMEM_BYTES = 33344;
constexpr int THREADS = 160;  // 4 consumer warps and a producer warp

using Element = unsigned short;  // the bits of one bfloat16
using Result = float;

struct alignas(128) TensorMap { unsigned long long words[16]; };  // the driver's CUtensorMap, without its header; 128 serves CUDA 12 and 13

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// One arrival, and a promise of bytes: the phase ends when all arrivals and all bytes are in.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Returns when the phase of this parity has ended: a fresh barrier blocks parity 0 and lets parity 1 pass.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  }
}

__device__ __forceinline__ void tma_load(unsigned target, const TensorMap* map, unsigned barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];"
      ::"r"(target), "l"(map), "r"(barrier), "r"(c0), "r"(c1) : "memory");
}

// What this thread wrote to shared memory becomes visible to TMA and the tensor core.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The warpgroup's accumulators: `clear` ignores what they hold. Both operands are read by descriptor.
__device__ __forceinline__ void wgmma(float (&d)[8], unsigned long long a, unsigned long long b, bool clear) {
  asm volatile(
      "{.reg .pred p; setp.eq.b32 p, %10, 0; "
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7},\n"
      "%8, %9, p, 1, 1, 0, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(clear)));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// At most `pending` of the latest groups may still read shared memory and write accumulators.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The identity matrix that the tile is multiplied by: 16 x 16, K-major, no swizzle.
__device__ void write_identity(unsigned char* at) {
  for (int i = threadIdx.x; i < 512 / static_cast<int>(sizeof(Element)); i += THREADS) {
    const int row = i / 16, k = i % 16, byte = k * static_cast<int>(sizeof(Element));
    const int offset = row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;  // core matrices of 8 rows x 16 bytes
    *reinterpret_cast<Element*>(at + offset) = row == k ? 0x3F80 : 0;
  }
}

// 64 rows x 16 values of k times an identity: the accumulators are the tile's own elements.
__device__ void consume(unsigned base, unsigned stage, Result* result, int mn_tile, int k_tile, int k_tiles) {
  constexpr unsigned long long IDENTITY = 0x1000080000;  // core matrices 128 bytes apart along k, 256 along the rows
  // leading 16, stride 1024 bytes, swizzle 128B; the start is the offset in the stage
  constexpr unsigned long long OPERAND[4] = {0x4000004000010000, 0x4000004000010002, 0x4000004000010004, 0x4000004000010006};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long pitch = static_cast<long long>(k_tiles) * TILE_K;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    Result d[8];
    wgmma_fence();
    wgmma(d, OPERAND[step] + (stage >> 4), IDENTITY + (base + IDENTITY_OFFSET >> 4), true);
    wgmma_commit(); wgmma_wait<0>();
    const int mn = mn_tile * TILE_MN + warp * 16 + lane / 4;
    const int k = k_tile * TILE_K + step * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      result[(mn + i / 2 % 2 * 8) * pitch + k + i / 4 * 8 + i % 2] = d[i];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_kernel(
    const __grid_constant__ TensorMap map, Result* result, int k_tiles) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = shared_address(smem);
  if (base % 1024 != 0) __trap();  // the swizzle follows the absolute address
  const int mn_tile = blockIdx.x;
  const unsigned full = base + FULL_OFFSET, empty = base + EMPTY_OFFSET;  // one barrier of 8 bytes a stage

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(full + 8 * stage, 1);  // the producer's arrive.expect_tx
      mbarrier_init(empty + 8 * stage, 4);  // one arrival of each consumer warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  write_identity(smem + IDENTITY_OFFSET);
  fence_proxy_async();  // the tensor core reads what threads wrote
  __syncthreads();

  if (threadIdx.x / 32 == 4) {  // the producer
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1
      for (int i = 0; i < k_tiles; ++i) {
        const int slot = i % STAGES;
        const unsigned stage = base + slot * STAGE_BYTES;
        const int mn = mn_tile * TILE_MN, k = i * TILE_K;
        mbarrier_wait(empty + 8 * slot, i / STAGES % 2 ^ 1);  // passes at once while the slots are fresh
        mbarrier_arrive_expect(full + 8 * slot, 8192);  // all copies of a tile
        tma_load(stage, &map, full + 8 * slot, k, mn);
      }
#pragma unroll 1
      for (int j = k_tiles; j < k_tiles + STAGES; ++j) {
        mbarrier_wait(empty + 8 * (j % STAGES), j / STAGES % 2 ^ 1);  // every tile was read
      }
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < k_tiles; ++i) {
    const int slot = i % STAGES;
    mbarrier_wait(full + 8 * slot, i / STAGES % 2);
    consume(base, base + slot * STAGE_BYTES, result, mn_tile, i, k_tiles);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * slot);
  }
}

#ifndef __CUDACC_RTC__  // the host half: NVRTC takes the kernel alone

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                  \
  do {                                                                                               \
    const cudaError_t status = (call);                                                               \
    if (status != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s: %s (%d)\n", #call, cudaGetErrorString(status), static_cast<int>(status)); \
      std::exit(2);                                                                                  \
    }                                                                                                \
  } while (0)

// The bits of element i of the test data: a bfloat16 of moderate size.
static Element sample(long long i) {
  std::uint64_t h = (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
  h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9ull;
  h ^= h >> 27;
  return static_cast<Element>((h & 0x807F) | (0x78 + (h >> 16 & 7)) << 7);
}

// The value that the tensor core sees in the bits of an element.
static Result decoded(Element bits) {
  const int exponent = bits >> 7 & 255, mantissa = bits & 127;
  const double size = exponent ? std::ldexp(1 + mantissa / 128.0, exponent - 127)
                               : std::ldexp(mantissa / 128.0, -126);
  return static_cast<Result>(bits >> 15 & 1 ? -size : size);
}

// Why the driver may refuse a map: every rule that these arguments break, in words.
static void say_why(const void* address, const cuuint64_t* dims, const cuuint64_t* strides_bytes) {
  const auto broken = [](const char* rule) { std::fprintf(stderr, "  %s\n", rule); };
  if (reinterpret_cast<std::uintptr_t>(address) % 16) broken("global-address: the tensor must start at a multiple of 16 bytes");
  for (int i = 0; i < 2; ++i) {
    if (dims[i] < 1 || dims[i] > 1ull << 32) broken("dims-range: every dimension has 1 to 2^32 elements");
    if (i > 0 && strides_bytes[i - 1] % 16) broken("stride-alignment: strides are multiples of 16 bytes");
    if (i > 0 && strides_bytes[i - 1] >= 1ull << 40) broken("stride-range: strides are below 2^40 bytes");
  }
  // Box, swizzle and type are constants that tilescope has checked.
}

static TensorMap encoded(void* address, const cuuint64_t* dims, const cuuint64_t* strides_bytes) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "the driver's map is 128 bytes");
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    std::fprintf(stderr, "this driver has no cuTensorMapEncodeTiled: it is older than CUDA 12.0\n");
    std::exit(2);
  }
  const cuuint32_t box[] = {64, 64};
  const cuuint32_t element_strides[] = {1, 1};
  TensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, address, dims, strides_bytes, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled answered %d\n", static_cast<int>(result));
    say_why(address, dims, strides_bytes);
    std::exit(2);
  }
  return map;
}

// Argument: anything at all spoils one byte of the matrix, and the comparison must notice.
int main(int arguments, char**) {
  const long long mn = 192, k = 576;  // the matrix, in elements
  const long long pitch_bytes = 1152;
  const int mn_tiles = static_cast<int>((mn + TILE_MN - 1) / TILE_MN), k_tiles = static_cast<int>((k + TILE_K - 1) / TILE_K);
  const long long rows = mn, columns = k;
  std::vector<unsigned char> host(rows * pitch_bytes);
  for (long long row = 0; row < rows; ++row) {
    for (long long column = 0; column < columns; ++column) {
      const Element bits = sample(row * columns + column);
      std::memcpy(&host[row * pitch_bytes + column * sizeof(Element)], &bits, sizeof(Element));
    }
  }
  unsigned char* matrix;
  Result* result;
  const long long results = static_cast<long long>(mn_tiles) * TILE_MN * k_tiles * TILE_K;
  CHECK(cudaMalloc(&matrix, host.size()));
  CHECK(cudaMalloc(&result, results * sizeof(Result)));
  CHECK(cudaMemcpy(matrix, host.data(), host.size(), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(result, 0xEE, results * sizeof(Result)));
  if (arguments > 1) {
    const unsigned char spoiled = host[sizeof(Element) - 1] ^ 1;
    CHECK(cudaMemcpy(matrix + sizeof(Element) - 1, &spoiled, 1, cudaMemcpyHostToDevice));
  }
  CHECK(cudaFuncSetAttribute(tile_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
  const cuuint64_t dims[] = {576, 192};
  const cuuint64_t strides_bytes[] = {1152};
  const TensorMap map = encoded(matrix, dims, strides_bytes);
  tile_kernel<<<mn_tiles, THREADS, SMEM_BYTES>>>(map, result, k_tiles);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  std::vector<Result> found(results);
  CHECK(cudaMemcpy(found.data(), result, results * sizeof(Result), cudaMemcpyDeviceToHost));
  const long long pitch = static_cast<long long>(k_tiles) * TILE_K;
  long long wrong = 0;
  for (long long i = 0; i < results; ++i) {
    const long long at_mn = i / pitch, at_k = i % pitch;
    const long long row = at_mn, column = at_k;
    const Result expected = row < rows && column < columns ? decoded(sample(row * columns + column)) : Result(0);
    if (found[i] == expected) continue;
    if (wrong++ == 0) {
      std::printf("element (mn %lld, k %lld): found %g, expected %g\n", at_mn, at_k, static_cast<double>(found[i]), static_cast<double>(expected));
    }
  }
  std::printf("%lld of %lld elements right\n", results - wrong, results);
  return wrong ? 1 : 0;
}

#endif
