// One warp-wide access to shared memory a launch, for counters, or many in a row, for clocks. `op` is a row of SMEM_OP.
#define EACH_OP(DO)                                                                                                  \
  DO(0, "ld.volatile.shared.u8 %0, [%4];") DO(1, "ld.volatile.shared.u16 %0, [%4];")                                 \
  DO(2, "ld.volatile.shared.b32 %0, [%4];") DO(3, "ld.volatile.shared.v2.b32 {%0, %1}, [%4];")                       \
  DO(4, "ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];")                                                         \
  DO(5, "st.volatile.shared.u8 [%4], %0;") DO(6, "st.volatile.shared.u16 [%4], %0;")                                 \
  DO(7, "st.volatile.shared.b32 [%4], %0;") DO(8, "st.volatile.shared.v2.b32 [%4], {%0, %1};")                       \
  DO(9, "st.volatile.shared.v4.b32 [%4], {%0, %1, %2, %3};")                                                         \
  DO(10, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%4];")                                                     \
  DO(11, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%4];")                                                 \
  DO(12, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];")                                         \
  DO(13, "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%4];")                                               \
  DO(14, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%4];")                                           \
  DO(15, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];")                                   \
  DO(16, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%4], {%0};")                                                     \
  DO(17, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%4], {%0, %1};")                                                 \
  DO(18, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};")                                         \
  DO(19, "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%4], {%0};")                                               \
  DO(20, "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%4], {%0, %1};")                                           \
  DO(21, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4], {%0, %1, %2, %3};")

#define ACCESS(CODE) \
  asm volatile(CODE : "+r"(a), "+r"(b), "+r"(c), "+r"(d) : "r"(at) : "memory");
#define ONCE(NUMBER, CODE) \
  case NUMBER: ACCESS(CODE) break;
#define TIMES 64
#define OFTEN(NUMBER, CODE)                           \
  case NUMBER: {                                      \
    _Pragma("unroll") for (int i = 0; i < TIMES; i++) { \
      ACCESS(CODE)                                      \
      sum ^= a;                                         \
      at += nothing;                                    \
    }                                                   \
    break;                                              \
  }

// Counted by Nsight Compute: a launch is one access of one warp; lanes whose bit is 0 in `active` stay out.
extern "C" __global__ void one_access(int op, const int* lanes, u32 active, u32* out) {
  u32 at = shared_address(smem) + lanes[threadIdx.x], a = 0, b = 0, c = 0, d = 0;
  if (active >> threadIdx.x & 1) switch (op) { EACH_OP(ONCE) }
  if (a + b + c + d == 0xFFFFFFFF) *out = a;
}

// Clocks of 64 accesses by each of 16 warps, which keep the pipe of shared memory full: one block a case, five tries.
// `sum` uses what is loaded, and `nothing` is 0, which the compiler cannot know: so it neither drops nor joins accesses.
extern "C" __global__ void timed_accesses(const int* ops, const int* lanes, const u32* active, u32 nothing,
                                          u32* out, u32* cycles) {
  int lane = threadIdx.x % 32, op = ops[blockIdx.x];
  u32 at = shared_address(smem) + lanes[blockIdx.x * 32 + lane], a = 0, b = 0, c = 0, d = 0, sum = 0;
  bool takes_part = active[blockIdx.x] >> lane & 1;
  for (int attempt = 0; attempt < 5; attempt++) {
    __syncthreads();
    u32 start = clock();
    if (takes_part) switch (op) { EACH_OP(OFTEN) }
    u32 last;  // comes after all stores before it
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(last) : "r"(shared_address(smem)) : "memory");
    if (last == 0x12345678) sum++;
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x * 5 + attempt] = clock() - start;
  }
  if (sum == 0xFFFFFFFF) *out = sum;
}
