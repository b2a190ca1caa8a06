"""An instruction of a kernel, decoded: a step that all threads at this instruction take together, or a turn.

    Step      straight: computes for the given lanes, which all continue with the next instruction
    Turn      decides where its lanes go: branches, calls, exits, barriers, instructions that wait for their warp

The cluster that a step changes, and the schedule that a turn moves its front in, are typed where they are defined: both
import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tilescope.sync.cluster_shape import Lanes

Step: TypeAlias = Callable[[Any, Lanes], None]  # of a Cluster
EVERYONE = slice(None)


class Turn(Protocol):
    """An instruction after which lanes do not simply continue."""

    def take(self, schedule: Any, front: Any) -> None:
        """Move, split, park or end a Front of a Schedule, which is at this instruction."""


class WordSource(NamedTuple):
    """A register that arithmetic reads: how wide it is taken, and which of its bits are inverted (`!p`, or a float's sign)."""

    number: int
    bits: int
    flipped: int = 0


class WordOperation(NamedTuple):
    """An instruction of `arithmetic` from registers to registers, or a move: mov; pack and unpack of the parts of a word."""

    name: str
    modifiers: tuple[str, ...]
    sources: tuple[WordSource, ...]
    targets: tuple[int | None, ...]  # None: `_`
    result_bits: tuple[int, ...]
    is_signed: bool = False  # whether a register wider than a result is filled with its sign


class Arithmetic(NamedTuple):
    """The effect of a step that only computes, in lanes with a true guard; compiled code is generated from it."""

    operations: tuple[WordOperation, ...]
    guard: WordSource | None = None


class RegisterUse(NamedTuple):
    """What an instruction does to registers of wgmma, or to others that their values are moved from or to."""

    settled: frozenset[int]  # those of wgmma: products that use them are finished first
    read: frozenset[int]
    written: frozenset[int]
    is_move: bool


class StepRun(NamedTuple):
    """Steps side by side that one function takes together."""

    steps: tuple[Step, ...]
    take: Step


class Stretches(dict[int, list[tuple[int, Step]]]):
    """The steps from an instruction to the next turn or label, with their instructions; a run of them is one entry.

    They are combined on first use of an instruction.
    """

    def __init__(self, steps: Sequence[Step | None], ends: Sequence[int], runs: Mapping[int, StepRun]) -> None:
        super().__init__()
        self._steps = steps
        self._ends = ends
        self._runs = runs

    def __missing__(self, pc: int) -> list[tuple[int, Step]]:
        stretch: list[tuple[int, Step]] = []
        end = self._ends[pc]
        place = pc
        while place < end:
            step = self._steps[place]
            assert step is not None  # between turns every entry is a step
            run = self._runs.get(place)
            after = place if run is None else place + len(run.steps)
            if run is not None and after <= end and tuple(self._steps[place:after]) == run.steps:
                stretch.append((place, run.take))
                place = after
            else:
                stretch.append((place, step))
                place += 1
        self[pc] = stretch
        return stretch


class RefusedError(Exception):
    """Raised while a kernel is made: what the machine cannot run, as a sentence without its full stop."""
