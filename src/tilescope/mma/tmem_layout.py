"""Where a matrix lies in tensor memory: the accumulator D, A and its metadata, as values that know every address.

An accumulator has one element to a column, f16 too (in the low half: read it with .pack::16b), in the lanes of its data path.
A in tensor memory is dense: element k starts at bit k times its width of the lane's cells.

    D(m, n), layout D      m:lane, n:column                 (128,256):(2097152,32)          in bits: lane << 21 | column << 5
    D(m, n), layout B      half of n 64 lanes further       (64,(64,2)):(2097152,(32,134217728))
    A(m, k) of bf16        two elements to a cell           (128,64):(2097152,16)

PTX calls the ways in which an accumulator uses the 128 lanes layouts A to G; m counts the rows that one block holds:

    layout   when                          rows   lane                      column     used as
    A        M 256, two blocks              128   m                         n          4 x 1 quarters
    B        M 128, two blocks, dense        64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    C        M 128, two blocks, sparse       64   m mod 16 + 32 (m / 16)    n          half of each quarter
    D        M 128                          128   m                         n          4 x 1
    E        M 64, .ws                       64   m + 64 (n / (N/2))        n mod N/2  2 x 2
    F        M 64                            64   m mod 16 + 32 (m / 16)    n          half of each quarter
    G        M 32, .ws                       32   m + 32 (n / (N/4))        n mod N/4  1 x 4

C and F leave half of the lanes free: a second accumulator fits into the same columns at lane 16. m and n of a pair are the
pair's: its blocks hold half of the rows of D each, with all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import check_fields, raise_all
from tilescope.layout import Layout, Modes
from tilescope.mma.tcgen05_kind import KINDS, Documented, blackwell_rule, in_steps, tcgen05_for
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.reading import flag, integer, known_name, pair, plain_int
from tilescope.sentence import printed

# fmt: off
TMEM_DATAPATH, TMEM_EXTENT, TMEM_LANE, TMEM_N, TMEM_TYPE, TMEM_K, TMEM_UNKNOWN = (
    blackwell_rule(f"tmem-{name}", demand, source, f"ts.tmem_layout({passing})", f"ts.tmem_layout({failing})")
    for name, demand, source, passing, failing in (
        ("datapath", "tcgen05.mma has certain m for one block, a pair and .ws; PTX calls their layouts A to G.",
         "tcgen05.mma: Data path layout organization", "(256, 64), cta_group=2", "(256, 64)"),
        ("extent", "What lies in tensor memory, or is moved there, stays within 128 lanes and 512 columns.",
         "Tensor Memory", "(128, 256), address=256", "(128, 256), address=257"),
        ("lane", "D, A and metadata start at a multiple of 32 lanes (in layouts C and F also 16 lanes after one), loads at their quarter.",
         "tcgen05.mma: Data path layout organization", "(64, 64), address=16 << 16", "(128, 64), address=16 << 16"),
        ("n", "An accumulator is as wide as one instruction allows.", "tcgen05.mma: Matrix shape", "(128, 256)", "(128, 260)"),
        ("type", "Accumulators are float32, float16 or int32.", "tcgen05.mma: kinds", '(128, 64), data_type="f16"',
         '(128, 64), data_type="bf16"'),
        ("k", "A in tensor memory is a whole number of instructions along k; metadata is that of one instruction.",
         "tcgen05.mma: Matrix shape", '(128, 32), operand="A"', '(128, 24), operand="A"'),
        ("unknown", "Where no document says how a matrix lies in tensor memory, tilescope does not guess.",
         "tcgen05.mma: figures of the layouts alone", '(64, 64), operand="A", ws=True', '(32, 64), operand="A", ws=True'),
    )
)
# fmt: on
TmemOperand = Literal["D", "A", "metadata", "SFA", "SFB"]
_INDEX_NAMES = {
    "D": ("m", "n"), "A": ("m", "k"), "metadata": ("m", "k"), "SFA": ("row", "block"), "SFB": ("column", "block"),
}  # fmt: skip


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
    a_source: str | None = ""  # what says where A lies; "": several sources agree; None: none does

    @property
    def rows(self) -> int:
        """Rows of D that one block holds."""
        return self.m // self.cta_group

    @property
    def n_parts(self) -> int:
        """Pieces into which n is cut, one below the other; A lies in the lanes of each of them."""
        return 1 if self.is_half else TMEM_LANES // self.rows

    @property
    def modes(self) -> tuple[Modes, Modes]:
        """Rows, and pieces of n, → bit."""
        rows = Modes((16, 4), (LANE_BITS, 32 * LANE_BITS)) if self.is_half else Modes(self.rows, LANE_BITS)
        return rows, Modes(self.n_parts, self.rows * LANE_BITS)

    def n_known(self, *, sparse: bool = False) -> tuple[int, ...]:
        """The n that instructions of this layout have."""
        form = f"cta_group::{self.cta_group}" + ".ws" * (self.ws == (True,))
        return next(row.n for row in KINDS["f16"].shapes(sparse=sparse) if row.form == form)


_ANY, _YES, _NO = (False, True), (True,), (False,)
# PTX ISA, "Data path layout" of tcgen05.mma; the formulas as CuTe's mma_traits_sm100 and TVM have them. PTX prints "2x3"
# for E, the others have 2 x 2.
# fmt: off
DATAPATHS: dict[str, Datapath] = {row.name: row for row in (
    #        name  m  group ws   sparse  half   source of A
    Datapath("A", 256, 2, _NO,  _ANY),
    Datapath("B", 128, 2, _NO,  _NO),
    Datapath("C", 128, 2, _NO,  _YES,  True,  None),
    Datapath("D", 128, 1, _ANY, _ANY),
    Datapath("E",  64, 1, _YES, _ANY,  False, "one source: TVM"),
    Datapath("F",  64, 1, _NO,  _ANY,  True,  "CuTe and Triton; TVM says lanes 0 to 63 instead"),
    Datapath("G",  32, 1, _YES, _ANY,  False, None),
)}
# fmt: on


def known_datapath(m: int, cta_group: Any = 1, ws: bool = False, sparse: bool = False) -> Datapath:
    """The layout of the instructions with this m; refused with the list and the nearest if there is none.

    >>> known_datapath(128, cta_group=2).name
    'B'
    """
    group = plain_int(cta_group)
    for row in DATAPATHS.values():
        if (m, group) == (row.m, row.cta_group) and ws in row.ws and sparse in row.sparse:
            return row
    known = (
        f"{row.name}: m {row.m}, cta_group::{row.cta_group}{' .ws' * (row.ws == _YES)}{' sparse' * (row.sparse == _YES)}"
        for row in DATAPATHS.values()
    )
    found, limit = f"m {m}, cta_group {printed(cta_group)}", f"tensor memory has the layouts {'; '.join(known)}"
    fix = f"Use {_nearest_form(m, group, ws, sparse)}."
    raise TMEM_DATAPATH.error("shape", found + ", .ws" * ws + ", sparse" * sparse, limit, fix, m=m, cta_group=group)


def _nearest_form(m: int, cta_group: int | None, ws: bool, sparse: bool) -> str:
    """What to ask for instead: this m in the form that has it, or the nearest m of the form that was asked for."""
    rows = [row for row in DATAPATHS.values() if row.m == m] or list(DATAPATHS.values())
    near = min(
        rows,
        key=lambda row: (row.cta_group != cta_group, ws not in row.ws, sparse not in row.sparse, abs(row.m - m)),
    )
    others = [f"cta_group={near.cta_group}"] if near.cta_group != cta_group else []
    if ws not in near.ws:
        others.append(f"ws={near.ws[0]}")
    if sparse not in near.sparse:
        others.append(f"sparse={near.sparse[0]}")
    return f"m {near.m}" + (f" with {' and '.join(others)}" if others else "")


class TmemPlace(NamedTuple):
    """Where an element lies: the block of the pair, the lanes of its copies, the column, and its first bit in the cell."""

    cta: int
    lanes: tuple[int, ...]
    column: int
    bit: int


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TmemLayout(Documented, Layout):
    """A matrix in the tensor memory of one block: a Layout whose addresses are words, lane << 16 | column.

    The indices are row, column and, where elements lie there several times, the copy. Bit addresses count further: lane << 21 |
    column << 5 | bit.

    >>> d = tmem_layout((64, 64), address=TmemAddress(16, 0))
    >>> d.datapath, d.place(37, 5), hex(d.address(37, 5)), d.locate(0x550005)
    ('F', TmemPlace(cta=0, lanes=(85,), column=5, bit=0), '0x550005', (37, 5))
    >>> pair = tmem_layout((128, 128), cta_group=2)
    >>> pair.datapath, pair.shape, pair.place(70, 100), pair.columns
    ('B', (64, 128), TmemPlace(cta=1, lanes=(70,), column=36, bit=0), 64)
    >>> pair.terms().c
    'base + m * 65536 + n / 64 * 4194304 + n % 64'
    """

    _extends_a_kind: ClassVar[bool] = True  # shared memory's layouts are values too
    unit_bits: ClassVar[int] = CELL_BITS

    operand: TmemOperand = "D"
    datapath: str | None = None  # PTX's letter
    matrix: tuple[int, int] = (1, 1)  # extents of the whole matrix: both blocks' rows for a pair
    ctas: int = 1  # blocks among which the rows are shared out
    source: str = ""  # what says where the matrix lies; "": several sources agree

    @classmethod
    def of(cls, modes: Modes, element_bits: int, address: Any, **facts: Any) -> TmemLayout:
        """The layout of one block from its modes in bits and the fields above; refused if it leaves tensor memory."""
        made = cls.from_modes(modes, element_bits, unit_bits=1)
        made.__dict__.update(facts, nesting=modes)
        return made.with_start(address)

    def with_start(self, start: Any) -> TmemLayout:
        """The same matrix at another address or its word."""
        address = TmemAddress.of(start)
        moved = cast(TmemLayout, Layout.with_start(self, address.encode()))
        last_lane, last_column = moved.lanes[-1], address.column + moved.columns - 1
        if last_lane >= TMEM_LANES or last_column >= TMEM_COLUMNS:
            found = f"{self.operand} at {address} reaches lane {last_lane}, column {last_column}"
            limit = f"tensor memory has lanes 0 to {TMEM_LANES - 1} and columns 0 to {TMEM_COLUMNS - 1}"
            room = max(0, TMEM_COLUMNS - moved.columns)
            fix = "Use lane 0." if last_lane >= TMEM_LANES else f"Use column {room}, or a smaller matrix."
            start, last = (address.lane, address.column), (last_lane, last_column)
            raise TMEM_EXTENT.error("address", found, limit, fix, start=start, last=last)
        return moved

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TmemLayout:
        """The layout that `to_dict` described."""
        known = ("operand", "datapath", "ctas", "source", "matrix", "element_bits", "nesting", "start")
        told = data if isinstance(data, Mapping) else {}
        check_fields("tmem_layout", told, told, known)
        facts = {name: data[name] for name in known[:4]} | {"matrix": tuple(data["matrix"])}
        start = int(data["start"], 0) if isinstance(data["start"], str) else data["start"]
        return cls.of(Modes.from_dict(data["nesting"]), data["element_bits"], start, **facts)

    @property
    def base(self) -> TmemAddress:
        """Its first cell."""
        return TmemAddress.decode(self.start)

    @property
    def names(self) -> tuple[str, ...]:
        """What the indices are called."""
        return (*_INDEX_NAMES[self.operand], "copy")[: len(self.shape)]

    @property
    def rows(self) -> int:
        """Rows of the matrix that one block holds."""
        return self.matrix[0] // self.ctas

    @property
    def copies(self) -> int:
        """How often an element lies there."""
        return (*self.shape, 1)[2]

    @property
    def columns(self) -> int:
        """Columns used, from the first to the last."""
        within = sum((extent - 1) * stride for extent, stride in self.bit_modes.pairs if stride < LANE_BITS)
        return (within + self.element_bits - 1) // CELL_BITS + 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes used."""
        return tuple(np.unique(self.bit_addresses() // LANE_BITS).tolist())

    def bit_addresses(self) -> npt.NDArray[np.int64]:
        """The bit address of every element of one block, as (rows, columns, copies); >> 5 is the address word."""
        return (self.start * CELL_BITS + self.bit_offsets()).reshape(*self.shape[:2], self.copies)

    def place(self, row: int, column: int) -> TmemPlace:
        """Where element (row, column) of the whole matrix lies."""
        row, column = map(integer, self.names, (row, column), (0, 0), (extent - 1 for extent in self.matrix))
        cta, within = divmod(row, self.rows)
        copies = ((copy,) if self.copies > 1 else () for copy in range(self.copies))
        bits = sorted(self.start * CELL_BITS + self.bit_modes.at(within, column, *copy) for copy in copies)
        return TmemPlace(cta, tuple(bit // LANE_BITS for bit in bits), *divmod(bits[0] % LANE_BITS, CELL_BITS))

    def element_at(self, lane: int, column: int, bit: int = 0, *, cta: int = 0) -> tuple[int, int] | None:
        """The element (row, column) that holds a bit of a cell of block `cta`; None if the cell holds no element.

        >>> tmem_layout((128, 128), cta_group=2).element_at(70, 36, cta=1)
        (70, 100)
        """
        word = TmemAddress(lane, column).encode()
        bit, cta = integer("bit", bit, 0, CELL_BITS - 1), integer("cta", cta, 0, self.ctas - 1)
        found = self._locate_bit((word - self.start) * CELL_BITS + bit)
        if found is None or found[0] >= self.rows or found[1] >= self.matrix[1]:
            return None
        return found[0] + cta * self.rows, found[1]

    def _map(self) -> tuple[Any, ...]:
        """What makes two layouts equal: every address, of the same matrix."""
        return *Layout._map(self), self.operand, self.datapath, self.matrix, self.ctas

    def __repr__(self) -> str:
        letter = f", layout {self.datapath}" if self.datapath else ""
        return f"<{self.operand} of {self.matrix[0]} x {self.matrix[1]}{letter} at {self.base}: {self.bit_modes} bits>"


def tmem_layout(
    shape: tuple[int, int], *, operand: Literal["D", "A", "metadata"] = "D", data_type: Any = None, cta_group: int = 1,
    ws: bool = False, sparse: bool = False, address: Any = 0,
) -> TmemLayout:  # fmt: skip
    """Where D (m, n), A (m, k) or the metadata of a sparse A (m, k) lies in tensor memory, from `address` on.

    m is the instruction's: with cta_group=2 that of both blocks, of which each holds half of the rows. `data_type` is the
    matrix's own (for metadata: A's): by default f32 for D and bf16 for A.

    >>> tmem_layout((32, 128), ws=True).place(9, 77)  # layout G
    TmemPlace(cta=0, lanes=(73,), column=13, bit=0)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16").place(3, 5)
    TmemPlace(cta=0, lanes=(3,), column=2, bit=16)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16", cta_group=2).place(3, 5)  # layout B reads A in both halves
    TmemPlace(cta=0, lanes=(3, 67), column=2, bit=16)
    """
    operand = known_name("operand", operand, _MODES_OF, "operand in tensor memory")
    m, extent = pair("shape", shape, least=1)
    ws, sparse = flag("ws", ws), flag("sparse", sparse)
    row = known_datapath(m, cta_group, ws, sparse or operand == "metadata")
    element = DataType.named(("f32" if operand == "D" else "bf16") if data_type is None else data_type)
    base = TmemAddress.of(address)
    if base.lane % 32 not in ((0, 16) if row.is_half else (0,)):
        found = f"lane {base.lane} for layout {row.name}"
        limit = "D, A and metadata start at a multiple of 32 lanes; in layouts C and F also 16 lanes after one"
        raise TMEM_LANE.error("address", found, limit, f"Use lane {base.lane // 32 * 32}.", lane=base.lane)
    modes, element_bits, source = _MODES_OF[operand](row, extent, element, sparse)
    facts = {"operand": operand, "datapath": row.name, "matrix": (m, extent), "ctas": row.cta_group, "source": source}
    return TmemLayout.of(modes, element_bits, base, **facts)


Placed = tuple[Modes, int, str]  # modes in bits, bits of an element, and the source that says so


def _accumulator(row: Datapath, n: int, data_type: DataType, sparse: bool) -> Placed:
    known = row.n_known(sparse=sparse)
    problems = []
    if n not in known:
        nearest = min(known, key=lambda extent: (abs(extent - n), extent))
        limit = f"layout {row.name} has n {in_steps(known)}"
        fix = f"Use {nearest}; wider products take several accumulators."
        problems.append(TMEM_N.violation("shape", f"n = {n}", limit, fix, n=n))
    if data_type.name not in ("float32", "float16", "int32"):
        limit = "accumulators are float32, float16 or int32"
        problems.append(TMEM_TYPE.violation("data_type", data_type.name, limit, "Use float32."))
    raise_all(problems)
    rows, parts = row.modes
    return Modes.joined(rows, Modes.joined(Modes(n // row.n_parts, CELL_BITS), parts).coalesced()), data_type.bits, ""


def _a_operand(row: Datapath, k: int, data_type: DataType, sparse: bool) -> Placed:  # noqa: ARG001  stored elements count
    kind, width = tcgen05_for(data_type), data_type.smem_bits
    step = 256 // width  # 8 columns
    _require_k(k, rounded_up(k, step), data_type, f"one instruction of kind {kind.name} takes {step}")
    if row.a_source is None:
        found, limit = f"A in tensor memory under layout {row.name}", "no document says in which lanes it lies"
        raise TMEM_UNKNOWN.error("operand", found, limit, "Keep A in shared memory, or use M 128.")
    rows, *copies = row.modes[: 1 + (row.n_parts > 1)]
    return Modes.joined(rows, Modes(k, width), *copies), width, row.a_source


def _require_k(k: int, whole: int, data_type: DataType, limit: str) -> None:
    if k != whole:
        raise TMEM_K.error("shape", f"k = {k} of {data_type.name}", limit, f"Use {whole}.", k=k)


class Metadata(NamedTuple):
    """Where the metadata of a sparse A lies: entry (m, k) of one instruction, k counting the elements of the unpacked A."""

    k: int
    k_modes: Modes  # → bit
    entry_bits: int
    in_halves: bool  # rows 8 apart share a lane: the upper half of its cell is the second one's
    source: str  # "": several sources agree

    def modes(self, rows: int) -> Modes:
        """(m, k, copy) → bit. .ws with fewer than 128 rows reads a copy in every group of lanes, as A and D lie."""
        down = Modes((8, 2, rows // 16), (LANE_BITS, 16, 16 * LANE_BITS)) if self.in_halves else Modes(rows, LANE_BITS)
        copies = [] if rows == TMEM_LANES else [Modes(TMEM_LANES // rows, rows * LANE_BITS)]
        return Modes.joined(down, self.k_modes, *copies)


# f16 and 8 bits: CuTe (tmem_e_frg) and JAX; tf32: CuTe alone. JAX has the two columns of 4 bits too.
# fmt: off
_METADATA = {
    # width of A    k    modes of k                         bits  halves  source
    32: Metadata(   16,  Modes((8, 2), (2, 8 * LANE_BITS)),  2,   True,   "one source: CuTe"),
    16: Metadata(   32,  Modes((16, 2), (1, 8 * LANE_BITS)), 1,   True,   ""),
    8:  Metadata(   64,  Modes(64, 1),                       1,   False,  ""),
    4:  Metadata(  128,  Modes((2, 64), (0, 1)),             1,   False,  "CuTe and JAX"),
}
# fmt: on
_WS_METADATA_SOURCE = "one source: CuTe"  # tmem_e_frg_ws


def _metadata(row: Datapath, k: int, data_type: DataType, sparse: bool) -> Placed:  # noqa: ARG001  it is of a sparse A
    kind, entry, by_ws = tcgen05_for(data_type), _METADATA[data_type.smem_bits], row.ws == _YES
    if row.rows != TMEM_LANES and not by_ws:
        found = f"metadata of {row.rows} rows a block (layout {row.name})"
        limit = "formulas are known for 128 rows a block and for .ws; for others PTX has a figure alone"
        raise TMEM_UNKNOWN.error("shape", found, limit, "Use M 128, or 256 for a pair.", rows=row.rows)
    if by_ws and kind.is_scaled:
        found, limit = f".ws of {data_type.name}", f"kind {kind.name} has no .ws instruction"
        raise TMEM_UNKNOWN.error("ws", found, limit, "Use ws=False with M 128.")
    _require_k(k, entry.k, data_type, f"the metadata of one instruction is of {entry.k} elements along k")
    return entry.modes(row.rows), entry.entry_bits, _WS_METADATA_SOURCE if by_ws else entry.source


_MODES_OF: dict[Any, Any] = {"D": _accumulator, "A": _a_operand, "metadata": _metadata}
