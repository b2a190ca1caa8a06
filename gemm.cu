// GEMM 4096 x 4096 x 4096 bf16, tile 128 x 256 x 64
//
// C = A B: A is 4096 x 4096, B is 4096 x 4096 (n x k), C is 4096 x 4096. The grid is persistent: a block takes
// one tile of C after another. Two producer warps load, two warpgroups multiply.
// The program compares every element of C with a plain product and returns 1 if one is wrong.
//
//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o gemm gemm.cu && ./gemm

constexpr int M = 4096, N = 4096, K = 4096;
constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;
constexpr int M_TILES = (M + TILE_M - 1) / TILE_M, N_TILES = (N + TILE_N - 1) / TILE_N;
constexpr int K_TILES = (K + TILE_K - 1) / TILE_K;
constexpr int STAGES = 4;
constexpr int A_OFFSET = 0, A_STAGE_BYTES = 16384;  // 128 x 64, K-major, swizzle 128B
constexpr int B_OFFSET = 65536, B_STAGE_BYTES = 32768;  // 256 x 64, K-major, swizzle 128B
constexpr int C_OFFSET = 196608;  // a slice of the tile, 128 x 64, swizzle 128B
constexpr int C_COLUMNS = 64;  // of a slice
constexpr int C_BYTES = 16384;  // of a slice; two take turns
constexpr int FULL_OFFSET = 229376, EMPTY_OFFSET = 229408;  // a barrier of 8 bytes a stage
constexpr int SMEM_BYTES = 229440;
constexpr int CONSUMERS = 256, THREADS = 320;

using Element = unsigned short;  // the bits of one bfloat16
using Accumulator = float;
using Output = unsigned short;  // the bits of one bfloat16

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

__device__ __forceinline__ void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

__device__ __forceinline__ void tma_load(unsigned target, const TensorMap* map, unsigned barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];"
      ::"r"(target), "l"(map), "r"(barrier), "r"(c0), "r"(c1) : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, unsigned source, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3}], [%1];"
      ::"l"(map), "r"(source), "r"(c0), "r"(c1) : "memory");
}

__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// At most `pending` of this thread's latest groups may still read shared memory.
template <int pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// What this thread wrote to shared memory becomes visible to TMA and the tensor core.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void stmatrix_x4(unsigned row_address, const unsigned (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(row_address), "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3]) : "memory");
}

// The warpgroup's accumulators: `clear` ignores what they hold. Both operands are read by descriptor.
__device__ __forceinline__ void wgmma(float (&d)[128], unsigned long long a, unsigned long long b, bool clear) {
  asm volatile(
      "{.reg .pred p; setp.eq.b32 p, %130, 0; "
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},\n"
      "%128, %129, p, 1, 1, 0, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
        "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
        "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),
        "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]),
        "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),
        "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),
        "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),
        "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(static_cast<int>(clear)));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// At most `pending` of the latest groups may still read shared memory and write accumulators.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Barrier `id` of the block, for `threads` threads; 0 is __syncthreads.
template <int id, int threads>
__device__ __forceinline__ void bar_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

// Shared address of element (row, column) of the tile at `base`.
__device__ __forceinline__ unsigned c_address(unsigned base, int mn, int k) {
  const unsigned a = base + mn * 128 + k * 2;
  return a ^ ((a >> 3) & 0x70);
}

// An accumulator as C holds it.
__device__ __forceinline__ Output converted(Accumulator value) {
  unsigned short bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)); return bits;
}

// One stage: every K step of the warpgroup's rows, accumulated.
__device__ __forceinline__ void multiply(Accumulator (&d)[128], unsigned a, unsigned b, int group, bool clear) {
  constexpr unsigned long long A[2][4] = {  // leading 16, stride 1024 bytes, swizzle 128B
      {0x4000004000010000, 0x4000004000010002, 0x4000004000010004, 0x4000004000010006},
      {0x4000004000010200, 0x4000004000010202, 0x4000004000010204, 0x4000004000010206},
  };
  constexpr unsigned long long B[4] = {0x4000004000010000, 0x4000004000010002, 0x4000004000010004, 0x4000004000010006};  // leading 16, stride 1024 bytes, swizzle 128B
  wgmma_fence();  // of an address, a descriptor takes 18 bits: in a cluster the block's rank lies above them
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    unsigned long long operand = A[0][step] + (a >> 4 & 0x3FFF);
    if (group == 1) operand = A[1][step] + (a >> 4 & 0x3FFF);
    wgmma(d, operand, B[step] + (b >> 4 & 0x3FFF), clear && step == 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_kernel(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = shared_address(smem);
  if (base % 1024 != 0) __trap();  // the swizzle follows the absolute address
  const unsigned full = base + FULL_OFFSET, empty = base + EMPTY_OFFSET;
  const int tiles = (M_TILES * N_TILES - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x;  // that this block takes
  if (threadIdx.x == CONSUMERS) {
    prefetch_map(&a_map);
    prefetch_map(&b_map);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(full + 8 * stage, 1);  // the producer's arrive.expect_tx
      mbarrier_init(empty + 8 * stage, 2);  // one arrival of each consumer warpgroup
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= CONSUMERS) {  // the producer warps take turns
    const int instance = (threadIdx.x - CONSUMERS) / 32;
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1
      for (int t = 0; t < tiles; ++t) {
        const int tile = blockIdx.x + t * gridDim.x;
        const int m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;
#pragma unroll 1
        for (int k_tile = 0; k_tile < K_TILES; ++k_tile) {
          const int slot = (t * K_TILES + k_tile) % STAGES;
          const int k = k_tile * TILE_K;
          const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;
          if ((t * K_TILES + k_tile) % 2 == instance) {
            mbarrier_wait(empty + 8 * slot, (t * K_TILES + k_tile) / STAGES % 2 ^ 1);  // passes at once while the slots are fresh
            mbarrier_arrive_expect(full + 8 * slot, 49152);  // A and B
            tma_load(a, &a_map, full + 8 * slot, k, m);
            tma_load(b, &b_map, full + 8 * slot, k, n);
          }
        }
      }
#pragma unroll 1
      for (int j = tiles * K_TILES; j < tiles * K_TILES + STAGES; ++j) {
        mbarrier_wait(empty + 8 * (j % STAGES), j / STAGES % 2 ^ 1);  // every stage was read
      }
    }
    return;
  }

  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int t = 0; t < tiles; ++t) {
    const int tile = blockIdx.x + t * gridDim.x;
    const int m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;
    Accumulator d[128];
#pragma unroll 1
    for (int k_tile = 0; k_tile < K_TILES; ++k_tile) {
      const int slot = (t * K_TILES + k_tile) % STAGES;
      const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;
      mbarrier_wait(full + 8 * slot, (t * K_TILES + k_tile) / STAGES % 2);
      multiply(d, a, b, group, k_tile == 0);
      wgmma_commit();
      wgmma_wait<1>();  // older products have read their stages
      if (k_tile > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * ((t * K_TILES + k_tile - 1) % STAGES));
    }
    wgmma_wait<0>();  // older products have read their stages
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * ((t * K_TILES + K_TILES - 1) % STAGES));
#pragma unroll
    for (int slice = 0; slice < 4; ++slice) {
      if (threadIdx.x == 0) bulk_wait_read<1>();  // TMA has read the last slice
      bar_sync<1, 256>();
      const unsigned c_slice = base + C_OFFSET + (t * 4 + slice) % 2 * C_BYTES;
      const int row = group * 64 + warp * 16;
#pragma unroll
      for (int first = 0; first < 64; first += 16) {
        const int at = (slice * (C_COLUMNS / 8) + first / 8) * 4, column = first;  // accumulators; column of the slice
        unsigned registers[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // below each other, then beside
          registers[i] = converted(d[at + 2 * i]) | static_cast<unsigned>(converted(d[at + 2 * i + 1])) << 16;
        }
        stmatrix_x4(c_address(c_slice, row + lane % 16, column + lane / 16 * 8), registers);
      }
      fence_proxy_async();  // before TMA's next access
      bar_sync<1, 256>();
      if (threadIdx.x == 0) {
        const int mn = m, k = n + slice * C_COLUMNS;  // rows and columns of C
        tma_store(&c_map, c_slice, k, mn);
        bulk_commit();
      }
    }
  }
  if (threadIdx.x == 0) bulk_wait_read<0>();  // TMA has read the last slice
}

// Test data: small whole numbers, so that every sum is exact. The value of element i, and its bits.
__host__ __device__ inline int number(long long i) {
  const unsigned long long h = (static_cast<unsigned long long>(i) + 1) * 0x9E3779B97F4A7C15ull;
  return static_cast<int>((h >> 33) % 3) - 1;
}

// The plain product of one element of C, and the comparison.
extern "C" __global__ void check_kernel(const Output* c, long long seed_b, unsigned long long* wrong) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= static_cast<long long>(M) * N) return;
  const long long m = i / N, n = i % N;
  int sum = 0;
  for (long long k = 0; k < K; ++k) sum += number(m * K + k) * number(seed_b + n * K + k);
  if (c[i] != converted(static_cast<Accumulator>(sum))) atomicAdd(wrong, 1ull);
}

#ifndef __CUDACC_RTC__  // the host half: NVRTC takes the kernels alone

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

#define CHECK(call)                                                                                  \
  do {                                                                                               \
    const cudaError_t status = (call);                                                               \
    if (status != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s: %s (%d)\n", #call, cudaGetErrorString(status), static_cast<int>(status)); \
      std::exit(2);                                                                                  \
    }                                                                                                \
  } while (0)

static TensorMap encoded(const char* name, void* address, CUtensorMapDataType type, const cuuint64_t* dims, const cuuint64_t* strides_bytes,
                         const cuuint32_t* box, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "the driver's map is 128 bytes");
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    std::fprintf(stderr, "this driver has no cuTensorMapEncodeTiled: it is older than CUDA 12.0\n");
    std::exit(2);
  }
  const cuuint32_t element_strides[] = {1, 1};
  TensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      reinterpret_cast<CUtensorMap*>(&map), type, 2, address, dims, strides_bytes, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled answered %d for %s\n", static_cast<int>(result), name);
    if (reinterpret_cast<std::uintptr_t>(address) % 16) std::fprintf(stderr, "  global-address: it must start at a multiple of 16 bytes\n");
    if (strides_bytes[0] % 16) std::fprintf(stderr, "  stride-alignment: rows of %llu bytes; strides are multiples of 16 bytes\n", static_cast<unsigned long long>(strides_bytes[0]));
    std::exit(2);
  }
  return map;
}

static TensorMap a_map(void* address) {
  const cuuint64_t dims[] = {4096, 4096}, strides_bytes[] = {8192};
  const cuuint32_t box[] = {64, 128};
  return encoded("a", address, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, dims, strides_bytes, box, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

static TensorMap b_map(void* address) {
  const cuuint64_t dims[] = {4096, 4096}, strides_bytes[] = {8192};
  const cuuint32_t box[] = {64, 256};
  return encoded("b", address, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, dims, strides_bytes, box, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

static TensorMap c_map(void* address) {
  const cuuint64_t dims[] = {4096, 4096}, strides_bytes[] = {8192};
  const cuuint32_t box[] = {64, 128};
  return encoded("c", address, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, dims, strides_bytes, box, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

static Element* matrix(long long elements, long long seed, long long spoiled = 0) {
  const Element bits[] = {0xbf80, 0, 0x3F80};  // -1, 0 and 1
  std::vector<Element> host(elements);
  for (long long i = 0; i < elements; ++i) host[i] = bits[number(seed + i) + 1];
  for (long long i = 0; i < spoiled; ++i) host[i] = bits[2];
  Element* device;
  CHECK(cudaMalloc(&device, elements * sizeof(Element)));
  CHECK(cudaMemcpy(device, host.data(), elements * sizeof(Element), cudaMemcpyHostToDevice));
  return device;
}

// The median time of a launch in microseconds, of 20 replays of a graph of 20 launches; `beside` takes turns with it.
template <typename Launch, typename Beside>
static void replay(const Launch& launch, const Beside& beside, bool has_beside) {
  cudaStream_t stream;
  cudaEvent_t start, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times[2];
  cudaGraphExec_t graphs[2];
  for (int which = 0; which < 1 + has_beside; ++which) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 20; ++i) {
      if (which == 0) launch(stream); else beside(stream);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&graphs[which], graph, 0));
  }
  for (int turn = 0; turn < 21; ++turn) {
    for (int which = 0; which < 1 + has_beside; ++which) {
      float milliseconds;
      CHECK(cudaEventRecord(start, stream));
      CHECK(cudaGraphLaunch(graphs[which], stream));
      CHECK(cudaEventRecord(end, stream));
      CHECK(cudaEventSynchronize(end));
      CHECK(cudaEventElapsedTime(&milliseconds, start, end));
      if (turn > 0) times[which].push_back(milliseconds * 1e3f / 20);
    }
  }
  for (int which = 0; which < 1 + has_beside; ++which) {
    std::sort(times[which].begin(), times[which].end());
    const double us = times[which][10], flop = 2.0 * M * N * K;
    std::printf("%s %.2f us, %.1f TFLOP/s, %.0f GB/s, %.0f %% of the floor\n", which ? "cuBLAS" : "ours", us, flop / us / 1e6, 100663296 / us / 1e3, 100 * 132.4 / us);
  }
}

// Arguments: --time measures launches, --cublas measures cuBLAS beside them where that was compiled in (-DWITH_CUBLAS -lcublas).
// Anything else spoils the first K elements of A, and the comparison must notice.
int main(int arguments, char** values) {
  bool is_timed = false, with_cublas = false, is_spoiled = false;
  for (int i = 1; i < arguments; ++i) {
    const bool is_beside = std::strcmp(values[i], "--cublas") == 0;
    is_timed |= is_beside || std::strcmp(values[i], "--time") == 0;
    with_cublas |= is_beside;
    is_spoiled |= !is_beside && std::strcmp(values[i], "--time") != 0;
  }
  const long long seed_b = static_cast<long long>(M) * K, elements = static_cast<long long>(M) * N, guard = 512;
  Element* a = matrix(static_cast<long long>(M) * K, 0, is_spoiled ? K : 0);
  Element* b = matrix(static_cast<long long>(N) * K, seed_b);
  Output* memory;
  unsigned long long* wrong;
  CHECK(cudaMalloc(&memory, (elements + 2 * guard) * sizeof(Output)));
  CHECK(cudaMemset(memory, 0xEE, (elements + 2 * guard) * sizeof(Output)));
  CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
  CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
  Output* c = memory + guard;
  int device, sms;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const int blocks = M_TILES * N_TILES < sms ? M_TILES * N_TILES : sms;
  CHECK(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
  const TensorMap maps[] = {a_map(a), b_map(b), c_map(c)};
  const auto launch = [&](cudaStream_t stream) { gemm_kernel<<<blocks, THREADS, SMEM_BYTES, stream>>>(maps[0], maps[1], maps[2]); };
  launch(nullptr);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  if (is_timed && !with_cublas) replay(launch, launch, false);
  if (with_cublas) {
#ifdef WITH_CUBLAS
    cublasHandle_t handle;
    void* workspace;
    Output* other;
    const float one = 1, zero = 0;
    cublasCreate(&handle);
    CHECK(cudaMalloc(&workspace, 64 << 20));
    CHECK(cudaMalloc(&other, elements * sizeof(Output)));
    const auto beside = [&](cudaStream_t stream) {
      cublasSetStream(handle, stream);
      cublasSetWorkspace(handle, workspace, 64 << 20);
      const int status = cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &one, b, CUDA_R_16BF, K, a, CUDA_R_16BF, K,
                   &zero, other, CUDA_R_16BF, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      if (status != 0) {
        std::fprintf(stderr, "cublasGemmEx answered %d\n", status);
        std::exit(3);
      }
    };
    replay(launch, beside, true);
#else
    std::fprintf(stderr, "built without cuBLAS: add -DWITH_CUBLAS -lcublas\n");
    return 3;
#endif
  }
  check_kernel<<<static_cast<unsigned>((elements + 255) / 256), 256>>>(c, seed_b, wrong);
  unsigned long long found;
  CHECK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
  std::vector<unsigned char> around((elements + 2 * guard) * sizeof(Output));
  CHECK(cudaMemcpy(around.data(), memory, around.size(), cudaMemcpyDeviceToHost));
  const std::size_t edge = guard * sizeof(Output);
  for (std::size_t i = 0; i < edge; ++i) found += (around[i] != 0xEE) + (around[around.size() - 1 - i] != 0xEE);
  std::printf("%lld elements, %llu wrong\n", elements, found);
  return found ? 1 : 0;
}

#endif
