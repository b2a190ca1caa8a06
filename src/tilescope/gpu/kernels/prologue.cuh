// What all kernels share. NVRTC compiles each file with this text before it; no header is needed.
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

extern __shared__ __align__(1024) u8 smem[];

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  u32 address;
  asm("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(address) : "l"(pointer));
  return address;
}

__device__ __forceinline__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ int barrier_passes(u32 barrier, u32 parity) {
  int passes;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(passes) : "r"(barrier), "r"(parity) : "memory");
  return passes;
}

// Whether the phase of this parity ends within 50 ms: a count of bytes that is wrong never lets it end.
__device__ __forceinline__ int barrier_waited(u32 barrier, u32 parity) {
  u64 start = nanoseconds();
  while (!barrier_passes(barrier, parity))
    if (nanoseconds() - start > 50000000ull) return 0;
  return 1;
}

// The 64 bits of an mbarrier: inval makes the synchronisation unit write them back to shared memory.
__device__ __forceinline__ u64 barrier_word(u32 barrier) {
  u64 word;
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  asm volatile("ld.volatile.shared.u64 %0, [%1];" : "=l"(word) : "r"(barrier) : "memory");
  return word;
}

__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
