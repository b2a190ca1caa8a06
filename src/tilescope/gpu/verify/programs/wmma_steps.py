"""wmma: matrices that registers hold or that a warp loads from shared memory; their product is stored there now and then."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.data_type import DataType
from tilescope.gpu.verify.programs.product_steps import Multiply, register_type
from tilescope.gpu.verify.programs.program_builder import ProgramBuilder, names
from tilescope.gpu.verify.programs.random_program import Register, in_braces
from tilescope.gpu.verify.programs.shared_steps import synchronize_block
from tilescope.mma.fragment import fragment
from tilescope.mma.mma_instruction import WMMA_INSTRUCTIONS, Instruction, Operand
from tilescope.mma.wmma_access import Order

_PART_BYTES = 2048  # of shared memory, for one matrix
_PADDINGS_BYTES = (0, 16, 32)
_ORDERS: tuple[Order, ...] = ("row", "col")


class Wmma(NamedTuple):
    """A wmma.mma, with the types and layouts of its operands."""

    multiply: Multiply
    shape: str
    c_type: str
    a_order: Order
    b_order: Order


class _Part(NamedTuple):
    """An operand between registers and shared memory."""

    operand: Operand
    type_name: str
    order: Order


@cache
def wmmas() -> tuple[Wmma, ...]:
    """Every form of wmma.mma.

    >>> len(wmmas()), wmmas()[0].multiply.opcode
    (138, 'wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16')
    """
    return tuple(form for row in WMMA_INSTRUCTIONS for form in _of_row(row))


def _of_row(row: Instruction) -> list[Wmma]:
    shape = row.name.removeprefix("wmma.")
    sums = [DataType.named(name).ptx for name in row.accumulators]
    variants = []
    for name in row.types:
        data_type = DataType.named(name)
        a_orders = _ORDERS if data_type.bits >= 8 else ("row",)
        b_orders = _ORDERS if data_type.bits >= 8 else ("col",)
        for a_order, b_order, d, c, word in product(a_orders, b_orders, sums, sums, _words(data_type)):
            opcode = _opcode(f"{a_order}.{b_order}.{shape}", d, data_type.ptx, c, word)
            multiply = Multiply(opcode, row.name, row.n[0], row.k, data_type.ptx, data_type.ptx, d)
            variants.append(Wmma(multiply, shape, c, a_order, b_order))
    return variants


def _words(data_type: DataType) -> tuple[str, ...]:
    """The possible modifiers of the opcode besides layouts, shape and types."""
    if data_type.name == "b1":
        return ("xor.popc", "and.popc")
    if data_type.name == "float64":
        return ("", "rn", "rz", "rm", "rp")
    return ("",) if data_type.is_float else ("", "satfinite")


def _opcode(layout: str, d: str, a: str, c: str, word: str) -> str:
    types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{a}.{c}"
    if a == "b1":
        return f"wmma.mma.{word}.sync.aligned.{layout}.{types}"
    if a == "f64" and word:
        return f"wmma.mma.sync.aligned.{layout}.{word}.{types}"
    opcode = f"wmma.mma.sync.aligned.{layout}.{types}"
    return f"{opcode}.{word}" if word else opcode


def wmma(builder: ProgramBuilder) -> None:
    """One wmma.mma of every warp; each operand is loaded from shared memory, or is in registers."""
    random = builder.random
    instruction = random.choice(wmmas())
    multiply = instruction.multiply
    a = _operand(builder, instruction, _Part("A", multiply.a_type, instruction.a_order))
    b = _operand(builder, instruction, _Part("B", multiply.b_type, instruction.b_order))
    c = _operand(builder, instruction, _Part("C", instruction.c_type, random.choice(_ORDERS)))
    d = _new(builder, multiply, "D", multiply.d_type)
    builder.add([f"{multiply.opcode} {names(d)}, {names(a)}, {names(b)}, {names(c)};"], reads=(*a, *b, *c), writes=d)
    if random.random() < 0.4:
        _store(builder, instruction, _Part("D", multiply.d_type, random.choice(_ORDERS)), d)


def _new(builder: ProgramBuilder, multiply: Multiply, operand: Operand, type_name: str) -> list[Register]:
    count = multiply.registers(operand, type_name)
    return [builder.new(register_type(type_name)) for _ in range(count)]


def _operand(builder: ProgramBuilder, one: Wmma, part: _Part) -> list[Register]:
    """The registers of an operand: such as there are, or those that a load fills."""
    if builder.random.random() < 0.4:
        return builder.picks(register_type(part.type_name), one.multiply.registers(part.operand, part.type_name))
    base = builder.shared(_PART_BYTES, 128)
    values = builder.picks(register_type(part.type_name), 4) if part.type_name != "f64" else builder.picks("u32", 4)
    registers = _new(builder, one.multiply, part.operand, part.type_name)
    opcode = f"wmma.load.{part.operand.lower()}.sync.aligned.{part.order}.{one.shape}"
    lines = [
        *_fill_operand(builder, values, base, _PART_BYTES),
        *synchronize_block(builder),
        f"add.u32 %t1, %smem, {base};",
    ]
    place, space = "%t1", ".shared"
    if builder.random.random() < 0.3:
        lines += ["cvt.u64.u32 %u0, %t1;", "cvta.shared.u64 %u0, %u0;"]
        place, space = "%u0", ""
    lines.append(f"{opcode}{space}.{part.type_name} {names(registers)}, [{place}]{_stride(builder, one, part)};")
    builder.add(in_braces(lines, words=2, wides=1), reads=values, writes=registers)
    return registers


def _store(builder: ProgramBuilder, one: Wmma, part: _Part, d: list[Register]) -> None:
    """Every warp stores D to its own part of shared memory, and threads then read a piece of it."""
    size_bytes = _PART_BYTES * builder.threads // WARP_LANES
    base = builder.shared(size_bytes, 128)
    before = builder.picks("u32", 4)
    results = [builder.new("u32") for _ in range(4)]
    round_bytes = 16 * builder.threads
    read = base + round_bytes * builder.random.randrange(size_bytes // round_bytes)
    opcode = f"wmma.store.d.sync.aligned.{part.order}.{one.shape}.shared.{part.type_name}"
    lines = [
        *_fill_operand(builder, before, base, size_bytes),
        *synchronize_block(builder),
        "shr.u32 %t1, %thread, 5;",
        f"mad.lo.u32 %t1, %t1, {_PART_BYTES}, %smem;",
        f"{opcode} [%t1+{base}], {names(d)}{_stride(builder, one, part)};",
        *synchronize_block(builder),
        f"ld.shared.v4.b32 {names(results)}, [%t0+{read}];",
    ]
    builder.add(in_braces(lines, words=2), reads=(*before, *d), writes=results)


def _fill_operand(builder: ProgramBuilder, values: list[Register], base: int, size_bytes: int) -> list[str]:
    """Lines by which all threads fill a part of shared memory; %t0 is the address of the thread's first 16 bytes, minus `base`."""
    lines = ["mad.lo.u32 %t0, %thread, 16, %smem;"]
    for number, offset in enumerate(range(0, size_bytes, 16 * builder.threads)):
        first = number % len(values)
        rotated = values[first:] + values[:first]
        lines.append(f"st.shared.v4.b32 [%t0+{base + offset}], {names(rotated)};")
    return lines


def _stride(builder: ProgramBuilder, one: Wmma, part: _Part) -> str:
    """The stride as the instruction names it; nothing where it is the default and may be left out."""
    fragment_layout = fragment(one.multiply.name, part.operand, part.type_name)
    rows, columns = fragment_layout.shape
    leading = columns if part.order == "row" else rows
    padding_bytes = builder.random.choice(_PADDINGS_BYTES)
    if not padding_bytes and builder.random.random() < 0.5:
        return ""
    return f", {leading + padding_bytes * 8 // fragment_layout.element_bits}"
