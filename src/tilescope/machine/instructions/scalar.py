"""Arithmetic of one thread: every form that `arithmetic` knows, from registers to registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilescope.machine.arithmetic import Operation, UnknownForm, operation
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.program import DTYPE_OF_BITS, Assembler
from tilescope.machine.step import Lanes, RefusedError, Step
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction, Negated, Operand, Pair

Compute = Callable[..., Values]


def decode_scalar(assembler: Assembler, instruction: Instruction) -> Step:
    """A step that computes; refused where the form is not known."""
    try:
        found = operation(instruction.name, instruction.modifiers)
    except UnknownForm as reason:
        raise RefusedError(str(reason)) from None
    if not found.is_exact:
        assembler.program.approximate[len(assembler.program.steps)] = instruction.opcode
    targets, sources = _operands(instruction, found)
    source_numbers = [
        assembler.source(source.register if isinstance(source, Negated) else source, type_name)
        for source, type_name in zip(sources, found.source_types, strict=False)
    ]
    if found.takes_carry:
        source_numbers.append(assembler.carry())
    negated = [isinstance(source, Negated) for source in sources] + [False] * found.takes_carry
    wanted = [DTYPE_OF_BITS[BITS_OF_TYPE[type_name]] for type_name in found.source_types]
    numbers = [assembler.target(target) for target in targets]
    if found.gives_carry:
        numbers.append(assembler.carry())
    compute = found.compute
    is_plain = not any(negated) and all(
        assembler.dtype(number) == dtype for number, dtype in zip(source_numbers, wanted, strict=True)
    )
    is_signed = found.result_type.startswith("s")
    if is_plain and found.result_count == 1 and numbers[0] is not None:
        return _plain_step(assembler, compute, source_numbers, numbers[0], is_signed=is_signed)

    def step(cluster: Cluster, at: Lanes) -> None:
        values = []
        for number, dtype, is_negated in zip(source_numbers, wanted, negated, strict=True):
            value = cluster.registers[number][at].astype(dtype, copy=False)
            values.append(~value if is_negated else value)
        results = compute(*values)
        if found.result_count == 1:
            results = (results,)
        for target, result in zip(numbers, results, strict=False):
            if target is not None:
                register = cluster.registers[target]
                register[at] = _as_wide(result, register.dtype, is_signed=is_signed)

    return step


def _plain_step(assembler: Assembler, compute: Compute, sources: list[int], target: int, *, is_signed: bool) -> Step:
    """The common case: registers that are as wide as the operation takes them, one result."""
    result_dtype = assembler.dtype(target)
    if len(sources) == 2:
        first, second = sources

        def step_of_two(cluster: Cluster, at: Lanes) -> None:
            registers = cluster.registers
            result = compute(registers[first][at], registers[second][at])
            registers[target][at] = _as_wide(result, result_dtype, is_signed=is_signed)

        return step_of_two

    def step(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        result = compute(*[registers[source][at] for source in sources])
        registers[target][at] = _as_wide(result, result_dtype, is_signed=is_signed)

    return step


def _as_wide(result: Values, dtype: np.dtype[np.generic], *, is_signed: bool) -> Values:
    """A result for a register of another width: extended by its sign, or cut."""
    if result.dtype == dtype:
        return result
    if is_signed:
        return result.view(f"i{result.dtype.itemsize}").astype(f"i{dtype.itemsize}").view(dtype)
    return result.astype(dtype)


def _operands(instruction: Instruction, found: Operation) -> tuple[list[Operand], list[Operand]]:
    """Targets and sources: `p|q` is two targets."""
    first = instruction.operands[0]
    targets: list[Operand] = [first.first, first.second] if isinstance(first, Pair) else [first]
    sources = list(instruction.operands[1:])
    wanted = len(found.source_types) - found.takes_carry
    if len(sources) != wanted:
        raise RefusedError(f"{instruction.opcode} takes {wanted} sources, not {len(sources)}")
    if len(targets) > found.result_count:
        raise RefusedError(f"{instruction.opcode} has {found.result_count} results, not {len(targets)}")
    return targets, sources
