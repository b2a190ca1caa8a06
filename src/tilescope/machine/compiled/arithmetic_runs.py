"""Runs of arithmetic instructions, each taken by one function of machine code once it has been executed often enough.

    mad.lo.s32 %r4, %r1, %r2, %r3;      ┐
    shl.b32 %r5, %r4, 2;                │ one function: values between the instructions stay in the processor's registers
    setp.lt.s32 %p1, %r5, %r6;          ┘
    @%p1 bra $loop;

A run lies in a basic block: nothing jumps into it, and it neither accesses memory nor waits. At first its steps are taken one after
another. An instruction that has no code (an approximate function, say) remains a step between two functions. While a wgmma that uses one
of the run's registers is pending, every step is taken by itself, since it finishes the wgmma.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tilescope.machine.cluster import Cluster
from tilescope.machine.compiled.lane_code import LANES
from tilescope.machine.compiled.native_code import Function, can_compile, compile_function, is_loaded
from tilescope.machine.compiled.run_code import RunCode
from tilescope.machine.program import ArithmeticRun, Constant, Program
from tilescope.machine.step import RegisterUse, Step, StepRun
from tilescope.sync.cluster_shape import Lanes
from tilescope.sync.events import RegisterAccess

LEAST_STEPS = 2  # of a run: a function takes about as long to call as a step
MOST_STEPS = 256  # of one function: compiling takes longer than in proportion
COMPILE_NANOSECONDS = 10_000_000  # a run is compiled after it has taken as long by numpy …
COMPILE_NANOSECONDS_A_STEP = 500_000  # … and this for each of its steps: about the time that compiling takes
LOAD_NANOSECONDS = 60_000_000  # the compiler is loaded after such runs have taken as long


@dataclass(slots=True)
class _NumpyTime:
    """How long numpy has taken in this process for runs that would have been compiled."""

    nanoseconds: int = 0


_numpy_time = _NumpyTime()


@dataclass(slots=True, eq=False)
class CompiledSteps:
    """Steps that one function of machine code executes."""

    function: Function
    numbers: tuple[int, ...]  # the registers of its table
    uses: tuple[tuple[int, RegisterUse], ...]  # of registers of wgmma, by instruction

    def take(self, cluster: Cluster, at: Lanes) -> None:
        """Execute them for some lanes."""
        tables = cluster.register_tables
        self.function(tables.table(self.numbers), *tables.active(at, LANES))
        if self.uses and cluster.bus.is_heard:
            for pc, use in self.uses:
                cluster.pc = pc
                cluster.emit(RegisterAccess(pc, cluster.lanes(at), use.read, use.written, use.is_move))


def _compile(program: Program, run: ArithmeticRun) -> Iterator[tuple[int, Step]]:
    """The functions of a run, and the steps that have none."""
    pc = run.start
    end = run.start + len(run.steps)
    while pc < end:
        code = RunCode(program.register_dtypes, _constants(program))
        stop = pc
        while stop < min(end, pc + MOST_STEPS) and code.write(program.arithmetic[stop]):
            stop += 1
        function = compile_function(code.text("run")) if stop - pc >= LEAST_STEPS else None
        if function is not None:
            uses = tuple(
                (place, program.register_uses[place]) for place in range(pc, stop) if place in program.register_uses
            )
            yield pc, CompiledSteps(function, tuple(code.numbers), uses).take
        else:
            stop = max(stop, pc + 1)
            yield from enumerate(run.steps[pc - run.start : stop - run.start], pc)
        pc = stop


def compile_run(program: Program, run: ArithmeticRun) -> list[tuple[int, Step]] | None:
    """The parts of a run that has been executed often; None as long as it does not pay to load the compiler."""
    _numpy_time.nanoseconds += run.nanoseconds
    if _numpy_time.nanoseconds < LOAD_NANOSECONDS and not is_loaded():
        return None
    return list(_compile(program, run))


def find_runs(program: Program) -> dict[int, StepRun]:
    """The runs of a program, by their first instruction; none where nothing can be compiled."""
    if not can_compile():
        return {}
    runs: dict[int, StepRun] = {}
    start = 0
    for pc in range(len(program.steps) + 1):
        is_arithmetic = pc in program.arithmetic and program.steps[pc] is not None
        begins_block = 0 < pc < len(program.steps) and program.straight_end[pc - 1] == pc
        if is_arithmetic and not begins_block:
            continue
        if pc - start >= LEAST_STEPS:
            runs[start] = _make_run(program, start, program.steps[start:pc])
        start = pc if is_arithmetic else pc + 1
    return runs


def _make_run(program: Program, start: int, steps: Sequence[Step | None]) -> StepRun:
    taken = tuple(step for step in steps if step is not None)
    uses = [program.register_uses[pc] for pc in range(start, start + len(taken)) if pc in program.register_uses]
    settled: frozenset[int] = frozenset().union(*[use.settled for use in uses])
    limit = COMPILE_NANOSECONDS + COMPILE_NANOSECONDS_A_STEP * len(taken)
    run = ArithmeticRun(start, taken, settled, limit, partial(compile_run, program))
    return StepRun(taken, run.take)


def _constants(program: Program) -> dict[int, int]:
    """The constants of a program, by register."""
    return {number: one.bits for number, one in program.read_only.items() if isinstance(one, Constant)}
