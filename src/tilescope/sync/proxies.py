"""Proxies and fences: which fence two accesses need on top of happens-before, in one table.

Threads reach memory through the generic proxy; TMA and tensor cores reach it through the async proxy. A barrier orders the
two accesses in time, but the second proxy sees the first one's bytes only behind a proxy fence:

    st.shared ── fence.proxy.async ── arrive ──▶ wait ── TMA store reads          fenced
    st.shared ─────────────────────── arrive ──▶ wait ── TMA store reads          may read stale bytes

Two judges use the table, and do not agree on every row yet. The search over all orders ("proof") follows the documents.
One run ("run") follows what public kernels rely on and chips do: it only notes a fence that Triton and CUTLASS leave
out. So a row has a severity for each; None if that judge does not ask for the fence.
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
# kinds that are kept for accesses to slots
ACCESS_FENCES = tuple(fence.kind for fence in (PROXY_ASYNC, TCGEN05_BEFORE, TCGEN05_AFTER))


class FenceRule(NamedTuple):
    """A row of the table: a first access, a second one that is ordered after it, and the fence that they need."""

    space: Space
    first: AccessKind
    first_writes: bool
    second: AccessKind
    fence: Fence
    proof: Severity | None  # of a missing fence in the search over all orders
    run: Severity | None  # of a missing fence in one run
    between_agents: bool = False  # one agent alone needs none


def _rows() -> Iterator[FenceRule]:
    """Every row. `run` names the rule run-proxy-fence unless a comment says otherwise."""
    for unit in ASYNC_PROXY:
        yield FenceRule("smem", "generic", True, unit, PROXY_ASYNC, proof="error", run="error")
        # a write after a read: the strict reading of the documents
        yield FenceRule("smem", "generic", False, unit, PROXY_ASYNC, proof="warning", run=None)
        # run-cp-async-fence: Triton's and CUTLASS's kernels have no fence before wgmma, and work
        noted: Severity | None = "note" if unit == "wgmma" else None
        yield FenceRule("smem", "cp.async", True, unit, PROXY_ASYNC, proof="error", run=noted)
        yield FenceRule("smem", "cp.async", False, unit, PROXY_ASYNC, proof="warning", run=None)
    for unit in _COPY_UNITS:
        yield FenceRule("gmem", "generic", True, unit, PROXY_ASYNC, proof="error", run="error")
        # run-race: a store to global memory after a read without the fence counts as not ordered
        raced: Severity | None = "error" if unit == "store" else None
        yield FenceRule("gmem", "generic", False, unit, PROXY_ASYNC, proof="warning", run=raced)
    for writes in (True, False):
        # run-tmem-fence
        yield FenceRule(
            "tmem", "tcgen05", writes, "generic", TCGEN05_AFTER, proof="error", run="note", between_agents=True
        )
        yield FenceRule(
            "tmem", "generic", writes, "tcgen05", TCGEN05_BEFORE, proof="error", run="note", between_agents=True
        )
    # run-init-fence, for a use by another block. An arrival that releases covers the init by PTX's memory model; after a
    # relaxed one the run reports run-barrier-init, an error
    yield FenceRule("smem", "init", True, "mbarrier", MBARRIER_INIT, proof="error", run="note", between_agents=True)
    # pipelines describe neither edits of maps nor registers: run-map-fence, run-accumulators
    yield FenceRule("gmem", "map", True, "tma", PROXY_TENSORMAP, proof=None, run="error")
    yield FenceRule("registers", "generic", True, "wgmma", WGMMA, proof=None, run="error")


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


def run_severity(space: Space, first: AccessKind, second: AccessKind) -> Severity:
    """How serious one run takes a missing fence after a write.

    >>> run_severity("smem", "generic", "tma"), run_severity("smem", "cp.async", "wgmma")
    ('error', 'note')
    """
    row = _BY_ACCESSES[space, first, True, second]
    assert row.run is not None, "one run does not ask for this fence"
    return row.run
