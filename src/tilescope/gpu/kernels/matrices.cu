// ldmatrix and stmatrix: one warp a case. `rows` are 32 shared offsets, `op` is 0-2 for x1, x2, x4, 3-5 for .trans; + 6: stmatrix.
#define LOAD1(T) asm volatile("ldmatrix.sync.aligned.m8n8.x1" T ".shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at));
#define LOAD2(T) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x2" T ".shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
#define LOAD4(T)                                                              \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" T ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
#define STORE1(T) \
  asm volatile("stmatrix.sync.aligned.m8n8.x1" T ".shared.b16 [%0], {%1};" ::"r"(at), "r"(r[0]) : "memory");
#define STORE2(T)                                                                                          \
  asm volatile("stmatrix.sync.aligned.m8n8.x2" T ".shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(r[0]), "r"(r[1]) \
               : "memory");
#define STORE4(T)                                                                                      \
  asm volatile("stmatrix.sync.aligned.m8n8.x4" T ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]), \
               "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");

// ldmatrix (op < 6) reads what `pool` holds and leaves other registers zero; stmatrix (op - 6) writes to untouched memory.
extern "C" __global__ void matrices(const int* ops, const int* rows, const u8* pool, int bytes, u32* registers, u8* images) {
  int op = ops[blockIdx.x];
  for (int i = threadIdx.x; i < bytes; i += 32) smem[i] = op < 6 ? pool[i] : 0xEE;
  __syncwarp();
  u32 at = shared_address(smem) + rows[blockIdx.x * 32 + threadIdx.x];
  u32 r[4] = {}, *own = registers + (blockIdx.x * 32 + threadIdx.x) * 4;
  if (op >= 6)
    for (int i = 0; i < 4; i++) r[i] = own[i];
  switch (op) {
    case 0: LOAD1("") break;
    case 1: LOAD2("") break;
    case 2: LOAD4("") break;
    case 3: LOAD1(".trans") break;
    case 4: LOAD2(".trans") break;
    case 5: LOAD4(".trans") break;
    case 6: STORE1("") break;
    case 7: STORE2("") break;
    case 8: STORE4("") break;
    case 9: STORE1(".trans") break;
    case 10: STORE2(".trans") break;
    case 11: STORE4(".trans") break;
  }
  __syncwarp();
  for (int i = 0; i < 4; i++) own[i] = r[i];
  for (int i = threadIdx.x; i < bytes; i += 32) images[(u64)blockIdx.x * bytes + i] = smem[i];
}
