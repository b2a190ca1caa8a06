"""How the languages that kernels are compiled from spell synchronization instructions: one table.

bar.sync 0;                       __syncthreads()               tl.debug_barrier()      __syncthreads()
cp.async.wait_group 1;            __pipeline_wait_prior(1)      …wait_group(1)          cute::cp_async_wait<1>()
fence.proxy.async;                cuda::ptx::fence_proxy_async()    fence_async_shared()    …fence_view_async_shared()
"""

from __future__ import annotations

from typing import NamedTuple

_DEVICE_ATOMIC = "cuda::atomic_ref<T, cuda::thread_scope_device>"


class Spelling(NamedTuple):
    """An instruction, by a pattern, and its name in each language; empty if a language has none.

    {0} is the first group of the pattern; other braces are doubled.
    """

    ptx: str
    cuda: str = ""
    triton: str = ""
    cute: str = ""  # if empty, that of CUDA C++


_PTX = "cuda::ptx::"
SPELLINGS = (
    Spelling(r"bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)? 0;", "__syncthreads()", "tl.debug_barrier()"),
    Spelling(
        r"bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)? (\d+), (\d+);", cute="cutlass::arch::NamedBarrier::sync({1}, {0})"
    ),
    Spelling(r"bar\.warp\.sync 0xffffffff;", "__syncwarp()"),
    Spelling(r"bar\.warp\.sync (\w+);", "__syncwarp({0})"),
    Spelling(
        r"barrier\.cluster\.arrive; barrier\.cluster\.wait;",
        "cooperative_groups::this_cluster().sync()",
        "gl.barrier(cluster=True)",
        "cute::cluster_sync()",
    ),
    Spelling(r"(?:fence\.acq_rel\.gpu|membar\.gl);", "__threadfence()"),
    Spelling(r"(?:fence\.acq_rel|membar)\.cta;", "__threadfence_block()"),
    Spelling(r"fence\.acq_rel\.cluster;", f"{_PTX}fence({_PTX}sem_acq_rel, {_PTX}scope_cluster)"),
    Spelling(
        r"fence\.proxy\.async;",
        f"{_PTX}fence_proxy_async()",
        "fence_async_shared()",
        "cutlass::arch::fence_view_async_shared()",
    ),
    Spelling(
        r"fence\.mbarrier_init\.release\.cluster;",
        f"{_PTX}fence_mbarrier_init({_PTX}sem_release, {_PTX}scope_cluster)",
        cute="cutlass::arch::fence_barrier_init()",
    ),
    Spelling(
        r"fence\.proxy\.tensormap::generic\.release\.gpu;",
        f"{_PTX}fence_proxy_tensormap_generic({_PTX}sem_release, {_PTX}scope_gpu)",
        cute="cute::tma_descriptor_fence_release()",
    ),
    Spelling(
        r"fence\.proxy\.tensormap::generic\.acquire\.gpu \[.*\], 128;",
        f"{_PTX}fence_proxy_tensormap_generic({_PTX}sem_acquire, {_PTX}scope_gpu, map, {_PTX}n32_t<128>{{{{}}}})",
        cute="cute::tma_descriptor_fence_acquire(map)",
    ),
    Spelling(
        r"cp\.async\.wait_all;", "__pipeline_wait_prior(0)", "async_copy.wait_group(0)", "cute::cp_async_wait<0>()"
    ),
    Spelling(
        r"cp\.async\.wait_group (\d+);",
        "__pipeline_wait_prior({0})",
        "async_copy.wait_group({0})",
        "cute::cp_async_wait<{0}>()",
    ),
    Spelling(r"cp\.async\.bulk\.commit_group;", f"{_PTX}cp_async_bulk_commit_group()", cute="cute::tma_store_arrive()"),
    Spelling(
        r"cp\.async\.bulk\.wait_group\.read (\d+);",
        f"{_PTX}cp_async_bulk_wait_group_read({_PTX}n32_t<{{0}}>{{{{}}}})",
        "tma.store_wait({0})",
        "cute::tma_store_wait<{0}>()",
    ),
    Spelling(
        r"cp\.async\.bulk\.wait_group (\d+);",
        f"{_PTX}cp_async_bulk_wait_group({_PTX}n32_t<{{0}}>{{{{}}}})",
        "tma.store_wait({0})",
    ),
    Spelling(r"wgmma\.commit_group\.sync\.aligned;", cute="cute::warpgroup_commit_batch()"),
    Spelling(
        r"wgmma\.wait_group\.sync\.aligned (\d+);",
        triton="warpgroup_mma_wait({0})",
        cute="cute::warpgroup_wait<{0}>()",
    ),
    Spelling(r"wgmma\.fence\.sync\.aligned;", cute="cute::warpgroup_arrive()"),
    Spelling(
        r"\{ \.reg \.pred \w+; \w+: mbarrier\.try_wait\.parity.*\}",
        "cuda::barrier::wait",
        "mbarrier.wait",
        "cutlass::arch::ClusterTransactionBarrier::wait",
    ),
    Spelling(
        r"mbarrier\.(arrive|try_wait|test_wait)\S*\.cluster\..*;",
        f"{_PTX}mbarrier_{{0}} with {_PTX}scope_cluster",
    ),
    Spelling(r"(?:ld|st|atom|red)\.\S*gpu\..*;", _DEVICE_ATOMIC),
)
