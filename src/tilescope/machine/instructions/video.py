"""Video instructions: vadd, vabsdiff4 and the like, whose operands may name parts of registers."""

from __future__ import annotations

from dataclasses import replace

from tilescope.machine.arithmetic.compute import UnknownForm
from tilescope.machine.arithmetic.video import SCALAR_NAMES, SIMD_NAMES, Selectors, build_video
from tilescope.machine.instructions.scalar import decode_operation
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Instruction, Operand, Part


def _selector(operand: Operand) -> str:
    return operand.selector if isinstance(operand, Part) else ""


def _whole(operand: Operand) -> Operand:
    return operand.register if isinstance(operand, Part) else operand


def _video(assembler: Assembler, instruction: Instruction) -> Step:
    operands = instruction.operands
    if len(operands) > 3 and _selector(operands[3]):
        raise RefusedError(f"{instruction.opcode} takes its third source whole")
    selectors = Selectors(*map(_selector, operands[:3]))
    try:
        found = build_video(instruction.name, instruction.modifiers, selectors, len(operands) - 1)
    except UnknownForm as reason:
        raise RefusedError(str(reason)) from None
    plain = replace(instruction, operands=tuple(map(_whole, operands)))
    return decode_operation(assembler, plain, found)


FAMILIES: dict[str, Decoder] = dict.fromkeys((*SCALAR_NAMES, *SIMD_NAMES), _video)
