// Right kernels of ordinary CUDA C++; a macro makes one mistake in one of them.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda_pipeline.h>

#ifndef PENDING_GROUPS
#define PENDING_GROUPS 1
#endif
#ifndef ARRIVALS
#define ARRIVALS 128
#endif
#ifndef BARRIER_THREADS
#define BARRIER_THREADS 128
#endif
#ifndef SCOPE
#define SCOPE cuda::thread_scope_device
#endif
#ifndef FENCE
#define FENCE __threadfence()
#endif

// The compiler unrolls the loop: one source line is eight loads.
extern "C" __global__ void unrolled(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x, sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    tile[t] = in[k * 128 + t];
#ifndef NO_FIRST_BARRIER
    __syncthreads();
#endif
    sum += tile[127 - t];
#ifndef NO_SECOND_BARRIER
    __syncthreads();
#endif
  }
  out[t] = sum;
}

// Half of the threads of each round add: a barrier inside the if would be divergent.
extern "C" __global__ void reduction(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  __syncthreads();
  for (int half = 64; half > 0; half >>= 1) {
    if (t < half) tile[t] += tile[t + half];
#ifndef NO_BARRIER
    __syncthreads();
#endif
  }
  if (t == 0) out[0] = tile[0];
}

// Two mistakes are two findings: each tile has its own barrier.
extern "C" __global__ void two_tiles(int* out, const int* in) {
  __shared__ int first[128];
  __shared__ int second[128];
  int t = threadIdx.x;
  first[t] = in[t];
#ifndef NO_BARRIERS
  __syncthreads();
#endif
  int value = first[127 - t];
  second[t] = value;
#ifndef NO_BARRIERS
  __syncthreads();
#endif
  out[t] = second[(t + 64) % 128] + value;
}

extern "C" __global__ void neighbours(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
#ifndef NO_WARP_BARRIER
  __syncwarp();
#endif
  out[t] = tile[t ^ 1];
}

extern "C" __global__ void through_memory(int* out, const int* in, int* middle) {
  int t = threadIdx.x, first = blockIdx.x * 128;
  middle[first + t] = 2 * in[first + t];
#ifndef NO_BARRIER
  __syncthreads();
#endif
  out[first + t] = middle[first + 127 - t];
}

extern "C" __global__ void stages(int* out, const int* in) {
  __shared__ __align__(16) int tiles[3][128];
  int t = threadIdx.x, sum = 0;
  for (int k = 0; k < 2; ++k) {
    __pipeline_memcpy_async(&tiles[k][t], &in[k * 128 + t], 4);
    __pipeline_commit();
  }
  for (int k = 0; k < 6; ++k) {
    __pipeline_wait_prior(PENDING_GROUPS);
    __syncthreads();
    sum += tiles[k % 3][127 - t];
    if (k + 2 < 6) __pipeline_memcpy_async(&tiles[(k + 2) % 3][t], &in[(k + 2) * 128 + t], 4);
    __pipeline_commit();
  }
  out[t] = sum;
}

extern "C" __global__ void counted(int* out, const int* in) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[128];
  int t = threadIdx.x;
  if (t == 0) init(&barrier, ARRIVALS);
  __syncthreads();
  tile[t] = in[t];
  barrier.arrive_and_wait();
  out[t] = tile[127 - t];
}

extern "C" __global__ void named(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  asm volatile("bar.sync 1, %0;" ::"n"(BARRIER_THREADS) : "memory");
  out[t] = tile[127 - t];
}

extern "C" __global__ void flagged(int* out, const int* in, int* memory) {
  cuda::atomic_ref<int, SCOPE> flag(memory[0]);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    memory[1] = in[0];
    flag.store(1, cuda::memory_order_release);
  } else {
    while (flag.load(cuda::memory_order_acquire) == 0) {
    }
    out[0] = memory[1];
  }
}

extern "C" __global__ void fenced(int* out, const int* in, int* memory) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    memory[1] = in[0];
    FENCE;
    atomicExch(&memory[0], 1);
  } else {
    while (atomicAdd(&memory[0], 0) == 0) {
    }
    FENCE;
    out[0] = memory[1];
  }
}
