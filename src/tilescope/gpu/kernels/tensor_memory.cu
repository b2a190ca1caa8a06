// Tensor memory and tcgen05.mma, which sm_100 to sm_110 have: one block of four warps a case.
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
#define COLUMNS 128

// The address of COLUMNS columns; warp 0 asks for them.
__device__ u32 allocated() {
  __shared__ u32 place;
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(shared_address(&place)) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  return place;
}

__device__ void freed(u32 place) {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(place));
}

// A warp's quarter of the lanes starts in the upper half of an address. A lane of cells is a thread of .32x32b.
__device__ u32 own_quarter(u32 place) { return place + (threadIdx.x / 32 * 32 << 16); }

__device__ void dump(u32 place, int columns, u32* out) {
  for (int column = 0; column < columns; column++) {
    u32 word;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(word) : "r"(own_quarter(place) + column));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    out[threadIdx.x * columns + column] = word;
  }
}

#define LIST1 "%0"
#define LIST2 LIST1 ", %1"
#define LIST4 LIST2 ", %2, %3"
#define LIST8 LIST4 ", %4, %5, %6, %7"
#define HELD1(C) C(r[0])
#define HELD2(C) HELD1(C), C(r[1])
#define HELD4(C) HELD2(C), C(r[2]), C(r[3])
#define HELD8(C) HELD4(C), C(r[4]), C(r[5]), C(r[6]), C(r[7])
#define LOAD(NUMBER, N, FORM, SPLIT)                                                                                 \
  case NUMBER:                                                                                                       \
    asm volatile("tcgen05.ld.sync.aligned." FORM ".b32 {" LIST##N "}, [%" #N "]" SPLIT ";" : HELD##N("=r") : "r"(at)); \
    break;
#define STORE(NUMBER, N, FORM, SPLIT)                                                                                \
  case NUMBER:                                                                                                       \
    asm volatile("tcgen05.st.sync.aligned." FORM ".b32 [%" #N "]" SPLIT ", {" LIST##N "};" ::HELD##N("r"), "r"(at)); \
    break;
#define EACH_FORM(DO, PACKED)                                                                                        \
  DO(0, 1, "32x32b.x1", "") DO(1, 2, "32x32b.x2", "") DO(2, 8, "32x32b.x8", "") DO(3, 1, "16x64b.x1", "")            \
  DO(4, 4, "16x64b.x4", "") DO(5, 2, "16x128b.x1", "") DO(6, 8, "16x128b.x4", "") DO(7, 4, "16x256b.x1", "")         \
  DO(8, 8, "16x256b.x2", "") DO(9, 1, "16x32bx2.x1", ", 16") DO(10, 4, "16x32bx2.x4", ", 16")                        \
  DO(11, 2, "32x32b.x2." PACKED, "") DO(12, 4, "16x64b.x4." PACKED, "") DO(13, 8, "16x256b.x2." PACKED, "")

// Cells are filled, one warp loads or stores, and registers (256 words) and all cells come back.
extern "C" __global__ void __launch_bounds__(128)
    moves(const int* cases, const u32* cells, const u32* registers, u32* loaded, u32* cells_after) {
  const int* c = cases + 4 * blockIdx.x;  // form, 1 for a store, warp, address from the first column
  u32 place = allocated(), r[8];
  for (int column = 0; column < COLUMNS; column++)
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(own_quarter(place) + column),
                 "r"(cells[threadIdx.x * COLUMNS + column]) : "memory");
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  if (threadIdx.x / 32 == c[2]) {
    u32 at = place + c[3];
    for (int i = 0; i < 8; i++) r[i] = registers[blockIdx.x * 256 + threadIdx.x % 32 * 8 + i];
    if (c[1]) {
      switch (c[0]) { EACH_FORM(STORE, "unpack::16b") }
      asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    } else {
      switch (c[0]) { EACH_FORM(LOAD, "pack::16b") }
      asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    }
    for (int i = 0; i < 8; i++) loaded[blockIdx.x * 256 + threadIdx.x % 32 * 8 + i] = r[i];
  }
  dump(place, COLUMNS, cells_after + blockIdx.x * 128 * COLUMNS);
  freed(place);
}

// The bytes that tcgen05.mma reads for descriptors: as `addresses_…` in tensor_cores.cu, with m = 128 and n = 64.
#define READ_BYTES 65536
#define MULTIPLY(NUMBER, KIND)                                                                                       \
  case NUMBER:                                                                                                       \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, p;}" \
                 ::"r"(place), "l"(a), "l"(b), "r"(instruction) : "memory");                                         \
    break;

extern "C" __global__ void __launch_bounds__(128)
    operand_addresses(const u64* words, const int* of_b, const u32* instructions, int kind, int bytes, const u8* digits,
                      const u8* unit, int unit_bytes, u32* out) {
  __shared__ __align__(8) u64 done;
  u32 base = shared_address(smem), barrier = shared_address(&done), place = allocated();
  u32 instruction = instructions[blockIdx.x];
  u64 start = base >> 4, tested = words[blockIdx.x] + start;
  u64 known = (base + READ_BYTES >> 4) | 128ull >> 4 << 16 | 256ull >> 4 << 32 | 1ull << 46;  // core matrices
  u64 a = of_b[blockIdx.x] ? known : tested, b = of_b[blockIdx.x] ? tested : known;
  if (threadIdx.x == 0) barrier_init(barrier, 1);
  for (int i = threadIdx.x; i < unit_bytes; i += 128) smem[READ_BYTES + i] = unit[i];
  for (int pass = 0; pass < 4; pass++) {
    __syncthreads();
    for (int i = threadIdx.x; i < READ_BYTES; i += 128)
      smem[i] = digits[(i / bytes >> 4 * pass & 15) * bytes + i % bytes];
    async_fence();
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (threadIdx.x == 0) {
      switch (kind) {
        MULTIPLY(0, "f16") MULTIPLY(1, "tf32") MULTIPLY(2, "f8f6f4")
#if __CUDA_ARCH__ != 1030
        MULTIPLY(3, "i8")
#endif
      }
      asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
    }
    while (!barrier_passes(barrier, pass & 1)) {
    }
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    dump(place, 64, out + (blockIdx.x * 4 + pass) * 128 * 64);
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  }
  freed(place);
}

// Cells are filled, one thread shifts a quarter down, and all cells come back.
extern "C" __global__ void __launch_bounds__(128) shifts(const int* quarters, const u32* cells, u32* cells_after) {
  __shared__ __align__(8) u64 done;
  u32 barrier = shared_address(&done), place = allocated();
  if (threadIdx.x == 0) barrier_init(barrier, 1);
  for (int column = 0; column < COLUMNS; column++)
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(own_quarter(place) + column),
                 "r"(cells[threadIdx.x * COLUMNS + column]) : "memory");
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("tcgen05.shift.cta_group::1.down [%0];" ::"r"(place + (quarters[blockIdx.x] * 32 << 16)) : "memory");
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
  }
  while (!barrier_passes(barrier, 0)) {
  }
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  dump(place, COLUMNS, cells_after + blockIdx.x * 128 * COLUMNS);
  freed(place);
}

// A pair whose odd block leaves early: before the even block's commit arrives at both (1), or after it has seen it (0).
extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(2, 1, 1) pair_exits(int leaves_early, u32* out) {
  __shared__ __align__(8) u64 done;
  __shared__ u32 place;
  u32 barrier = shared_address(&done), rank = blockIdx.x % 2;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared_address(&place)) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (rank == 0) {
    if (leaves_early) {
      for (u64 start = nanoseconds(); nanoseconds() - start < 1000000ull;) {
      }
    }
    if (threadIdx.x == 0)
      asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                   ::"r"(barrier), "h"((u16)3) : "memory");
  }
  int waited = rank == 1 && leaves_early ? 2 : barrier_waited(barrier, 0);
  if (threadIdx.x == 0) out[blockIdx.x] = waited;
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" ::"r"(place));
}
#endif
