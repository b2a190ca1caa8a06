"""Which registers hold what was made of others element by element: each lane from its own values.

wgmma.mma_async … {%f1, %f2}, …         an accumulator, dealt to lanes by the hardware
cvt.rn.f16x2.f32 %r1, %f2, %f1          made of it
shfl.sync.idx.b32 %r2, %r1, …           dealt anew: no longer the lane's own
"""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.machine.program import Program

_DEALT_ANEW = frozenset({"ld", "ldmatrix", "movmatrix", "shfl", "selp", "slct", "atom", "call", "mma", "wgmma", "wmma"})


def made_of(program: Program, registers: Iterable[int]) -> frozenset[int]:
    """The registers themselves, and all that is made of them, whatever the path through the program."""
    users: dict[int, list[int]] = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name not in _DEALT_ANEW:
            for number in program.registers_named[pc]:
                users.setdefault(number, []).append(pc)
    waiting = list(registers)
    found = set(waiting)
    while waiting:
        for pc in users.get(waiting.pop(), ()):
            made = [number for number in program.targets[pc] if number not in found]
            found.update(made)
            waiting.extend(made)
    return frozenset(found)
