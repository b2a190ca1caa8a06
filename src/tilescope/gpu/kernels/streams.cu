// Streams of tiles, as fast as TMA moves them: nobody reads what arrives, and no loop divides.
//
// Tiles lie in a grid `tiles_x` wide. Every warp is a stream of its own, with its stages and barriers: warp w of all warps
// starts at tile w and goes on by their number, told as rows and columns of tiles, so that adding and one comparison find
// the next tile, and warps never wait for each other.
enum { BOX_X, BOX_Y, BOX_SMEM, BOX_FIELDS };
enum { TILE_X, TILE_Y, TILES_X, TILES, STEP_X, STEP_Y, STAGES, STAGE_BYTES, BOXES, BOX_BYTES, STREAM_FIELDS };
#define MOST_BOXES 64
#define MOST_STAGES 32
#define MOST_WARPS 8

struct Walk {
  int x, y, left;
};

__device__ __forceinline__ Walk first_tile(const int* s) {
  int number = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, row = number / s[TILES_X];  // divides once a warp
  return {number - row * s[TILES_X], row, s[TILES] - number};
}

__device__ __forceinline__ void next_tile(Walk& walk, const int* s) {
  walk.x += s[STEP_X];
  walk.y += s[STEP_Y];
  if (walk.x >= s[TILES_X]) walk.x -= s[TILES_X], walk.y++;
  walk.left -= gridDim.x * (blockDim.x / 32);
}

extern "C" __global__ void stream_loads(const u8* map, const int* stream, const int* box_table) {
  __shared__ __align__(16) u64 barriers[MOST_WARPS][MOST_STAGES];
  __shared__ int boxes[MOST_BOXES * BOX_FIELDS], s[STREAM_FIELDS];
  for (int i = threadIdx.x; i < STREAM_FIELDS; i += blockDim.x) s[i] = stream[i];
  for (int i = threadIdx.x; i < stream[BOXES] * BOX_FIELDS; i += blockDim.x) boxes[i] = box_table[i];
  int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < stream[STAGES]; i++) barrier_init(shared_address(&barriers[warp][i]), 1);
  async_fence();
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  u32 base = shared_address(smem) + warp * s[STAGES] * s[STAGE_BYTES];
  u32 bytes = s[BOXES] * s[BOX_BYTES], stage = 0, parity = 1;
  for (Walk walk = first_tile(s); walk.left > 0; next_tile(walk, s)) {
    u32 barrier = shared_address(&barriers[warp][stage]);
    while (!barrier_passes(barrier, parity)) {
    }
    barrier_expect(barrier, bytes);
    u32 to = base + stage * s[STAGE_BYTES];
    int x = walk.x * s[TILE_X], y = walk.y * s[TILE_Y];
    for (int i = 0; i < s[BOXES]; i++) {
      const int* box = boxes + i * BOX_FIELDS;
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                   ::"r"(to + box[BOX_SMEM]), "l"(map), "r"(x + box[BOX_X]), "r"(y + box[BOX_Y]), "r"(barrier) : "memory");
    }
    if (++stage == s[STAGES]) stage = 0, parity ^= 1;
  }
  for (int i = 0; i < s[STAGES]; i++) {  // what is still under way; a stage never used passes parity 1
    u32 barrier = shared_address(&barriers[warp][stage]);
    while (!barrier_passes(barrier, parity)) {
    }
    if (++stage == s[STAGES]) stage = 0, parity ^= 1;
  }
}

extern "C" __global__ void stream_stores(const u8* map, const int* stream, const int* box_table) {
  __shared__ int boxes[MOST_BOXES * BOX_FIELDS], s[STREAM_FIELDS];
  for (int i = threadIdx.x; i < STREAM_FIELDS; i += blockDim.x) s[i] = stream[i];
  for (int i = threadIdx.x; i < stream[BOXES] * BOX_FIELDS; i += blockDim.x) boxes[i] = box_table[i];
  async_fence();
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  u32 base = shared_address(smem) + threadIdx.x / 32 * s[STAGES] * s[STAGE_BYTES], stage = 0;
  for (Walk walk = first_tile(s); walk.left > 0; next_tile(walk, s)) {
    // As many stages under way as there are: waiting takes an immediate number.
    if (s[STAGES] == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    else if (s[STAGES] == 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    else if (s[STAGES] < 8) asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
    else asm volatile("cp.async.bulk.wait_group.read 7;" ::: "memory");
    u32 from = base + stage * s[STAGE_BYTES];
    int x = walk.x * s[TILE_X], y = walk.y * s[TILE_Y];
    for (int i = 0; i < s[BOXES]; i++) {
      const int* box = boxes + i * BOX_FIELDS;
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                   "r"(x + box[BOX_X]), "r"(y + box[BOX_Y]), "r"(from + box[BOX_SMEM]) : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (++stage == s[STAGES]) stage = 0;
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// A plain copy beside them: 16 bytes a thread and turn, four turns under way.
extern "C" __global__ void plain_copy(const uint4* from, uint4* to, u64 chunks) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < chunks; i += 4 * step) {
    uint4 held[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j * step < chunks) held[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j * step < chunks) to[i + j * step] = held[j];
  }
}

extern "C" __global__ void plain_read(const uint4* from, u64 chunks, u32* out) {
  u64 step = (u64)gridDim.x * blockDim.x;
  u32 sum = 0;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < chunks; i += 8 * step) {
    uint4 held[8];
#pragma unroll
    for (int j = 0; j < 8; j++) held[j] = i + j * step < chunks ? from[i + j * step] : uint4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < 8; j++) sum ^= held[j].x ^ held[j].y ^ held[j].z ^ held[j].w;
  }
  if (sum == 0x12345678) *out = sum;
}
