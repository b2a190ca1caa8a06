"""The stack of a thread: alloca takes bytes from it, stacksave and stackrestore read and set its pointer.

    stacksave.u64    %rd1;              the pointer
    alloca.u64       %rd2, %rd3, 16;    %rd3 bytes at a multiple of 16: the pointer moves down, and %rd2 is a local address
    stackrestore.u64 %rd1;              frees what was allocated since

A register without a name counts the bytes in use, so that 0, which registers start with, is the empty stack. What a called function
allocates stays in use until a stackrestore or the end of the thread.
"""

from __future__ import annotations

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, KernelFaultError
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import STACK_BYTES, Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Immediate, Instruction
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import Lanes

_DEFAULT_ALIGNMENT_BYTES = 8
_POINTER_TYPES = ("u32", "u64")
_FIX = (
    "Allocate less, or use a .local array. On a card cudaDeviceSetLimit(cudaLimitStackSize) sets the size of the stack, 1024 bytes by "
    "default."
)


def _pointer_type(instruction: Instruction, operand_counts: tuple[int, ...]) -> str:
    words = Words(instruction)
    type_name = words.required(_POINTER_TYPES, "type .u32 or .u64")
    words.done()
    if len(instruction.operands) not in operand_counts:
        raise RefusedError(f"{instruction.opcode} has no form of {counted(len(instruction.operands), 'operand')}")
    return type_name


def _alloca(assembler: Assembler, instruction: Instruction) -> Step:
    type_name = _pointer_type(instruction, (2, 3))
    alignment_bytes = _DEFAULT_ALIGNMENT_BYTES
    if len(instruction.operands) == 3:
        alignment = instruction.operands[2]
        if not isinstance(alignment, Immediate) or alignment.value < 1 or alignment.value & alignment.value - 1:
            raise RefusedError("the alignment of alloca is a power of 2, written as a number")
        alignment_bytes = alignment.value
    size = assembler.source(instruction.operands[1], type_name)
    pointer = assembler.written(instruction.operands[0])
    stack = assembler.stack()

    def allocate(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        sizes = registers[size][at].astype(np.int64)
        top = stack.end - registers[stack.used][at].astype(np.int64)
        places = (top - sizes) // alignment_bytes * alignment_bytes
        is_full = (places < stack.end - STACK_BYTES) | (sizes < 0)
        if is_full.any():
            first = int(np.argmax(is_full))
            left_bytes = int(top[first]) - (stack.end - STACK_BYTES)
            reason = (
                f"alloca of {int(sizes[first])} bytes, and the stack of a thread has {left_bytes} of {STACK_BYTES} left"
            )
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(cluster.lanes(at)[first]), fix=_FIX)
        registers[stack.used][at] = stack.end - places
        registers[pointer][at] = places.astype(registers[pointer].dtype)

    return allocate


def _stacksave(assembler: Assembler, instruction: Instruction) -> Step:
    _pointer_type(instruction, (1,))
    pointer = assembler.written(instruction.operands[0])
    stack = assembler.stack()

    def save(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        registers[pointer][at] = (stack.end - registers[stack.used][at].astype(np.int64)).astype(
            registers[pointer].dtype
        )

    return save


def _stackrestore(assembler: Assembler, instruction: Instruction) -> Step:
    type_name = _pointer_type(instruction, (1,))
    pointer = assembler.source(instruction.operands[0], type_name)
    stack = assembler.stack()

    def restore(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        used = stack.end - registers[pointer][at].astype(np.int64)
        is_outside = (used < 0) | (used > STACK_BYTES)
        if is_outside.any():
            first = int(np.argmax(is_outside))
            reason = f"stackrestore of {int(registers[pointer][at][first]):#x}, which no stacksave returned"
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(cluster.lanes(at)[first]))
        registers[stack.used][at] = used

    return restore


FAMILIES: dict[str, Decoder] = {"alloca": _alloca, "stacksave": _stacksave, "stackrestore": _stackrestore}
