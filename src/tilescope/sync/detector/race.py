"""Conflicts: pairs of accesses that nothing orders (data races), and misuse of barriers; each pair of instructions once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tilescope.sync.cluster_shape import BlockIndex

How = Literal[
    "read",
    "write",
    "atomic",
    "cp.async",
    "copy",
    "bulk store",
    "wgmma",
    "init",
    "inval",
    "arrival",
    "wait",
    "tcgen05.alloc",
    "tcgen05.dealloc",
    "tcgen05.ld",
    "tcgen05.st",
    "tcgen05.mma",
    "tcgen05.cp",
    "tcgen05.shift",
    "tcgen05.commit",
    "barrier",
    "branch",
    "store",
    "address",
]
Mistake = Literal[
    "race",
    "proxy fence",
    "copy wait",
    "refill",
    "accumulators",
    "accumulator fence",
    "store source",
    "repeated store",
    "cp.async",
    "barrier init",
    "init fence",
    "barrier reuse",
    "dead barrier",
    "second init",
    "copy over barrier",
    "store over barrier",
    "barrier overwritten",
    "barrier pending",
    "narrow scope",
    "barrier phase",
    "phase overtaken",
    "phase skipped",
    "cluster phase",
    "map fence",
    "map copy",
    "block end",
    "copy left",
    "expected bytes",
    "stale read",
    "lane order",
    "noncoherent load",
    "noncoherent store",
    "noncoherent in place",
    "unwritten",
    "unwritten operand",
    "cp.async fence",
    "rounded sum",
    "unused load",
    "tensor memory",
    "tensor fence",
    "tensor columns",
    "tensor quarter",
    "tensor unwritten",
    "tensor relinquished",
    "tensor growth",
    "tensor peer",
    "tensor dealloc",
    "tensor leak",
    "convergence",
    "skipped barrier",
    "mask",
    "own mask",
    "undefined lane",
]
Space = Literal["shared", "global", "registers", "tensor"]
MOST_CONFLICTS = 1000  # different pairs of instructions


class Side(NamedTuple):
    """One of two accesses: its instruction, what it does, and the lane, where one thread did it."""

    pc: int
    how: How
    lane: int | None


class Insertion(NamedTuple):
    """Instructions that are inserted before or after another one."""

    text: str  # "bar.sync 0;"
    place: Literal["before", "behind"]
    pc: int  # of the other one
    offset: int = 0  # in the text, in characters: where they are put


class Correction(NamedTuple):
    """A changed number of an instruction."""

    number: str  # "the other parity", "128 arrivals"
    pc: int
    text: str  # the instruction with it
    start: int  # offset in the text, in characters, of what it replaces
    end: int


Pcs = tuple[int, int | None]  # the instructions of a conflict: that of the access that found it, and the other one


class Remedy(NamedTuple):
    """Insertions or corrections that were tried, and the errors that they removed, by their instructions."""

    gone: frozenset[Pcs]
    insertions: tuple[Insertion, ...] = ()
    corrections: tuple[Correction, ...] = ()
    block: BlockIndex | None = None  # whose cluster ran separately; None: all of them


@dataclass(slots=True)
class Conflict:
    """Two unordered accesses: the first of its kind, between blocks if any is, and how often it occurred."""

    mistake: Mistake
    before: Side | None
    now: Side
    space: Space
    address: int | None
    block: BlockIndex  # of the access that found it
    facts: dict[str, int] = field(default_factory=dict)
    copies_made: int = 0  # of the launch, when it was reported
    writer_pc: int | None = None  # the instruction that had written the bytes in shared memory
    times: int = 0
    remedy: Remedy | None = None
    is_untried: bool = False  # possible fixes were not tried: the trials had no steps left

    @property
    def is_between_clusters(self) -> bool:
        """Whether another cluster made the earlier access; a block without a cluster is a cluster of one."""
        return "cluster" in self.facts

    @property
    def pcs(self) -> Pcs:
        """Its instructions."""
        return self.now.pc, None if self.before is None else self.before.pc


@dataclass(slots=True)
class Conflicts:
    """All conflicts of a launch."""

    found: dict[tuple[object, ...], Conflict] = field(default_factory=dict)

    def add(self, conflict: Conflict) -> None:
        """Keep a conflict, or count it."""
        before = None if conflict.before is None else (conflict.before.pc, conflict.before.how)
        key: tuple[object, ...] = (conflict.mistake, before, conflict.now.pc, conflict.now.how, conflict.space)
        if conflict.mistake == "tensor fence":
            key = (conflict.mistake,)  # a kernel has these fences, or none: reported once
        entry = self.found.get(key)
        if entry is None:
            if len(self.found) >= MOST_CONFLICTS:
                return
            entry = self.found[key] = conflict
        elif conflict.is_between_clusters and not entry.is_between_clusters:
            conflict.times = entry.times
            entry = self.found[key] = conflict  # no barrier of a block orders these
        entry.times += 1
