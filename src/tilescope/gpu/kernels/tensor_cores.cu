// Tensor cores: every mma.sync, every wgmma with A in registers, and wgmma's reading of shared memory.
//
// One warp or warpgroup is a case; words go in, words come out. A kernel is called as its opcode, dots turned to
// underscores. Registers are 32-bit words whatever their type (f64: 64 bits): PTX takes untyped registers for any type.

// Accumulators of 2 to 128 registers: as operands of the opcode, and as operands of the asm
#define D2 "%0, %1"
#define OUT2(R) "+" R(d[0]), "+" R(d[1])
#define D4 "%0, %1, %2, %3"
#define OUT4(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3])
#define D6 "%0, %1, %2, %3, %4, %5"
#define OUT6(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5])
#define D8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define OUT8(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7])
#define D12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define OUT12(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7]), "+" R(d[8]), "+" R(d[9]), "+" R(d[10]), "+" R(d[11])
#define D16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OUT16(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7]), "+" R(d[8]), "+" R(d[9]), "+" R(d[10]), "+" R(d[11]), "+" R(d[12]), "+" R(d[13]), "+" R(d[14]), \
  "+" R(d[15])
#define D32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OUT32(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7]), "+" R(d[8]), "+" R(d[9]), "+" R(d[10]), "+" R(d[11]), "+" R(d[12]), "+" R(d[13]), "+" R(d[14]), \
  "+" R(d[15]), "+" R(d[16]), "+" R(d[17]), "+" R(d[18]), "+" R(d[19]), "+" R(d[20]), "+" R(d[21]), "+" R(d[22]), \
  "+" R(d[23]), "+" R(d[24]), "+" R(d[25]), "+" R(d[26]), "+" R(d[27]), "+" R(d[28]), "+" R(d[29]), "+" R(d[30]), \
  "+" R(d[31])
#define D64 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OUT64(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7]), "+" R(d[8]), "+" R(d[9]), "+" R(d[10]), "+" R(d[11]), "+" R(d[12]), "+" R(d[13]), "+" R(d[14]), \
  "+" R(d[15]), "+" R(d[16]), "+" R(d[17]), "+" R(d[18]), "+" R(d[19]), "+" R(d[20]), "+" R(d[21]), "+" R(d[22]), \
  "+" R(d[23]), "+" R(d[24]), "+" R(d[25]), "+" R(d[26]), "+" R(d[27]), "+" R(d[28]), "+" R(d[29]), "+" R(d[30]), \
  "+" R(d[31]), "+" R(d[32]), "+" R(d[33]), "+" R(d[34]), "+" R(d[35]), "+" R(d[36]), "+" R(d[37]), "+" R(d[38]), \
  "+" R(d[39]), "+" R(d[40]), "+" R(d[41]), "+" R(d[42]), "+" R(d[43]), "+" R(d[44]), "+" R(d[45]), "+" R(d[46]), \
  "+" R(d[47]), "+" R(d[48]), "+" R(d[49]), "+" R(d[50]), "+" R(d[51]), "+" R(d[52]), "+" R(d[53]), "+" R(d[54]), \
  "+" R(d[55]), "+" R(d[56]), "+" R(d[57]), "+" R(d[58]), "+" R(d[59]), "+" R(d[60]), "+" R(d[61]), "+" R(d[62]), \
  "+" R(d[63])
#define D128 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OUT128(R) "+" R(d[0]), "+" R(d[1]), "+" R(d[2]), "+" R(d[3]), "+" R(d[4]), "+" R(d[5]), "+" R(d[6]), \
  "+" R(d[7]), "+" R(d[8]), "+" R(d[9]), "+" R(d[10]), "+" R(d[11]), "+" R(d[12]), "+" R(d[13]), "+" R(d[14]), \
  "+" R(d[15]), "+" R(d[16]), "+" R(d[17]), "+" R(d[18]), "+" R(d[19]), "+" R(d[20]), "+" R(d[21]), "+" R(d[22]), \
  "+" R(d[23]), "+" R(d[24]), "+" R(d[25]), "+" R(d[26]), "+" R(d[27]), "+" R(d[28]), "+" R(d[29]), "+" R(d[30]), \
  "+" R(d[31]), "+" R(d[32]), "+" R(d[33]), "+" R(d[34]), "+" R(d[35]), "+" R(d[36]), "+" R(d[37]), "+" R(d[38]), \
  "+" R(d[39]), "+" R(d[40]), "+" R(d[41]), "+" R(d[42]), "+" R(d[43]), "+" R(d[44]), "+" R(d[45]), "+" R(d[46]), \
  "+" R(d[47]), "+" R(d[48]), "+" R(d[49]), "+" R(d[50]), "+" R(d[51]), "+" R(d[52]), "+" R(d[53]), "+" R(d[54]), \
  "+" R(d[55]), "+" R(d[56]), "+" R(d[57]), "+" R(d[58]), "+" R(d[59]), "+" R(d[60]), "+" R(d[61]), "+" R(d[62]), \
  "+" R(d[63]), "+" R(d[64]), "+" R(d[65]), "+" R(d[66]), "+" R(d[67]), "+" R(d[68]), "+" R(d[69]), "+" R(d[70]), \
  "+" R(d[71]), "+" R(d[72]), "+" R(d[73]), "+" R(d[74]), "+" R(d[75]), "+" R(d[76]), "+" R(d[77]), "+" R(d[78]), \
  "+" R(d[79]), "+" R(d[80]), "+" R(d[81]), "+" R(d[82]), "+" R(d[83]), "+" R(d[84]), "+" R(d[85]), "+" R(d[86]), \
  "+" R(d[87]), "+" R(d[88]), "+" R(d[89]), "+" R(d[90]), "+" R(d[91]), "+" R(d[92]), "+" R(d[93]), "+" R(d[94]), \
  "+" R(d[95]), "+" R(d[96]), "+" R(d[97]), "+" R(d[98]), "+" R(d[99]), "+" R(d[100]), "+" R(d[101]), "+" R(d[102]), \
  "+" R(d[103]), "+" R(d[104]), "+" R(d[105]), "+" R(d[106]), "+" R(d[107]), "+" R(d[108]), "+" R(d[109]), \
  "+" R(d[110]), "+" R(d[111]), "+" R(d[112]), "+" R(d[113]), "+" R(d[114]), "+" R(d[115]), "+" R(d[116]), \
  "+" R(d[117]), "+" R(d[118]), "+" R(d[119]), "+" R(d[120]), "+" R(d[121]), "+" R(d[122]), "+" R(d[123]), \
  "+" R(d[124]), "+" R(d[125]), "+" R(d[126]), "+" R(d[127])

// mma.sync: a, b and d hold the words of 32 lanes, lane after lane; d holds C before and D after
#define MMA(D_, A_, B_, WORD, R, LIST_A, LIST_B, IN_A, IN_B, NAME, OPCODE)                                         \
  extern "C" __global__ void NAME(const WORD* pa, const WORD* pb, WORD* pd) {                                      \
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
#define MMA_2_1_1(NAME, OPCODE) MMA(2, 1, 1, u32, "r", "%2", "%3", A1("r"), B1("r"), NAME, OPCODE)
#define MMA_F64_2_1_1(NAME, OPCODE) MMA(2, 1, 1, u64, "l", "%2", "%3", A1("l"), B1("l"), NAME, OPCODE)
#define MMA_2_2_1(NAME, OPCODE) MMA(2, 2, 1, u32, "r", "%2, %3", "%4", A2("r"), B1("r"), NAME, OPCODE)
#define MMA_2_4_2(NAME, OPCODE) MMA(2, 4, 2, u32, "r", "%2, %3, %4, %5", "%6, %7", A4("r"), B2("r"), NAME, OPCODE)
#define MMA_4_2_1(NAME, OPCODE) MMA(4, 2, 1, u32, "r", "%4, %5", "%6", A2("r"), B1("r"), NAME, OPCODE)
#define MMA_F64_4_2_1(NAME, OPCODE) MMA(4, 2, 1, u64, "l", "%4, %5", "%6", A2("l"), B1("l"), NAME, OPCODE)
#define MMA_4_2_2(NAME, OPCODE) MMA(4, 2, 2, u32, "r", "%4, %5", "%6, %7", A2("r"), B2("r"), NAME, OPCODE)
#define MMA_4_4_2(NAME, OPCODE) MMA(4, 4, 2, u32, "r", "%4, %5, %6, %7", "%8, %9", A4("r"), B2("r"), NAME, OPCODE)
#define MMA_F64_4_4_2(NAME, OPCODE) MMA(4, 4, 2, u64, "l", "%4, %5, %6, %7", "%8, %9", A4("l"), B2("l"), \
  NAME, OPCODE)
#define MMA_F64_4_8_4(NAME, OPCODE) MMA(4, 8, 4, u64, "l", "%4, %5, %6, %7, %8, %9, %10, %11", "%12, %13, %14, %15", \
  A8("l"), B4("l"), NAME, OPCODE)
#define MMA_8_2_2(NAME, OPCODE) MMA(8, 2, 2, u32, "r", "%8, %9", "%10, %11", A2("r"), B2("r"), NAME, OPCODE)

// clang-format off
MMA_4_2_2(mma_sync_aligned_m8n8k4_row_col_f16_f16_f16_f16, "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16")
MMA_4_2_2(mma_sync_aligned_m8n8k4_row_row_f16_f16_f16_f16, "mma.sync.aligned.m8n8k4.row.row.f16.f16.f16.f16")
MMA_4_2_2(mma_sync_aligned_m8n8k4_col_row_f16_f16_f16_f16, "mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16")
MMA_4_2_2(mma_sync_aligned_m8n8k4_col_col_f16_f16_f16_f16, "mma.sync.aligned.m8n8k4.col.col.f16.f16.f16.f16")
MMA_8_2_2(mma_sync_aligned_m8n8k4_row_col_f32_f16_f16_f32, "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32")
MMA_8_2_2(mma_sync_aligned_m8n8k4_row_row_f32_f16_f16_f32, "mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32")
MMA_8_2_2(mma_sync_aligned_m8n8k4_col_row_f32_f16_f16_f32, "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32")
MMA_8_2_2(mma_sync_aligned_m8n8k4_col_col_f32_f16_f16_f32, "mma.sync.aligned.m8n8k4.col.col.f32.f16.f16.f32")
MMA_F64_2_1_1(mma_sync_aligned_m8n8k4_row_col_f64_f64_f64_f64, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
MMA_2_1_1(mma_sync_aligned_m8n8k16_row_col_s32_s8_s8_s32, "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k16_row_col_s32_s8_u8_s32, "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k16_row_col_s32_u8_s8_s32, "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k16_row_col_s32_u8_u8_s32, "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k32_row_col_s32_s4_s4_s32, "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k32_row_col_s32_s4_u4_s32, "mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k32_row_col_s32_u4_s4_s32, "mma.sync.aligned.m8n8k32.row.col.s32.u4.s4.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k32_row_col_s32_u4_u4_s32, "mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32")
MMA_2_1_1(mma_sync_aligned_m8n8k128_row_col_s32_b1_b1_s32_xor_popc, "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
MMA_2_1_1(mma_sync_aligned_m8n8k128_row_col_s32_b1_b1_s32_and_popc, "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc")
MMA_4_2_1(mma_sync_aligned_m16n8k4_row_col_f32_tf32_tf32_f32, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32")
MMA_F64_4_2_1(mma_sync_aligned_m16n8k4_row_col_f64_f64_f64_f64, "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64")
MMA_2_2_1(mma_sync_aligned_m16n8k8_row_col_f16_f16_f16_f16, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16")
MMA_4_2_1(mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
MMA_4_2_1(mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
MMA_4_4_2(mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
MMA_F64_4_4_2(mma_sync_aligned_m16n8k8_row_col_f64_f64_f64_f64, "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64")
MMA_2_4_2(mma_sync_aligned_m16n8k16_row_col_f16_f16_f16_f16, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
MMA_4_4_2(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
MMA_4_4_2(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_s32_s8_s8_s32, "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_s32_s8_u8_s32, "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_s32_u8_s8_s32, "mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_s32_u8_u8_s32, "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32")
MMA_2_2_1(mma_sync_aligned_m16n8k16_row_col_f16_e4m3_e4m3_f16, "mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_f32_e4m3_e4m3_f32, "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32")
MMA_2_2_1(mma_sync_aligned_m16n8k16_row_col_f16_e4m3_e5m2_f16, "mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_f32_e4m3_e5m2_f32, "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32")
MMA_2_2_1(mma_sync_aligned_m16n8k16_row_col_f16_e5m2_e4m3_f16, "mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e4m3.f16")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_f32_e5m2_e4m3_f32, "mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e4m3.f32")
MMA_2_2_1(mma_sync_aligned_m16n8k16_row_col_f16_e5m2_e5m2_f16, "mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16")
MMA_4_2_1(mma_sync_aligned_m16n8k16_row_col_f32_e5m2_e5m2_f32, "mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32")
MMA_F64_4_8_4(mma_sync_aligned_m16n8k16_row_col_f64_f64_f64_f64, "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_s32_s8_u8_s32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32, "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_s32_u8_u8_s32, "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32")
MMA_2_4_2(mma_sync_aligned_m16n8k32_row_col_f16_e4m3_e4m3_f16, "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_f32_e4m3_e4m3_f32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA_2_4_2(mma_sync_aligned_m16n8k32_row_col_f16_e4m3_e5m2_f16, "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_f32_e4m3_e5m2_f32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
MMA_2_4_2(mma_sync_aligned_m16n8k32_row_col_f16_e5m2_e4m3_f16, "mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_f32_e5m2_e4m3_f32, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32")
MMA_2_4_2(mma_sync_aligned_m16n8k32_row_col_f16_e5m2_e5m2_f16, "mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16")
MMA_4_4_2(mma_sync_aligned_m16n8k32_row_col_f32_e5m2_e5m2_f32, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
MMA_4_2_1(mma_sync_aligned_m16n8k32_row_col_s32_s4_s4_s32, "mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k32_row_col_s32_s4_u4_s32, "mma.sync.aligned.m16n8k32.row.col.s32.s4.u4.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k32_row_col_s32_u4_s4_s32, "mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k32_row_col_s32_u4_u4_s32, "mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k64_row_col_s32_s4_s4_s32, "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k64_row_col_s32_s4_u4_s32, "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k64_row_col_s32_u4_s4_s32, "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32")
MMA_4_4_2(mma_sync_aligned_m16n8k64_row_col_s32_u4_u4_s32, "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32")
MMA_4_2_1(mma_sync_aligned_m16n8k128_row_col_s32_b1_b1_s32_xor_popc, "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc")
MMA_4_4_2(mma_sync_aligned_m16n8k256_row_col_s32_b1_b1_s32_xor_popc, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc")
MMA_4_2_1(mma_sync_aligned_m16n8k128_row_col_s32_b1_b1_s32_and_popc, "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc")
MMA_4_4_2(mma_sync_aligned_m16n8k256_row_col_s32_b1_b1_s32_and_popc, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc")
// clang-format on

// wgmma with A in registers: B is `b_bytes` of K-major core matrices, LBO 128, SBO 256; the last flags are the opcode's own
#define DESCRIPTOR(ADDRESS, LBO, SBO) \
  ((u64)((ADDRESS) >> 4) | (u64)((LBO) >> 4) << 16 | (u64)((SBO) >> 4) << 32)
#define WGMMA(D_, LIST_A, DESC, PRED, FLAGS, NAME, OPCODE)                                                         \
  extern "C" __global__ void __launch_bounds__(128) NAME(const u32* pa, const u8* pb, u32* pd, int b_bytes) {      \
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
// clang-format off
WGMMA_4(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k8_f32_tf32_tf32, "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32")
WGMMA_12(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k8_f32_tf32_tf32, "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32")
WGMMA_32(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k8_f32_tf32_tf32, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32")
WGMMA_128(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k8_f32_tf32_tf32, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32")
WGMMA_2(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n8k16_f16_f16_f16, "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16")
WGMMA_6(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n24k16_f16_f16_f16, "wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16")
WGMMA_16(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n64k16_f16_f16_f16, "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16")
WGMMA_64(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n256k16_f16_f16_f16, "wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16")
WGMMA_4(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n8k16_f32_f16_f16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
WGMMA_12(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n24k16_f32_f16_f16, "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16")
WGMMA_32(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n64k16_f32_f16_f16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")
WGMMA_128(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n256k16_f32_f16_f16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
WGMMA_4(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n8k16_f32_bf16_bf16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
WGMMA_12(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n24k16_f32_bf16_bf16, "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16")
WGMMA_32(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16")
WGMMA_128(", 1, 1, 0", wgmma_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16")
WGMMA_2(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f16_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3")
WGMMA_6(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f16_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n24k32.f16.e4m3.e4m3")
WGMMA_16(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f16_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n64k32.f16.e4m3.e4m3")
WGMMA_64(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f16_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n256k32.f16.e4m3.e4m3")
WGMMA_4(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f32_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3")
WGMMA_12(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f32_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e4m3")
WGMMA_32(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f32_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3")
WGMMA_128(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f32_e4m3_e4m3, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3")
WGMMA_2(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f16_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2")
WGMMA_6(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f16_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n24k32.f16.e4m3.e5m2")
WGMMA_16(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f16_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n64k32.f16.e4m3.e5m2")
WGMMA_64(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f16_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n256k32.f16.e4m3.e5m2")
WGMMA_4(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f32_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2")
WGMMA_12(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f32_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e5m2")
WGMMA_32(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f32_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2")
WGMMA_128(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f32_e4m3_e5m2, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e5m2")
WGMMA_2(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f16_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e4m3")
WGMMA_6(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f16_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n24k32.f16.e5m2.e4m3")
WGMMA_16(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f16_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n64k32.f16.e5m2.e4m3")
WGMMA_64(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f16_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n256k32.f16.e5m2.e4m3")
WGMMA_4(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f32_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e4m3")
WGMMA_12(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f32_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n24k32.f32.e5m2.e4m3")
WGMMA_32(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f32_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e4m3")
WGMMA_128(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f32_e5m2_e4m3, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e4m3")
WGMMA_2(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f16_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e5m2")
WGMMA_6(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f16_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n24k32.f16.e5m2.e5m2")
WGMMA_16(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f16_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n64k32.f16.e5m2.e5m2")
WGMMA_64(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f16_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n256k32.f16.e5m2.e5m2")
WGMMA_4(", 1, 1", wgmma_mma_async_sync_aligned_m64n8k32_f32_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2")
WGMMA_12(", 1, 1", wgmma_mma_async_sync_aligned_m64n24k32_f32_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n24k32.f32.e5m2.e5m2")
WGMMA_32(", 1, 1", wgmma_mma_async_sync_aligned_m64n64k32_f32_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2")
WGMMA_128(", 1, 1", wgmma_mma_async_sync_aligned_m64n256k32_f32_e5m2_e5m2, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e5m2")
WGMMA_4("", wgmma_mma_async_sync_aligned_m64n8k32_s32_s8_s8, "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8")
WGMMA_12("", wgmma_mma_async_sync_aligned_m64n24k32_s32_s8_s8, "wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.s8")
WGMMA_32("", wgmma_mma_async_sync_aligned_m64n64k32_s32_s8_s8, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8")
WGMMA_128("", wgmma_mma_async_sync_aligned_m64n256k32_s32_s8_s8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8")
WGMMA_4("", wgmma_mma_async_sync_aligned_m64n8k32_s32_s8_u8, "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8")
WGMMA_12("", wgmma_mma_async_sync_aligned_m64n24k32_s32_s8_u8, "wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.u8")
WGMMA_32("", wgmma_mma_async_sync_aligned_m64n64k32_s32_s8_u8, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.u8")
WGMMA_128("", wgmma_mma_async_sync_aligned_m64n256k32_s32_s8_u8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.u8")
WGMMA_4("", wgmma_mma_async_sync_aligned_m64n8k32_s32_u8_s8, "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8")
WGMMA_12("", wgmma_mma_async_sync_aligned_m64n24k32_s32_u8_s8, "wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.s8")
WGMMA_32("", wgmma_mma_async_sync_aligned_m64n64k32_s32_u8_s8, "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8")
WGMMA_128("", wgmma_mma_async_sync_aligned_m64n256k32_s32_u8_s8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.s8")
WGMMA_4("", wgmma_mma_async_sync_aligned_m64n8k32_s32_u8_u8, "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8")
WGMMA_12("", wgmma_mma_async_sync_aligned_m64n24k32_s32_u8_u8, "wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.u8")
WGMMA_32("", wgmma_mma_async_sync_aligned_m64n64k32_s32_u8_u8, "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8")
WGMMA_128("", wgmma_mma_async_sync_aligned_m64n256k32_s32_u8_u8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.u8")
WGMMA_4("", wgmma_mma_async_sync_aligned_m64n8k256_s32_b1_b1_and_popc, "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc")
WGMMA_12("", wgmma_mma_async_sync_aligned_m64n24k256_s32_b1_b1_and_popc, "wgmma.mma_async.sync.aligned.m64n24k256.s32.b1.b1.and.popc")
WGMMA_32("", wgmma_mma_async_sync_aligned_m64n64k256_s32_b1_b1_and_popc, "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc")
WGMMA_128("", wgmma_mma_async_sync_aligned_m64n256k256_s32_b1_b1_and_popc, "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc")
// clang-format on

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
