"""Arithmetic of one thread: every form of `arithmetic`, from registers to registers.

Operands of video instructions may name parts of registers: vadd.s32.u32.u32 %r1, %r2.b0, %r3.h1.

A step is a few calls of numpy for all lanes of a batch of blocks. Steps that only compute, and that follow each other often, are compiled
together: `note_arithmetic` says what a step computes, and `machine.compiled` writes the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilescope.machine.arithmetic import Operation, UnknownForm, operation
from tilescope.machine.arithmetic.approximate import quotient_factors
from tilescope.machine.arithmetic.video import SCALAR_NAMES, SIMD_NAMES, Selectors, build_video
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.program import DTYPE_OF_BITS, Assembler, Decoder, require_kind
from tilescope.machine.step import RefusedError, Step, WordOperation, WordSource
from tilescope.ptx.contraction import Contraction
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction, Negated, Operand, Pair, Part, Register, Vector
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import Lanes

Compute = Callable[..., Values]


class Source(NamedTuple):
    """A register that an instruction reads, how wide its operation takes it, and whether it is `!p`."""

    number: int
    dtype: np.dtype[np.generic]
    is_negated: bool = False

    def value(self, cluster: Cluster, at: Lanes) -> Values:
        """What some lanes hold in it."""
        value = cluster.registers[self.number][at].astype(self.dtype, copy=False)
        return np.logical_not(value) if self.is_negated else value

    def as_word(self, flipped: int = 0) -> WordSource:
        """The same for compiled code, which inverts some bits of it."""
        bits = 1 if self.dtype == np.bool_ else 8 * self.dtype.itemsize
        return WordSource(self.number, bits, 1 if self.is_negated else flipped)


def decode_scalar(assembler: Assembler, instruction: Instruction) -> Step:
    """A step that computes; refused where the form is not known."""
    result_count = 2 if isinstance(instruction.operands[0], Pair) else 1
    source_count = len(_source_operands(instruction))
    scalar_operation = _known_operation(instruction.name, instruction.modifiers, source_count, result_count)
    return decode_operation(assembler, instruction, scalar_operation)


def _source_operands(instruction: Instruction) -> list[Operand]:
    """The sources of an instruction, those of a vector one by one: {a, b, e, f} of cvt."""
    sources: list[Operand] = []
    for operand in instruction.operands[1:]:
        sources += operand.elements if isinstance(operand, Vector) else (operand,)
    return sources


def decode_operation(assembler: Assembler, instruction: Instruction, found: Operation) -> Step:
    """A step that computes an operation from the operands of an instruction."""
    if found.exactness != "exact":
        assembler.program.approximate[len(assembler.program.steps)] = found.exactness
    sources = _sources(assembler, instruction, found)
    targets = _targets(assembler, instruction, found)
    is_signed = found.result_type.startswith("s")
    words = tuple(source.as_word() for source in sources)
    bits = (BITS_OF_TYPE[found.result_type], 1)
    assembler.note_arithmetic(WordOperation(instruction.name, instruction.modifiers, words, targets, bits, is_signed))
    if len(targets) == 1 and found.result_count == 1 and targets[0] is not None and _are_plain(assembler, sources):
        numbers = tuple(source.number for source in sources)
        return _plain_step(found.compute, numbers, targets[0], assembler.dtype(targets[0]), is_signed=is_signed)
    return _general_step(found, sources, targets, is_signed=is_signed)


def _known_operation(name: str, modifiers: tuple[str, ...], source_count: int, result_count: int = 1) -> Operation:
    try:
        return operation(name, modifiers, source_count, result_count)
    except UnknownForm as reason:
        raise RefusedError(str(reason)) from None


def _sources(assembler: Assembler, instruction: Instruction, found: Operation) -> tuple[Source, ...]:
    """The sources of an instruction; the carry flag, where it is one, is the last."""
    operands = _source_operands(instruction)
    types = list(found.source_types)
    if found.takes_carry:
        types.pop()
    if len(operands) != len(types):
        raise RefusedError(f"{instruction.opcode} takes {counted(len(types), 'source operand')}, not {len(operands)}")
    sources = [_source(assembler, operand, name) for operand, name in zip(operands, types, strict=True)]
    if found.takes_carry:
        sources.append(Source(assembler.carry(), np.dtype(np.bool_)))
    return tuple(sources)


def _source(assembler: Assembler, operand: Operand, type_name: str) -> Source:
    dtype = DTYPE_OF_BITS[BITS_OF_TYPE[type_name]]
    if isinstance(operand, Negated):
        require_kind(operand.register, type_name)
        return Source(assembler.register(operand.register), dtype, is_negated=True)
    return Source(assembler.source(operand, type_name), dtype)


def _targets(assembler: Assembler, instruction: Instruction, found: Operation) -> tuple[int | None, ...]:
    """The registers that take results: `p|q` is two of them, the carry flag the last; None for `_`."""
    first = instruction.operands[0]
    operands = [first.first, first.second] if isinstance(first, Pair) else [first]
    if isinstance(operands[0], Register):
        require_kind(operands[0], found.result_type)
    targets = [assembler.target(operand) for operand in operands]
    if found.gives_carry:
        targets.append(assembler.carry())
    if len(targets) > found.result_count:
        raise RefusedError(f"{instruction.opcode} has {found.result_count} results, not {len(targets)}")
    return tuple(targets)


def _are_plain(assembler: Assembler, sources: tuple[Source, ...]) -> bool:
    """Whether all sources are registers just as wide as the operation takes them."""
    return all(not source.is_negated and assembler.dtype(source.number) == source.dtype for source in sources)


def _plain_step(
    compute: Compute, sources: tuple[int, ...], target: int, dtype: np.dtype[np.generic], *, is_signed: bool
) -> Step:
    """The common case: nothing to convert on the way in, one result."""

    def step(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        result = compute(*[registers[source][at] for source in sources])
        registers[target][at] = _as_wide(result, dtype, is_signed=is_signed)

    return step


def _general_step(
    found: Operation, sources: tuple[Source, ...], targets: tuple[int | None, ...], *, is_signed: bool
) -> Step:
    def step(cluster: Cluster, at: Lanes) -> None:
        computed = found.compute(*[source.value(cluster, at) for source in sources])
        results = (computed,) if found.result_count == 1 else computed
        for target, result in zip(targets, results, strict=False):
            if target is not None:
                register = cluster.registers[target]
                register[at] = _as_wide(result, register.dtype, is_signed=is_signed)

    return step


def _as_wide(result: Values, dtype: np.dtype[np.generic], *, is_signed: bool) -> Values:
    """A result for a register of another width: extended by its sign, or cut."""
    if result.dtype == dtype:
        return result
    if is_signed:
        return result.view(f"i{result.dtype.itemsize}").astype(f"i{dtype.itemsize}").view(dtype)
    return result.astype(dtype)


def _selector(operand: Operand) -> str:
    return operand.selector if isinstance(operand, Part) else ""


def _whole(operand: Operand) -> Operand:
    return operand.register if isinstance(operand, Part) else operand


def _video(assembler: Assembler, instruction: Instruction) -> Step:
    """A step of a video instruction."""
    operands = instruction.operands
    are_negated = tuple(isinstance(operand, Part) and operand.is_negated for operand in operands[1:4])
    if len(operands) > 3 and _selector(operands[3]):
        raise RefusedError(f"{instruction.opcode} takes its third source whole")
    selectors = Selectors(*map(_selector, operands[:3]))
    try:
        video = build_video(instruction.name, instruction.modifiers, selectors, len(operands) - 1, are_negated)
    except UnknownForm as reason:
        raise RefusedError(str(reason)) from None
    plain = replace(instruction, operands=tuple(map(_whole, operands)))
    return decode_operation(assembler, plain, video)


def keep_factors(assembler: Assembler, product: Instruction) -> Step:
    """The product of a contraction: its factors are stored for the fma, since their registers may be overwritten before it."""
    type_name = product.modifiers[-1]
    targets = _factors(assembler, product)
    sources = [_source(assembler, operand, type_name) for operand in product.operands[1:3]]
    if product.name == "div":
        assembler.program.approximate[len(assembler.program.steps)] = "special unit"
        return _keep_quotient_factors(quotient_factors(product.modifiers), sources, targets)
    words = [(source.as_word(), target) for source, target in zip(sources, targets, strict=True)]
    assembler.note_arithmetic(*[WordOperation("mov", (), (word,), (target,), (word.bits,)) for word, target in words])

    def keep(cluster: Cluster, at: Lanes) -> None:
        for target, source in zip(targets, sources, strict=True):
            cluster.registers[target][at] = source.value(cluster, at)

    return keep


def _keep_quotient_factors(compute: Compute, sources: Sequence[Source], targets: tuple[int, int]) -> Step:
    """The factors of a quotient: the dividend and the reciprocal, scaled where the instruction scales."""

    def keep(cluster: Cluster, at: Lanes) -> None:
        factors = compute(*[source.value(cluster, at) for source in sources])
        for target, factor in zip(targets, factors, strict=True):
            cluster.registers[target][at] = factor

    return keep


def decode_contraction(
    assembler: Assembler, instruction: Instruction, product: Instruction, contraction: Contraction
) -> Step:
    """An add or sub that takes in a product: an fma, rounded once."""
    type_name = instruction.modifiers[-1]
    fma = _known_operation("fma", ("rn", *instruction.modifiers), 3)
    first, second = _factors(assembler, product)
    addend = _source(assembler, instruction.operands[1 + contraction.addend], type_name)
    target = assembler.written(instruction.operands[0])
    sign = np.array(_SIGN_BITS[type_name], DTYPE_OF_BITS[BITS_OF_TYPE[type_name]])
    unchanged = np.zeros_like(sign)
    product_sign = sign if contraction.negates_product else unchanged
    addend_sign = sign if contraction.negates_addend else unchanged
    bits = BITS_OF_TYPE[type_name]
    factors = (WordSource(first, bits, int(product_sign)), WordSource(second, bits))
    words = (*factors, addend.as_word(int(addend_sign)))
    assembler.note_arithmetic(WordOperation("fma", ("rn", *instruction.modifiers), words, (target,), (bits,)))

    def fused(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        a = np.bitwise_xor(registers[first][at], product_sign)
        c = np.bitwise_xor(addend.value(cluster, at), addend_sign)
        registers[target][at] = fma.compute(a, registers[second][at], c)

    return fused


def _factors(assembler: Assembler, product: Instruction) -> tuple[int, int]:
    """The registers that keep the factors of a contracted mul."""
    dtype = DTYPE_OF_BITS[BITS_OF_TYPE[product.modifiers[-1]]]
    return assembler.kept(product, 0, dtype), assembler.kept(product, 1, dtype)


_SIGN_BITS = {
    "f16": 1 << 15,
    "bf16": 1 << 15,
    "f16x2": 1 << 31 | 1 << 15,
    "bf16x2": 1 << 31 | 1 << 15,
    "f32": 1 << 31,
    "f64": 1 << 63,
}
FAMILIES: dict[str, Decoder] = dict.fromkeys((*SCALAR_NAMES, *SIMD_NAMES), _video)
