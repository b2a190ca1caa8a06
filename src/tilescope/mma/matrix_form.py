"""The forms of ldmatrix and stmatrix: how large a matrix is, how its rows are packed, which lane gets which element.

    form                 stored rows x columns    a row in shared memory (16 bytes)       .trans    needs
    m8n8.b16                 8 x 8   16-bit       8 elements                              either    everywhere
    m8n16.b6x16_p32          8 x 16   8-bit       16 values of 6 bits, 4 bytes unused     never     sm_100a …
    m8n16.b4x16_p64          8 x 16   8-bit       16 values of 4 bits, 8 bytes unused     never
    m16n16.b8               16 x 16   8-bit       16 elements                             always    x1, x2
    m16n16.b6x16_p32, .b4x16_p64                  packed as above                         always    x1, x2
    m16n8.b8 (stmatrix)      8 x 16   8-bit       16 elements                             always

A packed value is stored in the low bits of its byte. In m16n16 a register holds four consecutive rows of one column, as
in PTX; CuTe's copy atoms exchange bytes between their two registers afterwards. None of this was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.arch import WARP_LANES
from tilescope.errors import Violation, raise_all
from tilescope.reading import flag, is_one_of, known_name, plain_int
from tilescope.rule import UNKNOWN_NAME, Basis, rule
from tilescope.sentence import format_value

MATRIX_COUNT = rule(
    "matrix-count",
    "One instruction moves one, two or four matrices; of 16 x 16, one or two.",
    argument="count",
    found="{asked} matrices",
    limit="{direction} moves {counts:or}",
    fix="Use {count:={most}}.",
    source="PTX ISA, ldmatrix and stmatrix: .num",
    passing="ts.ldmatrix(np.zeros(512, np.uint8), np.arange(32) * 16, count=4)",
    failing="ts.ldmatrix(np.zeros(512, np.uint8), np.arange(32) * 16, count=3)",
)
MATRIX_TRANS = rule(
    "matrix-trans",
    "m16n16 and m16n8 are always transposed, m8n16 never, and m8n8 optionally.",
    argument="transpose",
    found="transpose = {transpose}",
    limit="{form} never transposes",
    fix="Use {transpose:=False}.",
    source="PTX ISA, ldmatrix and stmatrix: .trans",
    passing='ts.ldmatrix(np.zeros(512, np.uint8), np.arange(32) * 16, count=1, form="m8n16.b4x16_p64")',
    failing='ts.ldmatrix(np.zeros(512, np.uint8), np.arange(32) * 16, count=1, form="m8n16.b4x16_p64", transpose=True)',
)
ALWAYS_TRANSPOSED = MATRIX_TRANS.worded(limit="{form} always transposes", fix="Use {transpose:=True}.")
ROW_BYTES = 16
MatrixFormName = Literal[
    "m8n8.b16", "m8n16.b6x16_p32", "m8n16.b4x16_p64", "m16n16.b8", "m16n16.b6x16_p32", "m16n16.b4x16_p64", "m16n8.b8"
]
Modes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """One form: a matrix of `rows` addressed rows, `columns` elements each.

    `lanes` and `values` are the modes (extent, stride) of (lane, value) → row + rows * column.

    >>> form = MATRIX_FORMS["m16n16.b8"][0]
    >>> form.rows, form.columns, form.transposed, form.registers
    (16, 16, True, 2)
    """

    name: MatrixFormName
    directions: tuple[str, ...]
    rows: int
    columns: int
    packed_bits: int  # of one element in shared memory
    transposed: bool
    counts: tuple[int, ...]
    lanes: Modes
    values: Modes

    @property
    def element_bits(self) -> int:
        """Of one element in a register."""
        return ROW_BYTES * 8 // self.columns

    @property
    def registers(self) -> int:
        """32-bit registers of one matrix in a lane."""
        return self.rows * self.columns * self.element_bits // WARP_LANES // 32

    @property
    def needs(self) -> str:
        """What an architecture must have, less the direction (see arch.py)."""
        return "" if self.name == "m8n8.b16" else "_b8"

    @property
    def basis(self) -> Basis:
        """Whether a card was seen to do it."""
        return "measured" if self.name == "m8n8.b16" else "documented"

    def opcode(self, direction: str, count: int) -> str:
        """How the instruction is written, in short."""
        shape, kind = self.name.split(".")
        trans = ".trans" if self.transposed else ""
        if self.name == "m8n8.b16":
            return f"{direction}.x{count}{trans}"
        return f"{direction}.{shape}.x{count}{trans}.{kind}"


_BOTH = ("ldmatrix", "stmatrix")
_LOAD = ("ldmatrix",)
_STORE = ("stmatrix",)
_ALL = (1, 2, 4)
_TWO = (1, 2)
# PTX ISA, ldmatrix and stmatrix.
# fmt: off
_FORMS = (
    #          name                directions rows cols bits  trans  counts  lanes                 values
    MatrixForm("m8n8.b16",         _BOTH,   8,  8, 16, False, _ALL, ((4, 16), (8, 1)), ((2, 8),)),
    MatrixForm("m8n8.b16",         _BOTH,   8,  8, 16, True,  _ALL, ((4, 2), (8, 8)),  ((2, 1),)),
    MatrixForm("m8n16.b6x16_p32",  _LOAD,   8, 16,  6, False, _ALL, ((4, 32), (8, 1)), ((4, 8),)),
    MatrixForm("m8n16.b4x16_p64",  _LOAD,   8, 16,  4, False, _ALL, ((4, 32), (8, 1)), ((4, 8),)),
    MatrixForm("m16n16.b8",        _LOAD,  16, 16,  8, True,  _TWO, ((4, 4), (8, 16)), ((4, 1), (2, 128))),
    MatrixForm("m16n16.b6x16_p32", _LOAD,  16, 16,  6, True,  _TWO, ((4, 4), (8, 16)), ((4, 1), (2, 128))),
    MatrixForm("m16n16.b4x16_p64", _LOAD,  16, 16,  4, True,  _TWO, ((4, 4), (8, 16)), ((4, 1), (2, 128))),
    MatrixForm("m16n8.b8",         _STORE,  8, 16,  8, True,  _ALL, ((4, 2), (8, 8)),  ((2, 1), (2, 64))),
)
# fmt: on
_FORM_NAMES = dict.fromkeys(form.name for form in _FORMS)
MATRIX_FORMS: dict[str, tuple[MatrixForm, ...]] = {
    name: tuple(form for form in _FORMS if form.name == name) for name in _FORM_NAMES
}
_QUALIFIERS = {"sync", "aligned", "shared", "cta", "shared::cta", "b8x16", "x1", "x2", "x4", "trans"}


def matrix_form(direction: str, name: str, *, count: int, transpose: bool) -> MatrixForm:
    """The form, refused with the list where the direction, count or .trans does not exist.

    >>> matrix_form("ldmatrix", "m16n16.b8", count=2, transpose=True).registers
    2
    """
    form_names = [form for form, rows in MATRIX_FORMS.items() if direction in rows[0].directions]
    forms = MATRIX_FORMS[known_name("form", name, form_names, f"{direction} form")]
    transpose = flag("transpose", transpose)
    counts = forms[0].counts
    problems: list[Violation] = []
    if not is_one_of(count, counts):
        problem = MATRIX_COUNT.violation(
            asked=format_value(count), count=plain_int(count), direction=direction, counts=counts, most=counts[-1]
        )
        problems.append(problem)
    chosen = [form for form in forms if form.transposed == transpose]
    if not chosen:
        wording = MATRIX_TRANS.wording if transpose else ALWAYS_TRANSPOSED
        problems.append(wording.violation(transpose=transpose, form=name, change={"transpose": not transpose}))
    raise_all(problems)
    return chosen[0]


def named_form(opcode: str) -> tuple[str, MatrixForm, int]:
    """Direction, form and count of an opcode such as "ldmatrix.x4.trans" or "ldmatrix.m16n16.x2.trans.b8".

    >>> named_form("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32")[1].name
    'm8n16.b6x16_p32'
    """
    direction, *qualifiers = opcode.split(".")
    count = next((count for count in _ALL if f"x{count}" in qualifiers), None)
    remaining = [qualifier for qualifier in qualifiers if qualifier not in _QUALIFIERS]
    shape = next((qualifier for qualifier in remaining if qualifier.startswith("m")), "m8n8")
    usual_element = "b16" if shape == "m8n8" else "b8"
    element = next((qualifier for qualifier in remaining if qualifier.startswith("b")), usual_element)
    name = f"{shape}.{element}"
    if count is None or set(remaining) - {shape, element} or name not in MATRIX_FORMS:
        limit = (
            "ldmatrix and stmatrix move 8 x 8 matrices of 16 bits as .x1, .x2 or .x4, with or without .trans; "
            f"and, on sm_100 and later, {', '.join(form for form in MATRIX_FORMS if form != 'm8n8.b16')}"
        )
        fix = "Use ldmatrix.x4, ldmatrix.x2.trans or ldmatrix.m16n16.x2.trans.b8, for example."
        raise UNKNOWN_NAME.error(argument="instruction", found=format_value(opcode), limit=limit, fix=fix)
    return direction, matrix_form(direction, name, count=count, transpose="trans" in qualifiers), count
