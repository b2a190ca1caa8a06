"""Which threads execute each place of a kernel: a barrier is only inserted where all threads that it waits for arrive.

    setp.gt.u32 %p1, %r1, 63;
    @%p1 bra $join;               128 of 128 threads: bar.sync 0 may be before this branch
    st.shared.u32 [%r2], %r3;     threads 0-63: bar.sync 0 here would be in divergent code
    $join:                        128 of 128 threads

The kernel runs once more, and each lane counts its visits at the start of every basic block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.execution.collective import Collective
from tilescope.machine.program import Program
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import Step, Turn
from tilescope.ptx.syntax import BranchTable, Instruction, Label
from tilescope.sync.cluster_shape import BlockIndex, Lanes

JUMPS = ("bra", "brx", "call", "ret", "exit", "trap")
ALL_LANES = (1 << WARP_LANES) - 1

Visits = npt.NDArray[np.int32]  # (basic blocks, lanes of a cluster)


def is_straight(program: Program) -> bool:
    """Whether all threads execute all instructions, one after another: no branch, no call, no return of some of them."""
    jumps = [
        instruction for instruction in program.instructions if instruction is not None and instruction.name in JUMPS
    ]
    return all(jump.name in ("ret", "exit") and jump.guard is None for jump in jumps)


def find_block_starts(program: Program) -> list[int]:
    """The first instruction of every basic block, in ascending order."""
    starts = set(program.functions.values())
    begins = sorted(starts)
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name not in JUMPS:
            continue
        starts.add(pc + 1)
        function = max(begin for begin in begins if begin <= pc)
        for operand in instruction.operands:
            if isinstance(operand, Label):
                starts.add(function + operand.target)
            elif isinstance(operand, BranchTable):
                starts.update(function + target for target in operand.targets)
    return sorted(start for start in starts if start < len(program.instructions))


@dataclass(slots=True)
class _CountedTurn:
    """A turn at the start of a basic block: counts its visits before its guard is read."""

    turn: Turn
    guard: tuple[int, bool] | None
    row: int
    counter: VisitCounter

    def take(self, schedule: Schedule, front: Front) -> None:
        """Count the lanes, and take the turn with those whose guard holds."""
        cluster: Cluster = schedule.cluster
        self.counter.count(cluster, self.row, front.lanes)
        if self.guard is not None:
            number, is_negated = self.guard
            holds = cluster.registers[number][front.lanes].astype(np.bool_) ^ is_negated
            if not holds.any():
                schedule.go_on(front, front.pc + 1)
                return
            if not holds.all():
                schedule.add(Front(front.pc + 1, front.lanes[~holds], front.rounds, front.steps))
                front.lanes = front.lanes[holds]
        self.turn.take(schedule, front)


class VisitCounter:
    """Counts how often each lane visits each basic block of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.starts = find_block_starts(program)
        self.visits: dict[BlockIndex, Visits] = {}
        self.exists: dict[
            BlockIndex, npt.NDArray[np.bool_]
        ] = {}  # by lane; blocks that run in lockstep are one long row of lanes
        self.block_lanes = 0

    def counting_program(self) -> Program:
        """The program whose basic blocks count their visits."""
        program = self.program
        steps = list(program.steps)
        turns = list(program.turns)
        guards = list(program.guards)
        for row, pc in enumerate(self.starts):
            step = steps[pc]
            turn = turns[pc]
            if turn is None and step is not None:
                steps[pc] = self._counted_step(row, step)
            elif turn is not None and not isinstance(turn, Collective):
                turns[pc] = _CountedTurn(turn, guards[pc], row, self)
                guards[pc] = None
        return replace(program, steps=steps, turns=turns, guards=guards, may_be_led=False)

    def _counted_step(self, row: int, step: Step) -> Step:
        def count_and_take(cluster: Cluster, at: Lanes) -> None:
            self.count(cluster, row, at)
            step(cluster, at)

        return count_and_take

    def count(self, cluster: Cluster, row: int, lanes: Lanes) -> None:
        """Count a visit of lanes of a cluster."""
        visits = self.visits.get(cluster.first_block)
        if visits is None:
            visits = self.visits[cluster.first_block] = np.zeros((len(self.starts), cluster.lane_count), np.int32)
            self.exists[cluster.first_block] = cluster.exists
            self.block_lanes = cluster.block_lanes
        visits[row, lanes] += 1


class Convergence:
    """Which lanes reach the places of a program, by the visits of one run."""

    def __init__(self, counter: VisitCounter) -> None:
        self._program = counter.program
        self._starts = np.array(counter.starts)
        self._block_lanes = counter.block_lanes
        self._exists = list(counter.exists.values())
        self._visits = list(counter.visits.values())

    def row_of(self, pc: int) -> int:
        """The basic block that contains an instruction."""
        return int(np.searchsorted(self._starts, pc, side="right")) - 1

    def start_of(self, pc: int) -> int:
        """The first instruction of the basic block of an instruction."""
        return int(self._starts[self.row_of(pc)])

    def is_reached_by_block(self, pc: int) -> bool:
        """Whether all threads of each block execute an instruction equally often, or none do."""
        blocks = self._by_block(pc)
        return bool(len(blocks)) and bool((blocks == blocks[:, :1]).all())

    def is_reached_before_exit(self, pc: int) -> bool:
        """Whether the threads of a block that never execute an instruction only exit instead, and the others agree."""
        blocks = self._by_block(pc)
        if not len(blocks) or not blocks.any():
            return False
        most = blocks.max(axis=1, keepdims=True)
        is_absent = (blocks == 0) & (most > 0)
        if not ((blocks == most) | is_absent).all():
            return False
        later = [row for row in range(self.row_of(pc) + 1, len(self._starts)) if not self._only_returns(row)]
        return not any((self._rows_by_block(row) > 0)[is_absent].any() for row in later)

    def threads_at(self, pc: int) -> int | None:
        """The number of threads of a block that execute an instruction; None if they disagree about how often."""
        blocks = self._by_block(pc)
        blocks = blocks[blocks.any(axis=1)]
        if not len(blocks):
            return None
        most = blocks.max(axis=1, keepdims=True)
        if not ((blocks == most) | (blocks == 0)).all():
            return None
        counts = np.unique((blocks > 0).sum(axis=1))
        return int(counts[0]) if len(counts) == 1 else None

    def warp_mask(self, pc: int) -> int | None:
        """The lanes that execute an instruction, the same in each warp that does; None if warps or visits differ."""
        warps = self._warps(pc)
        warps = warps[warps.any(axis=1)]
        if not len(warps):
            return None
        is_active = warps > 0
        most = warps.max(axis=1, keepdims=True)
        if not (is_active == is_active[0]).all() or not ((warps == most) | ~is_active).all():
            return None
        mask = sum(1 << lane for lane in np.flatnonzero(is_active[0]).tolist())
        return ALL_LANES if mask == self._full_mask else mask

    @cached_property
    def _full_mask(self) -> int:
        """The lanes of the first warp that exist: a block of 16 threads is a warp of 16 lanes."""
        return sum(1 << lane for lane in np.flatnonzero(self._exists[0][:WARP_LANES]).tolist())

    def _warps(self, pc: int) -> Visits:
        """(warps, lanes) of the visits of whole warps; a block's last warp may have fewer lanes, and counts if it is the only one."""
        if not self._visits:  # the budget of the trials was spent before the run that counts visits
            return np.zeros((0, WARP_LANES), np.int32)
        warps = np.concatenate([visits[self.row_of(pc)].reshape(-1, WARP_LANES) for visits in self._visits])
        exists = np.concatenate([exists.reshape(-1, WARP_LANES) for exists in self._exists])
        is_like_first = (exists == exists[0]).all(axis=1)
        full_warps: Visits = warps[is_like_first]
        return full_warps

    def _by_block(self, pc: int) -> Visits:
        return self._rows_by_block(self.row_of(pc))

    def _rows_by_block(self, row: int) -> Visits:
        """(blocks, threads) of the visits of a basic block."""
        if not self._visits:
            return np.zeros((0, 0), np.int32)
        threads = self._exists[0][: self._block_lanes]
        blocks = np.concatenate([visits[row].reshape(-1, self._block_lanes) for visits in self._visits])
        existing: Visits = blocks[:, threads]
        return existing

    def _only_returns(self, row: int) -> bool:
        """Whether a basic block does nothing but return."""
        instruction: Instruction | None = self._program.instructions[int(self._starts[row])]
        return instruction is None or instruction.name in ("ret", "exit")
