// Streams of tiles, as fast as TMA moves them: nobody reads what arrives, and no loop divides.
//
// Tiles lie in a grid `tiles_x` wide. A stream has stages and barriers of its own: stream w of all streams starts at tile w
// and goes on by their number, told as rows and columns of tiles, so that adding and one comparison find the next tile, and
// streams never wait for each other. ISSUERS warps share the boxes of a stream's tiles; each arrives with its own bytes.
enum { TILE_X, TILE_Y, TILES_X, TILES, STEP_X, STEP_Y, STAGES, STAGE_BYTES, BOXES, BOX_BYTES, ISSUERS };
#define MAX_BOXES 64
#define MAX_STAGES 32
#define MAX_STREAMS 8

// A stream's place: the corner of its tile in elements, and how many tiles lie before the end.
struct Walk {
  int x, y, left, step_x, step_y, end_x, tile_y, step;

  __device__ __forceinline__ Walk(const int* s, int stream, int streams) {
    int number = blockIdx.x * streams + stream, row = number / s[TILES_X];  // divides once a warp
    x = (number - row * s[TILES_X]) * s[TILE_X], y = row * s[TILE_Y], left = s[TILES] - number;
    step_x = s[STEP_X] * s[TILE_X], step_y = s[STEP_Y] * s[TILE_Y], end_x = s[TILES_X] * s[TILE_X];
    tile_y = s[TILE_Y], step = gridDim.x * streams;
  }

  __device__ __forceinline__ void advance() {
    x += step_x, y += step_y, left -= step;
    if (x >= end_x) x -= end_x, y += tile_y;
  }
};

extern "C" __global__ void __launch_bounds__(1024) stream_loads(const u8* map, const int* s, const int4* box_table) {
  __shared__ __align__(16) u64 barriers[MAX_STREAMS][MAX_STAGES];
  __shared__ int4 boxes[MAX_BOXES];
  int issuers = s[ISSUERS], warp = threadIdx.x / 32, stream = warp / issuers, part = warp - stream * issuers;
  int stages = s[STAGES], stage_bytes = s[STAGE_BYTES], count = s[BOXES];
  for (int i = threadIdx.x; i < count; i += blockDim.x) boxes[i] = box_table[i];
  if (threadIdx.x % 32 == 0 && part == 0)
    for (int i = 0; i < stages; i++) barrier_init(shared_address(&barriers[stream][i]), issuers);
  async_fence();
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  u32 first = shared_address(smem) + stream * stages * stage_bytes, first_barrier = shared_address(&barriers[stream][0]);
  u32 bytes = (count - part + issuers - 1) / issuers * s[BOX_BYTES];  // of the boxes part, part + issuers, ...
  u32 stage = 0, parity = 1, to = first, barrier = first_barrier;
  for (Walk walk(s, stream, blockDim.x / 32 / issuers); walk.left > 0; walk.advance()) {
    while (!barrier_passes(barrier, parity)) {
    }
    barrier_expect(barrier, bytes);
    for (int i = part; i < count; i += issuers) {
      int4 box = boxes[i];
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                   ::"r"(to + box.z), "l"(map), "r"(walk.x + box.x), "r"(walk.y + box.y), "r"(barrier) : "memory");
    }
    to += stage_bytes, barrier += 8;
    if (++stage == stages) stage = 0, parity ^= 1, to = first, barrier = first_barrier;
  }
  for (int i = 0; i < stages; i++) {  // what is still under way; a stage never used passes parity 1
    while (!barrier_passes(first_barrier + 8 * stage, parity)) {
    }
    if (++stage == stages) stage = 0, parity ^= 1;
  }
}

extern "C" __global__ void stream_stores(const u8* map, const int* s, const int4* box_table) {
  __shared__ int4 boxes[MAX_BOXES];
  int stages = s[STAGES], stage_bytes = s[STAGE_BYTES], count = s[BOXES];
  for (int i = threadIdx.x; i < count; i += blockDim.x) boxes[i] = box_table[i];
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  u32 first = shared_address(smem) + threadIdx.x / 32 * stages * stage_bytes, stage = 0, from = first;
  for (Walk walk(s, threadIdx.x / 32, blockDim.x / 32); walk.left > 0; walk.advance()) {
    // As many stages under way as there are: waiting takes an immediate number.
    if (stages == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    else if (stages == 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    else if (stages < 8) asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
    else asm volatile("cp.async.bulk.wait_group.read 7;" ::: "memory");
    for (int i = 0; i < count; i++) {
      int4 box = boxes[i];
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                   "r"(walk.x + box.x), "r"(walk.y + box.y), "r"(from + box.z) : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    from += stage_bytes;
    if (++stage == stages) stage = 0, from = first;
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
