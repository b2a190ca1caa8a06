"""The place of a matrix in tensor memory: the accumulator D, A and its metadata, as values with all addresses.

An accumulator has one element to a column, f16 too (in the low half: read it with .pack::16b), in the lanes of its
data path. A in tensor memory is dense: element k starts at bit k times its width of the lane's cells.

    D(m, n), layout D      m:lane, n:column                 (128,256):(2097152,32)    in bits: lane << 21 | column << 5
    D(m, n), layout B      half of n 64 lanes further       (64,(64,2)):(2097152,(32,134217728))
    A(m, k) of bf16        two elements to a cell           (128,64):(2097152,16)

The data paths, layouts A to G, are in datapath.py. m and n of a pair are the pair's: its blocks hold half of the rows
of D each, with all columns.
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
from tilescope.mma.datapath import Datapath, known_datapath
from tilescope.mma.tcgen05_kind import BLACKWELL, Documented, in_steps, tcgen05_for
from tilescope.mma.tmem_address import (
    CELL_BITS,
    LANE_BITS,
    QUARTER_LANES,
    TMEM_COLUMNS,
    TMEM_LANES,
    UPPER_HALF_LANE,
    TmemAddress,
)
from tilescope.reading import flag, integer, known_name, pair
from tilescope.rule import rule

TMEM_EXTENT = rule(
    "tmem-extent",
    "Data in tensor memory is within 128 lanes and 512 columns.",
    argument="address",
    found="{operand} at {place} reaches lane {last_lane}, column {last_column}",
    limit="tensor memory has lanes 0 to {most_lane} and columns 0 to {most_column}",
    fix="Use column {room}, or a smaller matrix.",
    source="PTX ISA, Tensor Memory",
    architectures=BLACKWELL,
    passing="ts.tmem_layout((128, 256), address=256)",
    failing="ts.tmem_layout((128, 256), address=257)",
)
LANES_BEYOND_MEMORY = TMEM_EXTENT.worded(fix="Use lane 0.")
TMEM_LANE = rule(
    "tmem-lane",
    (
        "D, A and metadata start at a multiple of 32 lanes (in layouts C and F also 16 lanes after one), "
        "loads at their quarter."
    ),
    argument="address",
    found="lane {lane} for layout {layout}",
    limit="D, A and metadata start at a multiple of 32 lanes; in layouts C and F also 16 lanes after one",
    fix="Use lane {below}.",
    source="PTX ISA, tcgen05.mma: Data path layout organization",
    architectures=BLACKWELL,
    passing="ts.tmem_layout((64, 64), address=16 << 16)",
    failing="ts.tmem_layout((128, 64), address=16 << 16)",
)
TMEM_N = rule(
    "tmem-n",
    "An accumulator is not wider than one instruction.",
    argument="shape",
    found="n = {n}",
    limit="layout {layout} has n {known}",
    fix="Use {nearest}; wider products take several accumulators.",
    source="PTX ISA, tcgen05.mma: Matrix shape",
    architectures=BLACKWELL,
    passing="ts.tmem_layout((128, 256))",
    failing="ts.tmem_layout((128, 260))",
)
TMEM_TYPE = rule(
    "tmem-type",
    "Accumulators are float32, float16 or int32.",
    argument="data_type",
    found="{data_type}",
    limit="accumulators are float32, float16 or int32",
    fix="Use float32.",
    source="PTX ISA, tcgen05.mma: kinds",
    architectures=BLACKWELL,
    passing='ts.tmem_layout((128, 64), data_type="f16")',
    failing='ts.tmem_layout((128, 64), data_type="bf16")',
)
TMEM_K = rule(
    "tmem-k",
    "A in tensor memory is a multiple of the instruction's k; metadata is that of one instruction.",
    argument="shape",
    found="k = {k} of {data_type}",
    limit="one instruction of kind {kind} takes {step}",
    fix="Use {whole}.",
    source="PTX ISA, tcgen05.mma: Matrix shape",
    architectures=BLACKWELL,
    passing='ts.tmem_layout((128, 32), operand="A")',
    failing='ts.tmem_layout((128, 24), operand="A")',
)
METADATA_K = TMEM_K.worded(limit="the metadata of one instruction is of {whole} elements along k")
TMEM_UNKNOWN = rule(
    "tmem-unknown",
    "If the documentation does not say how a matrix is stored in tensor memory, tilescope does not guess.",
    argument="operand",
    found="A in tensor memory under layout {layout}",
    limit="the documentation does not say in which lanes it is stored",
    fix="Keep A in shared memory, or use M 128.",
    source="PTX ISA, tcgen05.mma: figures of the layouts alone",
    architectures=BLACKWELL,
    passing='ts.tmem_layout((64, 64), operand="A", ws=True)',
    failing='ts.tmem_layout((32, 64), operand="A", ws=True)',
)
UNKNOWN_METADATA = TMEM_UNKNOWN.worded(
    argument="shape",
    found="metadata of {rows} rows a block (layout {layout})",
    limit="formulas are known for 128 rows a block and for .ws; for others PTX has a figure alone",
    fix="Use M 128, or 256 for a pair.",
)
NO_SCALED_WS = TMEM_UNKNOWN.worded(
    argument="ws",
    found=".ws of {data_type}",
    limit="kind {kind} has no .ws instruction",
    fix="Use {ws:=False} with M 128.",
)
TmemOperand = Literal["D", "A", "metadata", "SFA", "SFB"]
_INDEX_NAMES: dict[TmemOperand, tuple[str, str]] = {
    "D": ("m", "n"),
    "A": ("m", "k"),
    "metadata": ("m", "k"),
    "SFA": ("row", "block"),
    "SFB": ("column", "block"),
}


class TmemPlace(NamedTuple):
    """Where an element is stored: the block of the pair, the lanes of its copies, the column, its first bit in the cell."""

    cta: int
    lanes: tuple[int, ...]
    column: int
    bit: int


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TmemLayout(Documented, Layout):
    """A matrix in the tensor memory of one block: a Layout whose addresses are words, lane << 16 | column.

    The indices are row, column and, where elements lie there several times, the copy. Bit addresses count further:
    lane << 21 | column << 5 | bit.

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
    source: str = ""  # source of the matrix's place; "": several sources agree

    @classmethod
    def of(
        cls,
        modes: Modes,
        element_bits: int,
        address: TmemAddress | int,
        *,
        operand: TmemOperand,
        matrix: tuple[int, int],
        datapath: str | None = None,
        ctas: int = 1,
        source: str = "",
    ) -> TmemLayout:
        """The layout of one block from its modes in bits and the fields above; refused if it leaves tensor memory."""
        layout = cls.from_modes(modes, element_bits, unit_bits=1)
        layout.__dict__.update(
            operand=operand, datapath=datapath, matrix=matrix, ctas=ctas, source=source, nesting=modes
        )
        return layout.with_start(address)

    def with_start(self, start: TmemAddress | int) -> TmemLayout:
        """The same matrix at another address or its word."""
        address = TmemAddress.of(start)
        moved = cast(TmemLayout, Layout.with_start(self, address.encode()))
        last_lane = moved.lanes[-1]
        last_column = address.column + moved.columns - 1
        if last_lane >= TMEM_LANES or last_column >= TMEM_COLUMNS:
            wording = LANES_BEYOND_MEMORY if last_lane >= TMEM_LANES else TMEM_EXTENT
            raise wording.error(
                start=(address.lane, address.column),
                last=(last_lane, last_column),
                operand=self.operand,
                place=str(address),
                last_lane=last_lane,
                last_column=last_column,
                most_lane=TMEM_LANES - 1,
                most_column=TMEM_COLUMNS - 1,
                room=max(0, TMEM_COLUMNS - moved.columns),
            )
        return moved

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TmemLayout:
        """The layout that `to_dict` described."""
        needed = ("operand", "datapath", "ctas", "source", "matrix", "element_bits", "nesting", "start")
        fields = data if isinstance(data, Mapping) else {}
        check_fields("tmem_layout", fields, fields, needed)
        start = fields["start"]
        return cls.of(
            Modes.from_dict(fields["nesting"]),
            fields["element_bits"],
            int(start, 0) if isinstance(start, str) else start,
            operand=fields["operand"],
            matrix=tuple(fields["matrix"]),
            datapath=fields["datapath"],
            ctas=fields["ctas"],
            source=fields["source"],
        )

    @property
    def base(self) -> TmemAddress:
        """Its first cell."""
        return TmemAddress.decode(self.start)

    @property
    def names(self) -> tuple[str, ...]:
        """What the indices are called."""
        names = _INDEX_NAMES[self.operand]
        return names if len(self.shape) == 2 else (*names, "copy")

    @property
    def rows(self) -> int:
        """Rows of the matrix that one block holds."""
        return self.matrix[0] // self.ctas

    @property
    def copies(self) -> int:
        """How many copies of an element there are."""
        return 1 if len(self.shape) == 2 else self.shape[2]

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
        """The place of element (row, column) of the whole matrix."""
        row_name, column_name, *_ = self.names
        rows, columns = self.matrix
        row = integer(row_name, row, 0, rows - 1)
        column = integer(column_name, column, 0, columns - 1)
        cta, row_of_block = divmod(row, self.rows)
        if self.copies == 1:
            offsets = [self.bit_modes.at(row_of_block, column)]
        else:
            offsets = sorted(self.bit_modes.at(row_of_block, column, copy) for copy in range(self.copies))
        bits = [self.start * CELL_BITS + offset for offset in offsets]
        first_column, first_bit = divmod(bits[0] % LANE_BITS, CELL_BITS)
        return TmemPlace(cta, tuple(bit // LANE_BITS for bit in bits), first_column, first_bit)

    def element_at(self, lane: int, column: int, bit: int = 0, *, cta: int = 0) -> tuple[int, int] | None:
        """The element (row, column) that holds a bit of a cell of block `cta`; None if the cell holds no element.

        >>> tmem_layout((128, 128), cta_group=2).element_at(70, 36, cta=1)
        (70, 100)
        """
        word = TmemAddress(lane, column).encode()
        bit = integer("bit", bit, 0, CELL_BITS - 1)
        cta = integer("cta", cta, 0, self.ctas - 1)
        element = self._locate_bit((word - self.start) * CELL_BITS + bit)
        if element is None or element[0] >= self.rows or element[1] >= self.matrix[1]:
            return None
        return element[0] + cta * self.rows, element[1]

    def _map(self) -> tuple[object, ...]:
        """What makes two layouts equal: every address, of the same matrix."""
        return *Layout._map(self), self.operand, self.datapath, self.matrix, self.ctas

    def __repr__(self) -> str:
        letter = f", layout {self.datapath}" if self.datapath else ""
        return f"<{self.operand} of {self.matrix[0]} x {self.matrix[1]}{letter} at {self.base}: {self.bit_modes} bits>"


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
    """Where D (m, n), A (m, k) or the metadata of a sparse A (m, k) is stored in tensor memory, from `address` on.

    m is that of the instruction: with cta_group=2, both blocks together, and each block holds half of the rows. `data_type` is
    the type of the matrix (of A for metadata): by default f32 for D and bf16 for A.

    >>> tmem_layout((32, 128), ws=True).place(9, 77)  # layout G
    TmemPlace(cta=0, lanes=(73,), column=13, bit=0)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16").place(3, 5)
    TmemPlace(cta=0, lanes=(3,), column=2, bit=16)
    >>> tmem_layout((128, 64), operand="A", data_type="bf16", cta_group=2).place(3, 5)  # in both halves: layout B
    TmemPlace(cta=0, lanes=(3, 67), column=2, bit=16)
    """
    operand = known_name("operand", operand, _DEFAULT_TYPES, "operand in tensor memory")
    m, extent = pair("shape", shape, least=1)
    ws = flag("ws", ws)
    sparse = flag("sparse", sparse)
    row = known_datapath(m, cta_group, ws, sparse or operand == "metadata")
    element = DataType.named(_DEFAULT_TYPES[operand] if data_type is None else data_type)
    base = TmemAddress.of(address)
    quarter_lane = base.lane % QUARTER_LANES
    if quarter_lane != 0 and not (row.is_half and quarter_lane == UPPER_HALF_LANE):
        raise TMEM_LANE.error(lane=base.lane, layout=row.name, below=base.lane - quarter_lane)
    if operand == "D":
        placed = _accumulator(row, extent, element, sparse=sparse)
    elif operand == "A":
        placed = _a_operand(row, extent, element)
    else:
        placed = _metadata(row, extent, element)
    return TmemLayout.of(
        placed.modes,
        placed.element_bits,
        base,
        operand=operand,
        matrix=(m, extent),
        datapath=row.name,
        ctas=row.cta_group,
        source=placed.source,
    )


_DEFAULT_TYPES: dict[Literal["D", "A", "metadata"], str] = {"D": "f32", "A": "bf16", "metadata": "bf16"}
_ACCUMULATOR_TYPES = ("float32", "float16", "int32")
_A_STEP_BITS = 8 * CELL_BITS  # what one instruction takes of a row of A: 8 columns


class _Placed(NamedTuple):
    """How one block holds a matrix."""

    modes: Modes  # → bit
    element_bits: int
    source: str  # the source; "": several sources agree


def _accumulator(row: Datapath, n: int, data_type: DataType, *, sparse: bool) -> _Placed:
    allowed_n = row.n_known(sparse=sparse)
    problems = []
    if n not in allowed_n:
        nearest = min(allowed_n, key=lambda extent: (abs(extent - n), extent))
        problems.append(TMEM_N.violation(n=n, layout=row.name, known=in_steps(allowed_n), nearest=nearest))
    if data_type.name not in _ACCUMULATOR_TYPES:
        problems.append(TMEM_TYPE.violation(data_type=data_type.name, change={"data_type": "float32"}))
    raise_all(problems)
    columns = Modes.joined(Modes(n // row.n_parts, CELL_BITS), row.part_modes).coalesced()
    return _Placed(Modes.joined(row.row_modes, columns), data_type.bits, "")


def _a_operand(row: Datapath, k: int, data_type: DataType) -> _Placed:
    """The place of A; k of a sparse A counts its stored elements."""
    kind = tcgen05_for(data_type)
    width = data_type.smem_bits
    step = _A_STEP_BITS // width
    if k % step:
        rounded_k = rounded_up(k, step)
        raise TMEM_K.error(k=k, data_type=data_type.name, kind=kind.name, step=step, whole=rounded_k)
    if row.a_source is None:
        raise TMEM_UNKNOWN.error(layout=row.name)
    columns = Modes(k, width)
    if row.n_parts == 1:
        return _Placed(Modes.joined(row.row_modes, columns), width, row.a_source)
    return _Placed(Modes.joined(row.row_modes, columns, row.part_modes), width, row.a_source)


class Metadata(NamedTuple):
    """The place of a sparse A's metadata: entry (m, k) of one instruction; k counts elements of the unpacked A."""

    k: int
    k_modes: Modes  # → bit
    entry_bits: int
    in_halves: bool  # rows 8 apart share a lane: the upper half of its cell is the second one's
    source: str  # "": several sources agree

    def modes(self, rows: int) -> Modes:
        """(m, k, copy) → bit. .ws with fewer than 128 rows reads a copy in every group of lanes, as for A and D."""
        down = Modes(rows, LANE_BITS)
        if self.in_halves:
            down = Modes((8, 2, rows // 16), (LANE_BITS, 16, 16 * LANE_BITS))
        if rows == TMEM_LANES:
            return Modes.joined(down, self.k_modes)
        return Modes.joined(down, self.k_modes, Modes(TMEM_LANES // rows, rows * LANE_BITS))


# f16 and 8 bits: CuTe (tmem_e_frg) and JAX; tf32: only CuTe. JAX also has the two columns of 4 bits.
_METADATA = {  # by the width of A's elements in bits
    32: Metadata(
        k=16, k_modes=Modes((8, 2), (2, 8 * LANE_BITS)), entry_bits=2, in_halves=True, source="one source: CuTe"
    ),
    16: Metadata(k=32, k_modes=Modes((16, 2), (1, 8 * LANE_BITS)), entry_bits=1, in_halves=True, source=""),
    8: Metadata(k=64, k_modes=Modes(64, 1), entry_bits=1, in_halves=False, source=""),
    4: Metadata(k=128, k_modes=Modes((2, 64), (0, 1)), entry_bits=1, in_halves=False, source="CuTe and JAX"),
}
METADATA_INSTRUCTION_K = {element_bits: metadata.k for element_bits, metadata in _METADATA.items()}
_WS_METADATA_SOURCE = "one source: CuTe"  # tmem_e_frg_ws


def _metadata(row: Datapath, k: int, data_type: DataType) -> _Placed:
    kind = tcgen05_for(data_type)
    metadata = _METADATA[data_type.smem_bits]
    if row.rows != TMEM_LANES and not row.is_ws_alone:
        raise UNKNOWN_METADATA.error(rows=row.rows, layout=row.name)
    if row.is_ws_alone and kind.is_scaled:
        raise NO_SCALED_WS.error(data_type=data_type.name, kind=kind.name)
    if k != metadata.k:
        raise METADATA_K.error(k=k, data_type=data_type.name, whole=metadata.k)
    source = _WS_METADATA_SOURCE if row.is_ws_alone else metadata.source
    return _Placed(metadata.modes(row.rows), metadata.entry_bits, source)
