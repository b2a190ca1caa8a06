"""The data paths of tcgen05.mma: how an accumulator uses the 128 lanes of tensor memory.

PTX calls them layouts A to G; m counts the rows that one block holds:

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

from tilescope.layout import Modes
from tilescope.mma.tcgen05_kind import BLACKWELL, KINDS
from tilescope.mma.tmem_address import LANE_BITS, QUARTER_LANES, TMEM_LANES
from tilescope.reading import plain_int
from tilescope.rule import rule
from tilescope.sentence import argument_said, format_value

TMEM_DATAPATH = rule(
    "tmem-datapath",
    "tcgen05.mma supports certain m for one block, a pair and .ws; PTX names their layouts A to G.",
    argument="shape",
    found="m {m}, cta_group {asked}[[, {options:, }]]",
    limit="tensor memory has the layouts {known:; }",
    fix="Use m {nearest_m}[[ with {changes: and }]].",
    source="PTX ISA, tcgen05.mma: Data path layout organization",
    architectures=BLACKWELL,
    passing="ts.tmem_layout((256, 64), cta_group=2)",
    failing="ts.tmem_layout((256, 64))",
)


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
    is_half: bool = False  # 16 lanes of each quarter are used, so that the base may be at lane 16
    a_source: str | None = ""  # the source for the place of A; "": several sources agree; None: none

    @property
    def rows(self) -> int:
        """Rows of D that one block holds."""
        return self.m // self.cta_group

    @property
    def n_parts(self) -> int:
        """Pieces into which n is cut, one below the other; A is in the lanes of each of them."""
        return 1 if self.is_half else TMEM_LANES // self.rows

    @property
    def row_modes(self) -> Modes:
        """Rows → bit."""
        if self.is_half:
            return Modes((16, 4), (LANE_BITS, QUARTER_LANES * LANE_BITS))
        return Modes(self.rows, LANE_BITS)

    @property
    def part_modes(self) -> Modes:
        """Pieces of n → bit."""
        return Modes(self.n_parts, self.rows * LANE_BITS)

    @property
    def is_ws_alone(self) -> bool:
        """Whether only .ws supports it."""
        return self.ws == _YES

    @property
    def form(self) -> str:
        """How its instructions are written."""
        return f"cta_group::{self.cta_group}.ws" if self.is_ws_alone else f"cta_group::{self.cta_group}"

    def n_known(self, *, sparse: bool = False) -> tuple[int, ...]:
        """The n that instructions of this layout have."""
        return next(row.n for row in KINDS["f16"].shapes(sparse=sparse) if row.form == self.form)

    def __str__(self) -> str:
        words = [f"{self.name}: m {self.m}, cta_group::{self.cta_group}"]
        if self.is_ws_alone:
            words.append(".ws")
        if self.sparse == _YES:
            words.append("sparse")
        return " ".join(words)


_ANY = (False, True)
_YES = (True,)
_NO = (False,)
# PTX ISA, "Data path layout" of tcgen05.mma; the formulas as CuTe's mma_traits_sm100 and TVM have them.
# PTX prints "2x3" for E, the others have 2 x 2.
_ROWS = (
    Datapath("A", m=256, cta_group=2, ws=_NO, sparse=_ANY),
    Datapath("B", m=128, cta_group=2, ws=_NO, sparse=_NO),
    Datapath("C", m=128, cta_group=2, ws=_NO, sparse=_YES, is_half=True, a_source=None),
    Datapath("D", m=128, cta_group=1, ws=_ANY, sparse=_ANY),
    Datapath("E", m=64, cta_group=1, ws=_YES, sparse=_ANY, a_source="one source: TVM"),
    Datapath(
        "F",
        m=64,
        cta_group=1,
        ws=_NO,
        sparse=_ANY,
        is_half=True,
        a_source="CuTe and Triton; TVM says lanes 0 to 63 instead",
    ),
    Datapath("G", m=32, cta_group=1, ws=_YES, sparse=_ANY, a_source=None),
)
DATAPATHS: dict[str, Datapath] = {row.name: row for row in _ROWS}


def known_datapath(m: int, cta_group: object = 1, ws: bool = False, sparse: bool = False) -> Datapath:
    """The layout of the instructions with this m; refused with the list and the nearest if there is none.

    >>> known_datapath(128, cta_group=2).name
    'B'
    """
    group = plain_int(cta_group)
    for row in DATAPATHS.values():
        if (m, group) == (row.m, row.cta_group) and ws in row.ws and sparse in row.sparse:
            return row
    options = []
    if ws:
        options.append(".ws")
    if sparse:
        options.append("sparse")
    nearest = _nearest(m, group, ws, sparse)
    raise TMEM_DATAPATH.error(
        m=m,
        cta_group=group,
        asked=format_value(cta_group),
        options=tuple(options),
        known=tuple(map(str, DATAPATHS.values())),
        nearest_m=nearest.m,
        changes=_changes_to(nearest, group, ws, sparse),
    )


def _nearest(m: int, cta_group: int | None, ws: bool, sparse: bool) -> Datapath:
    """The suggestion: this m in a form that supports it, or the nearest m of the requested form."""

    def distance(row: Datapath) -> tuple[bool, bool, bool, int]:
        return row.cta_group != cta_group, ws not in row.ws, sparse not in row.sparse, abs(row.m - m)

    with_this_m = [row for row in DATAPATHS.values() if row.m == m]
    return min(with_this_m or DATAPATHS.values(), key=distance)


def _changes_to(row: Datapath, cta_group: int | None, ws: bool, sparse: bool) -> tuple[str, ...]:
    """The arguments, besides m, that have to change to reach a layout."""
    changes = []
    if row.cta_group != cta_group:
        changes.append(argument_said("cta_group", row.cta_group))
    if ws not in row.ws:
        changes.append(argument_said("ws", row.ws[0]))
    if sparse not in row.sparse:
        changes.append(argument_said("sparse", row.sparse[0]))
    return tuple(changes)
