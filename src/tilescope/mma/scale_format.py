"""The formats of block scaling: which elements and scale factors, how many elements share one, and which kind multiplies them.

mxfp8    e4m3, e5m2, …    a ue8m0 for 32 elements of k    kind mxf8f6f4
mxfp4    e2m1             a ue8m0 for 32                  kind mxf4
nvfp4    e2m1             a ue4m3 for 16                  kind mxf4nvf4
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilescope.data_type import DataType
from tilescope.mma.scale_packing import ATOM_SCALES
from tilescope.mma.tcgen05_kind import KINDS, WIDE_K, Tcgen05Kind
from tilescope.reading import known_row
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class ScaleFormat(Row):
    """A row of the table.

    >>> nvfp4 = ScaleFormat.named("nvfp4")
    >>> nvfp4.block, nvfp4.scale_type, nvfp4.ids(64)
    (16, 'ue4m3', (0,))
    >>> ScaleFormat.named("mxfp4").ids(96)
    (0, 1, 2, 3)
    """

    name: str
    mma_kind: str
    qualifier: str  # .scale_vec:: of PTX
    block: int  # elements of k under one scale
    scale_type: str

    @classmethod
    def named(cls, name: object) -> ScaleFormat:
        """The row called `name`; a kind's name means its most common format."""
        return known_row(
            ScaleFormat, "scale format", "kind", name, SCALE_FORMATS, plain=_plain_name, spellings=_ALIASES
        )

    @property
    def kind_row(self) -> Tcgen05Kind:
        """The kind of tcgen05.mma that multiplies it."""
        return KINDS[self.mma_kind]

    @property
    def scale_data_type(self) -> DataType:
        """The type of a scale factor; ue4m3 is e4m3 without its sign."""
        return DataType.named("ue8m0" if self.scale_type == "ue8m0" else "e4m3")

    @property
    def k_steps(self) -> tuple[int, ...]:
        """The k that one dense instruction takes."""
        return (self.kind_row.k, WIDE_K) if self.kind_row.is_dense_4_bit else (self.kind_row.k,)

    def ids(self, k: int) -> tuple[int, ...]:
        """The bytes of a word at which an instruction may begin."""
        return tuple(range(0, ATOM_SCALES, gcd(k // self.block, ATOM_SCALES)))


# PTX ISA, "Block scaling" of tcgen05.mma, and its table of scale_vec sizes.
_ROWS = (
    ScaleFormat("mxfp8", mma_kind="mxf8f6f4", qualifier="1X (.block32)", block=32, scale_type="ue8m0"),
    ScaleFormat("mxfp4", mma_kind="mxf4", qualifier="2X (.block32)", block=32, scale_type="ue8m0"),
    ScaleFormat("nvfp4", mma_kind="mxf4nvf4", qualifier="4X (.block16)", block=16, scale_type="ue4m3"),
    ScaleFormat("mxf4nvf4.2X", mma_kind="mxf4nvf4", qualifier="2X (.block32)", block=32, scale_type="ue8m0"),
    ScaleFormat("mxf4nvf4.4X", mma_kind="mxf4nvf4", qualifier="4X (.block16)", block=16, scale_type="ue8m0"),
)
SCALE_FORMATS: dict[str, ScaleFormat] = {row.name: row for row in _ROWS}
_ALIASES = {"mxfp6": "mxfp8", "mxf8f6f4": "mxfp8", "mxf4": "mxfp4", "mxf4nvf4": "nvfp4"}
_NAMES = {name.casefold(): name for name in SCALE_FORMATS} | _ALIASES


def _plain_name(written: str) -> str:
    return _NAMES.get(written.strip().casefold().replace("_", ""), written)
