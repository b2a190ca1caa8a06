"""How the accumulator of tcgen05.mma uses the 128 lanes of tensor memory: PTX calls the ways layouts A to G.

m counts the rows that one block holds:

    layout   when                          rows   lane                      column     used as
    A        M 256, two blocks              128   m                         n          4 x 1 quarters
    B        M 128, two blocks, dense        64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    C        M 128, two blocks, sparse       64   m mod 16 + 32 (m / 16)    n          half of each quarter
    D        M 128                          128   m                         n          4 x 1
    E        M 64, .ws                       64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    F        M 64                            64   m mod 16 + 32 (m / 16)    n          half of each quarter
    G        M 32, .ws                       32   m + 32 (n / (N/4))        n mod N/4  1 x 4

C and F leave half of the lanes free: a second accumulator fits into the same columns at lane 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilescope.errors import printed
from tilescope.mma.tcgen05_kind import blackwell_rule
from tilescope.reading import flag, is_one_of

TMEM_DATAPATH = blackwell_rule(
    "tmem-datapath", "tcgen05.mma has certain m for one block, a pair and .ws; PTX calls their layouts A to G.",
    "tcgen05.mma: Data path layout organization", "ts.tmem_layout((256, 64), cta_group=2)", "ts.tmem_layout((256, 64))",
)  # fmt: skip
_N_SINGLE, _N_PAIR = tuple(range(8, 257, 8)), tuple(range(16, 257, 16))
_N_WS, _N_SPARSE_WS = (64, 128, 256), (64, 128)


@dataclass(frozen=True, slots=True)
class Datapath:
    """A row of the table above: how D uses the lanes.

    >>> DATAPATHS["B"].rows, DATAPATHS["B"].n_parts
    (64, 2)
    """

    name: str
    m: int  # of the instruction
    cta_group: int
    ws: tuple[bool, ...]
    sparse: tuple[bool, ...]
    row_modes: tuple[tuple[int, int], ...]  # extent, step in lanes
    n_parts: int  # pieces into which n is cut …
    part_lanes: int  # … and how many lanes lie between them
    a_copies: int | None  # how often A lies in tensor memory; None: no document says where
    a_source: str = ""  # what A's place rests on, where it is less than several sources

    @property
    def rows(self) -> int:
        """Rows of D that one block holds."""
        return self.m // self.cta_group

    @property
    def is_half(self) -> bool:
        """Whether only 16 lanes of each quarter are used, so that the base may be at lane 16."""
        return len(self.row_modes) > 1

    def n_known(self, *, sparse: bool = False) -> tuple[int, ...]:
        """The n that instructions of this layout have."""
        if self.ws == (True,):
            return _N_SPARSE_WS if sparse else _N_WS
        return _N_PAIR if self.cta_group == 2 else _N_SINGLE


_HALF, _ANY, _YES, _NO = ((16, 1), (4, 32)), (False, True), (True,), (False,)
_TVM = "one source: TVM"
_CUTE = "CuTe; TVM says lanes 0 to 63 instead"
# PTX ISA, "Data path layout" of tcgen05.mma; the formulas as CuTe's mma_traits_sm100 and TVM have them. PTX prints "2x3"
# for E, the others have 2 x 2.
# fmt: off
DATAPATHS: dict[str, Datapath] = {row.name: row for row in (
    #        name  m  group ws    sparse  rows          parts lanes  copies of A
    Datapath("A", 256, 2, _NO,  _ANY, ((128, 1),),  1,   0, 1),
    Datapath("B", 128, 2, _NO,  _NO,  ((64, 1),),   2,  64, 2),
    Datapath("C", 128, 2, _NO,  _YES, _HALF,        1,   0, None),
    Datapath("D", 128, 1, _ANY, _ANY, ((128, 1),),  1,   0, 1),
    Datapath("E",  64, 1, _YES, _ANY, ((64, 1),),   2,  64, 2, _TVM),
    Datapath("F",  64, 1, _NO,  _ANY, _HALF,        1,   0, 1, _CUTE),
    Datapath("G",  32, 1, _YES, _ANY, ((32, 1),),   4,  32, None),
)}
# fmt: on


def datapath_for(m: Any, *, cta_group: Any, ws: Any, sparse: Any) -> Datapath:
    """The layout of the instructions with this m; those that exist where there is none.

    >>> datapath_for(64, cta_group=1, ws=True, sparse=False).name
    'E'
    """
    ws, sparse = flag("ws", ws), flag("sparse", sparse)
    for row in DATAPATHS.values():
        if is_one_of(m, (row.m,)) and is_one_of(cta_group, (row.cta_group,)) and ws in row.ws and sparse in row.sparse:
            return row
    known = "; ".join(
        f"{row.name}: m {row.m}, cta_group::{row.cta_group}"
        + (" .ws" if row.ws == _YES else "") + (" sparse" if row.sparse == _YES else "")
        for row in DATAPATHS.values()
    )  # fmt: skip
    asked = f"m {printed(m)}, cta_group {printed(cta_group)}" + (", .ws" if ws else "") + (", sparse" if sparse else "")
    raise TMEM_DATAPATH.error(
        "shape", asked, f"tensor memory has the layouts {known}", "Use such a pair of m and group."
    )
