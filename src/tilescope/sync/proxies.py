"""Proxies and fences: which fence two accesses need on top of happens-before, in one table.

Threads reach memory through the generic proxy; TMA and tensor cores reach it through the async proxy. A barrier orders the
two accesses in time, but the second proxy sees the first one's bytes only behind a proxy fence:

    st.shared ── fence.proxy.async ── arrive ──▶ wait ── TMA store reads          fenced
    st.shared ─────────────────────── arrive ──▶ wait ── TMA store reads          may read stale bytes

Two judges use the table: one run, and the search over all orders. Each row has one severity for both. A missing fence that
can change a result is an error. A fence that the documentation requires, and that Triton's and CUTLASS's kernels leave out without
harm, is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from tilescope.errors import Severity

# How an access reaches memory: threads; cp.async; a TMA or bulk copy; a tensor core; a TMA or bulk store. An mbarrier is
# initialised ("init") and used ("mbarrier"); "map" is an edit of a tensor map by threads.
AccessKind: TypeAlias = Literal[
    "generic", "cp.async", "tma", "bulk", "wgmma", "tcgen05", "store", "init", "mbarrier", "map"
]
Space: TypeAlias = Literal["smem", "tmem", "gmem", "registers"]
ASYNC_PROXY: tuple[AccessKind, ...] = ("tma", "bulk", "wgmma", "tcgen05", "store")
_COPY_UNITS: tuple[AccessKind, ...] = ("tma", "bulk", "store")
_TENSOR_CORES: tuple[AccessKind, ...] = ("wgmma", "tcgen05")


class Fence(NamedTuple):
    """A fence: its kind, its instruction, and whose fence counts."""

    kind: str
    instruction: str
    by: Literal["first", "second", "any"]  # the agent of the first access, of the second, or any on the path between


PROXY_ASYNC = Fence("proxy.async", "fence.proxy.async", "any")
TCGEN05_BEFORE = Fence("tcgen05.before", "tcgen05.fence::before_thread_sync", "first")
TCGEN05_AFTER = Fence("tcgen05.after", "tcgen05.fence::after_thread_sync", "second")
MBARRIER_INIT = Fence("mbarrier_init", "fence.mbarrier_init.release.cluster", "first")
PROXY_TENSORMAP = Fence("proxy.tensormap", "fence.proxy.tensormap::generic", "any")  # .release, then .acquire
WGMMA = Fence("wgmma", "wgmma.fence.sync.aligned", "second")
# kinds of accesses to slots that are recorded
ACCESS_FENCES = tuple(fence.kind for fence in (PROXY_ASYNC, TCGEN05_BEFORE, TCGEN05_AFTER))


class FenceRule(NamedTuple):
    """A row of the table: a first access, a second one that is ordered after it, and the fence that they need."""

    space: Space
    first: AccessKind
    first_writes: bool
    second: AccessKind
    fence: Fence
    severity: Severity  # of a missing fence
    between_agents: bool = False  # within one agent none is needed


def _rows() -> Iterator[FenceRule]:
    """Every row; a comment names the rule of a run where it is not run-proxy-fence."""
    for unit in ASYNC_PROXY:
        yield FenceRule("smem", "generic", True, unit, PROXY_ASYNC, "error")
        # A write after a read: the barrier orders the two, and the read has its value. A strict reading of the
        # documentation requires a fence; public kernels have none. The search notes it, and a run does not.
        yield FenceRule("smem", "generic", False, unit, PROXY_ASYNC, "note")
        # cp.async writes by the generic proxy. run-cp-async-fence: before tensor cores public kernels have no fence, and work
        copied: Severity = "note" if unit in _TENSOR_CORES else "error"
        yield FenceRule("smem", "cp.async", True, unit, PROXY_ASYNC, copied)
    for unit in _COPY_UNITS:
        yield FenceRule("gmem", "generic", True, unit, PROXY_ASYNC, "error")
        yield FenceRule("gmem", "generic", False, unit, PROXY_ASYNC, "note")
    for writes in (True, False):
        # run-tmem-fence: the documentation has these fences in every example, and says that ordinary barriers work too; Triton's
        # kernels have none, and work
        yield FenceRule("tmem", "tcgen05", writes, "generic", TCGEN05_AFTER, "note", between_agents=True)
        yield FenceRule("tmem", "generic", writes, "tcgen05", TCGEN05_BEFORE, "note", between_agents=True)
    # run-barrier-init, for a use by another block. An arrival that releases does what this fence does by PTX's memory model:
    # the run then only notes the fence (run-init-fence)
    yield FenceRule("smem", "init", True, "mbarrier", MBARRIER_INIT, "error", between_agents=True)
    # Pipelines describe neither edits of maps nor registers: run-map-fence, run-accumulators
    yield FenceRule("gmem", "map", True, "tma", PROXY_TENSORMAP, "error")
    yield FenceRule("registers", "generic", True, "wgmma", WGMMA, "error")


FENCE_RULES = tuple(_rows())
_BY_ACCESSES: dict[tuple[str, str, bool, str], FenceRule] = {
    (row.space, row.first, row.first_writes, row.second): row for row in FENCE_RULES
}


def find_fence_rule(space: str, first: str, second: str, *, first_writes: bool) -> FenceRule | None:
    """The fence that two ordered accesses need, or None.

    >>> find_fence_rule("smem", "generic", "store", first_writes=True).fence.instruction
    'fence.proxy.async'
    >>> find_fence_rule("smem", "tma", "wgmma", first_writes=True)  # both through the async proxy
    """
    return _BY_ACCESSES.get((space, first, first_writes, second))


def severity_of_fence(space: Space, first: AccessKind, second: AccessKind) -> Severity:
    """How serious a missing fence after a write is.

    >>> severity_of_fence("smem", "generic", "tma"), severity_of_fence("smem", "cp.async", "wgmma")
    ('error', 'note')
    """
    return _BY_ACCESSES[space, first, True, second].severity
