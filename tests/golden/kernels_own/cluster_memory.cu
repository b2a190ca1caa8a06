// Distributed shared memory: blocks of a cluster read, write and count in each other's memory between cluster barriers.
#include "device.cuh"

extern "C" __global__ void cluster_memory(const u32* in, u32* out) {
  __shared__ u32 values[64];
  __shared__ u32 received[64];
  __shared__ u32 count;
  const u32 rank = cluster_rank(), thread = threadIdx.x;
  u32 blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  values[thread] = in[blockIdx.x * 64 + thread];
  if (thread == 0) count = 0;
  cluster_arrive();
  cluster_wait();
  const u32 next = (rank + 1) % blocks;
  u32 read;  // the neighbour's value, mirrored
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(read) : "r"(mapped(shared_address(&values[63 - thread]), next)) : "memory");
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(mapped(shared_address(&received[thread]), next)), "r"(values[thread] + rank) : "memory");
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(mapped(shared_address(&count), thread % blocks)), "r"(thread) : "memory");
  u64 generic;  // the same by a generic address
  asm("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(&values[thread ^ 1]), "r"((rank + 2) % blocks));
  const u32 by_generic = *reinterpret_cast<const volatile u32*>(generic);
  u32 rank_of_generic;
  asm volatile("{ .reg .u64 a; cvta.to.shared.u64 a, %1; getctarank.shared::cluster.u64 %0, a; }" : "=r"(rank_of_generic) : "l"(generic));
  cluster_arrive();
  const u32 meanwhile = read * 3;  // own work between arrival and wait
  cluster_wait();
  u32* result = out + 256 * blockIdx.x;
  result[thread] = meanwhile;
  result[64 + thread] = received[thread];
  result[128 + thread] = by_generic + rank_of_generic;
  u32 x, y, is_cluster;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(y));
  asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(is_cluster));
  result[192 + thread] = thread == 0 ? count : x * 100 + y * 10 + is_cluster;
}
