// A branch table written by hand, with labels and registers that are declared again in inner scopes.
extern "C" __global__ void branch_table(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned x = in[i];
  unsigned y;
  asm volatile(
      "{\n"
      ".reg .u32 way, t;\n"
      "rem.u32 way, %1, 5;\n"
      "ways: .branchtargets way0, way1, way2, way1, way4;\n"
      "brx.idx way, ways;\n"
      "way0: mul.lo.u32 %0, %1, 3; bra.uni joined;\n"
      "way1: { .reg .u32 t; .reg .pred p; shr.u32 t, %1, 4; setp.gt.u32 p, t, 1000; @p bra inner; add.u32 t, t, 77; inner: mov.u32 %0, t; }\n"
      "      bra.uni joined;\n"
      "way2: { .reg .u32 t; mov.u32 t, 9; { .reg .u32 t; mov.u32 t, 5; xor.b32 %0, %1, t; } add.u32 %0, %0, t; }\n"
      "      bra.uni joined;\n"
      "way4: mov.u32 t, 3; loop: { .reg .pred p; sub.u32 t, t, 1; shl.b32 %0, %1, t; setp.ne.u32 p, t, 0; @p bra loop; }\n"
      "joined: not.b32 %0, %0;\n"
      "}\n"
      : "=&r"(y) : "r"(x));
  out[i] = y;
}
