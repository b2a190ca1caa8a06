// TMA and bulk copies: one block (or one cluster) a case, cases as rows of integers.
//
//   block: first copy, number of copies, bytes its barrier expects, bytes of its shared image
//   copy:  see the enum; `map` is a byte offset into `maps`, so that a misaligned map can be asked for
enum { KIND, RANK, C0, C1, C2, C3, C4, O0, O1, O2, SMEM, MAP, SIZE, MASK, BARRIER, COPY_FIELDS = 16 };
enum { FIRST, COUNT, EXPECTED, IMAGE, BLOCK_FIELDS = 4 };
enum { TILE, IM2COL, BULK, FOUR_ROWS };
enum { STORE, ADD, MIN, MAX, INC, DEC, AND, OR, XOR, OPERATIONS };

#define COORDS "r"(c[C0]), "r"(c[C1]), "r"(c[C2]), "r"(c[C3]), "r"(c[C4])
#define TAPS "h"((short)c[O0]), "h"((short)c[O1]), "h"((short)c[O2])

// Newer chips load packed types, atom modes and gather4 to the block's own shared memory everywhere, to a cluster's not.
#if __CUDA_ARCH__ >= 1000
#define DESTINATION "shared::cta"
#else
#define DESTINATION "shared::cluster"
#endif

#define LOAD(RANK_, MODE, PLACE, TAP)                                                                              \
  case RANK_:                                                                                                      \
    asm volatile("cp.async.bulk.tensor." #RANK_ "d." DESTINATION ".global." MODE                                    \
                 ".mbarrier::complete_tx::bytes [%0], [%1, {" PLACE "}], [%2]" TAP ";" ::"r"(to), "l"(map),        \
                 "r"(barrier), COORDS, TAPS : "memory");                                                           \
    break;

__device__ __forceinline__ void load(const int* c, u32 to, const u8* map, u32 barrier, const u8* pool) {
  switch (c[KIND]) {
    case TILE:
      switch (c[RANK]) {
        LOAD(1, "tile", "%3", "") LOAD(2, "tile", "%3, %4", "") LOAD(3, "tile", "%3, %4, %5", "")
        LOAD(4, "tile", "%3, %4, %5, %6", "") LOAD(5, "tile", "%3, %4, %5, %6, %7", "")
      }
      break;
    case IM2COL:
      switch (c[RANK]) {
        LOAD(3, "im2col", "%3, %4, %5", ", {%8}") LOAD(4, "im2col", "%3, %4, %5, %6", ", {%8, %9}")
        LOAD(5, "im2col", "%3, %4, %5, %6, %7", ", {%8, %9, %10}")
      }
      break;
#if __CUDA_ARCH__ >= 1000
    case FOUR_ROWS:  // gather4: a column, then four rows
      asm volatile("cp.async.bulk.tensor.2d." DESTINATION ".global.tile::gather4.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to), "l"(map), "r"(barrier), COORDS : "memory");
      break;
#endif
    case BULK:
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                   "l"(pool + c[C0]), "r"(c[SIZE]), "r"(barrier) : "memory");
  }
}

// word[0]: the barrier afterwards, 0 where it never passed. image: shared memory, 0xEE where nothing was written.
extern "C" __global__ void to_shared(const u8* maps, const int* copies, const int* blocks, const u8* pool,
                                     int image_stride, u8* images, u64* words) {
  __shared__ __align__(16) u64 barriers[2];
  const int* b = blocks + blockIdx.x * BLOCK_FIELDS;
  for (int i = threadIdx.x; i < b[IMAGE]; i += blockDim.x) smem[i] = 0xEE;
  const int* first = copies + b[FIRST] * COPY_FIELDS;
  u32 barrier = shared_address(barriers) + first[BARRIER], base = shared_address(smem);
  if (threadIdx.x == 0) barrier_init(barrier, 1);
  async_fence();
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_expect(barrier, b[EXPECTED]);
    for (int i = 0; i < b[COUNT]; i++) {
      const int* c = first + i * COPY_FIELDS;
      load(c, base + c[SMEM], maps + c[MAP], barrier, pool);
    }
    words[blockIdx.x] = barrier_waited(barrier, 0) ? barrier_word(barrier) : 0;
  }
  __syncthreads();
  u8* image = images + (u64)blockIdx.x * image_stride;
  for (int i = threadIdx.x; i < b[IMAGE]; i += blockDim.x) image[i] = smem[i];
}

// The same for clusters of four: block 0 issues, every block that MASK names waits on its own barrier.
extern "C" __global__ void __cluster_dims__(4, 1, 1)
    to_cluster(const u8* maps, const int* copies, const int* blocks, const u8* /* pool */, int image_stride, u8* images,
               u64* words) {
  __shared__ __align__(16) u64 barriers[1];
  int cluster = blockIdx.x / 4, rank = blockIdx.x % 4;
  const int* b = blocks + cluster * BLOCK_FIELDS;
  const int* c = copies + b[FIRST] * COPY_FIELDS;
  for (int i = threadIdx.x; i < b[IMAGE]; i += blockDim.x) smem[i] = 0xEE;
  u32 barrier = shared_address(barriers), to = shared_address(smem) + c[SMEM];
  int receives = c[MASK] >> rank & 1;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (receives) barrier_expect(barrier, b[EXPECTED]);
  }
  async_fence();
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (rank == 0 && threadIdx.x == 0) {
    const u8* map = maps + c[MAP];
#define MULTICAST(RANK_, PLACE)                                                                                    \
  case RANK_:                                                                                                      \
    asm volatile("cp.async.bulk.tensor." #RANK_ "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"       \
                 ".multicast::cluster [%0], [%1, {" PLACE "}], [%2], %8;" ::"r"(to), "l"(map), "r"(barrier),       \
                 COORDS, "h"((short)c[MASK]) : "memory");                                                          \
    break;
    switch (c[RANK]) {
      MULTICAST(1, "%3") MULTICAST(2, "%3, %4") MULTICAST(3, "%3, %4, %5") MULTICAST(4, "%3, %4, %5, %6")
      MULTICAST(5, "%3, %4, %5, %6, %7")
    }
  }
  if (threadIdx.x == 0) words[blockIdx.x] = receives ? (barrier_waited(barrier, 0) ? barrier_word(barrier) : 0) : 1;
  __syncthreads();
  u8* image = images + (u64)blockIdx.x * image_stride;
  for (int i = threadIdx.x; i < b[IMAGE]; i += blockDim.x) image[i] = smem[i];
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

#define TO_GLOBAL(OPCODE, RANK_, MODE, PLACE)                                                                      \
  case RANK_:                                                                                                      \
    asm volatile("cp." OPCODE "async.bulk.tensor." #RANK_ "d.global.shared::cta." MODE ".bulk_group [%0, {" PLACE  \
                 "}], [%1];" ::"l"(map), "r"(from), COORDS : "memory");                                            \
    break;
#define TILES(OPCODE, OP)                                                                                          \
  switch (c[RANK]) {                                                                                               \
    TO_GLOBAL(OPCODE, 1, OP "tile", "%2") TO_GLOBAL(OPCODE, 2, OP "tile", "%2, %3")                                \
    TO_GLOBAL(OPCODE, 3, OP "tile", "%2, %3, %4") TO_GLOBAL(OPCODE, 4, OP "tile", "%2, %3, %4, %5")                \
    TO_GLOBAL(OPCODE, 5, OP "tile", "%2, %3, %4, %5, %6")                                                          \
  }
#define COLUMNS(OPCODE, OP)                                                                                        \
  switch (c[RANK]) {                                                                                               \
    TO_GLOBAL(OPCODE, 3, OP "im2col_no_offs", "%2, %3, %4")                                                        \
    TO_GLOBAL(OPCODE, 4, OP "im2col_no_offs", "%2, %3, %4, %5")                                                    \
    TO_GLOBAL(OPCODE, 5, OP "im2col_no_offs", "%2, %3, %4, %5, %6")                                                \
  }
#define OPERATION(NAME, OPCODE, OP)                                                                                \
  case NAME: {                                                                                                     \
    if (c[KIND] == TILE) { TILES(OPCODE, OP) } else { COLUMNS(OPCODE, OP) }                                        \
    break;                                                                                                         \
  }

// SIZE holds the operation of a tensor store (bytes of a bulk store), MASK where in `pool` its shared memory lies.
extern "C" __global__ void to_global(const u8* maps, const int* copies, const int* blocks, const u8* pool,
                                     int memory_stride, u8* memory) {
  const int* b = blocks + blockIdx.x * BLOCK_FIELDS;
  const int* c = copies + b[FIRST] * COPY_FIELDS;
  for (int i = threadIdx.x; i < b[IMAGE]; i += blockDim.x) smem[i] = pool[c[MASK] + i];
  async_fence();
  __syncthreads();
  if (threadIdx.x != 0) return;
  u32 from = shared_address(smem) + c[SMEM];
  const u8* map = maps + c[MAP];
  if (c[KIND] == BULK)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     memory + (u64)blockIdx.x * memory_stride + c[C0]), "r"(from), "r"(c[SIZE]) : "memory");
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
  else if (c[KIND] == FOUR_ROWS)  // scatter4
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                     map), "r"(from), COORDS : "memory");
#endif
  else
    switch (c[SIZE]) {
      OPERATION(STORE, "", "") OPERATION(ADD, "reduce.", "add.") OPERATION(MIN, "reduce.", "min.")
      OPERATION(MAX, "reduce.", "max.") OPERATION(INC, "reduce.", "inc.") OPERATION(DEC, "reduce.", "dec.")
      OPERATION(AND, "reduce.", "and.") OPERATION(OR, "reduce.", "or.") OPERATION(XOR, "reduce.", "xor.")
    }
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
