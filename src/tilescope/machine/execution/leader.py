"""Blocks that follow a leader: where all blocks do the same to barriers and copies, one of them does it for all.

    leader       a separate cluster: fronts, barriers, mbarriers, pending work, observers. Its registers and its shared memory
                 are the first ones of the batch
    batch        the registers and shared memories of all blocks: arithmetic, loads, stores and products are done for all of them

A branch, or an operand of an mbarrier, in which blocks differ ends it: OrderMattersError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilescope.machine.cluster import Cluster, Front, Words
from tilescope.machine.execution.batch import Batch
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.records import CopyRecord
from tilescope.machine.execution.undefined_values import UndefinedValues
from tilescope.machine.program import Constant, Program
from tilescope.machine.schedule import ClusterState, Schedule
from tilescope.machine.step import Step, StepRun, Turn
from tilescope.ptx.syntax import Instruction
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.detector.context import LaunchDetector
from tilescope.sync.detector.lockstep_order import CopyTouch
from tilescope.sync.events import AccessCost
from tilescope.sync.footprint import Rows
from tilescope.sync.shadow.lockstep_cells import OrderMattersError

_OF_LEADER = frozenset({"mbarrier", "fence", "membar", "cp", "wgmma", "setmaxnreg", "bar", "barrier"})


class Leader(Cluster):
    """The first block of a batch, which acts for all of them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        super().__init__(batch.launch, batch.starts[0])
        self.program = batch.program.fact(led_program)
        self.stretches = self.program.stretches
        self.shared = batch.shared[: self.shared_stride]
        self.local = batch.local[: self.lane_count * self.local_stride]
        batch.pending = self.pending
        self.touches: list[CopyTouch] = []
        self.follower_copies: list[list[CopyRecord]] = [[] for _ in batch.starts]

    def _register(self, number: int, row: int | None) -> Words:
        return self.batch.registers[number][: self.lane_count]

    @cached_property
    def undefined_values(self) -> UndefinedValues:
        """None may be undefined."""
        raise OrderMattersError("an undefined value")

    @property
    def whole(self) -> Cluster:
        """All blocks."""
        return self.batch

    def in_all_blocks(self, at: Lanes) -> Lanes:
        """The same lanes of all blocks."""
        return self.batch.in_all_blocks(at)

    def followers(self, lane: int) -> LaneNumbers:
        """The same lane of all blocks but the leader."""
        return lane + np.arange(1, self.batch.blocks) * self.lane_count

    def require_alike(self, numbers: Iterable[int], at: Lanes) -> None:
        """Refuse registers in which blocks differ."""
        self.batch.require_alike(numbers, at)

    def keep_rows(self, pc: int, lane: int, rows: Rows, *, is_write: bool) -> None:
        """A copy of a lane of the batch reads or writes bytes of global memory."""
        self.touches.append(CopyTouch(pc, lane, rows, is_write))

    def keep_follower(self, lane: int, record: CopyRecord) -> None:
        """The record of a copy of a block that follows."""
        block = lane // self.lane_count
        self.follower_copies[block].append(record._replace(block=self.batch.starts[block]))

    def _store_shared(self, at: Lanes, addresses: Addresses, values: Words, cost: AccessCost | None) -> None:
        """What the leader writes itself, the others have too."""
        super()._store_shared(at, addresses, values, cost)
        size_bytes = values.dtype.itemsize * (values.shape[1] if values.ndim > 1 else 1)
        shared = self.batch.shared.reshape(self.batch.blocks, -1)
        for address in addresses.tolist():
            shared[1:, address : address + size_bytes] = shared[0, address : address + size_bytes]


@dataclass(slots=True, eq=False)
class LeaderSchedule(Schedule):
    """Runs a leader to its end; decisions that depend on its registers are the same for all blocks."""

    detector: LaunchDetector | None = None  # that subscribes to its events; None if there is none

    def run(self) -> ClusterState:
        """Run until every thread has ended."""
        state = Schedule.run(self)
        while state == "idle" and self.ready:
            state = Schedule.run(self)
        if state != "finished":
            raise OrderMattersError(f"the leader is {state}")
        return state

    def _turn(self, front: Front) -> bool:
        leader = self.cluster
        assert isinstance(leader, Leader)
        if self.detector is not None and self.detector.conflicts.found:
            raise OrderMattersError("a leader has something to report")
        leader.require_alike(leader.program.fact(_deciding_registers)[front.pc], front.lanes)
        return Schedule._turn(self, front)

    def diverge(self, pc: int) -> None:
        """Refuse to continue with parts of warps: not supported in lockstep, so blocks run one after another."""
        raise OrderMattersError("a part of a warp")


def led_program(program: Program) -> Program:
    """The program as a leader runs it."""
    steps: list[Step | None] = []
    turns: list[Turn | None] = []
    for pc, instruction in enumerate(program.instructions):
        step = program.steps[pc]
        turn = program.turns[pc]
        is_of_leader = instruction is not None and instruction.name in _OF_LEADER
        if step is not None:
            step = _led_step(program, pc, instruction, step) if is_of_leader else _in_all_blocks(program, pc, step)
        if isinstance(turn, Collective) and not (
            is_of_leader and instruction is not None and instruction.name == "wgmma"
        ):
            turn = replace(turn, step=_in_all_blocks(program, pc, turn.step))
        steps.append(step)
        turns.append(turn)
    runs = {
        start: _lead_run(program, start, run, steps)
        for start, run in program.runs.items()
        if tuple(program.steps[start : start + len(run.steps)]) == run.steps
    }
    return replace(program, steps=steps, turns=turns, runs=runs, _loops={}, _facts={})


def _lead_run(program: Program, start: int, run: StepRun, steps: Sequence[Step | None]) -> StepRun:
    """A run of the lanes of all blocks; step by step where one of them uses a register of a pending wgmma."""
    run_steps = tuple(step for step in steps[start : start + len(run.steps)] if step is not None)
    named: frozenset[int] = frozenset().union(*program.registers_named[start : start + len(run_steps)])
    accumulators = named & program.wgmma_registers

    def take(leader: Leader, at: Lanes) -> None:
        if accumulators and leader.pending.is_using(accumulators):
            for pc, step in enumerate(run_steps, start):
                leader.pc = pc
                step(leader, at)
        else:
            run.take(leader.batch, leader.batch.in_all_blocks(at))

    return StepRun(run_steps, take)


def _in_all_blocks(program: Program, pc: int, step: Step) -> Step:
    """A step of the lanes of all blocks, which accesses no register of a pending wgmma: the leader issued it for all of them."""
    accumulators = program.registers_named[pc] & program.wgmma_registers

    def take(leader: Leader, at: Lanes) -> None:
        if accumulators and any(work.registers & accumulators for work in leader.works if work.kind == "wgmma"):
            raise OrderMattersError("a register of a pending wgmma")
        batch = leader.batch
        batch.pc = leader.pc
        step(batch, batch.in_all_blocks(at))

    return take


def _led_step(program: Program, pc: int, instruction: Instruction | None, step: Step) -> Step:
    """A step of the leader; all blocks have the same operands, and get the same results."""
    assert instruction is not None
    targets = program.targets[pc]
    guard = _guard_of(program, instruction)
    is_tensor_copy = instruction.name == "cp"  # which compares its own operands: coordinates differ
    sources = guard if is_tensor_copy else (*guard, *program.registers_named[pc].difference(targets))
    changing = tuple(number for number in sources if not isinstance(program.read_only.get(number), Constant))

    def take(leader: Leader, at: Lanes) -> None:
        leader.require_alike(changing, at)
        step(leader, at)
        leader.batch.spread(targets, at)

    return take


def _guard_of(program: Program, instruction: Instruction) -> tuple[int, ...]:
    if instruction.guard is None:
        return ()
    function = program.entry.name
    return (program.register_numbers[function, instruction.guard.register.number],)


def _deciding_registers(program: Program) -> list[tuple[int, ...]]:
    """By instruction: the registers by which a turn decides."""
    registers: list[tuple[int, ...]] = []
    for pc, turn in enumerate(program.turns):
        guard = program.guards[pc]
        numbers = set() if guard is None else {guard[0]}
        if isinstance(turn, Collective):
            numbers.update(() if turn.mask is None else (turn.mask,))
        elif turn is not None:
            numbers.update(program.registers_named[pc])
        registers.append(tuple(n for n in numbers if not isinstance(program.read_only.get(n), Constant)))
    return registers
