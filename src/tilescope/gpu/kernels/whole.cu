// Small whole kernels of several blocks, whose results no schedule and no compiler changes (see programs/whole_kernels.py).

__device__ __forceinline__ u32 warp_sum(u32 value) {
  for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

// The sum of a block's numbers: warps by shuffles, then the first warp of what they left in shared memory.
extern "C" __global__ void block_sums(const u32* numbers, u32* sums, int count) {
  __shared__ u32 of_warp[32];
  u32 sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += numbers[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
}

// Sums of all numbers up to each: inside a warp by shuffles, over warps by shared memory; blocks are separate.
extern "C" __global__ void running_sums(const u32* numbers, u32* sums) {
  __shared__ u32 of_warp[32];
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 sum = numbers[i];
  for (u32 distance = 1; distance < 32; distance *= 2) {
    u32 before = __shfl_up_sync(0xffffffff, sum, distance);
    if (threadIdx.x % 32 >= distance) sum += before;
  }
  if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  for (u32 warp = 0; warp < threadIdx.x / 32; warp++) sum += of_warp[warp];
  sums[i] = sum;
}

// A square matrix, turned over by tiles of 32 x 32 in shared memory.
extern "C" __global__ void transposed(const u32* matrix, u32* turned, int tiles) {
  __shared__ u32 tile[32][33];
  int row = blockIdx.x / tiles, column = blockIdx.x % tiles, width = 32 * tiles;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x)
    tile[i / 32][i % 32] = matrix[(32 * row + i / 32) * width + 32 * column + i % 32];
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += blockDim.x)
    turned[(32 * column + i / 32) * width + 32 * row + i % 32] = tile[i % 32][i / 32];
}

// How often each byte occurs: counted in shared memory by atomics, then added up in global memory.
extern "C" __global__ void histogram(const u8* bytes, u32* bins, int count) {
  __shared__ u32 own[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) own[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) atomicAdd(&own[bytes[i]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x)
    if (own[bin]) atomicAdd(&bins[bin], own[bin]);
}

// Blocks write what they have; the one that finishes last, by a ticket, combines all of it.
extern "C" __global__ void last_block(const u64* numbers, u64* parts, u64* total, u32* ticket) {
  __shared__ int is_last;
  u64 number = numbers[blockIdx.x * blockDim.x + threadIdx.x];
  for (int distance = 16; distance; distance /= 2) number ^= __shfl_down_sync(0xffffffff, number, distance);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = number;
    __threadfence();
    is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x) return;
  __threadfence();
  u64 all = 0;
  for (int block = 0; block < gridDim.x; block++) all = 3 * all + ((volatile u64*)parts)[block];
  *total = all;
}

// The blocks of a cluster read each other's shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_turn(const u32* numbers, u32* turned) {
  __shared__ u32 own[1024];
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  own[threadIdx.x] = numbers[i];
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
  u32 address, number;
  u32 other = (blockIdx.x ^ 1) % 2;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(&own[blockDim.x - 1 - threadIdx.x])), "r"(other));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(number) : "r"(address) : "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
  turned[i] = number;
}

// Threads take different numbers of turns; floats are rounded where the source says so.
extern "C" __global__ void divergent_floats(const float* numbers, float* singles, double* doubles, u32* turns) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = numbers[i];
  float root = x;
  double sum = 0;
  u32 turn = 0;
  while (turn < 40 && (__float_as_uint(root) >> 7 & 15) != 5) {
    root = __fmul_rn(0.5f, __fadd_rn(root, __fdiv_rn(x, root)));
    sum = __fma_rn((double)root, 1.0 / 3, sum);
    turn++;
    if (turn > i % 37) break;
  }
  singles[i] = __fsqrt_rn(__fmaf_rn(root, root, x));
  doubles[i] = __dsqrt_rn(__ddiv_rn(sum, (double)(turn + 1)));
  turns[i] = turn;
}
