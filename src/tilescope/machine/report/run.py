"""The result of a run: its outcome, its findings, its copies and barrier phases, and the executions of each instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy.typing as npt

from tilescope.errors import Violation
from tilescope.machine.observers.last_writer import LastWriter, LastWriters
from tilescope.machine.observers.smem_picture import SmemPicture
from tilescope.machine.proof.coverage import describe_found
from tilescope.machine.proof.described_pipeline import pipeline_of
from tilescope.machine.proof.recorded_run import Recorded
from tilescope.machine.proof.recorder import ROWS_KEPT
from tilescope.machine.report.cost_findings import COST_RULES
from tilescope.machine.report.run_costs import CopyTraffic, OperandRead, WorstAccess
from tilescope.machine.stepping.run_state import RunState
from tilescope.pipeline.description import Pipeline
from tilescope.reading import integer, integers
from tilescope.rule import ARGUMENT_RANGE, Basis
from tilescope.sentence import format_value, listed
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

Outcome = Literal["finished", "hang", "fault", "stopped"]


def is_about_result(finding: Violation) -> bool:
    """Whether a finding makes the result of a run uncertain: errors, and warnings that are not about performance."""
    return finding.severity != "note" and finding.rule not in COST_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCount(Value):
    """One instruction of a kernel and how often it ran.

    `threads` counts the threads that ran it, `source_line` is the source line that the PTX was compiled from. `wavefronts` are
    those of its accesses to shared memory, `sectors` the 32-byte pieces of global memory that it accessed, each with the least
    possible number; None if it has no such access, or the run did not count them. `worst` is the execution with the most bank
    conflicts.
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

    A tensor copy has `coords` and the number of its map in the run; a bulk copy has the address of its other end. `barrier` is the
    shared address of the mbarrier that counts its bytes; a copy without one belongs to a bulk group.
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
    """A completed phase of an mbarrier: its arrivals and bytes, and the instruction that completed it."""

    address: int = hex_field()
    block: tuple[int, int, int]
    number: int  # 0 after init
    arrivals: int
    bytes: int
    ptx_line: int
    source_line: str | None


class Replay(Protocol):
    """The launch of a run, which can be made again step by step."""

    def state(
        self, step: int, block: Sequence[int] | None, thread: int | None, progress: Callable[[int], None] | None
    ) -> RunState:
        """The state after a step."""


class ArgumentArray(NamedTuple):
    """The array behind an argument (the array itself, a pointer to it or a map over it), and its address in global memory."""

    array: npt.NDArray[Any]
    address: int

    def address_of(self, index: int | Sequence[int]) -> int:
        """The address of an element, by its number or by its index along each axis; an error outside the array."""
        extents: tuple[int, ...] = self.array.shape
        if not isinstance(index, Sequence):
            index = (integer("index", index),)
            extents = (self.array.size,)
        place = integers("index", index, len(extents))
        number = 0
        for coordinate, extent in zip(place, extents, strict=True):
            if not 0 <= coordinate < extent:
                raise ARGUMENT_RANGE.error(
                    argument="index",
                    found=f"index {place}",
                    limit=f"the array has the shape {self.array.shape}",
                    fix="Use the index of an element, such as 0.",
                )
            number = number * extent + coordinate
        return self.address + number * self.array.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun(Value):
    """The result of running a kernel without a GPU.

    `exact` is False if instructions took part whose bits depend on the order of threads, or which were not measured, or if a
    clock or another value that the card chooses reaches memory: `inexact` names them. On other architectures than sm_90 it is
    False after approximate functions too, which are computed as on an H200: `assumed` names them. It is also False if the run did
    not finish, or an error or a warning says that its result is not certain. `printed` is the output of printf. `copies` and
    `barriers` hold the first hundred thousand copies and mbarrier phases, in the order in which they were issued and completed;
    `maps` are the tensor maps of the copies. `traffic` sums the copies by map, `operands` are those that wgmma read from shared
    memory. `arrays` are the arrays of the arguments after the run, by number, None for other arguments. `smem` is the picture of
    a block's shared memory, if requested. Plain data omits these two.
    """

    entry: str
    outcome: Outcome
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    blocks_run: int
    steps: int  # instructions, each counted once for all threads that ran it together
    inexact: tuple[str, ...]
    assumed: tuple[str, ...] = ()  # approximate functions, computed as on an H200
    findings: tuple[Violation, ...]
    instructions: tuple[InstructionCount, ...] = field(repr=False)
    copies: tuple[KernelCopy, ...] = field(repr=False)
    barriers: tuple[BarrierPhase, ...] = field(repr=False)
    maps: tuple[AnyMap, ...] = field(repr=False)
    printed: str
    basis: Basis
    traffic: tuple[CopyTraffic, ...] = field(default=(), repr=False)
    operands: tuple[OperandRead, ...] = field(default=(), repr=False)
    call_site: str | None = None  # the line of a Python program that launched it, under Triton's driver
    arrays: tuple[ArgumentArray | None, ...] = field(default=(), init=False, repr=False, compare=False)
    _recorded: Recorded | None = field(default=None, init=False, repr=False, compare=False)
    smem: SmemPicture | None = field(default=None, init=False, repr=False, compare=False)
    _writers: LastWriters | None = field(default=None, init=False, repr=False, compare=False)
    _replay: Replay | None = field(default=None, init=False, repr=False, compare=False)
    _line_counts: tuple[Any, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )  # kept by line_counts

    @property
    def exact(self) -> bool:
        """Whether every bit of the result is certain to be that of a GPU."""
        is_fixed = not self.inexact and not self.assumed
        return is_fixed and self.outcome == "finished" and not any(map(is_about_result, self.findings))

    def pipeline(self) -> Pipeline:
        """The synchronization of the first cluster as a pipeline: `ts.simulate` proves it for every order, or names the mistake.

        It has the barriers, copies, groups, fences and shared memory accesses of each warp, in program order.
        `not_covered` lists what it omits: global memory through which threads exchange data, and errors that the run
        found. `mistakes_found` has the synchronization errors that the run found: no proof ignores them.
        """
        recorded = self._recorded
        if recorded is None:
            recorded = Recorded(self.entry, self.outcome, None, (), ())
        pipeline = pipeline_of(recorded, ROWS_KEPT)
        return replace(
            pipeline,
            not_covered=(*pipeline.not_covered, *describe_found(self.findings, of_synchronization=False)),
            mistakes_found=tuple(describe_found(self.findings, of_synchronization=True)),
        )

    def last_writer(self, place: int | tuple[int, int | Sequence[int]]) -> LastWriter | None:
        """The instruction that wrote a byte of global memory last, and the thread and block that ran it.

        `place` is an address, or (number of an argument, index of an element of its array), the index flat or along
        each axis. None if no thread wrote it, or the run did not track writes (`findings=False`, or plain data).

        >>> import numpy as np
        >>> from tilescope.machine.kernel import Kernel
        >>> kernel = Kernel('''.version 8.0 .target sm_90 .address_size 64
        ...     .entry set(.param .u64 a) {
        ...         .reg .b64 %rd1;
        ...         ld.param.u64 %rd1, [a];
        ...         st.global.u32 [%rd1+8], 7;
        ...         ret;
        ...     }''')
        >>> run = kernel.run(grid=1, block=1, args=[np.zeros((2, 2), np.uint32)])
        >>> run.last_writer((0, (1, 0))).ptx_line, run.last_writer((0, 3))
        (5, None)
        """
        if isinstance(place, tuple) and len(place) == 2:
            number, index = place
            return self._last_writer_at(self._array(number).address_of(index))
        return self._last_writer_at(integer("place", place))

    def state(
        self,
        step: int,
        *,
        block: Sequence[int] | None = None,
        thread: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> RunState:
        """The state after `step` instructions: the line of each warp, registers, shared memory, mbarriers, pending copies.

        It is the state of one block and, for registers, of one thread: by default those that executed the step. Step 0 is the
        initial state. The first call runs the kernel again and records every step, for at most 15 s and 350 MB; `progress` is
        called with the number of steps so far. Recording takes clusters one by one: a run with many blocks has more steps there
        than `steps`, which counts an instruction once for blocks that ran it together.

        >>> from tilescope.machine.kernel import Kernel
        >>> kernel = Kernel('''.version 8.0 .target sm_90 .address_size 64
        ...     .entry count() {
        ...         .reg .u32 %r<3>;
        ...         mov.u32 %r1, %tid.x;
        ...         add.u32 %r2, %r1, 40;
        ...         ret;
        ...     }''')
        >>> state = kernel.run(grid=1, block=32).state(2, thread=2)
        >>> [(register.name, register.value) for register in state.registers], state.warps[0].ptx_text
        ([('%r1', '2'), ('%r2', '42')], 'ret')
        """
        if self._replay is None:
            raise ARGUMENT_RANGE.error(
                argument="step",
                found=f"step {format_value(step)} of a run without a replay",
                limit="a run is made again from a copy of its initial memory: of a Kernel.run with findings, on at most 64 MiB",
                fix="Run the kernel with findings=True, on smaller arrays.",
            )
        return self._replay.state(step, block, thread, progress)

    def _last_writer_at(self, address: int) -> LastWriter | None:
        return None if self._writers is None else self._writers.at(address)

    def _array(self, number: int) -> ArgumentArray:
        """The array of an argument; an error if it has none."""
        array = self.arrays[number] if 0 <= integer("argument", number) < len(self.arrays) else None
        if array is not None:
            return array
        array_numbers = [str(index) for index, other in enumerate(self.arrays) if other is not None]
        raise ARGUMENT_RANGE.error(
            argument="argument",
            found=f"argument {number}, which is not an array, nor the address or map of one",
            limit=f"arguments with arrays: {listed(array_numbers)}" if array_numbers else "this run knows no arrays",
            fix="Use an address instead." if not array_numbers else f"Use {array_numbers[0]}, for example.",
        )
