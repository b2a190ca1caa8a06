"""mul and add without a rounding modifier, which ptxas combines into one fma: the product is then not rounded.

    mul.f32 %f3, %f1, %f2;
    add.f32 %f5, %f3, %f4;         runs as  fma.rn.f32 %f5, %f1, %f2, %f4

PTX allows it, and ptxas does it wherever every use of the product is such an add or sub in the same basic block, moves and
negations on the way included, and both flush subnormals or neither does. To ptxas, a basic block also ends at what becomes a
branch: loads, stores, copies, barriers and warp-wide instructions under a guard, fences, and quotients and roots that are rounded
or of 64-bit integers. Where two products are added, the first one is not rounded, the second is. div.approx and div.full end in a
product, of the dividend and a reciprocal, which is treated likewise.
Seen on an H200 (ptxas 13.0): 33 patterns of f32, f64, f16, f16x2 and bf16 and 24 of quotients, no exception. What ends a block was
read off the machine code of ptxas 12.9 and 13.4, for f16x2 and bf16x2, and one case on the card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tilescope.ptx.syntax import BranchTable, Instruction, Label, Operand, Register, nested_operands

_TYPES = frozenset({"f32", "f64", "f16", "f16x2", "bf16", "bf16x2"})
_QUOTIENTS = frozenset({"approx", "full"})  # kinds of div
_OPERANDS = 3  # of a mul, add or sub
_ENDS_OF_BLOCKS = frozenset({"bra", "brx", "ret", "exit", "call", "trap"})
_BRANCHES_UNDER_A_GUARD = frozenset(
    {
        "activemask",
        "atom",
        "bar",
        "barrier",
        "cp",
        "discard",
        "elect",
        "fence",
        "griddepcontrol",
        "ld",
        "ldmatrix",
        "match",
        "mbarrier",
        "mma",
        "nanosleep",
        "prefetch",
        "red",
        "redux",
        "shfl",
        "st",
        "stmatrix",
        "vote",
        "wmma",
    }
)
_FENCES = frozenset({"acq_rel", "sc"})
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})


class Contraction(NamedTuple):
    """An add or sub that is part of an fma: where its product is made, and which of the two are subtracted."""

    product: int  # the number of the mul
    addend: int  # which of the two sources of the add is not the product
    negates_product: bool
    negates_addend: bool


@dataclass(slots=True)
class _Product:
    """A mul whose uses are being collected; `adds` are those that would take it in."""

    number: int
    modifiers: tuple[str, ...]
    adds: dict[int, Contraction] = field(default_factory=dict)
    is_rounded: bool = False  # something else looks at it


class _Held(NamedTuple):
    """What a register holds: a product, perhaps negated."""

    product: _Product
    is_negated: bool


def contractions(instructions: Sequence[Instruction]) -> dict[int, Contraction]:
    """The adds of a function's body that are parts of an fma, by their numbers.

    >>> from tilescope.ptx import read_module
    >>> body = "mul.f32 %f3, %f1, %f2; sub.f32 %f5, %f4, %f3; st.global.f32 [0], %f5;"
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { .reg .f32 %f<6>; " + body + " }"
    >>> contractions(read_module(text).entries[0].instructions)
    {1: Contraction(product=0, addend=0, negates_product=True, negates_addend=False)}
    """
    blocks = list(_basic_blocks(instructions))
    read_elsewhere = _read_before_written(instructions, blocks)
    adds: dict[int, Contraction] = {}
    for block in blocks:
        for product in _products(instructions, block, read_elsewhere):
            if not product.is_rounded:
                adds.update(product.adds)
    return adds


def _basic_blocks(instructions: Sequence[Instruction]) -> Iterator[range]:
    """Runs of instructions that are entered at their start and left at their end."""
    starts = {0, len(instructions)}
    for number, instruction in enumerate(instructions):
        if instruction.name in _ENDS_OF_BLOCKS or _becomes_a_branch(instruction):
            starts.add(number + 1)
        for operand in instruction.operands:
            if isinstance(operand, Label):
                starts.add(operand.target)
            elif isinstance(operand, BranchTable):
                starts.update(operand.targets)
    ordered = sorted(starts)
    for start, end in pairwise(ordered):
        yield range(start, end)


def _becomes_a_branch(instruction: Instruction) -> bool:
    """Whether ptxas starts a new basic block for it: a branch skips it, or it loops, or it calls."""
    name, modifiers = instruction.name, instruction.modifiers
    type_name = modifiers[-1] if modifiers else ""
    if name in _BRANCHES_UNDER_A_GUARD and instruction.guard is not None:
        return True
    if name in ("membar", "fence"):
        return name == "membar" or not _FENCES.isdisjoint(modifiers)
    if name in ("div", "sqrt", "rcp"):
        is_of_integers = name == "div" and type_name in ("u64", "s64")
        return is_of_integers or (not _ROUNDINGS.isdisjoint(modifiers) and (name, type_name) != ("rcp", "f64"))
    return name == "rem" and type_name in ("u64", "s64")


def _read_before_written(instructions: Sequence[Instruction], blocks: Sequence[range]) -> set[Register]:
    """The registers that some block reads before it writes them: what they held at its start counts."""
    registers: set[Register] = set()
    for block in blocks:
        written: set[Register] = set()
        for number in block:
            instruction = instructions[number]
            registers.update(register for register in _read(instruction) if register not in written)
            if instruction.guard is None:
                written.update(_written_registers(instruction))
    return registers


def _products(instructions: Sequence[Instruction], block: range, read_elsewhere: set[Register]) -> list[_Product]:
    """The muls of a basic block, with all uses of their results."""
    products: list[_Product] = []
    held_products: dict[Register, _Held] = {}
    for number in block:
        instruction = instructions[number]
        taken = _taken_in(instruction, held_products)
        passed_on = _passed_on(instruction, held_products)
        for register in _read(instruction):
            if register in held_products and register != taken and passed_on is None:
                held_products[register].product.is_rounded = True
        if taken is not None:
            product = held_products[taken].product
            product.adds[number] = _contraction(instruction, taken, held_products[taken])
        for register in _written_registers(instruction):
            held_products.pop(register, None)
        target = instruction.operands[0] if instruction.operands else None
        if passed_on is not None and isinstance(target, Register):
            held_products[target] = passed_on
        elif _is_product(instruction) and instruction.guard is None and isinstance(target, Register):
            product = _Product(number, tuple(word for word in instruction.modifiers if word not in _QUOTIENTS))
            products.append(product)
            held_products[target] = _Held(product, is_negated=False)
    for register, value in held_products.items():
        if register in read_elsewhere:
            value.product.is_rounded = True
    return products


def _is_product(instruction: Instruction) -> bool:
    """Whether it ends in a product that an fma may take in."""
    if instruction.name == "div":
        return bool(_QUOTIENTS.intersection(instruction.modifiers))
    return _is_plain(instruction, "mul")


def _is_plain(instruction: Instruction, *names: str) -> bool:
    """Whether it is one of these, of floats, without a rounding modifier or saturation."""
    if instruction.name not in names or len(instruction.operands) != _OPERANDS or not instruction.modifiers:
        return False
    *others, type_name = instruction.modifiers
    return type_name in _TYPES and set(others) <= {"ftz"}


def _taken_in(instruction: Instruction, held: dict[Register, _Held]) -> Register | None:
    """The product that an add or sub takes in: that of its first source, or else of its second."""
    if not _is_plain(instruction, "add", "sub"):
        return None
    first, second = instruction.operands[1:3]
    if first == second:
        return None
    for source in (first, second):
        if not isinstance(source, Register) or source not in held:
            continue
        if held[source].product.modifiers == instruction.modifiers:
            return source
    return None


def _passed_on(instruction: Instruction, held: dict[Register, _Held]) -> _Held | None:
    """The product that a mov or neg without a guard hands to another register."""
    if instruction.name not in ("mov", "neg") or instruction.guard is not None or len(instruction.operands) != 2:
        return None
    source = instruction.operands[1]
    if not isinstance(source, Register) or source not in held:
        return None
    value = held[source]
    if instruction.name == "mov":
        return value
    if instruction.modifiers != value.product.modifiers:
        return None
    return value._replace(is_negated=not value.is_negated)


def _contraction(instruction: Instruction, taken: Register, value: _Held) -> Contraction:
    is_sub = instruction.name == "sub"
    is_first = instruction.operands[1] == taken
    return Contraction(
        product=value.product.number,
        addend=1 if is_first else 0,
        negates_product=value.is_negated != (is_sub and not is_first),
        negates_addend=is_sub and is_first,
    )


def _written_registers(instruction: Instruction) -> tuple[Register, ...]:
    """The registers that the first operand names: what nearly every instruction writes."""
    if not instruction.operands:
        return ()
    return tuple(_registers(instruction.operands[0]))


def _read(instruction: Instruction) -> Iterator[Register]:
    """The registers that an instruction may read; the first operand of a store or of a barrier is among them."""
    if instruction.guard is not None:
        yield instruction.guard.register
    for position, operand in enumerate(instruction.operands):
        is_result = position == 0 and isinstance(operand, Register)
        if not is_result:
            yield from _registers(operand)


def _registers(operand: Operand) -> Iterator[Register]:
    for inner in nested_operands(operand):
        if isinstance(inner, Register):
            yield inner
