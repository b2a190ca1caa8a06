"""From a PTX module to a program: the entry, then every function it calls, all decoded once.

What cannot be run is refused here, all of it at once, each with its line and source line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tilescope.errors import RuleError, Violation
from tilescope.machine.cluster import Cluster
from tilescope.machine.compiled.arithmetic_runs import find_runs
from tilescope.machine.execution.collective import Collective
from tilescope.machine.instructions.control import (
    Branch,
    Call,
    IndexedBranch,
    Return,
    callee_of,
    decode_call,
    find_called,
)
from tilescope.machine.instructions.decode import decode
from tilescope.machine.instructions.host_calls import HOST_CALLS, decode_host_call
from tilescope.machine.instructions.scalar import decode_contraction, keep_factors
from tilescope.machine.program import Assembler, Frame, Program
from tilescope.machine.step import RefusedError, RegisterUse, Step, Turn, WordSource
from tilescope.ptx.contraction import contractions
from tilescope.ptx.syntax import Function, Instruction, Module, Register, Vector, named_variable, nested_operands
from tilescope.rule import ptx_example, rule
from tilescope.sync.cluster_shape import WARPGROUP_LANES, Lanes
from tilescope.sync.epoch import PC_END
from tilescope.sync.events import LoadedRegisterAccess, RegisterAccess

_SHORTENED_CHARACTERS = 120
_NOT_RECURSIVE = frozenset({"alloca", "stacksave", "stackrestore", "wgmma", "tcgen05"})

UNSUPPORTED = rule(
    "ptx-unsupported",
    "The emulator runs the PTX instructions that occur in kernels for sm_80 to sm_103a and sm_120a.",
    argument="line {line}",
    found="line {line}[[ ({source})]]: {text}",
    limit="{reason}",
    fix="Remove the instruction, or write it with others.",
    source="PTX ISA; the instructions that the machine has",
    passing=f"ts.Kernel({ptx_example('ptx-unsupported.pass.ptx')})",
    failing=f"ts.Kernel({ptx_example('ptx-unsupported.fail.ptx')})",
)


def assemble(module: Module, entry: Function) -> Program:
    """The program of an entry; a RuleError names every instruction that cannot be run."""
    assembler = Assembler(module, entry)
    assembler.place_parameters()
    refused: list[Violation] = []
    calls = _find_calls(module, entry)
    recursive = _find_recursive(calls)
    for name in calls:
        function = module.functions[name]
        first_register = len(assembler.program.register_dtypes)
        _append(assembler, function, refused)
        if name in recursive:
            refused.extend(_refuse_recursion(function))
            _add_frame(assembler.program, function, first_register)
    refused.extend(_refuse_length(assembler.program))
    if refused:
        raise RuleError(refused)
    program = assembler.program
    for turn in program.turns:
        if isinstance(turn, Call):
            for called in turn.functions:
                called.start = program.functions[called.name]
    assembler.place_dynamic_memory()
    _wait_for_accumulators(program)
    _wait_for_loads(program)
    _find_straight_runs(program)
    program.runs = find_runs(program)
    return program


def _refuse_length(program: Program) -> Iterator[Violation]:
    """Refuse a program with more instructions than a stamp of the race detector can name."""
    first = next((instruction for instruction in program.instructions[PC_END:] if instruction is not None), None)
    if first is not None:
        count = len(program.instructions)
        yield _violation(first, f"a kernel and its functions have at most {PC_END} instructions, and these {count}")


def _find_calls(module: Module, entry: Function) -> dict[str, set[str]]:
    """The entry and the functions that it calls, directly or not, each with those that it calls itself."""
    calls: dict[str, set[str]] = {}
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        if function.name in calls:
            continue
        instructions = [instruction for instruction in function.instructions or () if instruction.name == "call"]
        called = {called.name: called for instruction in instructions for called in _find_called(module, instruction)}
        calls[function.name] = set(called)
        waiting += called.values()
    return calls


def _find_called(module: Module, instruction: Instruction) -> list[Function]:
    try:
        return find_called(module, instruction)
    except RefusedError:
        return []  # refused again where it is decoded


def _find_recursive(calls: dict[str, set[str]]) -> frozenset[str]:
    """The functions that call themselves, directly or through others."""
    reached = {name: set(called) for name, called in calls.items()}
    is_changed = True
    while is_changed:
        is_changed = False
        for name, called in calls.items():
            more = set[str]().union(*(reached[inner] for inner in called)) - reached[name]
            reached[name].update(more)
            is_changed |= bool(more)
    return frozenset(name for name, names in reached.items() if name in names)


def _append(assembler: Assembler, function: Function, refused: list[Violation]) -> None:
    """Decode the body of a function, and its return."""
    program = assembler.program
    assembler.function = function
    assembler.start = len(program.steps)
    program.functions[function.name] = assembler.start
    for variable in (*function.parameters, *function.results, *function.variables):
        if variable.space != "const":
            assembler.place(variable)
    body = function.instructions or ()
    contracted = contractions(body)
    products = {contraction.product for contraction in contracted.values()}
    for number, instruction in enumerate(body):
        assembler.targets_now = []
        decoded: Step | Turn = Return(function.name)
        guard: tuple[int, bool] | None = None
        try:
            _require_widths(instruction)
            if instruction.guard is not None:
                guard = (assembler.register(instruction.guard.register), instruction.guard.is_negated)
            if number in contracted:
                product = body[contracted[number].product]
                decoded = decode_contraction(assembler, instruction, product, contracted[number])
            elif number in products:
                decoded = keep_factors(assembler, instruction)
            else:
                decoded = _decode(assembler, instruction)
        except RefusedError as reason:
            refused.append(_violation(instruction, str(reason)))
        except (IndexError, ValueError):
            refused.append(_violation(instruction, "the operands are not those that the instruction takes"))
        program.registers_named.append(assembler.named(instruction.operands))
        if instruction.name == "wgmma":
            matrices = [operand for operand in instruction.operands if isinstance(operand, Vector)]
            program.wgmma_registers |= assembler.named(matrices)
        _add(program, instruction, decoded, guard, tuple(assembler.targets_now))
    program.registers_named.append(frozenset())
    _add(program, None, Return(function.name), None, ())


def _refuse_recursion(function: Function) -> Iterator[Violation]:
    """Refuse what each call of a function that calls itself would need for itself, and what works on after it has returned."""
    for instruction in function.instructions or ():
        if instruction.name in _NOT_RECURSIVE:
            yield _violation(instruction, f"{function.name} calls itself, and has a {instruction.name}")
        if instruction.name == "call":
            continue
        for variable in filter(None, map(named_variable, instruction.operands)):
            if variable.space in ("local", "param"):
                reason = f"{function.name} calls itself, and {variable.name} would have another address in each call"
                yield _violation(instruction, reason)


def _add_frame(program: Program, function: Function, first_register: int) -> None:
    """Note what a call of a function has of a thread: its variables, and registers from the first that its instructions name."""
    variables = (*function.parameters, *function.results, *function.variables)
    offsets = program.local_offsets
    places = [
        np.arange(offsets[variable.number], offsets[variable.number] + (variable.size_bytes or 0))
        for variable in variables
        if variable.number in offsets
    ]
    registers = range(first_register, len(program.register_dtypes))
    written = tuple(number for number in registers if number not in program.read_only)
    program.frames[function.name] = Frame(written, np.concatenate([np.zeros(0, np.intp), *places]))
    for pc in range(program.functions[function.name], len(program.turns)):
        if isinstance(program.turns[pc], Return):
            program.targets[pc] = written  # its return puts them back


def _require_widths(instruction: Instruction) -> None:
    """Refuse a register of 128 bits in an instruction of another type."""
    if "b128" in instruction.modifiers:
        return
    for operand in instruction.operands:
        for inner in nested_operands(operand):
            if isinstance(inner, Register) and inner.type == "b128":
                raise RefusedError(f"{inner.name} has 128 bits, and {instruction.opcode} is not of type .b128")


def _decode(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    if instruction.name != "call":
        return decode(assembler, instruction)
    if callee_of(instruction).name in HOST_CALLS:
        return decode_host_call(assembler, instruction)
    return decode_call(assembler, instruction)


def _add(
    program: Program,
    instruction: Instruction | None,
    decoded: Step | Turn,
    guard: tuple[int, bool] | None,
    targets: tuple[int, ...],
) -> None:
    is_turn = hasattr(decoded, "take")
    noted = program.arithmetic.get(len(program.steps))
    if noted is not None and guard is not None:
        number, is_negated = guard
        program.arithmetic[len(program.steps)] = noted._replace(guard=WordSource(number, 1, int(is_negated)))
    program.instructions.append(instruction)
    program.turns.append(decoded if is_turn else None)  # type: ignore[arg-type]
    program.steps.append(None if is_turn else _guard_step(decoded, guard))  # type: ignore[arg-type]
    program.guards.append(guard if is_turn else None)
    program.targets.append(targets)


def _guard_step(step: Step, guard: tuple[int, bool] | None) -> Step:
    """A step that only the lanes take whose predicate holds."""
    if guard is None:
        return step
    number, is_negated = guard

    def take_where_it_holds(cluster: Cluster, at: Lanes) -> None:
        holds = cluster.registers[number][at].astype(np.bool_)
        if is_negated:
            holds = ~holds
        if holds.all():
            step(cluster, at)
        elif holds.any():
            step(cluster, np.flatnonzero(holds) if isinstance(at, slice) else at[holds])

    return take_where_it_holds


def _wait_for_accumulators(program: Program) -> None:
    """Let every instruction that names a register of a wgmma finish the products first that use it."""
    related = _moved_registers(program)
    for pc, instruction in enumerate(program.instructions):
        named = program.registers_named[pc] & related
        if instruction is None or instruction.name == "wgmma" or not named:
            continue
        written = named.intersection(program.targets[pc])
        use = RegisterUse(
            named & program.wgmma_registers, named - written, frozenset(written), instruction.name == "mov"
        )
        program.register_uses[pc] = use
        _wrap_step(program, pc, partial(_settle_products_first, use=use))


def _moved_registers(program: Program) -> frozenset[int]:
    """The registers of wgmma, and all that their values are moved from or to: a mov is only another name."""
    moves = [
        program.registers_named[pc]
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None and instruction.name == "mov"
    ]
    related = set(program.wgmma_registers)
    while related:
        linked = {number for named in moves if not related.isdisjoint(named) for number in named}
        if linked <= related:
            break
        related |= linked
    return frozenset(related)


def _settle_products_first(step: Step, use: RegisterUse) -> Step:
    def take_when_settled(cluster: Cluster, at: Lanes) -> None:
        if use.settled and cluster.works:
            pc = cluster.pc
            cluster.pending.settle(use.settled, cluster.lanes(at), cluster.grouping(WARPGROUP_LANES).of_lane)
            cluster.pc = pc
        step(cluster, at)
        if cluster.bus.is_heard:
            lanes = cluster.lanes(at)
            cluster.emit(RegisterAccess(cluster.pc, lanes, use.read, use.written, use.is_move))

    return take_when_settled


def _wait_for_loads(program: Program) -> None:
    """Let every instruction that names a register of a tcgen05.ld finish the load first."""
    for pc, instruction in enumerate(program.instructions):
        named = program.registers_named[pc] & program.loaded_registers
        if instruction is None or not named:
            continue
        program.arithmetic.pop(pc, None)
        _wrap_step(program, pc, partial(_finish_loads_first, registers=named))


def _finish_loads_first(step: Step, registers: frozenset[int]) -> Step:
    def take_when_loaded(cluster: Cluster, at: Lanes) -> None:
        if cluster.works:
            pc = cluster.pc
            cluster.pending.settle_loads(registers, cluster.lanes(at))
            cluster.pc = pc
        cluster.emit(LoadedRegisterAccess(cluster.pc, cluster.lanes(at), registers))
        step(cluster, at)

    return take_when_loaded


def _wrap_step(program: Program, pc: int, wrapped: Callable[[Step], Step]) -> None:
    """Give an instruction its own step; a branch has none."""
    step = program.steps[pc]
    turn = program.turns[pc]
    if step is not None:
        program.steps[pc] = wrapped(step)
    elif isinstance(turn, Collective):
        program.turns[pc] = replace(turn, step=wrapped(turn.step))


def _find_straight_runs(program: Program) -> None:
    """For every instruction the next turn or label: up to there a front runs without looking around."""
    labels = set(program.functions.values())
    for pc, turn in enumerate(program.turns):
        if isinstance(turn, Branch):
            labels.add(turn.target)
        elif isinstance(turn, IndexedBranch):
            labels.update(turn.targets)
        elif isinstance(turn, Call):
            labels.add(pc + 1)
    program.straight_end = [0] * len(program.steps)
    end = len(program.steps)
    for pc in range(len(program.steps) - 1, -1, -1):
        if program.turns[pc] is not None:
            end = pc
        program.straight_end[pc] = end
        if pc in labels:
            end = pc


def _violation(instruction: Instruction, reason: str) -> Violation:
    text = instruction.text
    if len(text) > _SHORTENED_CHARACTERS:
        text = text[: _SHORTENED_CHARACTERS - 1] + "…"
    return UNSUPPORTED.violation(line=instruction.line, source=instruction.source_line, text=text, reason=reason)
