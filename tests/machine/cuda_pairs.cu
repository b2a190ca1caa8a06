// Right kernels of CUDA C++, and the same with mistakes: -DMISTAKE=1 makes the first mistake of every kernel that has one.
//
// A finding about a mistake names one of the lines that say so: `// found in 1, 3`. The table of test_cuda_pairs.py says which rule.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;
using word = unsigned;

#ifndef MISTAKE
#define MISTAKE 0
#endif
constexpr int mistake = MISTAKE;

__device__ word smem(const void* p) { return static_cast<word>(__cvta_generic_to_shared(p)); }

__device__ word cluster_rank() {
  word rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ word in_block(const void* p, word rank) {
  word address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem(p)), "r"(rank));
  return address;
}

__device__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ void mbarrier_init(uint64_t* barrier, word arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(barrier)), "r"(arrivals) : "memory");
}

__device__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ void mbarrier_expect(uint64_t* barrier, word bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(barrier)), "r"(bytes) : "memory");
}

__device__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(barrier)) : "memory");
}

__device__ void mbarrier_arrive_in(uint64_t* barrier, word rank) {
  word remote = in_block(barrier, rank);
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

__device__ void mbarrier_wait(uint64_t* barrier, word parity) {
  asm volatile(
      "{\n\t.reg .pred p;\nwait_%=:\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra wait_%=;\n\t}" ::"r"(smem(barrier)),
      "r"(parity)
      : "memory");
}

__device__ void bulk_load(void* to, const void* from, word bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)),
               "l"(from), "r"(bytes), "r"(smem(barrier))
               : "memory");
}

__device__ void bulk_load_to_pair(void* to, const void* from, word bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], 3;" ::"r"(
          smem(to)),
      "l"(from), "r"(bytes), "r"(smem(barrier))
      : "memory");
}

__device__ void bulk_store(void* to, const void* from, word bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(smem(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

__device__ void bar_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ void bar_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// A ring of two slots, which two blocks fill by multicast. 1: a reader frees the slot of its own block alone. 2: it frees the slot
// before it reads. 3: the mbarrier expects the bytes of one copy. 4: a block may end while the other one arrives at its mbarriers.
extern "C" __global__ void multicast_ring(word* out, const word* in) {
  __shared__ alignas(128) word tile[2][128];
  __shared__ uint64_t full[2], empty[2];
  word rank = cluster_rank(), t = threadIdx.x;
  if (t == 0) {
    for (int slot = 0; slot < 2; ++slot) {
      mbarrier_init(&full[slot], 1);
      mbarrier_init(&empty[slot], mistake == 1 ? 1 : 2);
    }
    fence_mbarrier_init();
  }
  cluster_sync();
  if (t == 0) {
    for (int k = 0; k < 6; ++k) {
      int slot = k % 2;
      if (k >= 2) mbarrier_wait(&empty[slot], k / 2 + 1 & 1);
      mbarrier_expect(&full[slot], mistake == 3 ? 256 : 512);                              // found in 3
      bulk_load_to_pair(&tile[slot][rank * 64], in + k * 128 + rank * 64, 256, &full[slot]);  // found in 1, 2
    }
  } else if (t >= 32) {
    word lane = t - 32;
    for (int k = 0; k < 6; ++k) {
      int slot = k % 2;
      mbarrier_wait(&full[slot], k / 2 & 1);
      if (mistake == 2 && lane < 2) mbarrier_arrive_in(&empty[slot], lane);
      word sum = 0;
      for (int j = 0; j < 4; ++j) sum += tile[slot][lane + 32 * j];  // found in 1, 2, 3
      __syncwarp();
      if (mistake == 1 && lane == 0) mbarrier_arrive(&empty[slot]);
      if (mistake != 1 && mistake != 2 && lane < 2) mbarrier_arrive_in(&empty[slot], lane);  // found in 4
      out[(blockIdx.x * 6 + k) * 32 + lane] = sum;
    }
  }
  if (mistake != 4) cluster_sync();
}

// Registers go from one warpgroup to another. 1: half of each warp gives some back. 2: no barrier.
extern "C" __global__ void __launch_bounds__(256, 1) registers_moved(word* out, const word* in) {
  __shared__ word tile[128];
  int t = threadIdx.x;
  if (t < 128) {
    if (mistake != 1 || t % 32 < 16) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // found in 1
    tile[t] = in[t];                                                                       // found in 2
    if (mistake != 2) bar_arrive(1, 256);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (mistake != 2) bar_sync(1, 256);
    out[t - 128] = tile[255 - t];  // found in 2
  }
}

// Three slots filled by cp.async. 1: one group too many stays pending. 2: no barrier before the refill. 3: none after the wait.
extern "C" __global__ void copy_groups(word* out, const word* in) {
  __shared__ word tile[3][64];
  int t = threadIdx.x;
  word sum = 0;
  for (int k = 0; k < 2; ++k) {
    __pipeline_memcpy_async(&tile[k][t], in + k * 64 + t, 4);
    __pipeline_commit();
  }
  for (int k = 0; k < 8; ++k) {
    if (k + 2 < 8) __pipeline_memcpy_async(&tile[(k + 2) % 3][t], in + (k + 2) * 64 + t, 4);  // found in 2
    __pipeline_commit();
    __pipeline_wait_prior(mistake == 1 ? 3 : 2);
    if (mistake != 3) __syncthreads();
    sum += tile[k % 3][63 - t];  // found in 1, 2, 3
    if (mistake != 2) __syncthreads();
  }
  out[t] = sum;
}

// libcu++'s pipeline of two stages. 1: nobody waits for the stage. 2: it is released before it is read.
extern "C" __global__ void library_pipeline(word* out, const word* in) {
  __shared__ word tile[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  cg::thread_block block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  word sum = 0;
  for (int filled = 0, k = 0; k < 6; ++k) {
    for (; filled < 6 && filled < k + 2; ++filled) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, tile[filled % 2], in + filled * 64, 256, pipeline);
      pipeline.producer_commit();
    }
    if (mistake != 1) pipeline.consumer_wait();
    if (mistake == 2) pipeline.consumer_release();
    sum += tile[k % 2][63 - threadIdx.x];  // found in 1, 2
    if (mistake != 2) pipeline.consumer_release();
  }
  out[threadIdx.x] = sum;
}

// Decoupled look-back: the sum of all blocks before. 1: no fence before the flag. 2: none after it. 3: a fence of the block alone.
// 4: the flag comes before the value.
extern "C" __global__ void sums_before(word* out, const word* in, word* sums, volatile word* flags) {
  int b = blockIdx.x, lane = threadIdx.x;
  word own = __reduce_add_sync(~0u, in[b * 32 + lane]), before = 0;
  if (lane == 0) {
    if (mistake == 4) flags[b] = 1;
    sums[b] = own;  // found in 1, 2, 3, 4
    if (mistake == 3) __threadfence_block();
    if (mistake != 1 && mistake != 3) __threadfence();
    if (mistake != 4) flags[b] = 1;
    for (int other = b - 1; other >= 0; --other) {
      while (flags[other] == 0) {
      }
      if (mistake != 2) __threadfence();
      before += sums[other];  // found in 1, 2, 3, 4
    }
    out[b] = before;
  }
}

// A warp writes, another one reads. 1: the reader arrives before it reads. 2: the writer arrives before it writes. 3: both counts are
// one too large.
extern "C" __global__ void library_barriers(word* out, const word* in) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier full[2], empty[2];
  __shared__ word tile[2][32];
  int t = threadIdx.x, lane = t % 32;
  if (t == 0)
    for (int slot = 0; slot < 2; ++slot) {
      init(&full[slot], 64 + (mistake == 3));
      init(&empty[slot], 64);
    }
  __syncthreads();
  if (t < 32) {
    for (int k = 0; k < 8; ++k) {
      if (k >= 2) empty[k % 2].arrive_and_wait();
      if (mistake == 2) (void)full[k % 2].arrive();
      tile[k % 2][lane] = in[k * 32 + lane];  // found in 1, 2
      if (mistake != 2) (void)full[k % 2].arrive();
    }
  } else {
    word sum = 0;
    for (int k = 0; k < 8; ++k) {
      full[k % 2].arrive_and_wait();  // found in 3
      if (mistake == 1 && k < 6) (void)empty[k % 2].arrive();
      sum += tile[k % 2][31 - lane];  // found in 1, 2
      if (mistake != 1 && k < 6) (void)empty[k % 2].arrive();
    }
    out[lane] = sum;
  }
}

// Tiles of 16 threads. 1: no barrier of the block. 2: one of the tile. 3: the last shuffle is executed by one thread of each tile.
extern "C" __global__ void tiles_of_threads(word* out, const word* in) {
  __shared__ word sums[8];
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  word sum = in[block.thread_rank()];
  for (int distance = 8; distance > 1; distance /= 2) sum += tile.shfl_down(sum, distance);
  if (mistake != 3 || tile.thread_rank() == 0) sum += tile.shfl_down(sum, 1);  // found in 3
  if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;             // found in 1, 2
  if (mistake == 2) tile.sync();
  if (mistake != 1 && mistake != 2) block.sync();
  if (block.thread_rank() < 8) out[block.thread_rank()] = sums[7 - block.thread_rank()];  // found in 1, 2
}

// Two warps hand words to two others by a barrier with a count. 1: for more threads than come. 2: for the readers alone. 3: the writers
// arrive before they write.
extern "C" __global__ void counted_barrier(word* out, const word* in) {
  __shared__ word tile[64];
  int t = threadIdx.x;
  int threads = mistake == 1 ? 192 : mistake == 2 ? 64 : 128;
  if (t < 64) {
    if (mistake == 3) bar_arrive(2, threads);
    tile[t] = in[t];  // found in 2, 3
    if (mistake != 3) bar_arrive(2, threads);
  } else if (t < 128) {
    bar_sync(2, threads);          // found in 1
    out[t - 64] = tile[127 - t];  // found in 2, 3
  }
}

// The lanes below `n` exchange words. 1: a lane that is not in the mask is read. 2: by a rotation of the whole warp. 3: all lanes are
// named, and some are in the other branch.
extern "C" __global__ void masked_shuffle(word* out, const word* in, int n) {
  int lane = threadIdx.x;
  word value = in[lane];
  word mask = __ballot_sync(~0u, lane < n);
  if (lane < n) {
    int from = mistake == 1 ? lane + 4 : mistake == 2 ? (lane + 12) % 32 : n - 1 - lane;
    value += __shfl_sync(mistake == 3 ? ~0u : mask, value, from);  // found in 1, 2, 3
  } else {
    value *= 3;
  }
  __syncwarp();
  out[lane] = value;
}

// Blocks of a pair exchange words by st.async. 1: nobody waits. 2: more bytes are expected than come. 3: fewer. 4: the other block may
// not have made its mbarrier yet.
extern "C" __global__ void exchanged(word* out, const word* in) {
  __shared__ word tile[64];
  __shared__ uint64_t barrier;
  word rank = cluster_rank(), t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(&barrier, 1);  // found in 4
    fence_mbarrier_init();
    mbarrier_expect(&barrier, mistake == 2 ? 260 : mistake == 3 ? 128 : 256);  // found in 2, 3
  }
  if (mistake == 4) __syncthreads();
  if (mistake != 4) cluster_sync();
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   in_block(&tile[63 - t], rank ^ 1)),
               "r"(in[rank * 64 + t]), "r"(in_block(&barrier, rank ^ 1))
               : "memory");
  if (mistake != 1) mbarrier_wait(&barrier, 0);
  out[rank * 64 + t] = tile[t];  // found in 1
  cluster_sync();
}

// 1: the read-only cache is asked for words that the kernel wrote. 2: no barrier.
extern "C" __global__ void read_again(word* out, const word* in, word* scratch) {
  int t = threadIdx.x;
  scratch[t] = in[t] * 3;  // found in 2
  if (mistake != 2) __syncthreads();
  out[t] = mistake == 1 ? __ldg(&scratch[63 - t]) : scratch[63 - t];  // found in 1, 2
}

// A sum of all blocks. 1, 2: by atomics of a block. 3: without.
extern "C" __global__ void added_by_blocks(word* out, const word* in) {
  word sum = __reduce_add_sync(~0u, in[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) {
    cuda::atomic_ref<word, cuda::thread_scope_block> own(*out);
    if (mistake == 1) atomicAdd_block(out, sum);                          // found in 1
    if (mistake == 2) own.fetch_add(sum, cuda::memory_order_relaxed);     // found in 2
    if (mistake == 3) *out += sum;                                        // found in 3
    if (mistake == 0 || mistake > 3) atomicAdd(out, sum);
  }
}

// A block polls a flag of another one. 1: no fence before the flag. 2: no barrier before it. 3: no barrier after the poll. 4: the flag is
// looked at once. 5: by a plain load.
extern "C" __global__ void polled_flag(word* out, const word* in, word* scratch, volatile word* flag) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    scratch[t] = in[t] + 5;  // found in 1, 2, 3, 4
    if (mistake != 1) __threadfence();
    if (mistake != 2) __syncthreads();
    if (t == 0) *flag = 1;  // found in 5
  } else {
    if (t == 0) {
      if (mistake == 4) {
        if (*flag == 0) __nanosleep(100);
      } else if (mistake == 5) {
        while (*const_cast<word*>(flag) == 0) __nanosleep(20);  // found in 5
      } else {
        while (*flag == 0) {
        }
      }
      __threadfence();
    }
    if (mistake != 3) __syncthreads();
    out[t] = scratch[63 - t];  // found in 1, 2, 3, 4
  }
}

// 1: the barrier of an unrolled loop is missing. 2: both tiles are in one slot.
extern "C" __global__ void two_slots(word* out, const word* in) {
  __shared__ word tile[2][64];
  int t = threadIdx.x;
  word sum = 0;
  tile[0][t] = in[t];  // found in 1
#pragma unroll
  for (int k = 0; k < 6; ++k) {
    if (mistake != 1) __syncthreads();
    if (k < 5) tile[mistake == 2 ? 0 : (k + 1) % 2][t] = in[(k + 1) * 64 + t];  // found in 1, 2
    sum += tile[mistake == 2 ? 0 : k % 2][63 - t];                              // found in 1, 2
  }
  out[t] = sum;
}

// A histogram of 32 bins. 1: the bins are not zeroed. 2: no barrier after that. 3: plain increments. 4: no barrier before the result.
// 5: half of the bins are zeroed.
extern "C" __global__ void histogram(word* out, const word* in) {
  __shared__ word bins[32];
  int t = threadIdx.x;
  if (mistake != 1 && t < (mistake == 5 ? 16 : 32)) bins[t] = 0;  // found in 2
  if (mistake != 2) __syncthreads();
  for (int k = t; k < 512; k += 128) {
    if (mistake == 3) bins[in[k] % 32]++;                // found in 3
    if (mistake != 3) atomicAdd(&bins[in[k] % 32], 1u);  // found in 1, 2, 4, 5
  }
  if (mistake != 4) __syncthreads();
  if (t < 32) out[t] = bins[t];  // found in 1, 4, 5
}

// Tiles leave by bulk stores. 1: nobody waits until the slot is read. 2: no proxy fence. 3: no barrier before the store. 4: another thread
// waits than the one that stores.
extern "C" __global__ void stored_tiles(word* out, const word* in) {
  __shared__ alignas(128) word tile[128];
  int t = threadIdx.x;
  for (int k = 0; k < 4; ++k) {
    tile[t] = in[k * 128 + t] * 2;  // found in 1, 2, 3, 4
    if (mistake != 2) fence_proxy_async();
    if (mistake != 3) __syncthreads();
    if (t == 0) bulk_store(out + k * 128, tile, 512);  // found in 1, 2, 3, 4
    if (mistake != 1 && t == (mistake == 4 ? 32 : 0)) bulk_wait_read();
    __syncthreads();
  }
}

// 1: threads meet at two barriers of a branch. 2: each goes round a loop as often as it has words. 3: whole warps skip the barrier.
extern "C" __global__ void mirrored(word* out, const word* in, int n) {
  __shared__ word tile[96];
  int t = threadIdx.x;
  word value = 0;
  tile[t] = in[t];
  if (mistake == 1) {
    if (t < n) {
      __syncthreads();  // found in 1
      value = tile[95 - t];
    } else {
      __syncthreads();  // found in 1
      value = tile[95 - t] + 1;
    }
  } else if (mistake == 2) {
    __syncthreads();
    for (int k = t; k < 96; k += n) {
      value += tile[95 - k];
      __syncthreads();  // found in 2
    }
  } else if (mistake == 3) {
    if (t < 64) {
      __syncthreads();  // found in 3
      value = tile[63 - t];
    }
  } else {
    __syncthreads();
    value = tile[95 - t];
  }
  out[t] = value;
}

__device__ word reduce(word value, word* sums, bool is_maximum) {
  value = is_maximum ? __reduce_max_sync(~0u, value) : __reduce_add_sync(~0u, value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;  // found in 1, 2
  if (mistake != 2) __syncthreads();
  word all = sums[0];  // found in 1, 2
  for (int k = 1; k < 4; ++k) all = is_maximum ? max(all, sums[k]) : all + sums[k];  // found in 1, 2
  if (mistake != 1) __syncthreads();
  return all;
}

// Two reductions by the same words. 1: the second one overwrites what the first one still reads. 2: sums are read before they are there.
extern "C" __global__ void reduced_twice(word* out, const word* in) {
  __shared__ word sums[4];
  word value = in[threadIdx.x];
  word most = reduce(value, sums, true);
  out[threadIdx.x] = reduce(most - value, sums, false);
}

// The last block adds the sums of all. 1: no fence. 2: no barrier after the word that says who is last. 3: a ticket of the block.
extern "C" __global__ void last_block(word* out, const word* in, word* sums, word* tickets) {
  __shared__ bool is_last;
  word sum = __reduce_add_sync(~0u, in[blockIdx.x * 64 + threadIdx.x % 32]);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;  // found in 1, 3
    if (mistake != 1) __threadfence();
    word ticket = mistake == 3 ? atomicAdd_block(tickets, 1u) : atomicAdd(tickets, 1u);  // found in 3
    is_last = ticket == gridDim.x - 1;                                                   // found in 2
  }
  if (mistake != 2) __syncthreads();
  if (is_last && threadIdx.x == 0) {  // found in 2
    if (mistake != 1) __threadfence();
    word all = 0;
    for (int k = 0; k < gridDim.x; ++k) all += sums[k];  // found in 1, 3
    *out = all;
  }
}

// 1: words are changed in place that the block beside it reads.
extern "C" __global__ void neighbours(word* out, word* in) {
  int k = blockIdx.x * 64 + threadIdx.x, last = gridDim.x * 64 - 1;
  word sum = in[k] + (k < last ? in[k + 1] : 0);  // found in 1
  __syncthreads();
  (mistake == 1 ? in : out)[k] = sum;  // found in 1
}

// A lock. 1: no fence before it is given back. 2: none after it is taken. 3: taken at the scope of a block.
extern "C" __global__ void locked(word* out, word* lock) {
  if (threadIdx.x == 0) {
    while ((mistake == 3 ? atomicCAS_block(lock, 0u, 1u) : atomicCAS(lock, 0u, 1u)) != 0) {
    }
    if (mistake != 2) __threadfence();
    *out += blockIdx.x + 1;  // found in 1, 2, 3
    if (mistake != 1) __threadfence();
    atomicExch(lock, 0u);
  }
}

// Blocks of a pair read each other's words. 1: the other block may have ended. 2: no barrier before. 3: one of the block alone.
extern "C" __global__ void read_from_pair(word* out, const word* in) {
  __shared__ word tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  word rank = cluster.block_rank(), t = threadIdx.x;
  tile[t] = in[rank * 64 + t];  // found in 2, 3
  if (mistake == 3) __syncthreads();
  if (mistake != 2 && mistake != 3) cluster.sync();
  out[rank * 64 + t] = cluster.map_shared_rank(tile, rank ^ 1)[63 - t];  // found in 1, 2, 3
  if (mistake != 1) cluster.sync();
}

// Two bulk loads. 1: both expect too much. 2: both mbarriers count an arrival too many. 3: both expect too little. 4: nobody expects.
extern "C" __global__ void two_loads(word* out, const word* in) {
  __shared__ alignas(128) word tile[2][64];
  __shared__ uint64_t full[2];
  int t = threadIdx.x;
  if (t == 0)
    for (int k = 0; k < 2; ++k) mbarrier_init(&full[k], mistake == 2 ? 2 : 1);
  __syncthreads();
  if (t == 0)
    for (int k = 0; k < 2; ++k) {
      if (mistake != 4) mbarrier_expect(&full[k], mistake == 1 ? 272 : mistake == 3 ? 128 : 256);  // found in 1, 3
      bulk_load(tile[k], in + k * 64, 256, &full[k]);                                            // found in 4
    }
  for (int k = 0; k < 2; ++k) {
    mbarrier_wait(&full[k], 0);  // found in 2
    out[k * 64 + t] = tile[k][63 - t];
  }
}

// Blocks draw tiles from a counter. 1: the drawn number is overwritten while others read it. 2: it is read before it is there.
extern "C" __global__ void drawn_tiles(word* out, const word* in, word* counter) {
  __shared__ word drawn;
  while (true) {
    if (threadIdx.x == 0) drawn = atomicAdd(counter, 1u);  // found in 1, 2
    if (mistake != 2) __syncthreads();
    word tile = drawn;  // found in 1, 2
    if (mistake != 1) __syncthreads();
    if (tile >= 8) break;
    out[tile * 64 + threadIdx.x] = in[tile * 64 + threadIdx.x] + 1;
  }
}

// A flag by libcu++. 1: a relaxed store. 2: a relaxed load. 3: the scope of a block.
extern "C" __global__ void library_flag(word* out, const word* in, word* scratch, word* flag) {
  constexpr auto scope = mistake == 3 ? cuda::thread_scope_block : cuda::thread_scope_device;
  constexpr auto release = mistake == 1 ? cuda::memory_order_relaxed : cuda::memory_order_release;
  constexpr auto acquire = mistake == 2 ? cuda::memory_order_relaxed : cuda::memory_order_acquire;
  cuda::atomic_ref<word, scope> ready(*flag);
  int lane = threadIdx.x;
  if (blockIdx.x == 0) {
    scratch[lane] = in[lane] ^ 7;  // found in 1, 2, 3
    __syncwarp();
    if (lane == 0) ready.store(1, release);
  } else {
    if (lane == 0)
      while (ready.load(acquire) == 0) {
      }
    __syncwarp();
    out[lane] = scratch[31 - lane];  // found in 1, 2, 3
  }
}

// A barrier of the grid by a counter. 1: no fences. 2: it is missing. 3: other threads do not wait for the one that polls.
extern "C" __global__ void grid_counter(word* out, const word* in, word* scratch, word* counter) {
  int k = blockIdx.x * 32 + threadIdx.x, count = gridDim.x * 32;
  scratch[k] = in[k] + 9;  // found in 1, 2, 3
  if (mistake != 2) {
    if (mistake != 1) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(counter, 1u);
      while (atomicAdd(counter, 0u) < gridDim.x) {
      }
      if (mistake != 1) __threadfence();
    }
    if (mistake != 3) __syncthreads();
  }
  out[k] = scratch[count - 1 - k];  // found in 1, 2, 3
}

// 1: no barrier before another view of the same bytes is written. 2: threads leave before it.
extern "C" __global__ void two_views(word* out, const word* in) {
  __shared__ union {
    word words[64];
    unsigned short halves[128];
  } tile;
  int t = threadIdx.x;
  tile.words[t] = in[t];
  __syncthreads();
  word value = tile.words[63 - t];  // found in 1
  if (mistake != 1) __syncthreads();
  tile.halves[t] = value;  // found in 1, 2
  tile.halves[t + 64] = value >> 16;
  if (mistake != 2) __syncthreads();
  out[t] = tile.halves[127 - t];  // found in 2
}

// Remote words and an arrival. 1: the scope of a block is written. 2: no scope is. 3: the arrival is relaxed.
extern "C" __global__ void remote_words(word* out, const word* in) {
  __shared__ word tile[32];
  __shared__ uint64_t barrier;
  word rank = cluster_rank(), lane = threadIdx.x;
  if (lane == 0) {
    mbarrier_init(&barrier, 32);
    fence_mbarrier_init();
  }
  cluster_sync();
  word to = in_block(&tile[31 - lane], rank ^ 1), remote = in_block(&barrier, rank ^ 1), value = in[rank * 32 + lane];
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");  // found in 1, 2, 3
#if MISTAKE == 1
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
#elif MISTAKE == 2
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
#elif MISTAKE == 3
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
#else
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
#endif
  mbarrier_wait(&barrier, 0);
  out[rank * 32 + lane] = tile[lane];  // found in 1, 2, 3
  cluster_sync();
}

// Blocks that fill the card take turns. 1: each waits for the one with the next number, which cannot start.
extern "C" __global__ void in_turns(word* out, volatile word* flags) {
  int b = blockIdx.x;
  if (threadIdx.x != 0) return;
  if (mistake == 1) {
    if (b + 1 < gridDim.x)
      while (flags[b + 1] == 0) {  // found in 1
      }
  } else if (b > 0) {
    while (flags[b - 1] == 0) {
    }
  }
  __threadfence();
  out[b] = b;
  __threadfence();
  flags[b] = 1;
}
