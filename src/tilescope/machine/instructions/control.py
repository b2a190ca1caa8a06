"""Where threads go: branches, calls, returns, exits, and instructions that wait for the rest of their warp.

A loop that sees nothing new is a spin. Where a front comes back to the start of a loop, its registers hold what they held
the last time, and neither memory nor a barrier has changed since, going round again cannot help: the front is
parked until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, LAUNCH_FAILURE, KernelFaultError
from tilescope.machine.execution.undefined_values import Origins
from tilescope.machine.program import Assembler, Decoder, Moves, find_code_addresses
from tilescope.machine.schedule import LoopVisit, Schedule
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import (
    Arguments,
    BranchTable,
    Function,
    FunctionName,
    Instruction,
    Label,
    Module,
    Register,
    Variable,
)
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import BranchTaken

_POINTER_FIX = "Check that the pointer was set, and that the function has the type through which it is called."
_DEEP_FIX = "End the recursion earlier. On a card cudaDeviceSetLimit(cudaLimitStackSize) sets the size of the stack, 1024 bytes by default."


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


@dataclass(slots=True)
class CalledFunction:
    """A function with a body that a call may lead to: arguments are copied to its parameters, which are local memory."""

    name: str
    address: int
    arguments: tuple[Moves, ...]
    results: tuple[Moves, ...]
    start: int = -1  # filled in when the functions have their places

    def enter(self, schedule: Schedule, lanes: LaneNumbers, behind: int) -> None:
        """Remember where to go back to, and carry the arguments over."""
        depth = schedule.depth[lanes]
        if int(depth.max()) == len(schedule.returns):
            lane = int(lanes[np.argmax(depth)])
            raise KernelFaultError(
                ILLEGAL_ADDRESS, f"calls are nested {len(schedule.returns)} deep", lane, fix=_DEEP_FIX
            )
        if schedule.call_frames is not None:
            schedule.call_frames.enter(schedule.cluster, self.name, lanes)
        for moves in self.arguments:
            _put(schedule.cluster, moves, lanes, _take(schedule.cluster, moves, lanes))
        schedule.returns[depth, lanes] = behind
        schedule.depth[lanes] += 1

    def leave(self, schedule: Schedule, lanes: LaneNumbers) -> None:
        """Carry the results over. The variables that take them may be the function's own, of the call before."""
        results = [_take(schedule.cluster, moves, lanes) for moves in self.results]
        if schedule.call_frames is not None:
            schedule.call_frames.leave(schedule.cluster, self.name, lanes)
        for moves, result in zip(self.results, results, strict=True):
            _put(schedule.cluster, moves, lanes, result)


class _Carried(NamedTuple):
    """A variable on its way to another one: its bytes, and what of them is undefined."""

    content: npt.NDArray[np.uint8]
    origins: Origins | None


def _take(cluster: Cluster, moves: Moves, lanes: LaneNumbers) -> _Carried:
    local = cluster.local.reshape(cluster.lane_count, cluster.local_stride)
    undefined = cluster.undefined
    source = slice(moves.source, moves.source + moves.size_bytes)
    return _Carried(local[lanes, source], None if undefined is None else undefined.local_origins(source, lanes))


def _put(cluster: Cluster, moves: Moves, lanes: LaneNumbers, carried: _Carried) -> None:
    local = cluster.local.reshape(cluster.lane_count, cluster.local_stride)
    target = slice(moves.target, moves.target + moves.size_bytes)
    local[lanes, target] = carried.content
    if cluster.undefined is not None and carried.origins is not None:
        cluster.undefined.put_local(target, lanes, carried.origins)


@dataclass(frozen=True, slots=True)
class Call:
    """call of a function, or through a register: of one of several."""

    functions: tuple[CalledFunction, ...]
    register: int | None  # that holds the address; None: there is one function

    def take(self, schedule: Schedule, front: Front) -> None:
        """Go, each lane to its function."""
        if self.register is None:
            [function] = self.functions
            function.enter(schedule, front.lanes, front.pc + 1)
            schedule.go_on(front, function.start)
            return
        cluster = schedule.cluster
        if cluster.undefined is not None:
            cluster.undefined.branch(front.pc, self.register, front.lanes)
        addresses = cluster.registers[self.register][front.lanes]
        is_left = np.ones(len(front.lanes), np.bool_)
        for function in self.functions:
            is_called = addresses == function.address
            if is_called.any():
                is_left &= ~is_called
                lanes = front.lanes[is_called]
                function.enter(schedule, lanes, front.pc + 1)
                schedule.add(Front(function.start, lanes, front.rounds, front.steps))
        if is_left.any():
            first = int(np.argmax(is_left))
            reason = f"a call of {int(addresses[first]):#x}, where no function with these parameters and results is"
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(front.lanes[first]), fix=_POINTER_FIX)

    def find(self, name: str) -> CalledFunction:
        """The function of that name, to which it has led."""
        return next(function for function in self.functions if function.name == name)


@dataclass(frozen=True, slots=True)
class Return:
    """ret: back to the call, or the end of the thread."""

    function: str

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
                call = schedule.cluster.program.turns[target - 1]
                assert isinstance(call, Call)
                call.find(self.function).leave(schedule, lanes)
                schedule.add(Front(target, lanes, front.rounds, front.steps))
        if len(ended):
            schedule.exit(ended)


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
    return Return(assembler.function.name)


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


def callee_of(instruction: Instruction) -> FunctionName | Register:
    """What is called: a function, or the one whose address a register holds.

    The operands are (results), callee, (arguments), prototype; the lists may be absent.
    """
    for operand in instruction.operands:
        if isinstance(operand, FunctionName | Register):
            return operand
    raise RefusedError("call needs a function, or a register that holds the address of one")


def find_called(module: Module, instruction: Instruction) -> list[Function]:
    """The functions with a body that a call may lead to: through a register, those that match of whose address is taken."""
    callee = callee_of(instruction)
    if isinstance(callee, FunctionName):
        function = module.functions.get(callee.name)
        return [] if function is None or function.instructions is None else [function]
    results, arguments = call_lists(instruction)
    sizes = _sizes(results), _sizes(arguments)
    addressed = module.addressed_functions
    functions = [function for name, function in module.functions.items() if name in addressed and not function.is_entry]
    return [
        function
        for function in functions
        if function.instructions is not None and (_sizes(function.results), _sizes(function.parameters)) == sizes
    ]


def _sizes(variables: Iterable[Variable]) -> list[int | None]:
    return [variable.size_bytes for variable in variables]


def call_lists(instruction: Instruction) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """(results, arguments) of a call."""
    results: tuple[Variable, ...] = ()
    arguments: tuple[Variable, ...] = ()
    name_seen = False
    for operand in instruction.operands:
        if isinstance(operand, FunctionName | Register):
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
    callee = callee_of(instruction)
    functions = find_called(assembler.module, instruction)
    if not functions and isinstance(callee, FunctionName):
        raise RefusedError(f"{callee.name} has no body in this text")
    if not functions:
        raise RefusedError("the text takes the address of no function with these parameters and results")
    results, arguments = call_lists(instruction)
    addresses = assembler.program.fact(find_code_addresses)
    called = tuple(
        CalledFunction(
            function.name,
            addresses[function.name],
            _moves_of_all(assembler, arguments, function.parameters),
            _moves_of_all(assembler, function.results, results),
        )
        for function in functions
    )
    return Call(called, None if isinstance(callee, FunctionName) else assembler.source(callee, "u64"))


def _moves_of_all(assembler: Assembler, sources: Sequence[Variable], targets: Sequence[Variable]) -> tuple[Moves, ...]:
    return tuple(_moves(assembler, source, target) for source, target in zip(sources, targets, strict=True))


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
