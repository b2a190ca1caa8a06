// Tensor cores: every mma.sync, every wgmma with A in registers, and wgmma's reading of shared memory.
//
// One warp or warpgroup is a case; words go in, words come out. A kernel is called as its opcode, dots turned to
// underscores. Registers are 32-bit words whatever their type (f64: 64 bits): PTX takes untyped registers for any type.

// Accumulators of 2 to 128 registers: as operands of the opcode, and as operands of the asm
#define D2 "%0, %1"
#define D4 D2 ", %2, %3"
#define D6 D4 ", %4, %5"
#define D8 D6 ", %6, %7"
#define D12 D8 ", %8, %9, %10, %11"
#define D16 D12 ", %12, %13, %14, %15"
#define D32 D16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define D64 D32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define D128 D64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PAIR(R, I) "+" R(d[I]), "+" R(d[I + 1])
#define OUT2(R) PAIR(R, 0)
#define OUT4(R) OUT2(R), PAIR(R, 2)
#define OUT6(R) OUT4(R), PAIR(R, 4)
#define OUT8(R) OUT6(R), PAIR(R, 6)
#define OUT12(R) OUT8(R), PAIR(R, 8), PAIR(R, 10)
#define OUT16(R) OUT12(R), PAIR(R, 12), PAIR(R, 14)
#define SIXTEEN(R, I) PAIR(R, I), PAIR(R, I + 2), PAIR(R, I + 4), PAIR(R, I + 6), PAIR(R, I + 8), PAIR(R, I + 10), \
  PAIR(R, I + 12), PAIR(R, I + 14)
#define OUT32(R) OUT16(R), SIXTEEN(R, 16)
#define OUT64(R) OUT32(R), SIXTEEN(R, 32), SIXTEEN(R, 48)
#define OUT128(R) OUT64(R), SIXTEEN(R, 64), SIXTEEN(R, 80), SIXTEEN(R, 96), SIXTEEN(R, 112)

// mma.sync: a, b and d hold the words of 32 lanes, lane after lane; d holds C before and D after
#define MULTIPLY(D_, A_, B_, WORD, R, LIST_A, LIST_B, IN_A, IN_B, NAME, OPCODE)                                         \
  extern "C" __global__ void NAME(const WORD* pa, const WORD* pb, int, WORD* pd) {                                 \
    int thread = blockIdx.x * 32 + threadIdx.x;                                                                    \
    const WORD *a = pa + thread * A_, *b = pb + thread * B_;                                                       \
    WORD d[D_];                                                                                                    \
    for (int i = 0; i < D_; i++) d[i] = pd[thread * D_ + i];                                                       \
    asm volatile(OPCODE " {" D##D_ "}, {" LIST_A "}, {" LIST_B "}, {" D##D_ "};" : OUT##D_(R) : IN_A, IN_B);       \
    for (int i = 0; i < D_; i++) pd[thread * D_ + i] = d[i];                                                       \
  }
#define A1(R) R(a[0])
#define B1(R) R(b[0])
#define A2(R) R(a[0]), R(a[1])
#define B2(R) R(b[0]), R(b[1])
#define A4(R) R(a[0]), R(a[1]), R(a[2]), R(a[3])
#define B4(R) R(b[0]), R(b[1]), R(b[2]), R(b[3])
#define A8(R) R(a[0]), R(a[1]), R(a[2]), R(a[3]), R(a[4]), R(a[5]), R(a[6]), R(a[7])
#define MMA_2_1_1(NAME, OPCODE) MULTIPLY(2, 1, 1, u32, "r", "%2", "%3", A1("r"), B1("r"), NAME, OPCODE)
#define MMA_F64_2_1_1(NAME, OPCODE) MULTIPLY(2, 1, 1, u64, "l", "%2", "%3", A1("l"), B1("l"), NAME, OPCODE)
#define MMA_2_2_1(NAME, OPCODE) MULTIPLY(2, 2, 1, u32, "r", "%2, %3", "%4", A2("r"), B1("r"), NAME, OPCODE)
#define MMA_2_4_2(NAME, OPCODE) MULTIPLY(2, 4, 2, u32, "r", "%2, %3, %4, %5", "%6, %7", A4("r"), B2("r"), NAME, OPCODE)
#define MMA_4_2_1(NAME, OPCODE) MULTIPLY(4, 2, 1, u32, "r", "%4, %5", "%6", A2("r"), B1("r"), NAME, OPCODE)
#define MMA_F64_4_2_1(NAME, OPCODE) MULTIPLY(4, 2, 1, u64, "l", "%4, %5", "%6", A2("l"), B1("l"), NAME, OPCODE)
#define MMA_4_2_2(NAME, OPCODE) MULTIPLY(4, 2, 2, u32, "r", "%4, %5", "%6, %7", A2("r"), B2("r"), NAME, OPCODE)
#define MMA_4_4_2(NAME, OPCODE) MULTIPLY(4, 4, 2, u32, "r", "%4, %5, %6, %7", "%8, %9", A4("r"), B2("r"), NAME, OPCODE)
#define MMA_F64_4_4_2(NAME, OPCODE) MULTIPLY(4, 4, 2, u64, "l", "%4, %5, %6, %7", "%8, %9", A4("l"), B2("l"), \
  NAME, OPCODE)
#define MMA_F64_4_8_4(NAME, OPCODE) MULTIPLY(4, 8, 4, u64, "l", "%4, %5, %6, %7, %8, %9, %10, %11", "%12, %13, %14, %15", \
  A8("l"), B4("l"), NAME, OPCODE)
#define MMA_8_2_2(NAME, OPCODE) MULTIPLY(8, 2, 2, u32, "r", "%8, %9", "%10, %11", A2("r"), B2("r"), NAME, OPCODE)

// An opcode by its parts; TAIL is what stands behind the types
#define MMA(FORM, SHAPE, ORDER_A, ORDER_B, D, A, B, NAME_TAIL, TAIL)                                               \
  FORM(mma_sync_aligned_##SHAPE##_##ORDER_A##_##ORDER_B##_##D##_##A##_##B##_##D##NAME_TAIL,                        \
       "mma.sync.aligned." #SHAPE "." #ORDER_A "." #ORDER_B "." #D "." #A "." #B "." #D TAIL)
#define ALIKE(FORM, SHAPE, D, A) MMA(FORM, SHAPE, row, col, D, A, A, , )
#define MIXED(FORM, SHAPE, D, X, Y)                                                                                \
  MMA(FORM, SHAPE, row, col, D, X, X, , ) MMA(FORM, SHAPE, row, col, D, X, Y, , )                                  \
  MMA(FORM, SHAPE, row, col, D, Y, X, , ) MMA(FORM, SHAPE, row, col, D, Y, Y, , )
#define BITS(FORM, SHAPE)                                                                                          \
  MMA(FORM, SHAPE, row, col, s32, b1, b1, _xor_popc, ".xor.popc")                                                  \
  MMA(FORM, SHAPE, row, col, s32, b1, b1, _and_popc, ".and.popc")
#define QUAD_PAIRS(FORM, D)                                                                                        \
  MMA(FORM, m8n8k4, row, col, D, f16, f16, , ) MMA(FORM, m8n8k4, row, row, D, f16, f16, , )                        \
  MMA(FORM, m8n8k4, col, row, D, f16, f16, , ) MMA(FORM, m8n8k4, col, col, D, f16, f16, , )

QUAD_PAIRS(MMA_4_2_2, f16)
QUAD_PAIRS(MMA_8_2_2, f32)
ALIKE(MMA_F64_2_1_1, m8n8k4, f64, f64)
MIXED(MMA_2_1_1, m8n8k16, s32, s8, u8)
MIXED(MMA_2_1_1, m8n8k32, s32, s4, u4)
BITS(MMA_2_1_1, m8n8k128)
ALIKE(MMA_4_2_1, m16n8k4, f32, tf32)
ALIKE(MMA_F64_4_2_1, m16n8k4, f64, f64)
ALIKE(MMA_2_2_1, m16n8k8, f16, f16)
ALIKE(MMA_4_2_1, m16n8k8, f32, f16)
ALIKE(MMA_4_2_1, m16n8k8, f32, bf16)
ALIKE(MMA_4_4_2, m16n8k8, f32, tf32)
ALIKE(MMA_F64_4_4_2, m16n8k8, f64, f64)
ALIKE(MMA_2_4_2, m16n8k16, f16, f16)
ALIKE(MMA_4_4_2, m16n8k16, f32, f16)
ALIKE(MMA_4_4_2, m16n8k16, f32, bf16)
MIXED(MMA_4_2_1, m16n8k16, s32, s8, u8)
MIXED(MMA_2_2_1, m16n8k16, f16, e4m3, e5m2)
MIXED(MMA_4_2_1, m16n8k16, f32, e4m3, e5m2)
ALIKE(MMA_F64_4_8_4, m16n8k16, f64, f64)
MIXED(MMA_4_4_2, m16n8k32, s32, s8, u8)
MIXED(MMA_2_4_2, m16n8k32, f16, e4m3, e5m2)
MIXED(MMA_4_4_2, m16n8k32, f32, e4m3, e5m2)
MIXED(MMA_4_2_1, m16n8k32, s32, s4, u4)
MIXED(MMA_4_4_2, m16n8k64, s32, s4, u4)
BITS(MMA_4_2_1, m16n8k128)
BITS(MMA_4_4_2, m16n8k256)

// wgmma with A in registers: B is `b_bytes` of K-major core matrices, LBO 128, SBO 256; the last flags are the opcode's own
#define DESCRIPTOR(ADDRESS, LBO, SBO) \
  ((u64)((ADDRESS) >> 4) | (u64)((LBO) >> 4) << 16 | (u64)((SBO) >> 4) << 32)
#define WGMMA(D_, LIST_A, DESC, PRED, FLAGS, NAME, OPCODE)                                                         \
  extern "C" __global__ void __launch_bounds__(128) NAME(const u32* pa, const u8* pb, int b_bytes, u32* pd) {      \
    _Pragma("unroll 1") for (int i = threadIdx.x; i < b_bytes; i += 128) smem[i] = pb[blockIdx.x * b_bytes + i];                       \
    async_fence();                                                                                                 \
    __syncthreads();                                                                                               \
    int thread = blockIdx.x * 128 + threadIdx.x;                                                                   \
    u32 a[4], d[D_];                                                                                               \
    for (int i = 0; i < 4; i++) a[i] = pa[thread * 4 + i];                                                         \
    for (int i = 0; i < D_; i++) d[i] = pd[thread * D_ + i];                                                       \
    u64 b = DESCRIPTOR(shared_address(smem), 128, 256);                                                            \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                        \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " PRED ", 0; " OPCODE " {" D##D_ "}, {" LIST_A "}, " DESC          \
                 ", p" FLAGS ";}" : OUT##D_("r") : A4("r"), "l"(b), "r"(1));                                       \
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");                \
    for (int i = 0; i < D_; i++) pd[thread * D_ + i] = d[i];                                                       \
  }
#define WGMMA_2(FLAGS, NAME, OPCODE) WGMMA(2, "%2, %3, %4, %5", "%6", "%7", FLAGS, NAME, OPCODE)
#define WGMMA_4(FLAGS, NAME, OPCODE) WGMMA(4, "%4, %5, %6, %7", "%8", "%9", FLAGS, NAME, OPCODE)
#define WGMMA_6(FLAGS, NAME, OPCODE) WGMMA(6, "%6, %7, %8, %9", "%10", "%11", FLAGS, NAME, OPCODE)
#define WGMMA_12(FLAGS, NAME, OPCODE) WGMMA(12, "%12, %13, %14, %15", "%16", "%17", FLAGS, NAME, OPCODE)
#define WGMMA_16(FLAGS, NAME, OPCODE) WGMMA(16, "%16, %17, %18, %19", "%20", "%21", FLAGS, NAME, OPCODE)
#define WGMMA_32(FLAGS, NAME, OPCODE) WGMMA(32, "%32, %33, %34, %35", "%36", "%37", FLAGS, NAME, OPCODE)
#define WGMMA_64(FLAGS, NAME, OPCODE) WGMMA(64, "%64, %65, %66, %67", "%68", "%69", FLAGS, NAME, OPCODE)
#define WGMMA_128(FLAGS, NAME, OPCODE) WGMMA(128, "%128, %129, %130, %131", "%132", "%133", FLAGS, NAME, OPCODE)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The narrowest, an odd, a usual and the widest n; accumulators of 16 bits share registers
#define BY_N(FORM, N, K, FLAGS, D, A, B, NAME_TAIL, TAIL)                                                          \
  FORM(FLAGS, wgmma_mma_async_sync_aligned_m64##N##K##_##D##_##A##_##B##NAME_TAIL,                                 \
       "wgmma.mma_async.sync.aligned.m64" #N #K "." #D "." #A "." #B TAIL)
#define TO_32(K, FLAGS, D, A, B, NAME_TAIL, TAIL)                                                                  \
  BY_N(WGMMA_4, n8, K, FLAGS, D, A, B, NAME_TAIL, TAIL) BY_N(WGMMA_12, n24, K, FLAGS, D, A, B, NAME_TAIL, TAIL)    \
  BY_N(WGMMA_32, n64, K, FLAGS, D, A, B, NAME_TAIL, TAIL) BY_N(WGMMA_128, n256, K, FLAGS, D, A, B, NAME_TAIL, TAIL)
#define TO_16(K, FLAGS, A, B)                                                                                      \
  BY_N(WGMMA_2, n8, K, FLAGS, f16, A, B, , ) BY_N(WGMMA_6, n24, K, FLAGS, f16, A, B, , )                           \
  BY_N(WGMMA_16, n64, K, FLAGS, f16, A, B, , ) BY_N(WGMMA_64, n256, K, FLAGS, f16, A, B, , )
#define FP8(A, B) TO_16(k32, ", 1, 1", A, B) TO_32(k32, ", 1, 1", f32, A, B, , )

TO_32(k8, ", 1, 1", f32, tf32, tf32, , )
TO_16(k16, ", 1, 1, 0", f16, f16)
TO_32(k16, ", 1, 1, 0", f32, f16, f16, , )
TO_32(k16, ", 1, 1, 0", f32, bf16, bf16, , )
FP8(e4m3, e4m3)
FP8(e4m3, e5m2)
FP8(e5m2, e4m3)
FP8(e5m2, e5m2)
TO_32(k32, "", s32, s8, s8, , )
TO_32(k32, "", s32, s8, u8, , )
TO_32(k32, "", s32, u8, s8, , )
TO_32(k32, "", s32, u8, u8, , )
TO_32(k256, "", s32, b1, b1, _and_popc, ".and.popc")

// The bytes that wgmma reads for descriptors: D = A B of m64n64 with one operand under test and the other the unit matrix.
//
// Shared memory from 0 to READ_BYTES holds, in pass p, digit p (4 bits) of each element's own number, spelled by `digits`;
// so four products tell which element was read where. The unit matrix lies behind, in core matrices (LBO 128, SBO 256).
#define READ_BYTES 65536
#define ADDRESSES(NAME, OPCODE, FLAGS, BYTES)                                                                      \
  extern "C" __global__ void __launch_bounds__(128) NAME(const u64* words, const int* of_b, const u8* digits,      \
                                                         const u8* unit, int unit_bytes, u32* out) {               \
    u32 base = shared_address(smem);                                                                               \
    u64 tested = words[blockIdx.x] + (base >> 4), known = DESCRIPTOR(base + READ_BYTES, 128, 256);                 \
    u64 a = of_b[blockIdx.x] ? known : tested, b = of_b[blockIdx.x] ? tested : known;                              \
    _Pragma("unroll 1") for (int i = threadIdx.x; i < unit_bytes; i += 128) smem[READ_BYTES + i] = unit[i];                            \
    _Pragma("unroll 1") for (int pass = 0; pass < 4; pass++) {                                                                         \
      __syncthreads();                                                                                             \
      _Pragma("unroll 1") for (int i = threadIdx.x; i < READ_BYTES / BYTES; i += 128)                                                  \
        for (int j = 0; j < BYTES; j++) smem[i * BYTES + j] = digits[(i >> 4 * pass & 15) * BYTES + j];            \
      async_fence();                                                                                               \
      __syncthreads();                                                                                             \
      u32 d[32] = {};                                                                                              \
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                      \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned." OPCODE " {" D32           \
                   "}, %32, %33, p" FLAGS ";}" : OUT32("r") : "l"(a), "l"(b), "r"(0));                             \
      asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");              \
      for (int i = 0; i < 32; i++) out[((blockIdx.x * 4 + pass) * 128 + threadIdx.x) * 32 + i] = d[i];             \
    }                                                                                                              \
  }
// Which operand is MN-major, of A and of B
ADDRESSES(addresses_bf16_00, "m64n64k16.f32.bf16.bf16", ", 1, 1, 0, 0", 2)
ADDRESSES(addresses_bf16_01, "m64n64k16.f32.bf16.bf16", ", 1, 1, 0, 1", 2)
ADDRESSES(addresses_bf16_10, "m64n64k16.f32.bf16.bf16", ", 1, 1, 1, 0", 2)
ADDRESSES(addresses_bf16_11, "m64n64k16.f32.bf16.bf16", ", 1, 1, 1, 1", 2)
ADDRESSES(addresses_f16_00, "m64n64k16.f32.f16.f16", ", 1, 1, 0, 0", 2)
ADDRESSES(addresses_f16_01, "m64n64k16.f32.f16.f16", ", 1, 1, 0, 1", 2)
ADDRESSES(addresses_f16_10, "m64n64k16.f32.f16.f16", ", 1, 1, 1, 0", 2)
ADDRESSES(addresses_f16_11, "m64n64k16.f32.f16.f16", ", 1, 1, 1, 1", 2)
ADDRESSES(addresses_tf32_00, "m64n64k8.f32.tf32.tf32", ", 1, 1", 4)
ADDRESSES(addresses_e4m3_00, "m64n64k32.f32.e4m3.e4m3", ", 1, 1", 1)
ADDRESSES(addresses_e5m2_00, "m64n64k32.f32.e5m2.e5m2", ", 1, 1", 1)
ADDRESSES(addresses_s8_00, "m64n64k32.s32.s8.s8", "", 1)
ADDRESSES(addresses_u8_00, "m64n64k32.s32.u8.u8", "", 1)
#endif
