// cp.reduce.async.bulk: shared memory combined into global memory, all operations and types, and into a neighbour's shared memory.
#include "device.cuh"

#define REDUCE(form, row)                                                                                                \
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." form " [%0], [%1], 128;" ::"l"(out + (row) * 32),    \
               "r"(shared_address(source + (row) * 32)) : "memory")

extern "C" __global__ void bulk_reductions(const u32* in, u32* out, u32* neighbours) {
  __shared__ alignas(128) u32 source[22 * 32];
  __shared__ alignas(128) u32 counts[32];
  __shared__ alignas(8) u64 arrived;
  const u32 rank = cluster_rank(), thread = threadIdx.x;
  for (int i = thread; i < 22 * 32; i += blockDim.x) source[i] = in[i];
  counts[thread % 32] = thread % 32;
  if (thread == 0) {
    mbarrier_init(shared_address(&arrived), 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  cluster_arrive();
  cluster_wait();
  if (thread == 0 && blockIdx.x == 0) {
    REDUCE("add.u32", 0);
    REDUCE("add.s32", 1);
    REDUCE("add.u64", 2);
    REDUCE("min.u32", 3);
    REDUCE("max.u32", 4);
    REDUCE("min.s32", 5);
    REDUCE("max.s32", 6);
    REDUCE("min.u64", 7);
    REDUCE("max.s64", 8);
    REDUCE("and.b32", 9);
    REDUCE("or.b32", 10);
    REDUCE("xor.b32", 11);
    REDUCE("xor.b64", 12);
    REDUCE("inc.u32", 13);
    REDUCE("dec.u32", 14);
    REDUCE("add.noftz.f16", 15);
    REDUCE("add.noftz.bf16", 16);
    REDUCE("min.f16", 17);
    REDUCE("max.bf16", 18);
    REDUCE("add.f32", 19);
    REDUCE("add.f64", 20);
    bulk_commit();
    bulk_wait();
  }
  if (thread == 0) {
    mbarrier_expect(shared_address(&arrived), 128);
    asm volatile(
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], 128, [%2];" ::"r"(
            mapped(shared_address(counts), rank ^ 1)), "r"(shared_address(source + 21 * 32)), "r"(mapped(shared_address(&arrived), rank ^ 1)) : "memory");
  }
  mbarrier_wait(shared_address(&arrived), 0);
  if (thread < 32) neighbours[blockIdx.x * 32 + thread] = counts[thread];
  cluster_arrive();
  cluster_wait();
}
