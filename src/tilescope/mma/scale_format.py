"""Block scaling: which block of k shares a scale factor, of which type, and what one instruction takes.

    name             kind of tcgen05   qualifier        block   scale    scales per row and instruction   ids
    mxfp8            mxf8f6f4          1X = .block32      32    ue8m0    1                                0 to 3
    mxfp4            mxf4              2X = .block32      32    ue8m0    2                                0, 2
    nvfp4            mxf4nvf4          4X = .block16      16    ue4m3    4                                0
    mxf4nvf4.2X      mxf4nvf4          2X = .block32      32    ue8m0    2                                0, 2
    mxf4nvf4.4X      mxf4nvf4          4X = .block16      16    ue8m0    4                                0

Four scales of a row share a 32-bit word; the id in the instruction descriptor says with which byte an instruction begins.
Instructions of k = 96 (sm_103a, 4-bit kinds) take 3 or 6 scales, which run on into the next word. A sparse instruction
takes twice the k with as many scales: its block is twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilescope.errors import RuleError, unknown_name
from tilescope.mma.tcgen05_kind import KINDS, WIDE_K, Tcgen05Kind
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class ScaleFormat(Row):
    """A row of the table.

    >>> nvfp4 = ScaleFormat.named("nvfp4")
    >>> nvfp4.block, nvfp4.scale_type, nvfp4.per_instruction(64), nvfp4.ids(64)
    (16, 'ue4m3', 4, (0,))
    >>> ScaleFormat.named("mxfp4").ids(96)
    (0, 1, 2, 3)
    """

    name: str
    mma_kind: str
    qualifier: str  # .scale_vec:: of PTX
    block: int  # elements of k under one scale
    scale_type: str

    @classmethod
    def named(cls, name: Any) -> ScaleFormat:
        """The row called `name`; the kind's own name stands for its commonest format."""
        if isinstance(name, ScaleFormat):
            return name
        folded = name.strip().casefold().replace("_", "") if isinstance(name, str) else None
        row = _BY_SPELLING.get(folded) if folded is not None else None
        if row is None:
            raise RuleError([unknown_name("scale format", "kind", name, SCALE_FORMATS, _ALIASES)])
        return row

    @property
    def kind_row(self) -> Tcgen05Kind:
        """The kind of tcgen05.mma that multiplies it."""
        return KINDS[self.mma_kind]

    @property
    def k_steps(self) -> tuple[int, ...]:
        """The k that one dense instruction takes."""
        return (self.kind_row.k, WIDE_K) if self.kind_row.is_dense_4_bit else (self.kind_row.k,)

    def per_instruction(self, k: int) -> int:
        """Scales of a row that an instruction of this k takes."""
        return k // self.block

    def ids(self, k: int) -> tuple[int, ...]:
        """The bytes of a word at which an instruction may begin."""
        taken = self.per_instruction(k)
        return tuple(range(0, 4, {1: 1, 2: 2, 3: 1, 4: 4, 6: 2}[taken]))


# PTX ISA, "Block scaling" of tcgen05.mma, and its table of scale_vec sizes.
# fmt: off
SCALE_FORMATS: dict[str, ScaleFormat] = {row.name: row for row in (
    #           name           kind        qualifier       block  scale
    ScaleFormat("mxfp8",       "mxf8f6f4", "1X (.block32)", 32, "ue8m0"),
    ScaleFormat("mxfp4",       "mxf4",     "2X (.block32)", 32, "ue8m0"),
    ScaleFormat("nvfp4",       "mxf4nvf4", "4X (.block16)", 16, "ue4m3"),
    ScaleFormat("mxf4nvf4.2X", "mxf4nvf4", "2X (.block32)", 32, "ue8m0"),
    ScaleFormat("mxf4nvf4.4X", "mxf4nvf4", "4X (.block16)", 16, "ue8m0"),
)}
# fmt: on
_ALIASES = {"mxfp6": "mxfp8", "mxf8f6f4": "mxfp8", "mxf4": "mxfp4", "mxf4nvf4": "nvfp4"}
_BY_SPELLING = {name.casefold(): row for name, row in SCALE_FORMATS.items()} | {
    alias: SCALE_FORMATS[name] for alias, name in _ALIASES.items()
}
