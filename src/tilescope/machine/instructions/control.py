"""Where threads go: branches, calls, returns, exits, and instructions that wait for the rest of their warp.

A loop that sees nothing new is a spin. Where a front comes back to the start of a loop, its registers hold what they held
the last time, and neither memory nor a barrier has changed since, going round again cannot help: the front is
parked until something changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import LAUNCH_FAILURE, KernelFaultError
from tilescope.machine.program import Assembler, Decoder, Moves
from tilescope.machine.schedule import LoopVisit, Schedule
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Arguments, BranchTable, FunctionName, Instruction, Label, Variable
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import BranchTaken


@dataclass(frozen=True, slots=True)
class Branch:
    """bra: all lanes of the front jump to the target; lanes with a false guard have continued already."""

    target: int

    def take(self, schedule: Schedule, front: Front) -> None:
        """Go, or park if the loop has seen nothing new."""
        if self.target <= front.pc and schedule.finds_spins and _sees_nothing_new(schedule, front, self.target):
            loop = schedule.cluster.program.registers_written(self.target, front.pc)
            front.pc = self.target
            schedule.spin(front, reads_clock=loop is None)
            return
        schedule.go_on(front, self.target)


def _sees_nothing_new(schedule: Schedule, front: Front, target: int) -> bool:
    """Whether a front that branches back to `target` has exactly the same state as the last time there."""
    key = (front.pc, int(front.lanes[0]), len(front.lanes))
    versions = schedule.versions()
    last = schedule.loop_visits.get(key)
    if last is None or last.versions != versions:
        schedule.loop_visits[key] = LoopVisit(versions, None)
        return False
    cluster = schedule.cluster
    numbers = cluster.program.registers_written(target, front.pc)
    if numbers is None:  # a clock is read, which changes; nothing else does
        return True
    registers = b"".join(cluster.registers[number][front.lanes].tobytes() for number in numbers)
    schedule.loop_visits[key] = LoopVisit(versions, registers)
    return last.registers == registers


@dataclass(frozen=True, slots=True)
class IndexedBranch:
    """brx.idx: each lane jumps to its entry of the table."""

    index: int
    targets: tuple[int, ...]

    def take(self, schedule: Schedule, front: Front) -> None:
        """Split the front by the targets of its lanes."""
        index = schedule.cluster.registers[self.index][front.lanes].astype(np.int64)
        is_beyond = index >= len(self.targets)
        if is_beyond.any():
            first = int(np.argmax(is_beyond))
            reason = f"brx.idx with index {int(index[first])}, but its table has {counted(len(self.targets), 'target')}"
            raise KernelFaultError(LAUNCH_FAILURE, reason, int(front.lanes[first]))
        cluster = schedule.cluster
        if cluster.undefined is not None:
            cluster.undefined.branch(front.pc, self.index, front.lanes)
        if cluster.bus.is_heard:
            cluster.emit(BranchTaken(front.pc, front.lanes, index))
        chosen = np.array(self.targets)[index]
        for target in np.unique(chosen).tolist():
            schedule.add(Front(target, front.lanes[chosen == target], front.rounds, front.steps))


def _carry(cluster: Cluster, moves: Moves, lanes: LaneNumbers) -> None:
    """Copy a variable of local memory to another one, for some lanes."""
    local = cluster.local.reshape(cluster.lane_count, cluster.local_stride)
    target = slice(moves.target, moves.target + moves.size_bytes)
    source = slice(moves.source, moves.source + moves.size_bytes)
    local[lanes, target] = local[lanes, source]
    if cluster.undefined is not None:
        cluster.undefined.carry(moves, lanes)


@dataclass(slots=True)
class Call:
    """call of a function with a body: arguments are copied to its parameters, which are local memory."""

    function: str
    start: int  # filled in when the functions have their places
    arguments: tuple[Moves, ...]

    def take(self, schedule: Schedule, front: Front) -> None:
        """Remember where to go back to, and go."""
        for moves in self.arguments:
            _carry(schedule.cluster, moves, front.lanes)
        depth = schedule.depth[front.lanes]
        schedule.returns[depth, front.lanes] = front.pc + 1
        schedule.depth[front.lanes] += 1
        schedule.go_on(front, self.start)


@dataclass(frozen=True, slots=True)
class Return:
    """ret: back to the call, or the end of the thread."""

    def take(self, schedule: Schedule, front: Front) -> None:
        """Split the front by where its lanes were called from."""
        depth = schedule.depth[front.lanes]
        ended = front.lanes[depth == 0]
        back = front.lanes[depth > 0]
        if len(back):
            schedule.depth[back] -= 1
            targets = schedule.returns[schedule.depth[back], back]
            for target in np.unique(targets).tolist():
                lanes = back[targets == target]
                for moves in _results(schedule.cluster, target - 1):
                    _carry(schedule.cluster, moves, lanes)
                schedule.add(Front(target, lanes, front.rounds, front.steps))
        if len(ended):
            schedule.exit(ended)


def _results(cluster: Cluster, pc: int) -> tuple[Moves, ...]:
    """The results of the call at `pc`."""
    return cluster.program.call_results.get(pc, ())


@dataclass(frozen=True, slots=True)
class Exit:
    """exit: ends the thread."""

    def take(self, schedule: Schedule, front: Front) -> None:
        """End all lanes of the front."""
        schedule.exit(front.lanes)


def _bra(assembler: Assembler, instruction: Instruction) -> Turn:
    label = instruction.operands[0]
    if not isinstance(label, Label):
        raise RefusedError("bra needs a label")
    return Branch(assembler.start + label.target)


def _brx(assembler: Assembler, instruction: Instruction) -> Turn:
    index, table = instruction.operands
    if not isinstance(table, BranchTable):
        raise RefusedError("brx.idx needs a .branchtargets table")
    return IndexedBranch(assembler.source(index, "u32"), tuple(assembler.start + target for target in table.targets))


def _ret(assembler: Assembler, instruction: Instruction) -> Turn:
    return Return()


def _exit(assembler: Assembler, instruction: Instruction) -> Turn:
    return Exit()


def _trap(assembler: Assembler, instruction: Instruction) -> Step:
    def trap(cluster: Cluster, at: Lanes) -> None:
        raise KernelFaultError(LAUNCH_FAILURE, f"{instruction.name} was executed", int(cluster.lanes(at)[0]))

    return trap


def _setmaxnreg(assembler: Assembler, instruction: Instruction) -> Turn:
    """setmaxnreg.sync.aligned: registers are not counted, but the warp executes it together.

    The PTX ISA requires all warps of a warpgroup. Triton omits it in some warps, and executes it at different places in
    others.
    """

    def do_nothing(cluster: Cluster, at: Lanes) -> None:
        pass

    return Collective(do_nothing)


def _no_effect(assembler: Assembler, instruction: Instruction) -> Step:
    """nanosleep, pragma-like instructions, prefetches: nothing that a value depends on."""

    def do_nothing(cluster: Cluster, at: Lanes) -> None:
        pass

    return do_nothing


def called_function(instruction: Instruction) -> FunctionName:
    """The function of a call, whose operands are (results), function, (arguments), each of the lists perhaps absent."""
    for operand in instruction.operands:
        if isinstance(operand, FunctionName):
            return operand
    raise RefusedError("an indirect call: the function is not known when the kernel is made")


def call_lists(instruction: Instruction) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """(results, arguments) of a call."""
    results: tuple[Variable, ...] = ()
    arguments: tuple[Variable, ...] = ()
    name_seen = False
    for operand in instruction.operands:
        if isinstance(operand, FunctionName):
            name_seen = True
        elif isinstance(operand, Arguments):
            variables = tuple(variable for variable in operand.variables if isinstance(variable, Variable))
            if len(variables) != len(operand.variables):
                raise RefusedError("arguments and results of a call are .param variables")
            if name_seen:
                arguments = variables
            else:
                results = variables
    return results, arguments


def decode_call(assembler: Assembler, instruction: Instruction) -> Turn:
    """A call of a function of the module; what is only declared is in host_calls.py."""
    name = called_function(instruction).name
    function = assembler.module.functions[name]
    results, arguments = call_lists(instruction)
    pc = len(assembler.program.steps)
    assembler.program.call_results[pc] = tuple(
        _moves(assembler, inside, outside) for inside, outside in zip(function.results, results, strict=True)
    )
    carried = tuple(
        _moves(assembler, outside, inside) for outside, inside in zip(arguments, function.parameters, strict=True)
    )
    return Call(name, -1, carried)


def _moves(assembler: Assembler, source: Variable, target: Variable) -> Moves:
    assembler.place(source)
    assembler.place(target)
    offsets = assembler.program.local_offsets
    size_bytes = min(source.size_bytes or 0, target.size_bytes or 0)
    return Moves(offsets[source.number], offsets[target.number], size_bytes)


FAMILIES: dict[str, Decoder] = {
    "bra": _bra,
    "brx": _brx,
    "ret": _ret,
    "exit": _exit,
    "trap": _trap,
    "nanosleep": _no_effect,
    "prefetch": _no_effect,
    "prefetchu": _no_effect,
    "applypriority": _no_effect,
    "discard": _no_effect,
    "setmaxnreg": _setmaxnreg,
    "griddepcontrol": _no_effect,
    "pmevent": _no_effect,
    "brkpt": _trap,
}
