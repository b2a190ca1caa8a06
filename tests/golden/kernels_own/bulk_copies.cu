// One-dimensional bulk copies in all directions: global to shared, shared to a neighbour's shared, shared to global.
#include "device.cuh"

extern "C" __global__ void bulk_copies(const u32* in, u32* out) {
  __shared__ alignas(128) u32 mine[256];
  __shared__ alignas(128) u32 received[256];
  __shared__ alignas(8) u64 loaded, arrived;
  const u32 rank = cluster_rank(), thread = threadIdx.x;
  const u32 loaded_at = shared_address(&loaded), arrived_at = shared_address(&arrived);
  if (thread == 0) {
    mbarrier_init(loaded_at, 1);
    mbarrier_init(arrived_at, 1);
    fence_mbarrier_init();
  }
  cluster_arrive();
  cluster_wait();
  if (thread == 0) {
    mbarrier_expect(arrived_at, 512);
    mbarrier_expect(loaded_at, 1024);
    bulk_load(shared_address(mine), in + blockIdx.x * 256, 768, loaded_at);
    bulk_load(shared_address(mine + 192), in + blockIdx.x * 256 + 192, 256, loaded_at);
  }
  mbarrier_wait(loaded_at, 0);
  for (int i = thread; i < 256; i += blockDim.x) {
    mine[i] = mine[i] * 2 + rank;
    if (i >= 128) received[i] = i;
  }
  fence_proxy_async();
  __syncthreads();
  if (thread == 0) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            mapped(shared_address(received), rank ^ 1)), "r"(shared_address(mine + 128)), "r"(512), "r"(mapped(arrived_at, rank ^ 1)) : "memory");
    bulk_store(out + blockIdx.x * 512, shared_address(mine), 1024);
    bulk_commit();
  }
  mbarrier_wait(arrived_at, 0);
  if (thread == 0) {
    bulk_store(out + blockIdx.x * 512 + 256, shared_address(received), 512);
    bulk_store(out + blockIdx.x * 512 + 384, shared_address(received + 128), 512);
    bulk_commit();
    bulk_wait_read();
    bulk_wait();
  }
  cluster_arrive();  // the neighbour's copy reads this block's memory until it has arrived there
  cluster_wait();
}
