"""The forms of tcgen05.ld, st and cp: how registers and rows of shared memory lie on lanes and columns of tensor memory.

    .16x256b.x1     column 0-1   2-3    4-5    6-7        T: thread, r: its register. A warp reaches the 32 lanes of
    lane 0          T0 r0,r1  T1 r0,r1  T2 …   T3 …       its quarter; a form of 16 lanes the upper or lower half of
    lane 1          T4 r0,r1  T5 …                        them.
      …
    lane 8          T0 r2,r3  T1 r2,r3  …                 the same lanes and columns as C of mma.m16n8
      …

    form          registers   columns   largest   lane                      column
    .32x32b       N           N         x128      T                         r
    .16x64b       N           2 N       x128      T/4 + 8 (T mod 2)         (T/2) mod 2 + 2 r
    .16x128b      2 N         4 N       x64       T/4 + 8 (r mod 2)         T mod 4 + 4 (r/2)
    .16x256b      4 N         8 N       x32       T/4 + 8 ((r/2) mod 2)     r mod 2 + 2 (T mod 4) + 8 (r/4)
    .16x32bx2     N           N, twice  x128      T mod 16                  r, threads 16 and up at an immediate further on

With .pack::16b (ld) and .unpack::16b (st) a register holds the low halves of two neighbouring columns, so twice as many
columns are touched. The table follows CuTe's copy traits; Triton and TVM have the same.

tcgen05.cp brings rows of shared memory, 16 or 32 bytes each, to lanes of one, two or four quarters at once (CP_SHAPES). The source
is a K-major operand as the descriptor describes it; byte b of a row goes to byte b mod 4 of column b/4. On the way 16 values of
4 or 6 bits, padded to 16 bytes, may be spread to a byte each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, raise_all, unknown_name
from tilescope.layout import Modes
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.tcgen05_kind import blackwell_rule, failed
from tilescope.mma.tmem_address import QUARTER_LANES
from tilescope.reading import integer, known_name, readable
from tilescope.rule import ARGUMENT_TYPE, UNKNOWN_NAME
from tilescope.sentence import printed
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.elements import unpacked
from tilescope.tma.transfer import SMEM_EXTENT

_COPY = (
    "ts.TensorMemory().alloc(32).copy({shape!r}, np.zeros(4096, np.uint8), "
    "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), {column}{more}).findings"
)
# fmt: off
TMEM_COUNT, TMEM_PACK, TMEM_REDUCTION = (
    blackwell_rule(f"tmem-{name}", demand, source, f'ts.fragment("tcgen05.{passing}")', f'ts.fragment("tcgen05.{failing}")')
    for name, demand, source, passing, failing in (
        ("count", "A shape of tcgen05.ld and st has counts from .x1 to its largest, powers of two.", "tcgen05.ld: .num",
         "ld.16x256b.x32", "ld.16x256b.x64"),
        ("pack", "tcgen05.ld packs two columns into a register, tcgen05.st unpacks them.", "tcgen05.st: .unpack::16b",
         "st.32x32b.x8.unpack::16b", "st.32x32b.x8.pack::16b"),
        ("reduction", "tcgen05.ld.red exists for .32x32b and .16x32bx2 with counts from .x2 on, and one of .min, .max.",
         "tcgen05.ld.red", "ld.red.32x32b.x8.max.f32", "ld.red.16x64b.x8.max.f32"),
    )
)
TMEM_CP_SHAPE = blackwell_rule(
    "tmem-cp-shape", "tcgen05.cp has six shapes; those of 64 and 32 rows are multicast to two or four quarters.",
    "tcgen05.cp; the lanes as CuTe and TVM have them, JAX those of 128x128b, 64x128b.warpx2::01_23 and 32x128b.warpx4",
    _COPY.format(shape="32x128b.warpx4", column=0, more=""), _COPY.format(shape="32x128b", column=0, more=""),
)
TMEM_CP_COLUMN = blackwell_rule(
    "tmem-cp-column", "tcgen05.cp writes from a multiple of 4 columns on, as in every kernel seen.", "TVM and every kernel seen",
    _COPY.format(shape="32x128b.warpx4", column=4, more=""), _COPY.format(shape="32x128b.warpx4", column=2, more=""), severity="warning",
)
TMEM_DECOMPRESSION = blackwell_rule(
    "tmem-decompression", "Where 4- and 6-bit values land in their bytes rests on one source, or is unconfirmed.",
    "CuTe DSL, the example of a decompressing copy", _COPY.format(shape="32x128b.warpx4", column=0, more=""),
    _COPY.format(shape="32x128b.warpx4", column=0, more=", decompress='b8x16.b6x16_p32'"), severity="note",
)
# fmt: on
TmemFormName = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
LaneColumnModes = tuple[tuple[int, int, int], ...]  # extent, step in lanes, step in columns


@dataclass(frozen=True, slots=True)
class TmemForm:
    """One form: modes of (thread, register) → (lane, column), without the count.

    >>> form = TMEM_FORMS["16x256b"]
    >>> form.lanes, form.registers, form.columns, form.max_count
    (16, 4, 8, 32)
    """

    name: TmemFormName
    lanes: int
    columns: int  # of .x1; of .16x32bx2 at one of its two places
    max_count: int
    thread_modes: LaneColumnModes
    register_modes: LaneColumnModes  # of .x1
    places: int = 1  # matrices that one instruction moves

    @property
    def registers(self) -> int:
        """32-bit registers of a thread for .x1."""
        return self.lanes * self.columns * self.places // QUARTER_LANES

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts that exist: powers of two."""
        return tuple(1 << bit for bit in range(self.max_count.bit_length()))


# PTX ISA, "Data Movement Shape" of tcgen05.ld and tcgen05.st; formulas as CuTe's copy_traits_sm100 has them.
# fmt: off
TMEM_FORMS: dict[str, TmemForm] = {row.name: row for row in (
    #        name     lanes cols  max  threads (extent, lanes, columns)        registers                 places
    TmemForm("32x32b",   32, 1, 128, ((32, 1, 0),),                      ()),
    TmemForm("16x64b",   16, 2, 128, ((2, 8, 0), (2, 0, 1), (8, 1, 0)),  ()),
    TmemForm("16x128b",  16, 4,  64, ((4, 0, 1), (8, 1, 0)),             ((2, 8, 0),)),
    TmemForm("16x256b",  16, 8,  32, ((4, 0, 2), (8, 1, 0)),             ((2, 0, 1), (2, 8, 0))),
    TmemForm("16x32bx2", 16, 1, 128, ((16, 1, 0),),                      (),                      2),
)}
# fmt: on
_QUALIFIERS = {"sync", "aligned", "b32"}
_PACKING = {"ld": "pack::16b", "st": "unpack::16b"}
_REDUCTION_WORDS = ("min", "max", "abs", "nan", "f32", "u32", "s32")  # in the order in which they are written


class TmemMove(NamedTuple):
    """An opcode taken apart.

    >>> move = named_move("tcgen05.ld.sync.aligned.16x256b.x2.b32")
    >>> move.opcode, move.registers, move.columns
    ('tcgen05.ld.16x256b.x2', 8, 16)
    """

    direction: Literal["ld", "st"]
    form: TmemForm
    repeats: int  # the count
    packed: bool  # .pack::16b or .unpack::16b
    reduction: str | None = None  # of ld.red: "max.f32", "min.abs.nan.f32"

    @property
    def opcode(self) -> str:
        """How the instruction is written, in short."""
        pack = f".{_PACKING[self.direction]}" * self.packed
        red, kind = (".red", f".{self.reduction}") if self.reduction else ("", "")
        return f"tcgen05.{self.direction}{red}.{self.form.name}.x{self.repeats}{pack}{kind}"

    @property
    def registers(self) -> int:
        """Registers of a thread; ld.red has one more, which holds the reduction."""
        return self.form.registers * self.repeats

    @property
    def columns(self) -> int:
        """Columns touched (at one of two places for .16x32bx2)."""
        return self.form.columns * self.repeats * (1 + self.packed)

    @property
    def modes(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Threads and values as (extent, step) in lane + lanes * column; the second place of .16x32bx2 lies behind the first."""
        form, column = self.form, self.form.lanes * (1 + self.packed)  # with packing a register holds two values
        threads, registers = (
            [(extent, lanes + columns * column) for extent, lanes, columns in modes]
            for modes in (form.thread_modes, form.register_modes)
        )
        halves, further = (1 + self.packed, form.lanes), (self.repeats, form.columns * column)
        return [*threads, (form.places, form.lanes * self.columns)], [halves, *registers, further]


@lru_cache(maxsize=64)
def named_move(opcode: str) -> TmemMove:
    """The form, count and packing of an opcode such as "tcgen05.ld.16x256b.x2.pack::16b"; all mistakes at once.

    >>> named_move("tcgen05.st.32x32b.x8.unpack::16b").columns
    16
    """
    asked, head = "instruction", re.fullmatch(r"tcgen05\.(ld|st)(\.red)?((?:\.[\w:]+)*)", opcode)
    words = [] if head is None else [word for word in head[3].split(".") if word and word not in _QUALIFIERS]
    form = next((TMEM_FORMS[word] for word in words if word in TMEM_FORMS), None)
    counts = [int(word[1:]) for word in words if re.fullmatch(r"x\d{1,4}", word)]
    if head is None or form is None or len(counts) != 1:
        shapes = ", ".join(f".{name}" for name in TMEM_FORMS)
        limit = f"tcgen05.ld and tcgen05.st have the shapes {shapes} with a count .x1, .x2, .x4 …"
        fix = "Use tcgen05.ld.32x32b.x8 or tcgen05.st.16x256b.x2.unpack::16b, for example."
        raise UNKNOWN_NAME.error(asked, printed(opcode), limit, fix)
    direction: Literal["ld", "st"] = "ld" if head[1] == "ld" else "st"
    red, (count,), pack, wrong = head[2], counts, _PACKING[direction], _PACKING["st" if direction == "ld" else "ld"]
    reduction = [word for word in _REDUCTION_WORDS if red and word in words]
    operations, types = ([word for word in reduction if word in known] for known in ("min max", "f32 u32 s32"))
    one_of_both = len(operations) == len(types) == 1
    nearest = min(form.counts, key=lambda known: abs(known - count))
    strange = [word for word in words if word not in (form.name, f"x{count}", pack, wrong, *reduction)]
    # fmt: off
    raise_all(failed(
        (count not in form.counts, TMEM_COUNT, asked, f".{form.name}.x{count}",
         f".{form.name} has counts .x1 to .x{form.max_count}, powers of two", f"Use .x{nearest}."),
        (wrong in words, TMEM_PACK, asked, f"tcgen05.{direction} with .{wrong}", "ld packs, st unpacks", f"Use .{pack}."),
        (red and direction == "st", TMEM_REDUCTION, asked, "tcgen05.st.red", "only ld reduces", "Use tcgen05.ld.red."),
        (red and form.name not in ("32x32b", "16x32bx2"), TMEM_REDUCTION, asked, f".{form.name} with .red",
         "ld.red has the shapes .32x32b and .16x32bx2", "Use .32x32b."),
        (red and count < 2, TMEM_REDUCTION, asked, f".x{count} with .red", "ld.red has counts from .x2 on", "Use .x2."),
        (red and not one_of_both, TMEM_REDUCTION, asked, " ".join(f".{word}" for word in reduction) or "no operation",
         "ld.red has one of .min, .max and one of .f32, .u32, .s32", "Use tcgen05.ld.red.32x32b.x8.max.f32, for example."),
        (one_of_both and types != ["f32"] and {"abs", "nan"} & {*reduction}, TMEM_REDUCTION, asked,
         f".abs or .NaN with .{''.join(types)}", "these belong to .f32", "Leave .abs and .NaN out, or use .f32."),
        (strange, UNKNOWN_NAME, asked, f"qualifier .{''.join(strange[:1])}", f"tcgen05.{direction} has no such qualifier",
         f"Leave .{''.join(strange[:1])} out."),
        count=count,
    ))
    # fmt: on
    return TmemMove(direction, form, count, pack in words, ".".join(reduction) or None)


@dataclass(frozen=True)
class CpShape:
    """A row of the table: the bytes of a row of shared memory, and the lanes that its copies go to.

    >>> CP_SHAPES["64x128b.warpx2::01_23"].lanes[40].tolist()
    [72, 104]
    """

    name: str
    row_bytes: int
    modes: Modes  # (row, copy) → lane
    source: str  # what says where the rows go

    @property
    def rows(self) -> int:
        """Rows of shared memory."""
        return len(self.lanes)

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.row_bytes // 4

    @cached_property
    def lanes(self) -> npt.NDArray[np.int64]:
        """The lanes that the rows go to, (rows, copies)."""
        return self.modes.offsets()


_BOTH, _ALL = "CuTe and TVM", "CuTe, TVM and JAX"
# PTX ISA, "tcgen05.cp"; the lanes as CuTe's copy_traits_sm100 and TVM have them, and as JAX uses the shapes that it issues.
# fmt: off
CP_SHAPES: dict[str, CpShape] = {row.name: row for row in (
    #       name                     bytes  (row, copy) → lane                    source
    CpShape("128x256b",               32, Modes((128, 1), (1, 0)),               _BOTH),
    CpShape("128x128b",               16, Modes((128, 1), (1, 0)),               _ALL),
    CpShape("64x128b.warpx2::02_13",  16, Modes((64, 2), (1, 64)),               _BOTH),
    CpShape("64x128b.warpx2::01_23",  16, Modes(((32, 2), 2), ((1, 64), 32)),    _ALL),
    CpShape("32x128b.warpx4",         16, Modes((32, 4), (1, 32)),               _ALL),
    CpShape("4x256b",                 32, Modes((4, 1), (32, 0)),                _BOTH),
)}
# fmt: on


class Decompression(NamedTuple):
    """Values of fewer than 8 bits, and where in a byte they land."""

    bits: int
    lowest_bit: int
    note: str


_FOUR = "one source: the CuTe DSL's example, and the same place in mma.sync"
_SIX = "unconfirmed: the CuTe DSL's example puts 6-bit values at bits 6-1, mma.sync takes them from bits 5-0"
DECOMPRESSIONS = {"b8x16.b4x16_p64": Decompression(4, 2, _FOUR), "b8x16.b6x16_p32": Decompression(6, 1, _SIX)}


def cp_shape(name: Any) -> CpShape:
    """The shape called `name`; refused if its multicast is missing or does not exist.

    >>> cp_shape("tcgen05.cp.cta_group::1.32x128b.warpx4").rows
    32
    """
    written = name.strip().casefold() if isinstance(name, str) else ""
    plain = re.sub(r"^(tcgen05\.)?(cp\.)?(cta_group::\d\.)?\.?", "", written)
    if plain in CP_SHAPES:
        return CP_SHAPES[plain]
    shape, _, cast = plain.partition(".")
    if fitting := [known for known in CP_SHAPES if known.split(".")[0] == shape]:
        found = f".{shape} with .{cast}" if cast else f".{shape} alone"
        limit = "64 rows are multicast to two quarters (.warpx2::02_13, .warpx2::01_23), 32 rows to four (.warpx4), others not"
        raise TMEM_CP_SHAPE.error("shape", found, limit, f"Use .{' or .'.join(fitting)}.")
    raise RuleError([unknown_name("shape of tcgen05.cp", "shape", name, CP_SHAPES)])


def copied_words(
    shape: CpShape, smem: Any, descriptor: Any, smem_address: int, decompress: str | None
) -> npt.NDArray[np.uint32]:
    """The 32-bit words that a copy writes, (rows, columns), read from shared memory by its descriptor."""
    memory, base = readable("smem", smem), integer("smem_address", smem_address, 0, (1 << 32) - 1)
    if not isinstance(descriptor, Tcgen05Descriptor):
        found, fix = f"a {type(descriptor).__name__}", "Use Tcgen05Descriptor(…), or Tcgen05Descriptor.decode(word)."
        raise ARGUMENT_TYPE.error("descriptor", found, "a Tcgen05Descriptor", fix)
    addresses = descriptor.addresses("K", rows=shape.rows, k=shape.row_bytes, element_bits=8)
    first, last = int(addresses.min()), int(addresses.max())
    if first < base or last >= base + len(memory):
        found, limit = f"{len(memory)} bytes from {base:#x}", f"the descriptor reads bytes {first:#x} to {last:#x}"
        fix = f"Pass shared memory up to byte {last:#x}, or a descriptor that starts lower."
        values = {"size_bytes": len(memory), "smem_address": base, "first": first, "last": last}
        raise SMEM_EXTENT.error("smem", found, limit, fix, **values)
    rows = memory[addresses - base]
    if decompress is not None:
        spread = DECOMPRESSIONS[known_name("decompress", decompress, DECOMPRESSIONS, "decompression of tcgen05.cp")]
        chunks = rows.reshape(shape.rows, -1, CHUNK_BYTES)[..., : CHUNK_BYTES * spread.bits // 8]
        rows = (unpacked(chunks, spread.bits) << spread.lowest_bit).reshape(shape.rows, -1).astype(np.uint8)
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(rows).view(np.uint32)
    return words


def copy_notes(column: int, decompress: str | None) -> list[Violation]:
    """What a copy to this column rests on, and what is advised against."""
    spread, fix = DECOMPRESSIONS.get(decompress or ""), "Try it on a card before you rely on the bit positions."
    advice = "every kernel seen copies to a multiple of 4 columns", f"Use column {column // 4 * 4}."
    return failed(
        (spread, TMEM_DECOMPRESSION, "decompress", f".{decompress}", spread.note if spread else "", fix),
        (column % 4, TMEM_CP_COLUMN, "address", f"column {column}", *advice),
        column=column,
    )


def epilogue_loads(columns: int, element_bits: int) -> tuple[str, ...]:
    """The loads with which a tile of results leaves tensor memory, in the order in which equals are preferred.

    load        a thread then holds                    and writes, in a row-major tile
    .32x32b     its lane's row, neighbouring columns   16 bytes (st.b128), lanes below each other
    .16x256b    two neighbours of rows g and g + 8     8 bytes of 32-bit results; of 16-bit ones stmatrix, 8 rows of 16 bytes
    .16x128b    single columns of rows g and g + 8     single elements
    .16x64b     single columns of one row              single elements

    Lanes below each other meet in one bank unless the tile is swizzled: the 128B mode spreads the eight rows that st.b128 or
    stmatrix write at once over all chunks of a line. Which load is cheapest therefore depends on the tile's layout.

    >>> epilogue_loads(64, 16)[:2]
    ('tcgen05.ld.32x32b.x8', 'tcgen05.ld.16x256b.x1')
    """
    widest = max(count for count in (1, 2, 4, 8, 16, 32) if count * element_bits <= 128 and columns % count == 0)
    return f"tcgen05.ld.32x32b.x{widest}", *(f"tcgen05.ld.{form}.x1" for form in ("16x256b", "16x128b", "16x64b"))
