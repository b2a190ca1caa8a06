"""How a copy ends, and what stands between those who write shared memory and those who read it.

copy                mechanism        who waits                   between writers and readers
TMA load            mbarrier         every reader                nothing more: the mbarrier orders both proxies
TMA store           bulk group       the thread that issued it   proxy fence by every writer, a barrier, then the copy
cp.async            cp.async group   every copying thread        (proxy fence where a tensor core reads), a barrier
ld.global + st      barrier          every thread                (proxy fence where a tensor core reads), a barrier
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.planner.problem import Problem
from tilescope.value import Value

Mechanism = Literal["mbarrier", "cp.async group", "bulk group", "barrier"]
Waiter = Literal["every reader", "the issuing thread", "every copying thread"]
MBARRIER_BYTES = 8
PROXY_FENCE = "fence.proxy.async.shared::cta"


@dataclass(frozen=True, slots=True)
class Completion(Value):
    """How a kernel knows that a tile has arrived, or may be overwritten.

    >>> from tilescope.planner import plan
    >>> plan((128, 64), "bf16").best.completion.expected_bytes
    16384
    >>> copied = plan((128, 64), "bf16", copy="cp.async").best.completion
    >>> copied.mechanism, copied.wait, copied.fence, copied.barrier
    ('cp.async group', 'cp.async.wait_group', 'fence.proxy.async.shared::cta', True)
    """

    mechanism: Mechanism
    commit: str | None  # what the thread that issued the copies executes
    wait: str | None  # what those who wait execute
    waited_by: Waiter
    expected_bytes: int | None = None  # of an mbarrier, for one tile
    fence: str | None = None  # by every writer, between writes and reads of different proxies
    barrier: bool = False  # of the block, between writers and readers

    @classmethod
    def of(cls, problem: Problem) -> Completion:
        """The completion of a problem's copy."""
        ends = _ENDS[problem.copy, problem.direction]
        crosses = problem.direction == "store" or problem.reads_by_descriptor  # from one proxy to the other
        if ends[0] == "mbarrier":
            return cls(*ends, expected_bytes=problem.moved_bytes)
        return cls(*ends, fence=PROXY_FENCE if crosses else None, barrier=True)


def barrier_bytes(problem: Problem) -> int:
    """Shared memory of one stage's mbarrier, where its copy ends by one."""
    return MBARRIER_BYTES if _ENDS[problem.copy, problem.direction][0] == "mbarrier" else 0


# fmt: off
_ENDS: dict[tuple[str, str], tuple[Mechanism, str | None, str | None, Waiter]] = {
    ("tma", "load"):       ("mbarrier", "mbarrier.arrive.expect_tx", "mbarrier.try_wait.parity", "every reader"),
    ("tma", "store"):      ("bulk group", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "the issuing thread"),
    ("cp.async", "load"):  ("cp.async group", "cp.async.commit_group", "cp.async.wait_group", "every copying thread"),
    ("ld.global", "load"): ("barrier", None, None, "every copying thread"),
}
# fmt: on
