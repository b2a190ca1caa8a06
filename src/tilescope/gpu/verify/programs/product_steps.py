"""mma.sync and wgmma, with any contents of registers and shared memory as operands: floats of wide exponents."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tilescope.data_type import DataType
from tilescope.gpu.verify.programs.program_builder import NoRoomError, ProgramBuilder, names
from tilescope.gpu.verify.programs.random_program import Register, in_braces
from tilescope.gpu.verify.suites.product_suite import opcodes
from tilescope.layout import Major
from tilescope.mma.fragment import fragment
from tilescope.mma.mma_instruction import Operand
from tilescope.mma.operand_descriptor import WgmmaDescriptor
from tilescope.swizzle import SwizzleName

_WARPGROUP_THREADS = 128
_OPERAND_BYTES = 8192  # of shared memory, for one operand of wgmma
_DESCRIPTOR_TRIES = 200
_WGMMA_SWIZZLES: tuple[SwizzleName, ...] = ("none", "32B", "64B", "128B")
_MOST_N = 32
_NARROW_FLOATS = ("e4m3", "e5m2")
# What registers of an operand should hold
_REGISTER_TYPES = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32", "tf32": "f32", "f64": "f64"}


class Multiply(NamedTuple):
    """An instruction of the tensor core, with the types of its operands."""

    opcode: str
    name: str  # as in `fragment`
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str

    def registers(self, operand: Operand, type_name: str) -> int:
        """How many a thread has of an operand: of 64 bits for f64, else of 32."""
        fragment_layout = fragment(self.name, operand, type_name)
        return fragment_layout.values if type_name == "f64" else fragment_layout.registers


@cache
def _multiplies(family: str) -> tuple[Multiply, ...]:
    multiplies = []
    for opcode, entry in opcodes().items():
        if entry.row.family != family or entry.mnk[1] > _MOST_N:
            continue
        types = entry.types
        multiplies.append(Multiply(opcode, entry.name, entry.mnk[1], entry.mnk[2], types["A"], types["B"], types["D"]))
    return tuple(multiplies)


def register_type(type_name: str) -> str:
    """What the registers of an operand of a type hold."""
    return _REGISTER_TYPES.get(type_name, "u32")


def mma(builder: ProgramBuilder) -> None:
    """One mma.sync of every warp; integers saturate now and then."""
    multiply = builder.random.choice(_multiplies("mma"))
    # ptxas converts narrow floats to f16, and uses the wrong half of those that it knows to be constant
    pick = builder.pick_inputs if multiply.a_type in _NARROW_FLOATS else builder.picks
    a = pick(register_type(multiply.a_type), multiply.registers("A", multiply.a_type))
    b = pick(register_type(multiply.b_type), multiply.registers("B", multiply.b_type))
    c = builder.picks(register_type(multiply.d_type), multiply.registers("C", multiply.d_type))
    d = [builder.new(register_type(multiply.d_type)) for _ in c]
    builder.add([f"{multiply.opcode} {names(d)}, {names(a)}, {names(b)}, {names(c)};"], reads=(*a, *b, *c), writes=d)


def wgmma(builder: ProgramBuilder) -> None:
    """One wgmma: B, and A unless it is in registers, in shared memory that threads filled, behind random descriptors."""
    if builder.threads != _WARPGROUP_THREADS:
        raise NoRoomError
    random = builder.random
    multiply = random.choice(_multiplies("wgmma"))
    a_in_registers = random.random() < 0.4
    values = builder.picks(register_type(multiply.a_type), 8)
    c = builder.picks(register_type(multiply.d_type), multiply.registers("D", multiply.d_type))
    d = [builder.new(register_type(multiply.d_type)) for _ in c]
    # Not a copy: ptxas 13.0 may let an accumulator have the register that it was copied from, though others read it later
    lines = [f"xor.b32 {target.name}, {source.name}, 0x80000000;" for target, source in zip(d, c, strict=True)]
    reads = [*values, *c]
    a_major: Major = "K"
    if a_in_registers:
        # where A is negated, ptxas 13.0 takes the low half of a 64-bit register for its high half
        a = builder.pick_inputs(register_type(multiply.a_type), multiply.registers("A", multiply.a_type))
        reads += a
        a_operand = names(a)
    else:
        a_major = _major(builder, multiply.a_type)
        lines += _fill_operand(builder, values, _descriptor(builder, multiply.a_type, a_major, 64, multiply.k), "%u0")
        a_operand = "%u0"
    b_major = _major(builder, multiply.b_type)
    lines += _fill_operand(
        builder, values[::-1], _descriptor(builder, multiply.b_type, b_major, multiply.n, multiply.k), "%u1"
    )
    options = [random.choice(("0", "1", "1", "1"))]
    if DataType.named(multiply.a_type).is_float:
        options += [random.choice(("1", "-1")), random.choice(("1", "-1"))]
    if DataType.named(multiply.a_type).bits == 16:
        options += [] if a_in_registers else [str(int(a_major == "MN"))]
        options.append(str(int(b_major == "MN")))
    lines += [
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "wgmma.fence.sync.aligned;",
        f"{multiply.opcode} {names(d)}, {a_operand}, %u1, {', '.join(options)};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    builder.add(in_braces(lines, words=2, wides=2), reads=reads, writes=d)


def _major(builder: ProgramBuilder, type_name: str) -> Major:
    if DataType.named(type_name).bits != 16:
        return "K"
    return "MN" if builder.random.random() < 0.5 else "K"


def _descriptor(builder: ProgramBuilder, type_name: str, major: Major, rows: int, k: int) -> WgmmaDescriptor:
    """A descriptor whose elements are all in the operand's own part of shared memory."""
    random = builder.random
    bits = DataType.named(type_name).bits
    for _ in range(_DESCRIPTOR_TRIES):
        descriptor = WgmmaDescriptor(
            16 * random.choice((0, 0, random.randrange(16))),
            leading_bytes=16 * random.randrange(1 << random.randint(1, 8)),
            stride_bytes=16 * random.randrange(1 << random.randint(1, 8)),
            swizzle=random.choice(_WGMMA_SWIZZLES),
        )
        addresses = descriptor.addresses(major=major, rows=rows, k=k, element_bits=bits)
        if addresses.min() >= 0 and addresses.max() < _OPERAND_BYTES - 16:
            return descriptor
    raise NoRoomError


def _fill_operand(
    builder: ProgramBuilder, values: list[Register], descriptor: WgmmaDescriptor, register: str
) -> list[str]:
    """Lines that fill an operand's part of shared memory, and put its descriptor into a register."""
    base = builder.shared(_OPERAND_BYTES, 1024)
    lines = ["mad.lo.u32 %t0, %thread, 16, %smem;"]
    row_bytes = 16 * _WARPGROUP_THREADS
    for number, offset in enumerate(range(0, _OPERAND_BYTES, row_bytes)):
        rotated = values[number:] + values[:number]
        lines.append(f"st.shared.v4.b32 [%t0+{base + offset}], {names(rotated[:4])};")
    return [
        *lines,
        f"add.u32 %t1, %smem, {base};",
        "and.b32 %t1, %t1, 0x3ffff;",
        "shr.u32 %t1, %t1, 4;",
        f"cvt.u64.u32 {register}, %t1;",
        f"add.s64 {register}, {register}, {descriptor.encode():#x};",
    ]
