"""Changes of one operand that must agree with another instruction: bytes, counts, parities, slots, swizzles.

mbarrier.arrive.expect_tx.b64 _, [m], 4096;      4112, 4080
mbarrier.init.b64 [m], 2;                        3, 1
mbarrier.try_wait.parity.b64 p, [m], %r1;        %r1 ^ 1
cp.async.bulk.… [slot], …                        slot + the bytes of a stage
wgmma.mma_async… %rd1, %rd2, …                   %rd1 with another swizzle in its bits 62 and 63
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.machine.edits.change import Change, MutantKind
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.slot_stride import RegisterDefinitions
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Address, Immediate, Instruction, Register
from tilescope.sentence import counted

_CHANGED_REGISTER = "tilescope_changed"  # declared in a scope around the changed instruction
_BYTES_OFF = 16
_SMALLEST_TILE_BYTES = 128
_BARRIER_BYTES = 8
_DESCRIPTOR_UNIT_BYTES = 16  # unit of the start address in a descriptor of wgmma
_DESCRIPTOR_STARTS = 1 << 14  # values of the start address, in these units
_SWIZZLE_BIT = 1 << 62  # the lower of the two swizzle bits of a descriptor


class _Arithmetic(NamedTuple):
    """How an operand is changed: the constant that is added to it, or XORed with it, and the width in bits."""

    opcode: str
    bits: int
    constant: int

    def apply(self, value: int) -> int:
        """The changed number."""
        return value + self.constant if self.opcode == "add.s" else value ^ self.constant

    def instructions(self, operand: str, result: str) -> str:
        """The instructions that change a register."""
        return f".reg .b{self.bits} {result}; {self.opcode}{self.bits} {result}, {operand}, {self.constant};"


def operand_changes(text: KernelText) -> Iterator[Change]:
    """Each operand that must agree with another one, changed separately."""
    for function in text.functions:
        definitions = RegisterDefinitions(function)
        instructions = function.instructions or ()
        for instruction in instructions:
            if instruction.name == "mbarrier":
                yield from _change_mbarrier(text, instruction, definitions)
        for instruction in instructions:
            yield from _move_slots(text, instruction, definitions)
        for instruction in instructions:
            if instruction.opcode.startswith("wgmma.mma_async"):
                yield from _change_swizzles(text, instruction)


def _change_mbarrier(text: KernelText, instruction: Instruction, definitions: RegisterDefinitions) -> Iterator[Change]:
    """The expected bytes, the count of arrivals, or the parity of a wait."""
    last = len(instruction.operands) - 1
    if "expect_tx" in instruction.modifiers:
        for difference in (_BYTES_OFF, -_BYTES_OFF):
            yield _shift_number(text, "bytes", instruction, difference)
    elif instruction.modifiers[0] == "init":
        yield _shift_number(text, "count", instruction, 1)
        if definitions.constant(instruction.operands[last]) != 1:  # a count of 0 is invalid
            yield _shift_number(text, "count", instruction, -1)
    elif "parity" in instruction.modifiers:
        edit = flip_parity(text, instruction)
        yield Change("parity", f"{instruction.opcode} with the other parity", instruction, (edit,))


def flip_parity(text: KernelText, poll: Instruction) -> Edit:
    """A poll for the other parity."""
    return _change_operand(text, poll, 2, _Arithmetic("xor.b", 32, 1))


def add_to_last_operand(text: KernelText, instruction: Instruction, difference: int) -> Edit:
    """The count of mbarrier.init, or the bytes of expect_tx, greater by `difference`."""
    return _change_operand(text, instruction, len(instruction.operands) - 1, _Arithmetic("add.s", 32, difference))


def _shift_number(text: KernelText, kind: MutantKind, instruction: Instruction, difference: int) -> Change:
    edit = add_to_last_operand(text, instruction, difference)
    noun = "byte" if kind == "bytes" else "arrival"
    amount = f"{counted(abs(difference), noun)} {'more' if difference > 0 else 'less'}"
    return Change(kind, f"{instruction.opcode} with {amount}", instruction, (edit,))


def _change_operand(text: KernelText, instruction: Instruction, index: int, arithmetic: _Arithmetic) -> Edit:
    """Change an operand that is a number or a register."""
    statement = text.statement(instruction)
    operand = instruction.operands[index]
    if isinstance(operand, Immediate):
        return statement.with_operand(index, str(arithmetic.apply(operand.value)))
    written = statement.operands[index]
    result = _CHANGED_REGISTER
    if written == _CHANGED_REGISTER:  # the kernel is a mutant itself
        result = f"{_CHANGED_REGISTER}_again"
    return statement.with_operand(index, result, arithmetic.instructions(written, result))


def _move_slots(text: KernelText, instruction: Instruction, definitions: RegisterDefinitions) -> Iterator[Change]:
    """The next slot in place of the own one: of a copy, of a tensor core operand, of an mbarrier."""
    if instruction.opcode.startswith("wgmma.mma_async"):
        for index in _descriptors(instruction):
            for units in definitions.slot_sizes(instruction.operands[index]):
                if _SMALLEST_TILE_BYTES // _DESCRIPTOR_UNIT_BYTES <= units < _DESCRIPTOR_STARTS:
                    edit = _change_operand(text, instruction, index, _Arithmetic("add.s", 64, units))
                    slot_bytes = units * _DESCRIPTOR_UNIT_BYTES
                    name = f"descriptor {'AB'[index - 1]}"
                    description = f"{name} of {instruction.opcode} one slot ({slot_bytes} bytes) on"
                    yield Change("slot", description, instruction, (edit,))
        return
    for index, smallest_bytes in _shared_operands(instruction):
        address = instruction.operands[index]
        if isinstance(address, Address):
            for size_bytes in definitions.slot_sizes(address.base):
                if size_bytes >= smallest_bytes:
                    name = _operand_name(instruction, index)
                    description = f"{name} of {instruction.opcode} one slot ({size_bytes} bytes) on"
                    edit = _move_address(text, instruction, index, size_bytes)
                    yield Change("slot", description, instruction, (edit,))


def _shared_operands(instruction: Instruction) -> Iterator[tuple[int, int]]:
    """Operands that are addresses of slots, each with the smallest size of a slot: a tile, or an mbarrier."""
    addresses = [index for index, operand in enumerate(instruction.operands) if isinstance(operand, Address)]
    is_copy = instruction.opcode.startswith(("cp.async.bulk", "cp.async.ca", "cp.async.cg", "cp.reduce.async"))
    if is_copy and "prefetch" not in instruction.modifiers and len(addresses) > 1:
        target_space = next((name for name in instruction.modifiers if name.startswith(("shared", "global"))), "")
        yield (addresses[0] if target_space.startswith("shared") else addresses[1]), _SMALLEST_TILE_BYTES
        if len(addresses) > 2:
            yield addresses[2], _BARRIER_BYTES
    elif instruction.name == "mbarrier" and addresses and instruction.modifiers[0] not in ("init", "inval"):
        yield addresses[0], _BARRIER_BYTES


def _operand_name(instruction: Instruction, index: int) -> str:
    if instruction.name == "mbarrier" or index == 2:
        return "mbarrier"
    return "source" if index == 1 else "destination"


def _move_address(text: KernelText, instruction: Instruction, index: int, offset_bytes: int) -> Edit:
    """Add an offset to an address that has no coordinates."""
    address = instruction.operands[index]
    assert isinstance(address, Address)
    statement = text.statement(instruction)
    base = statement.operands[index].strip("[]").partition("+")[0].strip()
    return statement.with_operand(index, f"[{base}+{address.offset + offset_bytes}]")


def _descriptors(instruction: Instruction) -> Iterator[int]:
    """Operands of a wgmma that are descriptors; A may be in registers instead."""
    for index in (1, 2):
        if isinstance(instruction.operands[index], Register):
            yield index


def _change_swizzles(text: KernelText, instruction: Instruction) -> Iterator[Change]:
    for index in _descriptors(instruction):
        edit = _change_operand(text, instruction, index, _Arithmetic("xor.b", 64, _SWIZZLE_BIT))
        description = f"descriptor {'AB'[index - 1]} of {instruction.opcode} with another swizzle"
        yield Change("swizzle", description, instruction, (edit,))
