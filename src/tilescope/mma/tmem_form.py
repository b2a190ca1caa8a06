"""The forms of tcgen05.ld and tcgen05.st: how one warp's registers lie on lanes and columns of tensor memory.

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
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tilescope.errors import RuleError, Violation, printed
from tilescope.mma.tcgen05_kind import blackwell_rule
from tilescope.mma.tmem_address import QUARTER_LANES
from tilescope.rule import UNKNOWN_NAME

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
    columns: int  # of .x1; of .16x32bx2 at each of its two places
    max_count: int
    thread_modes: LaneColumnModes
    register_modes: LaneColumnModes  # of .x1
    places: int = 1  # matrices that one instruction moves

    @property
    def registers(self) -> int:
        """32-bit registers of a thread for .x1."""
        return self.lanes * self.columns * self.places // QUARTER_LANES

    @property
    def starts(self) -> tuple[int, ...]:
        """The lanes of a quarter at which it starts."""
        return (0, 16) if self.lanes == 16 else (0,)

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
        red = ".red" if self.reduction else ""
        pack = {"ld": ".pack::16b", "st": ".unpack::16b"}[self.direction] if self.packed else ""
        kind = f".{self.reduction}" if self.reduction else ""
        return f"tcgen05.{self.direction}{red}.{self.form.name}.x{self.repeats}{pack}{kind}"

    @property
    def registers(self) -> int:
        """Registers of a thread; ld.red has one more, which holds the reduction."""
        return self.form.registers * self.repeats

    @property
    def element_bits(self) -> int:
        """Bits of a register that come from one cell."""
        return 16 if self.packed else 32

    @property
    def columns(self) -> int:
        """Columns touched (at each of two places for .16x32bx2)."""
        return self.form.columns * self.repeats * (2 if self.packed else 1)

    @property
    def feature(self) -> str:
        """What an architecture must have (see arch.py)."""
        return "tcgen05_ld_red" if self.reduction else "tcgen05"

    @property
    def thread_modes(self) -> LaneColumnModes:
        """Thread → (place, lane, column) as modes: the half-warp of .16x32bx2 is a place of its own."""
        return self._wide(self.form.thread_modes)

    @property
    def value_modes(self) -> LaneColumnModes:
        """Value → (lane, column) as modes; with packing a register holds two values."""
        halves: LaneColumnModes = ((2, 0, 1),) if self.packed else ()
        return *halves, *self._wide((*self.form.register_modes, (self.repeats, 0, self.form.columns)))

    def _wide(self, modes: LaneColumnModes) -> LaneColumnModes:
        step = 2 if self.packed else 1
        return tuple((extent, lanes, columns * step) for extent, lanes, columns in modes)


def named_move(opcode: str) -> TmemMove:
    """The form, count and packing of an opcode such as "tcgen05.ld.16x256b.x2.pack::16b"; all mistakes at once.

    >>> named_move("tcgen05.st.32x32b.x8.unpack::16b").columns
    16
    """
    head = re.fullmatch(r"tcgen05\.(ld|st)(\.red)?((?:\.[\w:]+)*)", opcode)
    words = [] if head is None else [word for word in head[3].split(".") if word and word not in _QUALIFIERS]
    form = next((TMEM_FORMS[word] for word in words if word in TMEM_FORMS), None)
    counts = [int(word[1:]) for word in words if re.fullmatch(r"x\d{1,4}", word)]
    if head is None or form is None or len(counts) != 1:
        raise UNKNOWN_NAME.error("instruction", printed(opcode),
            f"tcgen05.ld and tcgen05.st have the shapes {', '.join(f'.{name}' for name in TMEM_FORMS)} with a count .x1, .x2, .x4 …",
            "Use tcgen05.ld.32x32b.x8 or tcgen05.st.16x256b.x2.unpack::16b, for example.",
        )  # fmt: skip
    direction: Literal["ld", "st"] = "ld" if head[1] == "ld" else "st"
    problems = []
    if counts[0] not in form.counts:
        limit = f".{form.name} has counts .x1 to .x{form.max_count}, powers of two"
        nearest = min(form.counts, key=lambda each: abs(each - counts[0]))
        problems.append(TMEM_COUNT.violation("instruction", f".{form.name}.x{counts[0]}", limit, f"Use .x{nearest}."))
    pack = {"ld": "pack::16b", "st": "unpack::16b"}
    wrong = pack["st" if direction == "ld" else "ld"]
    if wrong in words:
        problems.append(TMEM_PACK.violation(
            "instruction", f"tcgen05.{direction} with .{wrong}", "ld packs, st unpacks", f"Use .{pack[direction]}.",
        ))  # fmt: skip
    reductions = [word for word in _REDUCTION_WORDS if word in words] if head[2] else []
    if head[2]:
        problems += _reduction_problems(direction, form, counts[0], reductions)
    known = {form.name, f"x{counts[0]}", pack[direction], wrong, *reductions}
    if strange := [word for word in words if word not in known]:
        problems.append(UNKNOWN_NAME.violation(
            "instruction", f"qualifier .{strange[0]}", f"tcgen05.{direction} has no such qualifier",
            f"Leave .{strange[0]} out.",
        ))  # fmt: skip
    if problems:
        raise RuleError(problems)
    return TmemMove(direction, form, counts[0], pack[direction] in words, ".".join(reductions) or None)


def _reduction_problems(direction: str, form: TmemForm, count: int, reductions: list[str]) -> list[Violation]:
    problems = []

    def refuse(found: str, limit: str, fix: str) -> None:
        problems.append(TMEM_REDUCTION.violation("instruction", found, limit, fix))

    if direction == "st":
        refuse("tcgen05.st.red", "only ld reduces", "Use tcgen05.ld.red.")
    if form.name not in ("32x32b", "16x32bx2"):
        refuse(f".{form.name} with .red", "ld.red has the shapes .32x32b and .16x32bx2", "Use .32x32b.")
    if count < 2:
        refuse(f".x{count} with .red", "ld.red has counts from .x2 on", "Use .x2.")
    operations, types = ([word for word in reductions if word in known] for known in ("min max", "f32 u32 s32"))
    if len(operations) != 1 or len(types) != 1:
        found = " ".join(f".{word}" for word in reductions) or "no operation"
        limit = "ld.red has one of .min, .max and one of .f32, .u32, .s32"
        refuse(found, limit, "Use tcgen05.ld.red.32x32b.x8.max.f32, for example.")
    elif {"abs", "nan"} & set(reductions) and types != ["f32"]:
        refuse(f".abs or .NaN with .{types[0]}", "these belong to .f32", "Leave .abs and .NaN out, or use .f32.")
    return problems
