"""64 x 64 bf16 tile, K-major, proven on the card: compiled by NVRTC, loaded and compared from Python.

Needs numpy, cuda-core, cuda-bindings and nvidia-cuda-nvrtc, and a GPU of sm_90a. Any argument spoils one byte, and the
comparison must notice.
"""

import sys

KERNEL = r"""
// 64 x 64 bf16 tile, K-major
// Swizzle 128B: a row of 128 bytes is one span.
// 1 copy of box 64 x 64 (128 bytes a request).
// Shared memory: 4 x 8192 = 32768 bytes and 32 of mbarriers, aligned to 1024; blocks that fit an SM: 6.
//
// The kernel brings every tile of a matrix to shared memory as planned, and multiplies it by an identity matrix, so that the results are its elements.
// The program compares all of them and returns 1 if one is wrong.

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
"""


def missing(what):
    print(f"{sys.argv[0]}: {what}", file=sys.stderr)
    sys.exit(3)


try:
    import numpy as np
    from cuda.bindings import driver
    from cuda.core import Device, Program, ProgramOptions
except ImportError as error:
    missing(f"{error.name} is missing: pip install numpy cuda-core cuda-bindings nvidia-cuda-nvrtc")

code = Program(KERNEL, "c++", ProgramOptions(arch="sm_90a", std="c++17")).compile("cubin")


def checked(answer):
    """What a call of the driver returned beside its status."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"the CUDA driver answered {int(status)} ({status.name})")
    return values[0] if values else None


def first_device():
    try:
        device = Device()
        device.set_current()
    except Exception as error:
        missing(f"no GPU to run on ({error}); the kernel compiled for sm_90a")
    return device


def upload(array):
    pointer = checked(driver.cuMemAlloc(array.nbytes))
    checked(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
    return int(pointer)


def download(pointer, array):
    checked(driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
    return array


def started(name, blocks, threads, smem_bytes, *arguments):
    """A call that starts a kernel in a stream; every argument is a numpy scalar or array, passed by value."""
    function = checked(driver.cuKernelGetFunction(driver.CUkernel(int(code.get_kernel(name).handle))))
    largest = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, largest, smem_bytes))
    held = [np.atleast_1d(argument) for argument in arguments]
    pointers = np.array([argument.ctypes.data for argument in held], np.uint64)

    def call(stream, held=held):
        checked(
            driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, smem_bytes, stream, pointers.ctypes.data, 0)
        )

    return call


def launch(*arguments):
    """Start a kernel and wait for it."""
    started(*arguments)(0)
    checked(driver.cuCtxSynchronize())


def tile_map(address):
    """The 128 bytes of the tensor map, made by the driver."""
    tensor_map = checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            address,
            [
                driver.cuuint64_t(extent)
                for extent in (
                    576,
                    192,
                )
            ],
            [driver.cuuint64_t(stride) for stride in (1152,)],
            [
                driver.cuuint32_t(extent)
                for extent in (
                    64,
                    64,
                )
            ],
            [driver.cuuint32_t(1)] * 2,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return np.array([int(word) for word in tensor_map.opaque], np.uint64)


def sample(index):
    """The bits of element `index` of the test data."""
    with np.errstate(over="ignore"):
        h = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ h >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
    return ((h & np.uint64(0x807F)) | (np.uint64(0x78) + (h >> np.uint64(16) & np.uint64(7))) << np.uint64(7)).astype(
        np.uint16
    )


mn, k = 192, 576  # the matrix, in elements
tile_mn, tile_k = 64, 64
mn_tiles, k_tiles = -(-mn // tile_mn), -(-k // tile_k)
rows, columns = mn, k
pitch_bytes, element_bytes = 1152, 2
device = first_device()
spoil = len(sys.argv) > 1

memory = np.zeros((rows, pitch_bytes), np.uint8)
bits = sample(np.arange(rows * columns)).reshape(rows, columns)
memory[:, : columns * element_bytes] = bits.view(np.uint8)
given = memory.copy()
if spoil:
    given[0, element_bytes - 1] ^= 1
found = np.full((mn_tiles * tile_mn, k_tiles * tile_k), -1, np.float32)
matrix, result = upload(given), upload(found)
launch("tile_kernel", mn_tiles, 160, 33344, tile_map(matrix), np.uint64(result), np.int32(k_tiles))
download(result, found)
exponent, mantissa = (bits >> 7 & 255).astype(int), bits & 127
values = np.ldexp(1 + mantissa / 128, exponent - 127)  # the samples have no exponent 0
values = np.where(bits >> 15 & 1, -values, values)
expected = np.zeros_like(found)
expected[:mn, :k] = values
wrong = np.argwhere(found != expected)
if len(wrong):
    first = tuple(map(int, wrong[0]))
    print(f"at {first}: found {found[first]}, expected {expected[first]}")
print(f"{found.size - len(wrong)} of {found.size} right")
sys.exit(bool(len(wrong)))
