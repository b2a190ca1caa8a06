"""The 32-bit descriptor that tells tcgen05.mma its types, shape and majorness: known from documentation.

    kind f16, tf32, f8f6f4, i8
    31 30   28 … 24   22 … 17   16   15   14    13    12 … 10   9 … 7   5 4   3          2        1 0
    shift   m / 16    n / 8     Bᵗ   Aᵗ   - B   - A   B type    A type  D     saturate   sparse   selector

    kind mxf8f6f4, mxf4, mxf4nvf4 (block-scaled)
    31       30 29     28 27     23           22 … 17   16   15   14 13   12 … 10   9 … 7    5 4       2
    k = 96   A scale   m / 128   scale type   n / 8     Bᵗ   Aᵗ   - B,A   B type    A type   B scale   sparse

The kind itself is not in the word: it is part of the instruction, and one word may be sound under several kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilescope.bits import Inspection, WordField, WordFormat
from tilescope.data_type import DataType
from tilescope.errors import Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.instruction_fields import MAX_SHIFTS, field_problems, shapes_of
from tilescope.mma.tcgen05_kind import BLACKWELL, KINDS, TCGEN05_TYPE, WIDE_K, Documented, Tcgen05Kind
from tilescope.reading import flag, integer, known_name, try_read
from tilescope.rule import rule
from tilescope.value import Value, row_field

ACCUMULATOR_CODES = {"float16": 0, "float32": 1, "int32": 2}
_SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}
NO_A_TYPE = TCGEN05_TYPE.worded(
    argument="a_type", found="no a_type", limit="kind {kind} takes {types:, }", fix="Use {first}."
)
TYPE_CODE = TCGEN05_TYPE.worded(
    found="{matrix} type code {code}", limit="kind {kind} has {codes:, }", fix="Use code {other_code}."
)
TCGEN05_RESERVED = rule(
    "tcgen05-reserved",
    "Bits of an instruction descriptor that its kind does not use are zero.",
    argument="word",
    found="{word:#x} has bits {bits:, } set",
    limit="an instruction descriptor of kind {kind} keeps them zero",
    fix="Use {without:#x}, or decode the word as another kind.",
    source='PTX ISA, tcgen05.mma: "Instruction descriptor"',
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor.decode(0x08400010, "f16")',
    failing='ts.InstructionDescriptor.decode(0x08400050, "f16")',
)
ONE_RESERVED_BIT = TCGEN05_RESERVED.worded(
    found="{word:#x} has bit {bits:, } set", limit="an instruction descriptor of kind {kind} keeps it zero"
)
_COMMON = (
    # name, first bit, last bit
    WordField("sparse", 2, 2),
    WordField("negate_a", 13, 13),
    WordField("negate_b", 14, 14),
    WordField("a_major", 15, 15),
    WordField("b_major", 16, 16),
    WordField("n", 17, 22, unit=8),
)
_PLAIN = (
    WordField("sparsity_selector", 0, 1),
    *_COMMON,
    WordField("saturate", 3, 3),
    WordField("d_type", 4, 5),
    WordField("a_type", 7, 9),
    WordField("b_type", 10, 12),
    WordField("m", 24, 28, unit=16),
    WordField("max_shift", 30, 31),
)
_SCALED = (
    *_COMMON,
    WordField("b_scale_id", 4, 5),
    WordField("a_type", 7, 9),
    WordField("scale_type", 23, 23),
    WordField("m", 27, 28, unit=128),
    WordField("a_scale_id", 29, 30),
)
_SCALED_8_BIT = (
    *_SCALED,
    WordField("b_type", 10, 12),
)
_SCALED_4_BIT = (
    *_SCALED,
    WordField("b_type", 10, 11),
    WordField("k", 31, 31),
)
_NAME = "tcgen05 instruction descriptor"
_PLAIN_WORD = WordFormat(_NAME, 32, _PLAIN)
_SCALED_WORD = WordFormat(_NAME, 32, _SCALED_8_BIT)
_SCALED_4_BIT_WORD = WordFormat(_NAME, 32, _SCALED_4_BIT)


def word_format(kind: Tcgen05Kind) -> WordFormat:
    """The fields of a kind's word."""
    if not kind.is_scaled:
        return _PLAIN_WORD
    return _SCALED_4_BIT_WORD if kind.is_dense_4_bit else _SCALED_WORD


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class InstructionDescriptor(Documented, Value):
    """A tcgen05 instruction descriptor: kind, shape, types, majorness, signs, sparsity, scale factors.

    >>> descriptor = InstructionDescriptor("f16", 128, 256, a_type="f16")
    >>> hex(descriptor.encode()), InstructionDescriptor.decode(0x08400010, "f16") == descriptor
    ('0x8400010', True)
    >>> print(descriptor)
    kind f16: float16 x float16 -> float32, m128 n256 k16, A K-major, B K-major
    >>> InstructionDescriptor("mxf4nvf4", 256, 256, scale_type="ue4m3", k=96).forms
    ('cta_group::2',)
    """

    mma_kind: str
    m: int  # of the whole instruction: with cta_group::2 of both blocks together, and so is n
    n: int
    k: int  # of a dense instruction; a sparse one takes as many of A, and twice as many of B
    a_type: DataType = row_field(DataType.named)
    b_type: DataType = row_field(DataType.named)
    d_type: DataType = row_field(DataType.named)
    a_major: Major
    b_major: Major
    negate_a: bool
    negate_b: bool
    saturate: bool  # of i8
    sparse: bool
    sparsity_selector: int
    max_shift: int  # of .ws: 0, 8, 16 or 32 columns
    scale_type: str | None
    a_scale_id: int
    b_scale_id: int

    def __init__(
        self,
        mma_kind: str,
        m: int,
        n: int,
        *,
        a_type: Any = None,
        b_type: Any = None,
        d_type: Any = None,
        a_major: Major = "K",
        b_major: Major = "K",
        negate_a: bool = False,
        negate_b: bool = False,
        saturate: bool = False,
        sparse: bool = False,
        sparsity_selector: int = 0,
        max_shift: int = 0,
        scale_type: str | None = None,
        a_scale_id: int = 0,
        b_scale_id: int = 0,
        k: int | None = None,
    ) -> None:
        kind = Tcgen05Kind.named(mma_kind)
        if a_type is None:
            a_type = _only_type(kind)
        fields: dict[str, object] = {
            "mma_kind": kind.name,
            "a_type": DataType.named(a_type),
            "b_type": DataType.named(a_type if b_type is None else b_type),
            "d_type": DataType.named(kind.accumulators[-1] if d_type is None else d_type),
            "a_major": major_named(a_major),
            "b_major": major_named(b_major),
            "m": integer("m", m),
            "n": integer("n", n),
            "k": kind.k if k is None else integer("k", k),
            "sparsity_selector": integer("sparsity_selector", sparsity_selector),
            "max_shift": integer("max_shift", max_shift),
            "a_scale_id": integer("a_scale_id", a_scale_id),
            "b_scale_id": integer("b_scale_id", b_scale_id),
            "negate_a": flag("negate_a", negate_a),
            "negate_b": flag("negate_b", negate_b),
            "saturate": flag("saturate", saturate),
            "sparse": flag("sparse", sparse),
            "scale_type": _scale_type(kind, scale_type),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        raise_all(field_problems(self, kind))

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of the instruction that accept it, by m and n; with a shift, only .ws."""
        shapes = shapes_of(self, Tcgen05Kind.named(self.mma_kind))
        forms = [row.form for row in shapes if self.m in row.m and self.n in row.n]
        return tuple(form for form in forms if not self.max_shift or form.endswith(".ws"))

    def encode(self) -> int:
        """The 32-bit word."""
        kind = Tcgen05Kind.named(self.mma_kind)
        meanings = _code_meanings(kind.name)
        form = word_format(kind)
        numbers = {}
        for field in form.fields:
            value = getattr(self, field.name)
            if field.name in meanings:
                codes = {meaning: code for code, meaning in meanings[field.name].items()}
                value = codes[value]
            numbers[field.name] = value
        return form.encode(numbers)

    @classmethod
    def decode(cls, word: int, mma_kind: str) -> InstructionDescriptor:
        """The descriptor in a 32-bit word, for a kind of instruction; other words are refused.

        >>> InstructionDescriptor.decode(0x04110010, "f8f6f4").b_major
        'MN'
        """
        kind = Tcgen05Kind.named(mma_kind)
        form = word_format(kind)
        word = form.checked(word)
        raise_all(_word_problems(kind, form, word))
        meanings = _code_meanings(kind.name)
        fields: dict[str, Any] = {}
        for name, number in form.decode(word).items():
            fields[name] = meanings[name][number] if name in meanings else number
        return cls(kind.name, **fields)

    def __str__(self) -> str:
        parts = [
            f"kind {self.mma_kind}: {self.a_type.name} x {self.b_type.name} -> {self.d_type.name}",
            f"m{self.m} n{self.n} k{self.k}",
            f"A {self.a_major}-major",
            f"B {self.b_major}-major",
        ]
        if self.negate_a:
            parts.append("negated A")
        if self.negate_b:
            parts.append("negated B")
        if self.saturate:
            parts.append("saturating")
        if self.sparse:
            parts.append(f"sparse (selector {self.sparsity_selector})")
        if self.max_shift:
            parts.append(f"shift {self.max_shift}")
        if self.scale_type:
            parts.append(f"scales {self.scale_type}, ids {self.a_scale_id} and {self.b_scale_id}")
        return ", ".join(parts)


def _only_type(kind: Tcgen05Kind) -> str:
    """The type of A if the kind has only one."""
    first, *others = kind.codes
    if others:
        raise NO_A_TYPE.error(kind=kind.name, types=tuple(kind.codes), first=first)
    return first


def _scale_type(kind: Tcgen05Kind, asked: str | None) -> str | None:
    """The type of the scale factors: the requested one, or the kind's last."""
    if asked is None and not kind.scales:
        return None
    return known_name("scale_type", kind.scales[-1] if asked is None else asked, list(_SCALE_CODES))


_MAJOR_CODES: Mapping[int, str | int] = {0: "K", 1: "MN"}
_FLAG_CODES: Mapping[int, str | int] = {0: False, 1: True}


@cache
def _code_meanings(mma_kind: str) -> Mapping[str, Mapping[int, str | int]]:
    """The meaning of the codes, for fields that do not contain their number."""
    kind = KINDS[mma_kind]
    types = {code: name for name, code in kind.codes.items()}
    return {
        "a_type": types,
        "b_type": types,
        "d_type": {ACCUMULATOR_CODES[name]: name for name in kind.accumulators},
        "a_major": _MAJOR_CODES,
        "b_major": _MAJOR_CODES,
        "negate_a": _FLAG_CODES,
        "negate_b": _FLAG_CODES,
        "sparse": _FLAG_CODES,
        "saturate": _FLAG_CODES,
        "max_shift": dict(enumerate(MAX_SHIFTS)),
        "scale_type": {code: name for name, code in _SCALE_CODES.items()},
        "k": {0: kind.k, 1: WIDE_K},
    }


def _word_problems(kind: Tcgen05Kind, form: WordFormat, word: int) -> Iterator[Violation]:
    """Bits and codes that no descriptor of the kind has."""
    ones = form.reserved_ones(word)
    if ones:
        wording = ONE_RESERVED_BIT if len(ones) == 1 else TCGEN05_RESERVED
        yield wording.violation(word=word, bits=ones, kind=kind.name, without=word & form.covered)
    fields = form.decode(word)
    meanings = _code_meanings(kind.name)
    for name in ("a_type", "b_type", "d_type"):
        types = meanings[name]
        if name not in fields or fields[name] in types:
            continue
        codes = list(types)
        yield TYPE_CODE.violation(
            field=name,
            matrix=name[0].upper(),
            code=fields[name],
            kind=kind.name,
            codes=tuple(f"{code} {type_name}" for code, type_name in types.items()),
            other_code=codes[-1] if name == "d_type" else codes[0],
        )


def inspect_instruction_descriptor(word: int, mma_kind: str) -> Inspection:
    """What a 32-bit number means as an instruction descriptor of a kind, field by field, sound or not.

    >>> found = inspect_instruction_descriptor(0x08400010, "tf32")  # its types are code 0; tf32 is 2
    >>> found.sound, found.violations[0].found
    (False, 'A type code 0')
    """
    kind = Tcgen05Kind.named(mma_kind)
    form = word_format(kind)
    word = form.checked(word)
    problems: list[Violation] = []
    descriptor = try_read(problems, None, InstructionDescriptor.decode, word, kind.name)
    meanings = {name: _meaning(kind, name, value) for name, value in form.decode(word).items()}
    return Inspection(
        name=f"{form.name}, kind {kind.name}",
        bits=form.bits,
        word=word,
        fields=form.described(word, meanings),
        violations=tuple(problems),
        described=descriptor,
    )


_NUMBER_MEANINGS = {
    "m": "{} rows of A and D",
    "n": "{} columns of B and D",
    "sparsity_selector": "sparsity selector {}",
    "a_scale_id": "scale factors of A from byte {}",
    "b_scale_id": "scale factors of B from byte {}",
}
_BIT_MEANINGS = {  # of 0 and of 1
    "a_major": ("A is K-major", "A is MN-major"),
    "b_major": ("B is K-major", "B is MN-major"),
    "negate_a": ("A is taken as it is", "A is negated"),
    "negate_b": ("B is taken as it is", "B is negated"),
    "sparse": ("dense", "A is sparse"),
    "saturate": ("sums wrap", "sums saturate"),
    "scale_type": ("scale factors are ue4m3", "scale factors are ue8m0"),
    "k": ("k is 64, sparse 128", "k is 96 (sm_103a)"),
}
_IDLE_SATURATE = ("not set: only i8 saturates", "set, but only i8 saturates")


def _meaning(kind: Tcgen05Kind, name: str, value: int) -> str:
    """A field's number in words."""
    if name in ("a_type", "b_type", "d_type"):
        codes = ACCUMULATOR_CODES if name == "d_type" else kind.codes
        types = {code: type_name for type_name, code in codes.items()}
        return f"{name[0].upper()} is {types.get(value, f'of no type: code {value}')}"
    if name == "max_shift":
        return f".ws reuses B with shifts of up to {MAX_SHIFTS[value]}" if value else "no shift"
    if name in _NUMBER_MEANINGS:
        return _NUMBER_MEANINGS[name].format(value)
    unset, is_set = _BIT_MEANINGS[name]
    if name == "saturate" and kind.name != "i8":
        unset, is_set = _IDLE_SATURATE
    return is_set if value else unset
