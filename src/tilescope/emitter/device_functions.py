"""Device functions that a planned kernel calls: barriers, ranks of a cluster, bulk copies, tensor memory.

GROUP is the number of blocks that compute a product in tensor memory: 1, or 2 in a pair.
"""

HELPERS = r"""
struct alignas(64) Map { unsigned char bytes[128]; };  // a CUtensorMap

__device__ __forceinline__ unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void mbarrier_init(unsigned long long* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(unsigned long long* bar, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}"
        ::"r"(shared_address(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void mbarrier_expect(unsigned long long* bar, int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned long long* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
"""
CLUSTER_HELPERS = r"""
__device__ __forceinline__ int rank_in_cluster() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ unsigned address_in(unsigned long long* bar, int rank) {
    unsigned address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(bar)), "r"(rank));
    return address;
}
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long* bar, unsigned mask) {
    for (int rank = 0; mask >> rank; ++rank)
        if (mask >> rank & 1)
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(bar, rank)) : "memory");
}
"""
BULK_HELPERS = r"""
__device__ __forceinline__ void copy_bytes_in(void* to, const unsigned char* from, unsigned long long* bar, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void copy_bytes_out(unsigned char* to, const void* from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
        ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
"""
TENSOR_MEMORY_HELPERS = r"""
__device__ __forceinline__ void tensor_commit(unsigned long long* bar) {
    asm volatile("tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void tensor_commit_at(unsigned long long* bar, unsigned short mask) {
    asm volatile("tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
        ::"r"(shared_address(bar)), "h"(mask) : "memory");
}
__device__ __forceinline__ void tensor_alloc(unsigned* at, int columns) {
    asm volatile("tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [%0], %1;"
        ::"r"(shared_address(at)), "r"(columns) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::GROUP.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void tensor_dealloc(unsigned at, int columns) {
    asm volatile("tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %0, %1;" ::"r"(at), "r"(columns) : "memory");
}
"""
