"""An act: one thing that a warp did, as a step of a pipeline without the names of its barrier and slots."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.pipeline.operations import Written

BY_THREADS = ("write", "agreed", "atomic")  # writes


class Act(NamedTuple):
    """One thing that a warp did: a step of a pipeline, but for the names of its barrier and of its slots."""

    op: str  # that of a step, or "atomic", or "agreed": a write of what other warps write there too
    pc: int
    order: int  # among all acts
    target: Written = ""
    arguments: tuple[tuple[str, Written], ...] = ()
    cells: int | None = None  # a set of cells
    into: int | None = None  # the set that a tensor core writes
    barrier: int | None = None  # a number in `Acts.barriers`
    mask: int | None = None  # of blocks; None: the warp's own
    size_bytes: int = 0  # of a copy
    warps: tuple[int, ...] = ()  # that agree, in their block
    unseen: frozenset[int] = (
        frozenset()
    )  # barriers for which other lanes of the warp have waited, and not those that act

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with the same act of another warp."""
        return self.op, self.target, self.arguments, self.barrier, self.mask


class BarrierUse(NamedTuple):
    """An mbarrier from its init to its end: its address, its number among the mbarriers at that address, and its arrival count."""

    offset: int
    number: int
    arrivals: int


class CannotSayError(Exception):
    """An operation for which a pipeline has no step: the reason, and the instruction."""

    def __init__(self, reason: str, pc: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pc = pc
