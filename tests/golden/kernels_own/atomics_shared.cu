// Atomic operations on shared memory: a histogram, extremes, a float sum by compare and swap, a lock.
#include "device.cuh"

extern "C" __global__ void atomics_shared(const u32* in, u32* out) {
  __shared__ u32 bins[32];
  __shared__ u64 total, largest;
  __shared__ float sum, fast_sum;
  __shared__ int lowest, highest, lock, guarded;
  __shared__ u32 bits, flips, ring;
  if (threadIdx.x < 32) bins[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    total = largest = 0;
    sum = fast_sum = 0;
    lowest = 1 << 30;
    highest = -(1 << 30);
    lock = guarded = 0;
    bits = flips = 0;
    ring = 0;
  }
  __syncthreads();
  const u32 x = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&bins[x % 32], 1);
  atomicAdd(&total, static_cast<u64>(x));
  atomicMax(&largest, static_cast<u64>(x) << 8);
  atomicMin(&lowest, static_cast<int>(x));
  atomicMax(&highest, static_cast<int>(x));
  atomicOr(&bits, 1u << (x & 31));
  atomicXor(&flips, x);
  atomicInc(&ring, 99);
  atomicAdd(&fast_sum, static_cast<float>(x & 63));
  for (u32 seen = *reinterpret_cast<volatile u32*>(&sum), assumed = ~seen; seen != assumed;) {
    assumed = seen;
    seen = atomicCAS(reinterpret_cast<u32*>(&sum), assumed, __float_as_uint(__uint_as_float(assumed) + (x & 15)));
  }
  for (bool is_done = false; !is_done;) {  // threads of one warp fight for a lock, one after another
    if (atomicCAS(&lock, 0, 1) == 0) {
      __threadfence_block();
      *const_cast<volatile int*>(&guarded) = *const_cast<volatile int*>(&guarded) + 3;
      __threadfence_block();
      atomicExch(&lock, 0);
      is_done = true;
    }
  }
  __syncthreads();
  u32* result = out + 64 * blockIdx.x;
  if (threadIdx.x < 32) result[threadIdx.x] = bins[threadIdx.x];
  if (threadIdx.x == 0) {
    result[32] = static_cast<u32>(total);
    result[33] = static_cast<u32>(total >> 32);
    result[34] = static_cast<u32>(largest >> 8);
    result[35] = lowest;
    result[36] = highest;
    result[37] = bits;
    result[38] = flips;
    result[39] = ring;
    result[40] = __float_as_uint(sum);
    result[41] = __float_as_uint(fast_sum);
    result[42] = guarded;
  }
}
