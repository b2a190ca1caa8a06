"""Numbers that must agree with others, off by a little: bytes, counts, parities, slots, swizzles.

mbarrier.arrive.expect_tx.b64 _, [m], 4096;      4112, 4080
mbarrier.init.b64 [m], 2;                        3, 1
mbarrier.try_wait.parity.b64 p, [m], %r1;        %r1 ^ 1
cp.async.bulk.… [slot], …                        slot + the bytes of a stage
wgmma.mma_async… %rd1, %rd2, …                   %rd1 with another swizzle in its bits 62 and 63
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.machine.edits.change import Change, KernelText, MutantKind
from tilescope.machine.edits.slot_changes import Definitions
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Address, Immediate, Instruction, Register
from tilescope.sentence import counted

_CHANGED = "tilescope_changed"  # a register of the changed instruction's own scope
_BYTES_OFF = 16
_SMALLEST_TILE_BYTES = 128
_BARRIER_BYTES = 8
_DESCRIPTOR_UNIT_BYTES = 16  # of the start address in a descriptor of wgmma
_DESCRIPTOR_STARTS = 1 << 14  # such units
_SWIZZLE_BIT = 1 << 62  # the lower of the two that say the swizzle of a descriptor


class _Arithmetic(NamedTuple):
    """How an operand is changed: added to or flipped, with what, in how many bits."""

    opcode: str
    bits: int
    constant: int

    def of(self, value: int) -> int:
        """What a number becomes."""
        return value + self.constant if self.opcode == "add.s" else value ^ self.constant

    def before(self, operand: str, result: str) -> str:
        """The instructions that change a register."""
        return f".reg .b{self.bits} {result}; {self.opcode}{self.bits} {result}, {operand}, {self.constant};"


def operand_changes(text: KernelText) -> Iterator[Change]:
    """Every number that must agree with another, changed alone."""
    for function in text.functions:
        definitions = Definitions(function)
        instructions = function.instructions or ()
        for instruction in instructions:
            if instruction.name == "mbarrier":
                yield from _numbers_of_mbarrier(text, instruction, definitions)
        for instruction in instructions:
            yield from _slots(text, instruction, definitions)
        for instruction in instructions:
            if instruction.opcode.startswith("wgmma.mma_async"):
                yield from _swizzles(text, instruction)


def _numbers_of_mbarrier(text: KernelText, instruction: Instruction, definitions: Definitions) -> Iterator[Change]:
    """Bytes that are expected, the count of arrivals, the parity that is waited for."""
    last = len(instruction.operands) - 1
    if "expect_tx" in instruction.modifiers:
        for off in (_BYTES_OFF, -_BYTES_OFF):
            yield _off_by(text, "bytes", instruction, off)
    elif instruction.modifiers[0] == "init":
        yield _off_by(text, "count", instruction, 1)
        if definitions.constant(instruction.operands[last]) != 1:  # no mbarrier counts to 0
            yield _off_by(text, "count", instruction, -1)
    elif "parity" in instruction.modifiers:
        edit = other_parity(text, instruction)
        yield Change("parity", f"{instruction.opcode} with the other parity", instruction, (edit,))


def other_parity(text: KernelText, poll: Instruction) -> Edit:
    """A wait by parity that asks for the other one."""
    return _changed(text, poll, 2, _Arithmetic("xor.b", 32, 1))


def last_operand_off_by(text: KernelText, instruction: Instruction, off: int) -> Edit:
    """The count of mbarrier.init, or the bytes of expect_tx, greater by `off`."""
    return _changed(text, instruction, len(instruction.operands) - 1, _Arithmetic("add.s", 32, off))


def _off_by(text: KernelText, kind: MutantKind, instruction: Instruction, off: int) -> Change:
    edit = last_operand_off_by(text, instruction, off)
    noun = "byte" if kind == "bytes" else "arrival"
    what = f"{instruction.opcode} with {counted(abs(off), noun)} {'more' if off > 0 else 'less'}"
    return Change(kind, what, instruction, (edit,))


def _changed(text: KernelText, instruction: Instruction, index: int, arithmetic: _Arithmetic) -> Edit:
    """An operand that is a number or a register, changed."""
    statement = text.statement(instruction)
    operand = instruction.operands[index]
    if isinstance(operand, Immediate):
        return statement.with_operand(index, str(arithmetic.of(operand.value)))
    written = statement.operands[index]
    result = _CHANGED
    if written == _CHANGED:  # a mutant is changed again
        result = f"{_CHANGED}_again"
    return statement.with_operand(index, result, arithmetic.before(written, result))


def _slots(text: KernelText, instruction: Instruction, definitions: Definitions) -> Iterator[Change]:
    """The shared memory that a copy or a tensor core goes to, and every mbarrier, one slot on."""
    if instruction.opcode.startswith("wgmma.mma_async"):
        for index in _descriptors(instruction):
            for units in definitions.slot_sizes(instruction.operands[index]):
                if _SMALLEST_TILE_BYTES // _DESCRIPTOR_UNIT_BYTES <= units < _DESCRIPTOR_STARTS:
                    edit = _changed(text, instruction, index, _Arithmetic("add.s", 64, units))
                    off_bytes = units * _DESCRIPTOR_UNIT_BYTES
                    what = f"descriptor {'AB'[index - 1]} of {instruction.opcode} one slot ({off_bytes} bytes) on"
                    yield Change("slot", what, instruction, (edit,))
        return
    for index, smallest_bytes in _shared_operands(instruction):
        address = instruction.operands[index]
        if isinstance(address, Address):
            for size_bytes in definitions.slot_sizes(address.base):
                if size_bytes >= smallest_bytes:
                    what = (
                        f"{_operand_name(instruction, index)} of {instruction.opcode} one slot ({size_bytes} bytes) on"
                    )
                    yield Change("slot", what, instruction, (_moved(text, instruction, index, size_bytes),))


def _shared_operands(instruction: Instruction) -> Iterator[tuple[int, int]]:
    """Operands that are addresses of slots, and the least that a slot may have: a tile, or an mbarrier."""
    addresses = [index for index, one in enumerate(instruction.operands) if isinstance(one, Address)]
    is_copy = instruction.opcode.startswith(("cp.async.bulk", "cp.async.ca", "cp.async.cg", "cp.reduce.async"))
    if is_copy and "prefetch" not in instruction.modifiers and len(addresses) > 1:
        target_space = next((one for one in instruction.modifiers if one.startswith(("shared", "global"))), "")
        yield (addresses[0] if target_space.startswith("shared") else addresses[1]), _SMALLEST_TILE_BYTES
        if len(addresses) > 2:
            yield addresses[2], _BARRIER_BYTES
    elif instruction.name == "mbarrier" and addresses and instruction.modifiers[0] not in ("init", "inval"):
        yield addresses[0], _BARRIER_BYTES


def _operand_name(instruction: Instruction, index: int) -> str:
    if instruction.name == "mbarrier" or index == 2:
        return "mbarrier"
    return "source" if index == 1 else "destination"


def _moved(text: KernelText, instruction: Instruction, index: int, offset_bytes: int) -> Edit:
    """An address without coordinates, moved on."""
    address = instruction.operands[index]
    assert isinstance(address, Address)
    statement = text.statement(instruction)
    base = statement.operands[index].strip("[]").partition("+")[0].strip()
    return statement.with_operand(index, f"[{base}+{address.offset + offset_bytes}]")


def _descriptors(instruction: Instruction) -> Iterator[int]:
    """Operands of a wgmma that are descriptors: A may be registers instead."""
    for index in (1, 2):
        if isinstance(instruction.operands[index], Register):
            yield index


def _swizzles(text: KernelText, instruction: Instruction) -> Iterator[Change]:
    for index in _descriptors(instruction):
        edit = _changed(text, instruction, index, _Arithmetic("xor.b", 64, _SWIZZLE_BIT))
        what = f"descriptor {'AB'[index - 1]} of {instruction.opcode} with another swizzle"
        yield Change("swizzle", what, instruction, (edit,))
