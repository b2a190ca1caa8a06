"""Where a matrix lies in tensor memory: the accumulator D, A and its metadata, for every shape of tcgen05.mma.

PTX calls the ways in which D uses the 128 lanes layouts A to G. m counts the rows that one block holds:

    layout   when                          rows   lane                      column     used as
    A        M 256, two blocks              128   m                         n          4 x 1 quarters
    B        M 128, two blocks, dense        64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    C        M 128, two blocks, sparse       64   m mod 16 + 32 (m / 16)    n          half of each quarter
    D        M 128                          128   m                         n          4 x 1
    E        M 64, .ws                       64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    F        M 64                            64   m mod 16 + 32 (m / 16)    n          half of each quarter
    G        M 32, .ws                       32   m + 32 (n / (N/4))        n mod N/4  1 x 4

An accumulator has one element to a column, f16 too (in the low half: read it with .pack::16b). A in tensor memory is dense:
element k starts at bit k times its width of the lane's cells. C and F leave half of the lanes free: a second accumulator fits
into the same columns at lane 16.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, broken, printed, unknown_name
from tilescope.mma.bits import plain_int
from tilescope.mma.shape_stride import ShapeStride
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.value import Value, entries, is_one_of

TmemOperand = Literal["D", "A", "metadata", "SFA", "SFB"]
Bits = npt.NDArray[np.int64]
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

    @property
    def n_known(self) -> tuple[int, ...]:
        """The n that instructions of this layout have."""
        if self.ws == (True,):
            return _N_WS
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


class TmemPlace(NamedTuple):
    """Where an element lies: the block of the pair, the lanes of its copies, the column, and its first bit in the cell."""

    cta: int
    lanes: tuple[int, ...]
    column: int
    bit: int


@dataclass(frozen=True, slots=True)
class TmemLayout(Value):
    """A matrix in tensor memory: (row, column, copy) → bit address, of one block.

    >>> d = tmem_layout((64, 64), address=TmemAddress(16, 0))
    >>> d.datapath, d.place(37, 5)
    ('F', TmemPlace(cta=0, lanes=(85,), column=5, bit=0))
    >>> pair = tmem_layout((128, 128), cta_group=2)
    >>> pair.datapath, pair.place(70, 100), pair.columns
    ('B', TmemPlace(cta=1, lanes=(70,), column=36, bit=0), 64)
    """

    operand: TmemOperand
    datapath: str | None  # PTX's letter
    shape: tuple[int, int]  # of the whole matrix: both blocks' rows for a pair
    ctas: int  # blocks among which the rows are shared out
    element_bits: int
    modes: ShapeStride  # of one block, from its first cell on, in bits
    address: TmemAddress = field(default_factory=TmemAddress)
    source: str = ""  # what the place rests on, where it is less than several sources

    def __post_init__(self) -> None:
        last_lane = self.address.lane + int(self._offsets().max()) // LANE_BITS
        last_column = self.address.column + self.columns - 1
        if last_lane >= TMEM_LANES or last_column >= TMEM_COLUMNS:
            raise broken(
                "tmem-extent", "address", f"{self.operand} at {self.address} reaches lane {last_lane}, column {last_column}",
                f"tensor memory has lanes 0 to {TMEM_LANES - 1} and columns 0 to {TMEM_COLUMNS - 1}",
                "Start further left." if last_lane < TMEM_LANES else "Start at lane 0.",
            )  # fmt: skip

    @property
    def basis(self) -> Basis:
        """No card was asked."""
        return "documented"

    @property
    def rows(self) -> int:
        """Rows that one block holds."""
        return self.shape[0] // self.ctas

    @property
    def copies(self) -> int:
        """How often each element lies there."""
        return self.modes.parts[2].size

    @property
    def columns(self) -> int:
        """Columns used, from the first to the last."""
        return (int((self._offsets() % LANE_BITS).max()) + self.element_bits - 1) // CELL_BITS + 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes used."""
        first = self.address.lane
        return tuple(first + lane for lane in np.unique(self._offsets() // LANE_BITS).tolist())

    def _offsets(self) -> Bits:
        rows, columns, copies = (np.arange(part.size) for part in self.modes.parts)
        return self.modes.at(rows[:, None, None], columns[None, :, None], copies[None, None, :])

    def bit_addresses(self) -> Bits:
        """The bit address of every element of one block, as (rows, columns, copies); >> 5 is the address word."""
        return self.address.lane * LANE_BITS + self.address.column * CELL_BITS + self._offsets()

    def place(self, row: int, column: int) -> TmemPlace:
        """Where element (row, column) of the whole matrix lies."""
        for name, index, extent in (("row", row, self.shape[0]), ("column", column, self.shape[1])):
            if not is_one_of(index, range(extent)):
                found, limit = f"{name} {printed(index)}", f"{self.operand} has {name}s 0 to {extent - 1}"
                raise broken("tile-index", name, found, limit, "Index inside the matrix.")
        cta, within = divmod(int(row), self.rows)
        found_bits = [self.modes.at(within, int(column), copy) for copy in range(self.copies)]
        lanes = tuple(sorted(self.address.lane + each // LANE_BITS for each in found_bits))
        column_bits, bit = divmod(found_bits[0] % LANE_BITS, CELL_BITS)
        return TmemPlace(cta, lanes, self.address.column + column_bits, bit)

    def locate(self, lane: int, column: int, bit: int = 0, *, cta: int = 0) -> tuple[int, int] | None:
        """The element (row, column) that holds a bit of a cell of block `cta`; None where nothing of the matrix lies.

        >>> tmem_layout((128, 128), cta_group=2).locate(70, 36, cta=1)
        (70, 100)
        """
        wanted = TmemAddress(lane, column)
        for name, given, extent in (("bit", bit, CELL_BITS), ("cta", cta, self.ctas)):
            if not is_one_of(given, range(extent)):
                found, limit = f"{name} {printed(given)}", f"{name}s 0 to {extent - 1}"
                raise broken("tile-index", name, found, limit, "Stay inside.")
        at = wanted.lane * LANE_BITS + wanted.column * CELL_BITS + bit
        first = self.bit_addresses()
        hits = np.argwhere((first <= at) & (at < first + self.element_bits))
        return None if not len(hits) else (int(hits[0][0]) + cta * self.rows, int(hits[0][1]))

    def __str__(self) -> str:
        return self.text()


def tmem_layout(
    shape: tuple[int, int],
    *,
    operand: Literal["D", "A", "metadata"] = "D",
    data_type: Any = None,
    cta_group: int = 1,
    ws: bool = False,
    sparse: bool = False,
    address: Any = 0,
) -> TmemLayout:
    """Where D (m, n), A (m, k) or the metadata of a sparse A (m, k) lies in tensor memory, from `address` on.

    m is the instruction's: with cta_group=2 that of both blocks, of which each holds half of the rows. `data_type` is the
    matrix's own (for metadata: A's): f32 for D and bf16 for A where none is said.

    >>> tmem_layout((32, 128), ws=True).place(9, 77)  # layout G
    TmemPlace(cta=0, lanes=(73,), column=13, bit=0)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16").place(3, 5)
    TmemPlace(cta=0, lanes=(3,), column=2, bit=16)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16", cta_group=2).place(3, 5)  # layout B reads A in both halves
    TmemPlace(cta=0, lanes=(3, 67), column=2, bit=16)
    """
    if not is_one_of(operand, ("D", "A", "metadata")):
        raise RuleError([unknown_name("operand in tensor memory", "operand", operand, ("D", "A", "metadata"))])
    m, extent = _pair(shape)
    row = datapath_for(m, cta_group=cta_group, ws=ws, sparse=True if operand == "metadata" else sparse)
    kept = DataType.named(("f32" if operand == "D" else "bf16") if data_type is None else data_type)
    base = TmemAddress.given(address)
    if base.lane % 32 not in ((0, 16) if row.is_half else (0,)):
        raise broken(
            "tmem-lane", "address", f"lane {base.lane} for layout {row.name}",
            "D, A and metadata start at a multiple of 32 lanes; those of layouts C and F also 16 further on", "Use lane 0.",
        )  # fmt: skip
    build = {"D": _accumulator, "A": _a_operand, "metadata": _metadata}[operand]
    modes, element_bits, source = build(row, extent, kept, sparse)
    return TmemLayout(operand, row.name, (m, extent), row.cta_group, element_bits, modes, base, source)


def datapath_for(m: Any, *, cta_group: Any, ws: Any, sparse: Any) -> Datapath:
    """The layout of the instructions with this m; those that exist where there is none.

    >>> datapath_for(64, cta_group=1, ws=True, sparse=False).name
    'E'
    """
    for name, flag in (("ws", ws), ("sparse", sparse)):
        if not isinstance(flag, bool | np.bool_):
            raise broken("argument-type", name, printed(flag), "True or False", "Give a bool.")
    for row in DATAPATHS.values():
        if is_one_of(m, (row.m,)) and is_one_of(cta_group, (row.cta_group,)) and ws in row.ws and sparse in row.sparse:
            return row
    known = "; ".join(
        f"{row.name}: m {row.m}, cta_group::{row.cta_group}"
        + (" .ws" if row.ws == _YES else "") + (" sparse" if row.sparse == _YES else "")
        for row in DATAPATHS.values()
    )  # fmt: skip
    asked = f"m {printed(m)}, cta_group {printed(cta_group)}" + (", .ws" if ws else "") + (", sparse" if sparse else "")
    raise broken(
        "tmem-datapath", "shape", asked, f"tensor memory has the layouts {known}", "Use such a pair of m and group."
    )


def _lanes(modes: tuple[tuple[int, int], ...]) -> tuple[Any, Any]:
    """Shape and stride in bits of modes over lanes."""
    shape, stride = zip(*modes, strict=True)
    stride = tuple(step * LANE_BITS for step in stride)
    return (shape, stride) if len(modes) > 1 else (shape[0], stride[0])


Placed = tuple[ShapeStride, int, str]


def _accumulator(row: Datapath, n: int, data_type: DataType, sparse: bool) -> Placed:
    known = _N_SPARSE_WS if sparse and row.ws == _YES else row.n_known
    problems = []
    if n not in known:
        problems.append(Violation(
            "tmem-n", "error", "shape", f"n = {n}", f"layout {row.name} has n {known[0]} to {known[-1]}"
            + (f" in steps of {known[1] - known[0]}" if len(known) > 3 else f": {', '.join(map(str, known))}"),
            f"Use {min(known, key=lambda each: (abs(each - n), each))}; wider products take several accumulators.",
        ))  # fmt: skip
    if data_type.name not in ("float32", "float16", "int32"):
        problems.append(Violation(
            "tmem-type", "error", "data_type", data_type.name, "accumulators are float32, float16 or int32", "Use one of these.",
        ))  # fmt: skip
    if problems:
        raise RuleError(problems)
    shape, stride = _lanes(row.row_modes)
    if row.n_parts == 1:
        return ShapeStride((shape, n, 1), (stride, CELL_BITS, 0)), data_type.bits, ""
    split = (n // row.n_parts, row.n_parts), (CELL_BITS, row.part_lanes * LANE_BITS)
    return ShapeStride((shape, split[0], 1), (stride, split[1], 0)), data_type.bits, ""


def _a_operand(row: Datapath, k: int, data_type: DataType, sparse: bool) -> Placed:  # noqa: ARG001  stored elements count
    kind, width = tcgen05_for(data_type), data_type.smem_bits
    per_instruction = 256 // width  # 8 columns
    if k % per_instruction:
        raise broken(
            "tmem-k", "shape", f"k = {k} of {data_type.name}", f"one instruction of kind {kind.name} takes {per_instruction}",
            f"Use {-(-k // per_instruction) * per_instruction}.",
        )  # fmt: skip
    if row.a_copies is None:
        raise broken(
            "tmem-unknown", "operand", f"A in tensor memory under layout {row.name}", "no document says in which lanes it lies",
            "Keep A in shared memory, or use M 128.",
        )  # fmt: skip
    shape, stride = _lanes(row.row_modes)
    copy_lanes = row.part_lanes if row.a_copies > 1 else 0
    return ShapeStride((shape, k, row.a_copies), (stride, width, copy_lanes * LANE_BITS)), width, row.a_source


# Element (m, k) of one instruction → bit, for 128 rows: extent, stride in bits. k counts elements of the unpacked A.
# f16 and 8 bits: CuTe and JAX; tf32 and 4 bits: CuTe alone.
_ROW_16 = (8, 2, 8), (LANE_BITS, 16, 16 * LANE_BITS)
# fmt: off
_METADATA = {
    # width of A: k, rows, modes of k, bits of an entry, source
    32: (16,  _ROW_16,           ((8, 2), (2, 8 * LANE_BITS)),  2, "one source: CuTe"),
    16: (32,  _ROW_16,           ((16, 2), (1, 8 * LANE_BITS)), 1, ""),
    8:  (64,  (128, LANE_BITS),  (64, 1),                       1, ""),
    4:  (128, (128, LANE_BITS),  ((2, 64), (0, 1)),             1, "one source: CuTe"),
}
# fmt: on


def _metadata(row: Datapath, k: int, data_type: DataType, sparse: bool) -> Placed:  # noqa: ARG001  it is of a sparse A
    tcgen05_for(data_type)
    wanted, rows, columns, bits, source = _METADATA[data_type.smem_bits]
    if row.rows != 128:
        raise broken(
            "tmem-unknown", "shape", f"metadata of {row.rows} rows a block (layout {row.name})",
            "formulas are known for 128 rows a block; for fewer PTX has a figure alone", "Use M 128, or 256 for a pair.",
        )  # fmt: skip
    if k != wanted:
        raise broken(
            "tmem-k", "shape", f"k = {k} of {data_type.name}", f"the metadata of one instruction is of {wanted} elements along k",
            f"Use {wanted}.",
        )  # fmt: skip
    return ShapeStride((rows[0], columns[0], 1), (rows[1], columns[1], 0)), bits, source


def _pair(shape: Any) -> tuple[int, int]:
    found = [plain_int(each) for each in entries(shape, 3) or ()]
    if len(found) != 2 or not all(isinstance(each, int) and each >= 1 for each in found):
        raise broken(
            "tile-shape", "shape", printed(shape), "two extents of at least 1: m and n (D), or m and k (A)", "Give such as (128, 256).",
        )  # fmt: skip
    return found[0], found[1]
