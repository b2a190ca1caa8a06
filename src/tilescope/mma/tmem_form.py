"""The forms of tcgen05.ld and st: registers, and their lanes and columns in tensor memory.

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
    .16x32bx2     N           N, twice  x128      T mod 16                  r, threads 16 … an immediate further on

With .pack::16b (ld) and .unpack::16b (st) a register holds the low halves of two neighbouring columns, so twice as many
columns are touched. The table follows CuTe's copy traits; Triton and TVM have the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from tilescope.errors import Violation, raise_all
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.mma.tmem_address import QUARTER_LANES
from tilescope.rule import UNKNOWN_NAME, rule
from tilescope.sentence import format_value

TMEM_COUNT = rule(
    "tmem-count",
    "A shape of tcgen05.ld and st has counts from .x1 to its largest, powers of two.",
    argument="instruction",
    found=".{form}.x{count}",
    limit=".{form} has counts .x1 to .x{largest}, powers of two",
    fix="Use .x{nearest}.",
    source="PTX ISA, tcgen05.ld: .num",
    architectures=BLACKWELL,
    passing='ts.fragment("tcgen05.ld.16x256b.x32")',
    failing='ts.fragment("tcgen05.ld.16x256b.x64")',
)
TMEM_PACK = rule(
    "tmem-pack",
    "tcgen05.ld packs two columns into a register, tcgen05.st unpacks them.",
    argument="instruction",
    found="tcgen05.{direction} with .{packing}",
    limit="ld packs, st unpacks",
    fix="Use .{own_packing}.",
    source="PTX ISA, tcgen05.st: .unpack::16b",
    architectures=BLACKWELL,
    passing='ts.fragment("tcgen05.st.32x32b.x8.unpack::16b")',
    failing='ts.fragment("tcgen05.st.32x32b.x8.pack::16b")',
)
TMEM_REDUCTION = rule(
    "tmem-reduction",
    "tcgen05.ld.red exists for .32x32b and .16x32bx2 with counts from .x2 on, and one of .min, .max.",
    argument="instruction",
    found="{words: }",
    limit="ld.red has one of .min, .max and one of .f32, .u32, .s32",
    fix="Use tcgen05.ld.red.32x32b.x8.max.f32, for example.",
    source="PTX ISA, tcgen05.ld.red",
    architectures=BLACKWELL,
    passing='ts.fragment("tcgen05.ld.red.32x32b.x8.max.f32")',
    failing='ts.fragment("tcgen05.ld.red.16x64b.x8.max.f32")',
)
NO_REDUCTION = TMEM_REDUCTION.worded(found="no operation")
STORE_REDUCTION = TMEM_REDUCTION.worded(found="tcgen05.st.red", limit="only ld reduces", fix="Use tcgen05.ld.red.")
REDUCED_FORM = TMEM_REDUCTION.worded(
    found=".{form} with .red", limit="ld.red has the shapes .32x32b and .16x32bx2", fix="Use .32x32b."
)
REDUCED_COUNT = TMEM_REDUCTION.worded(
    found=".x{count} with .red", limit="ld.red has counts from .x2 on", fix="Use .x2."
)
REDUCED_INTEGERS = TMEM_REDUCTION.worded(
    found=".abs or .NaN with .{type}",
    limit="these belong to .f32",
    fix="Leave .abs and .NaN out, or use .f32.",
)
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
_ROWS = (
    TmemForm("32x32b", lanes=32, columns=1, max_count=128, thread_modes=((32, 1, 0),), register_modes=()),
    TmemForm(
        "16x64b", lanes=16, columns=2, max_count=128, thread_modes=((2, 8, 0), (2, 0, 1), (8, 1, 0)), register_modes=()
    ),
    TmemForm(
        "16x128b", lanes=16, columns=4, max_count=64, thread_modes=((4, 0, 1), (8, 1, 0)), register_modes=((2, 8, 0),)
    ),
    TmemForm(
        "16x256b",
        lanes=16,
        columns=8,
        max_count=32,
        thread_modes=((4, 0, 2), (8, 1, 0)),
        register_modes=((2, 0, 1), (2, 8, 0)),
    ),
    TmemForm("16x32bx2", lanes=16, columns=1, max_count=128, thread_modes=((16, 1, 0),), register_modes=(), places=2),
)
TMEM_FORMS: dict[str, TmemForm] = {row.name: row for row in _ROWS}
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
        parts = [f"tcgen05.{self.direction}"]
        if self.reduction:
            parts.append("red")
        parts += [self.form.name, f"x{self.repeats}"]
        if self.packed:
            parts.append(_PACKING[self.direction])
        if self.reduction:
            parts.append(self.reduction)
        return ".".join(parts)

    @property
    def registers(self) -> int:
        """Registers of a thread; ld.red has one more, which holds the reduction."""
        return self.form.registers * self.repeats

    @property
    def columns(self) -> int:
        """Columns touched (at one of two places for .16x32bx2)."""
        return self.form.columns * self.repeats * self.values_per_register

    @property
    def values_per_register(self) -> int:
        """With packing a register holds two values."""
        return 2 if self.packed else 1

    @property
    def modes(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Threads and values as (extent, step) in lane + lanes * column.

        The second part of .16x32bx2 follows the first.
        """
        form = self.form
        column_step = form.lanes * self.values_per_register
        threads = _flat(form.thread_modes, column_step)
        second_place = (form.places, form.lanes * self.columns)
        halves = (self.values_per_register, form.lanes)
        repeats = (self.repeats, form.columns * column_step)
        return [*threads, second_place], [halves, *_flat(form.register_modes, column_step), repeats]


def _flat(modes: LaneColumnModes, column_step: int) -> list[tuple[int, int]]:
    """Steps in lanes and columns as steps in one number."""
    return [(extent, lanes + columns * column_step) for extent, lanes, columns in modes]


@lru_cache(maxsize=64)
def named_move(opcode: str) -> TmemMove:
    """The form, count and packing of an opcode such as "tcgen05.ld.16x256b.x2.pack::16b"; all mistakes at once.

    >>> named_move("tcgen05.st.32x32b.x8.unpack::16b").columns
    16
    """
    head = re.fullmatch(r"tcgen05\.(?P<direction>ld|st)(?P<red>\.red)?(?P<words>(?:\.[\w:]+)*)", opcode)
    qualifiers = [] if head is None else head["words"].split(".")
    words = [word for word in qualifiers if word and word not in _QUALIFIERS]
    form = next((TMEM_FORMS[word] for word in words if word in TMEM_FORMS), None)
    counts = [int(word[1:]) for word in words if re.fullmatch(r"x\d{1,4}", word)]
    if head is None or form is None or len(counts) != 1:
        shapes = ", ".join(f".{name}" for name in TMEM_FORMS)
        raise UNKNOWN_NAME.error(
            argument="instruction",
            found=format_value(opcode),
            limit=f"tcgen05.ld and tcgen05.st have the shapes {shapes} with a count .x1, .x2, .x4 …",
            fix="Use tcgen05.ld.32x32b.x8 or tcgen05.st.16x256b.x2.unpack::16b, for example.",
        )
    direction: Literal["ld", "st"] = "ld" if head["direction"] == "ld" else "st"
    reduction = [word for word in _REDUCTION_WORDS if head["red"] and word in words]
    move = TmemMove(direction, form, counts[0], _PACKING[direction] in words, ".".join(reduction) or None)
    problems = _form_problems(move, words)
    if head["red"]:
        problems += _reduction_problems(move, reduction)
    recognized = (form.name, f"x{move.repeats}", *_PACKING.values(), *reduction)
    strange = [word for word in words if word not in recognized]
    if strange:
        unknown = UNKNOWN_NAME.violation(
            argument="instruction",
            found=f"qualifier .{strange[0]}",
            limit=f"tcgen05.{direction} has no such qualifier",
            fix=f"Leave .{strange[0]} out.",
            count=move.repeats,
        )
        problems.append(unknown)
    raise_all(problems)
    return move


def directed_move(direction: Literal["ld", "st"], instruction: object) -> TmemMove:
    """The load or store of an instruction such as "32x32b.x8" or a whole opcode; the other direction is refused.

    >>> directed_move("ld", "32x32b.x8").opcode
    'tcgen05.ld.32x32b.x8'
    """
    name = instruction.strip().casefold() if isinstance(instruction, str) else format_value(instruction)
    if not name.startswith("tcgen05"):
        name = f"tcgen05.{direction}.{name.removeprefix('.')}"
    move = named_move(name)
    if move.direction != direction:
        right_move = move._replace(direction=direction, reduction=None)
        raise UNKNOWN_NAME.error(
            argument="instruction",
            found=move.opcode,
            limit=f"this is tcgen05.{direction}",
            fix=f"Use {right_move.opcode}.",
        )
    return move


def _form_problems(move: TmemMove, words: list[str]) -> list[Violation]:
    """A count that the form does not have, and the packing of the other direction."""
    problems = []
    form, count = move.form, move.repeats
    if count not in form.counts:
        nearest = min(form.counts, key=lambda allowed: abs(allowed - count))
        problems.append(TMEM_COUNT.violation(count=count, form=form.name, largest=form.max_count, nearest=nearest))
    other_packing = _PACKING["st" if move.direction == "ld" else "ld"]
    if other_packing in words:
        problems.append(
            TMEM_PACK.violation(
                count=count,
                direction=move.direction,
                packing=other_packing,
                own_packing=_PACKING[move.direction],
            )
        )
    return problems


def _reduction_problems(move: TmemMove, reduction: list[str]) -> list[Violation]:
    """What ld.red does not have."""
    problems = []
    count = move.repeats
    if move.direction == "st":
        problems.append(STORE_REDUCTION.violation(count=count))
    if move.form.name not in ("32x32b", "16x32bx2"):
        problems.append(REDUCED_FORM.violation(count=count, form=move.form.name))
    if count < 2:
        problems.append(REDUCED_COUNT.violation(count=count))
    operations = [word for word in reduction if word in ("min", "max")]
    types = [word for word in reduction if word in ("f32", "u32", "s32")]
    if len(operations) != 1 or len(types) != 1:
        wording = TMEM_REDUCTION if reduction else NO_REDUCTION
        problems.append(wording.violation(count=count, words=tuple(f".{word}" for word in reduction)))
    elif types != ["f32"] and ("abs" in reduction or "nan" in reduction):
        problems.append(REDUCED_INTEGERS.violation(count=count, type=types[0]))
    return problems


def epilogue_loads(columns: int, element_bits: int) -> tuple[str, ...]:
    """The loads with which a tile of results leaves tensor memory, in the order in which equals are preferred.

    load        a thread then holds                    and writes, in a row-major tile
    .32x32b     its lane's row, neighbouring columns   16 bytes (st.b128), lanes below each other
    .16x256b    two neighbours of rows g and g + 8     8 bytes of 32-bit results; of 16-bit ones by stmatrix
    .16x128b    single columns of rows g and g + 8     single elements
    .16x64b     single columns of one row              single elements

    Lanes below each other access the same bank unless the tile is swizzled: the 128B mode spreads the eight rows that
    st.b128 or stmatrix write at once over all chunks of a line. The cheapest load therefore depends on the tile's
    layout.

    >>> epilogue_loads(64, 16)[:2]
    ('tcgen05.ld.32x32b.x8', 'tcgen05.ld.16x256b.x1')
    """
    widest = max(count for count in (1, 2, 4, 8, 16, 32) if count * element_bits <= 128 and columns % count == 0)
    return (
        f"tcgen05.ld.32x32b.x{widest}",
        "tcgen05.ld.16x256b.x1",
        "tcgen05.ld.16x128b.x1",
        "tcgen05.ld.16x64b.x1",
    )
