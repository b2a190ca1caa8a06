"""One change of a kernel's text that a test of the kernel should notice."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Instruction

MutantKind = Literal[
    "wait",
    "wait loop",
    "fence",
    "wgmma fence",
    "tcgen05 fence",
    "commit",
    "barrier",
    "arrival",
    "bytes",
    "count",
    "parity",
    "slot",
    "swizzle",
]


class Change(NamedTuple):
    """The edits of one change, and a description of it; `instruction` is None if all instructions of a kind are changed."""

    kind: MutantKind
    description: str  # "bar.sync removed"
    instruction: Instruction | None
    edits: tuple[Edit, ...]
