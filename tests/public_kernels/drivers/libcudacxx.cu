// Barriers, pipelines and atomics of libcu++.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/semaphore>

constexpr int THREADS = 128;

__global__ void copy_by_bulk(const int *from, int *to) {
  __shared__ alignas(128) int tile[1024];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> ready;
  if (threadIdx.x == 0) init(&ready, blockDim.x);
  __syncthreads();
  cuda::barrier<cuda::thread_scope_block>::arrival_token token;
  const int *source = from + blockIdx.x * 1024;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(tile, source, cuda::aligned_size_t<16>(sizeof tile), ready);
    token = cuda::device::barrier_arrive_tx(ready, 1, sizeof tile);
  } else {
    token = ready.arrive(1);
  }
  ready.wait(cuda::std::move(token));
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) to[blockIdx.x * 1024 + i] = 2 * tile[1023 - i];
}

__global__ void sum_by_pipeline(const float *values, float *sums, int batches) {
  auto block = cooperative_groups::this_thread_block();
  constexpr int STAGES = 2;
  __shared__ float tile[STAGES][THREADS];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
  auto pipeline = cuda::make_pipeline(block, &state);
  float total = 0;
  for (int compute = 0, fetch = 0; compute < batches; compute++) {
    for (; fetch < batches && fetch < compute + STAGES; fetch++) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, tile[fetch % STAGES], values + fetch * THREADS, sizeof(float) * THREADS, pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    total += tile[compute % STAGES][THREADS - 1 - threadIdx.x];
    pipeline.consumer_release();
  }
  sums[threadIdx.x] = total;
}

__global__ void pass_messages(int *data, int *flags, int *received) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[0]);
  if (blockIdx.x == 0) {
    data[threadIdx.x] = 3 * threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) flag.store(1, cuda::std::memory_order_release);
  } else {
    if (threadIdx.x == 0) {
      while (flag.load(cuda::std::memory_order_acquire) == 0) {
      }
    }
    __syncthreads();
    received[threadIdx.x] = data[threadIdx.x];
  }
}

__global__ void count_by_semaphore(int *counters, int rounds) {
  __shared__ cuda::binary_semaphore<cuda::thread_scope_block> lock;
  if (threadIdx.x == 0) new (&lock) cuda::binary_semaphore<cuda::thread_scope_block>(1);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    for (int i = 0; i < rounds; i++) {
      lock.acquire();
      counters[0] = counters[0] + 1;
      lock.release();
    }
  }
}

extern "C" int run_copy_by_bulk(const int *from, int *to, int blocks) {
  copy_by_bulk<<<blocks, THREADS>>>(from, to);
  return 0;
}
extern "C" int run_sum_by_pipeline(const float *values, float *sums, int batches) {
  sum_by_pipeline<<<1, THREADS>>>(values, sums, batches);
  return 0;
}
extern "C" int run_pass_messages(int *data, int *flags, int *received) {
  pass_messages<<<2, THREADS>>>(data, flags, received);
  return 0;
}
extern "C" int run_count_by_semaphore(int *counters, int rounds) {
  count_by_semaphore<<<1, THREADS>>>(counters, rounds);
  return 0;
}
