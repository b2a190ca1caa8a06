// A ring of bulk copies with tokens: consumers keep what their arrival returned and wait for it with test_wait; it wraps five times.
#include "device.cuh"

constexpr int SLOTS = 2, SLOT_WORDS = 64;

extern "C" __global__ void ring_tokens(const u32* in, u32* out, int tiles) {
  __shared__ alignas(128) u32 slots[SLOTS][SLOT_WORDS];
  __shared__ alignas(8) u64 full[SLOTS];
  const u32 thread = threadIdx.x;
  if (thread == 0) {
    for (u64& barrier : full) mbarrier_init(shared_address(&barrier), SLOT_WORDS);
    fence_mbarrier_init();
  }
  __syncthreads();
  const u32* source = in + blockIdx.x * tiles * SLOT_WORDS;
  u32 sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const u32 barrier = shared_address(&full[tile % SLOTS]);
    u64 token;
    if (thread == 0) {
      asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(barrier), "r"(SLOT_WORDS * 4) : "memory");
      bulk_load(shared_address(slots[tile % SLOTS]), source + tile * SLOT_WORDS, SLOT_WORDS * 4, barrier);
    } else {
      asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(barrier) : "memory");
    }
    u32 is_done;
    do {
      if (tile % 3 == 0) {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(is_done) : "r"(barrier), "l"(token) : "memory");
      } else {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.acquire.cta.shared::cta.b64 p, [%1], %2, 0x989680; selp.u32 %0, 1, 0, p; }" : "=r"(is_done) : "r"(barrier), "l"(token) : "memory");
      }
    } while (!is_done);
    sum = sum * 7 + slots[tile % SLOTS][SLOT_WORDS - 1 - thread];
    __syncthreads();  // everybody has read the slot
  }
  out[blockIdx.x * SLOT_WORDS + thread] = sum;
}
