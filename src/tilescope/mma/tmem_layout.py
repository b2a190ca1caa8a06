"""Where a matrix lies in tensor memory: the accumulator D, A and its metadata, as values that know every address.

An accumulator has one element to a column, f16 too (in the low half: read it with .pack::16b), in the lanes of its data path
(datapath.py). A in tensor memory is dense: element k starts at bit k times its width of the lane's cells.

    D(m, n), layout D      m:lane, n:column                 (128,256):(2097152,32)          in bits: lane << 21 | column << 5
    D(m, n), layout B      half of n 64 lanes further       (64,(64,2)):(2097152,(32,134217728))
    A(m, k) of bf16        two elements to a cell           (128,64):(2097152,16)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, missing_fields
from tilescope.layout import AddressTerms, Layout, Modes
from tilescope.mma.datapath import Datapath, datapath_for
from tilescope.mma.tcgen05_kind import Documented, blackwell_rule, tcgen05_for
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.reading import integer, known_name, pair

# fmt: off
TMEM_EXTENT, TMEM_LANE, TMEM_N, TMEM_TYPE, TMEM_K, TMEM_UNKNOWN = (
    blackwell_rule(f"tmem-{name}", demand, source, f"ts.tmem_layout({passing})", f"ts.tmem_layout({failing})")
    for name, demand, source, passing, failing in (
        ("extent", "What lies in tensor memory, or is moved there, stays within 128 lanes and 512 columns.",
         "Tensor Memory", "(128, 256), address=256", "(128, 256), address=257"),
        ("lane", "D, A and metadata start at a multiple of 32 lanes (layouts C and F also 16 further on), loads at their quarter.",
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
Bits = npt.NDArray[np.int64]
_INDEX_NAMES = {
    "D": ("m", "n"), "A": ("m", "k"), "metadata": ("m", "k"), "SFA": ("row", "block"), "SFB": ("column", "block"),
}  # fmt: skip


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
    source: str = ""  # what the place rests on, where it is less than several sources

    @classmethod
    def of(
        cls, operand: TmemOperand, datapath: str | None, matrix: tuple[int, int], ctas: int, element_bits: int, modes: Modes,
        address: TmemAddress, source: str = "",
    ) -> TmemLayout:  # fmt: skip
        """From modes in bits, of one block; refused where it leaves tensor memory."""
        made = cls.from_modes(modes, element_bits, unit_bits=1, start=address.encode())
        assert isinstance(made, TmemLayout)
        for name, value in (
            ("nesting", modes), ("operand", operand), ("datapath", datapath), ("matrix", matrix), ("ctas", ctas), ("source", source),
        ):  # fmt: skip
            object.__setattr__(made, name, value)
        last_lane, last_column = made.lanes[-1], address.column + made.columns - 1
        if last_lane >= TMEM_LANES or last_column >= TMEM_COLUMNS:
            raise TMEM_EXTENT.error(
                "address", f"{operand} at {address} reaches lane {last_lane}, column {last_column}",
                f"tensor memory has lanes 0 to {TMEM_LANES - 1} and columns 0 to {TMEM_COLUMNS - 1}",
                "Start further left." if last_lane < TMEM_LANES else "Start at lane 0.",
            )  # fmt: skip
        return made

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TmemLayout:
        """The layout that `to_dict` described."""
        known = ("operand", "datapath", "matrix", "ctas", "element_bits", "nesting", "start", "source")
        if not isinstance(data, Mapping) or (missing := [name for name in known if name not in data]):
            raise missing_fields("tmem_layout", missing if isinstance(data, Mapping) else known)
        operand, datapath, matrix, ctas, bits, nesting, start, source = (data[name] for name in known)
        address = TmemAddress.decode(int(start, 0) if isinstance(start, str) else start)
        return cls.of(operand, datapath, tuple(matrix), ctas, bits, Modes.from_dict(nesting), address, source)

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
        """How often each element lies there."""
        return self.shape[2] if len(self.shape) > 2 else 1

    @property
    def columns(self) -> int:
        """Columns used, from the first to the last."""
        return (int((self.bit_offsets() % LANE_BITS).max()) + self.element_bits - 1) // CELL_BITS + 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes used."""
        first = self.base.lane
        return tuple(first + lane for lane in np.unique(self.bit_offsets() // LANE_BITS).tolist())

    def bit_addresses(self) -> Bits:
        """The bit address of every element of one block, as (rows, columns, copies); >> 5 is the address word."""
        return (self.start * CELL_BITS + self.bit_offsets()).reshape(*self.shape[:2], self.copies)

    def with_start(self, start: int) -> TmemLayout:
        """The same matrix at another address word."""
        return TmemLayout.of(
            self.operand, self.datapath, self.matrix, self.ctas, self.element_bits, self.bit_modes, TmemAddress.given(start), self.source,
        )  # fmt: skip

    def terms(self, *names: str) -> AddressTerms:
        """The address word as data that prints as C, Python or PTX."""
        pairs = tuple(tuple((extent, stride * 8 // CELL_BITS) for extent, stride in index) for index in self.pairs)
        return AddressTerms.of(pairs, names or self.names, self.swizzle)

    def place(self, row: int, column: int) -> TmemPlace:
        """Where element (row, column) of the whole matrix lies."""
        row, column = (
            integer(name, index, 0, extent - 1)
            for name, index, extent in zip(self.names, (row, column), self.matrix, strict=False)
        )
        cta, within = divmod(row, self.rows)
        further = [(copy,) for copy in range(self.copies)] if self.copies > 1 else [()]
        bits = [self.start * CELL_BITS + self.bit_modes.at(within, column, *copy) for copy in further]
        column_of_cell, bit = divmod(bits[0] % LANE_BITS, CELL_BITS)
        return TmemPlace(cta, tuple(sorted(each // LANE_BITS for each in bits)), column_of_cell, bit)

    def element_at(self, lane: int, column: int, bit: int = 0, *, cta: int = 0) -> tuple[int, int] | None:
        """The element (row, column) that holds a bit of a cell of block `cta`; None where nothing of the matrix lies.

        >>> tmem_layout((128, 128), cta_group=2).element_at(70, 36, cta=1)
        (70, 100)
        """
        wanted = TmemAddress(lane, column)
        bit, cta = integer("bit", bit, 0, CELL_BITS - 1), integer("cta", cta, 0, self.ctas - 1)
        at = wanted.encode() * CELL_BITS + bit
        first = self.bit_addresses()[: self.rows, : self.matrix[1]]
        hits = np.argwhere((first <= at) & (at < first + self.element_bits))
        return None if not len(hits) else (int(hits[0][0]) + cta * self.rows, int(hits[0][1]))

    def _map(self) -> tuple[Any, ...]:
        """What makes two layouts equal: every address, of the same matrix."""
        return *Layout._map(self), self.operand, self.datapath, self.matrix, self.ctas

    def __repr__(self) -> str:
        letter = f", layout {self.datapath}" if self.datapath else ""
        return f"<{self.operand} of {self.matrix[0]} x {self.matrix[1]}{letter} at {self.base}: {self.bit_modes} bits>"

    def __str__(self) -> str:
        return self.text()


def tmem_layout(
    shape: tuple[int, int], *, operand: Literal["D", "A", "metadata"] = "D", data_type: Any = None, cta_group: int = 1,
    ws: bool = False, sparse: bool = False, address: Any = 0,
) -> TmemLayout:  # fmt: skip
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
    operand = known_name("operand", operand, _BUILT, "operand in tensor memory")
    m, extent = pair("shape", shape, least=1)
    row = datapath_for(m, cta_group=cta_group, ws=ws, sparse=True if operand == "metadata" else sparse)
    kept = DataType.named(("f32" if operand == "D" else "bf16") if data_type is None else data_type)
    base = TmemAddress.given(address)
    if base.lane % 32 not in ((0, 16) if row.is_half else (0,)):
        raise TMEM_LANE.error(
            "address", f"lane {base.lane} for layout {row.name}",
            "D, A and metadata start at a multiple of 32 lanes; those of layouts C and F also 16 further on", "Use lane 0.",
        )  # fmt: skip
    modes, element_bits, source = _BUILT[operand](row, extent, kept, sparse)
    return TmemLayout.of(operand, row.name, (m, extent), row.cta_group, element_bits, modes, base, source)


def _lanes(modes: tuple[tuple[int, int], ...]) -> tuple[Any, Any]:
    """Shape and stride in bits of modes over lanes."""
    shape, stride = zip(*modes, strict=True)
    stride = tuple(step * LANE_BITS for step in stride)
    return (shape, stride) if len(modes) > 1 else (shape[0], stride[0])


Placed = tuple[Modes, int, str]


def _accumulator(row: Datapath, n: int, data_type: DataType, sparse: bool) -> Placed:
    known = row.n_known(sparse=sparse)
    problems = []
    if n not in known:
        problems.append(TMEM_N.violation("shape", f"n = {n}", f"layout {row.name} has n {known[0]} to {known[-1]}"
            + (f" in steps of {known[1] - known[0]}" if len(known) > 3 else f": {', '.join(map(str, known))}"),
            f"Use {min(known, key=lambda each: (abs(each - n), each))}; wider products take several accumulators.",
        ))  # fmt: skip
    if data_type.name not in ("float32", "float16", "int32"):
        problems.append(TMEM_TYPE.violation(
            "data_type", data_type.name, "accumulators are float32, float16 or int32", "Use float32.",
        ))  # fmt: skip
    if problems:
        raise RuleError(problems)
    shape, stride = _lanes(row.row_modes)
    if row.n_parts == 1:
        return Modes((shape, n), (stride, CELL_BITS)), data_type.bits, ""
    split = (n // row.n_parts, row.n_parts), (CELL_BITS, row.part_lanes * LANE_BITS)
    return Modes((shape, split[0]), (stride, split[1])), data_type.bits, ""


def _a_operand(row: Datapath, k: int, data_type: DataType, sparse: bool) -> Placed:  # noqa: ARG001  stored elements count
    kind, width = tcgen05_for(data_type), data_type.smem_bits
    per_instruction = 256 // width  # 8 columns
    if k % per_instruction:
        raise TMEM_K.error(
            "shape", f"k = {k} of {data_type.name}", f"one instruction of kind {kind.name} takes {per_instruction}",
            f"Use {-(-k // per_instruction) * per_instruction}.",
        )  # fmt: skip
    if row.a_copies is None:
        raise TMEM_UNKNOWN.error(
            "operand", f"A in tensor memory under layout {row.name}", "no document says in which lanes it lies",
            "Keep A in shared memory, or use M 128.",
        )  # fmt: skip
    shape, stride = _lanes(row.row_modes)
    if row.a_copies == 1:
        return Modes((shape, k), (stride, width)), width, row.a_source
    return Modes((shape, k, row.a_copies), (stride, width, row.part_lanes * LANE_BITS)), width, row.a_source


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
        raise TMEM_UNKNOWN.error("shape", f"metadata of {row.rows} rows a block (layout {row.name})",
            "formulas are known for 128 rows a block; for fewer PTX has a figure alone", "Use M 128, or 256 for a pair.",
        )  # fmt: skip
    if k != wanted:
        raise TMEM_K.error(
            "shape", f"k = {k} of {data_type.name}", f"the metadata of one instruction is of {wanted} elements along k",
            f"Use {wanted}.",
        )  # fmt: skip
    return Modes((rows[0], columns[0]), (rows[1], columns[1])), bits, source


_BUILT: dict[Any, Any] = {"D": _accumulator, "A": _a_operand, "metadata": _metadata}
