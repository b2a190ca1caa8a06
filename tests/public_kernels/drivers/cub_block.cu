// Primitives of CUB for one block and one warp.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>

constexpr int THREADS = 128, ITEMS = 4;

__global__ void sort_block(const int *keys, int *sorted) {
  using Load = cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, THREADS, ITEMS>;
  using Store = cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Sort::TempStorage sort;
    typename Store::TempStorage store;
  } storage;
  int items[ITEMS];
  const int first = blockIdx.x * THREADS * ITEMS;
  Load(storage.load).Load(keys + first, items);
  __syncthreads();
  Sort(storage.sort).Sort(items);
  __syncthreads();
  Store(storage.store).Store(sorted + first, items);
}

struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};

__global__ void sort_warps(const int *keys, int *sorted) {
  using Sort = cub::WarpMergeSort<int, ITEMS, 32>;
  __shared__ typename Sort::TempStorage storage[THREADS / 32];
  int items[ITEMS];
  for (int i = 0; i < ITEMS; i++) items[i] = keys[threadIdx.x * ITEMS + i];
  Sort(storage[threadIdx.x / 32]).Sort(items, Less{});
  for (int i = 0; i < ITEMS; i++) sorted[threadIdx.x * ITEMS + i] = items[i];
}

extern "C" int run_sort_block(const int *keys, int *sorted, int blocks) {
  sort_block<<<blocks, THREADS>>>(keys, sorted);
  return 0;
}

extern "C" int run_sort_warps(const int *keys, int *sorted) {
  sort_warps<<<1, THREADS>>>(keys, sorted);
  return 0;
}
