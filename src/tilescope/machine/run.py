"""What a run did: its outcome, what is wrong with it, and how often each instruction ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from tilescope.errors import Violation
from tilescope.machine.proof.described import Recorded, pipeline_of
from tilescope.machine.proof.log import ROWS_KEPT
from tilescope.machine.run_costs import CopyTraffic, OperandRead, WorstAccess
from tilescope.pipeline.description import Pipeline
from tilescope.rule import Basis
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

Outcome = Literal["finished", "hang", "fault", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCount(Value):
    """One instruction of a kernel and how often it ran.

    `threads` counts the threads that came to it, `source_line` is the line of the program that the PTX was made from.
    `wavefronts` are the turns that shared memory took for it, `sectors` the pieces of 32 bytes that it touched in global memory,
    each beside the least possible; None where it does no such thing, or nobody counted. `worst` is the execution with the most conflicts.
    """

    ptx_line: int
    source_line: str | None
    ptx_text: str
    threads: int
    warps: int
    wavefronts: int | None = None
    least_wavefronts: int | None = None
    sectors: int | None = None
    least_sectors: int | None = None
    worst: WorstAccess | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCopy(Value):
    """One TMA or bulk copy, as it was issued; a multicast is one for each block that receives it.

    A tensor copy has `coords` and the number of its map among those of the run; a bulk copy has the address of its other end.
    `barrier` is the shared address of the mbarrier that counts its bytes; without one it belongs to a bulk group.
    """

    ptx_line: int
    source_line: str | None
    block: tuple[int, int, int]
    thread: int  # its number in the block
    direction: Literal["load", "store", "reduce"]
    bytes: int
    shared_address: int = hex_field()
    barrier: int | None = hex_field()
    coords: tuple[int, ...] | None
    map_number: int | None
    other_address: int | None = hex_field()


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierPhase(Value):
    """A phase of an mbarrier that ended: how many arrivals and bytes it counted, and the instruction that ended it."""

    address: int = hex_field()
    block: tuple[int, int, int]
    number: int  # 0 after init
    arrivals: int
    bytes: int
    ptx_line: int
    source_line: str | None


class ArgumentArray(NamedTuple):
    """An array that an argument of a run is, points at or maps, and where it lies in global memory."""

    array: npt.NDArray[Any]
    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun(Value):
    """A kernel that was run without a card.

    `exact` is False where .approx functions, or float atomics whose order nobody fixes, took part: `inexact` names them.
    `printed` is what printf wrote. `copies` and `barriers` hold the first hundred thousand copies and phases of mbarriers, in
    the order in which they were issued and ended; `maps` are the tensor maps that copies went through. `traffic` sums the
    copies up by map, `operands` are those that wgmma read from shared memory. `arrays` are those of the arguments, by number,
    None for other arguments; they hold what the kernel left in them, and plain data leaves them out.
    """

    entry: str
    outcome: Outcome
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    blocks_run: int
    steps: int  # instructions, each counted once for all threads that ran it together
    inexact: tuple[str, ...]
    findings: tuple[Violation, ...]
    instructions: tuple[InstructionCount, ...] = field(repr=False)
    copies: tuple[KernelCopy, ...] = field(repr=False)
    barriers: tuple[BarrierPhase, ...] = field(repr=False)
    maps: tuple[AnyMap, ...] = field(repr=False)
    printed: str
    basis: Basis
    traffic: tuple[CopyTraffic, ...] = field(default=(), repr=False)
    operands: tuple[OperandRead, ...] = field(default=(), repr=False)
    arrays: tuple[ArgumentArray | None, ...] = field(default=(), init=False, repr=False, compare=False)
    _recorded: Recorded | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def exact(self) -> bool:
        """Whether every bit of the result is the card's."""
        return not self.inexact

    def pipeline(self) -> Pipeline:
        """What the warps of the first cluster did, as a pipeline: `ts.simulate` proves it for every order, or names the mistake.

        Barriers, copies, groups, fences, and what each warp reads and writes in shared memory, in its program order.
        """
        recorded = self._recorded
        if recorded is None:
            recorded = Recorded(self.entry, self.outcome, None, (), ())
        return pipeline_of(recorded, ROWS_KEPT)


def with_arrays(run: KernelRun, arrays: tuple[ArgumentArray | None, ...]) -> KernelRun:
    """A run that knows the arrays of its arguments."""
    object.__setattr__(run, "arrays", arrays)
    return run
