"""Instructions of PTX that the machine does not have, each with the reason.

A name that no table has is a spelling mistake, or newer than the machine. The names here are known, and left out.
"""

from __future__ import annotations

from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Instruction

_TEXTURES = (
    "textures, surfaces and samplers are objects of the driver, and no argument of a run describes one; use ld.global"
)
_STACK = "the size of a thread's stack frame is fixed before the kernel runs; use a .local array"
_VIDEO = "video instructions are left out; use vector forms such as add.u16x2, or dp4a"
_REASONS: dict[str, tuple[str, ...]] = {
    _TEXTURES: ("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"),
    _STACK: ("stacksave", "stackrestore", "alloca"),
    _VIDEO: (
        *("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset"),
        *("vadd2", "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2", "vset2"),
        *("vadd4", "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4", "vset4"),
    ),
}
REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names}


def _refuse(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    raise RefusedError(REASON_OF[instruction.name])


FAMILIES: dict[str, Decoder] = dict.fromkeys(REASON_OF, _refuse)
