"""The 32-bit descriptor that tells tcgen05.mma its types, shape and majorness: known from documents.

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
from typing import Any

from tilescope.bits import Inspection, WordField, WordFormat
from tilescope.data_type import DataType
from tilescope.errors import Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.tcgen05_kind import KINDS, TCGEN05, WIDE_K, Documented, Shapes, Tcgen05Kind, shape_problems
from tilescope.reading import attempted, flag, integer, known_name
from tilescope.sentence import printed
from tilescope.value import Value, row_field

ACCUMULATOR_CODES = {"float16": 0, "float32": 1, "int32": 2}
_SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}
MAX_SHIFTS = (0, 8, 16, 32)  # of B's reuse by .ws
_SELECTED_KINDS = ("f16", "tf32")  # whose metadata is one column of a pair; PTX: the selector is 0 for i8 and f8f6f4
# CuTe names these as the types that may be MN-major; PTX has the same by way of the valid layouts.
_TRANSPOSABLE = ("float16", "bfloat16", "tfloat32", "e4m3", "e5m2", "int8", "uint8")

# fmt: off
_COMMON = (
    #          name            bits   unit
    WordField("sparse",         2,  2),
    WordField("negate_a",      13, 13),
    WordField("negate_b",      14, 14),
    WordField("a_major",       15, 15),
    WordField("b_major",       16, 16),
    WordField("n",             17, 22,  8),
)
_PLAIN_WORD = WordFormat("tcgen05 instruction descriptor", 32, (
    WordField("sparsity_selector", 0, 1), *_COMMON,
    WordField("saturate",       3,  3),
    WordField("d_type",         4,  5),
    WordField("a_type",         7,  9),
    WordField("b_type",        10, 12),
    WordField("m",             24, 28, 16),
    WordField("max_shift",     30, 31),
))
_SCALED = (
    *_COMMON,
    WordField("b_scale_id",     4,  5),
    WordField("a_type",         7,  9),
    WordField("scale_type",    23, 23),
    WordField("m",             27, 28, 128),
    WordField("a_scale_id",    29, 30),
)
_SCALED_WORD = WordFormat("tcgen05 instruction descriptor", 32, (*_SCALED, WordField("b_type", 10, 12)))
_SCALED_4_BIT_WORD = WordFormat("tcgen05 instruction descriptor", 32, (
    *_SCALED, WordField("b_type", 10, 11), WordField("k", 31, 31),
))
# fmt: on


def word_format(kind: Tcgen05Kind) -> WordFormat:
    """The fields of a kind's word."""
    return _PLAIN_WORD if not kind.is_scaled else _SCALED_4_BIT_WORD if kind.is_dense_4_bit else _SCALED_WORD


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
        self, mma_kind: str, m: int, n: int, *, a_type: Any = None, b_type: Any = None, d_type: Any = None,
        a_major: Major = "K", b_major: Major = "K", negate_a: bool = False, negate_b: bool = False, saturate: bool = False,
        sparse: bool = False, sparsity_selector: int = 0, max_shift: int = 0, scale_type: str | None = None,
        a_scale_id: int = 0, b_scale_id: int = 0, k: int | None = None,
    ) -> None:  # fmt: skip
        kind = Tcgen05Kind.named(mma_kind)
        if a_type is None:
            first, *others = kind.codes
            if others:
                limit = f"kind {kind.name} takes {', '.join(kind.codes)}"
                raise TCGEN05["type"].error("a_type", "no a_type", limit, f"Use {first}.")
            a_type = first
        numbers = {
            "m": m, "n": n, "k": kind.k if k is None else k, "sparsity_selector": sparsity_selector, "max_shift": max_shift,
            "a_scale_id": a_scale_id, "b_scale_id": b_scale_id,
        }  # fmt: skip
        flags = {"negate_a": negate_a, "negate_b": negate_b, "saturate": saturate, "sparse": sparse}
        values: dict[str, Any] = {
            "mma_kind": kind.name, "a_type": DataType.named(a_type), "b_type": DataType.named(a_type if b_type is None else b_type),
            "d_type": DataType.named(kind.accumulators[-1] if d_type is None else d_type),
            "a_major": major_named(a_major), "b_major": major_named(b_major), "scale_type": None,
            **{name: integer(name, number) for name, number in numbers.items()},
            **{name: flag(name, value) for name, value in flags.items()},
        }  # fmt: skip
        if scale_type is not None or kind.scales:
            asked = kind.scales[-1] if scale_type is None else scale_type
            values["scale_type"] = known_name("scale_type", asked, list(_SCALE_CODES))
        raise_all(_problems(kind, values))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of the instruction that take it: by m and n, and .ws alone where there is a shift."""
        kind, transposed = Tcgen05Kind.named(self.mma_kind), self.b_major == "MN" and self.b_type.bits == 8
        shapes = kind.shapes(sparse=self.sparse, k=self.k, transposed_bytes=transposed)
        forms = [row.form for row in shapes if self.m in row.m and self.n in row.n]
        return tuple(form for form in forms if not self.max_shift or form.endswith(".ws"))

    def encode(self) -> int:
        """The 32-bit word."""
        kind = Tcgen05Kind.named(self.mma_kind)
        form, codes = word_format(kind), _field_codes(kind)
        values = {field.name: getattr(self, field.name) for field in form.fields}
        return form.encode({name: codes[name][value] if name in codes else value for name, value in values.items()})

    @classmethod
    def decode(cls, word: int, mma_kind: str) -> InstructionDescriptor:
        """The descriptor in a 32-bit word, read under a kind; what is no such descriptor is refused.

        >>> InstructionDescriptor.decode(0x04110010, "f8f6f4").b_major
        'MN'
        """
        kind = Tcgen05Kind.named(mma_kind)
        form = word_format(kind)
        word = form.checked(word)
        raise_all(_word_problems(kind, form, word))
        values = {name: {code: value for value, code in codes.items()} for name, codes in _field_codes(kind).items()}
        fields = form.decode(word).items()
        told: dict[str, Any] = {name: values[name][code] if name in values else code for name, code in fields}
        return cls(kind.name, **told)

    def __str__(self) -> str:
        notes = (
            ("negated A", self.negate_a), ("negated B", self.negate_b), ("saturating", self.saturate),
            (f"sparse (selector {self.sparsity_selector})", self.sparse), (f"shift {self.max_shift}", self.max_shift),
            (f"scales {self.scale_type}, ids {self.a_scale_id} and {self.b_scale_id}", self.scale_type),
        )  # fmt: skip
        return (
            f"kind {self.mma_kind}: {self.a_type.name} x {self.b_type.name} -> {self.d_type.name}, m{self.m} n{self.n} k{self.k}, "
            f"A {self.a_major}-major, B {self.b_major}-major" + "".join(f", {note}" for note, holds in notes if holds)
        )


def _field_codes(kind: Tcgen05Kind) -> dict[str, Mapping[Any, int]]:
    """The code of every value of the fields that do not hold their number."""
    return {
        **dict.fromkeys(("a_type", "b_type"), kind.codes),
        **{key: {"K": 0, "MN": 1} for key in ("a_major", "b_major")},
        **{key: {False: 0, True: 1} for key in ("negate_a", "negate_b", "sparse", "saturate")},
        "d_type": {name: ACCUMULATOR_CODES[name] for name in kind.accumulators},
        "max_shift": {shift: code for code, shift in enumerate(MAX_SHIFTS)},
        "scale_type": _SCALE_CODES,
        "k": {kind.k: 0, WIDE_K: 1},
    }


def _word_problems(kind: Tcgen05Kind, form: WordFormat, word: int) -> Iterator[Violation]:
    """Bits and codes that no descriptor of the kind has."""
    values, known = form.decode(word), _field_codes(kind)
    if ones := form.reserved_ones(word):
        found = f"{word:#x} has bit{'s' * (len(ones) > 1)} {', '.join(map(str, ones))} set"
        limit = f"an instruction descriptor of kind {kind.name} keeps {'them' if len(ones) > 1 else 'it'} zero"
        fix = f"Use {word & form.covered:#x}, or decode the word as another kind."
        yield TCGEN05["reserved"].violation("word", found, limit, fix, word=word, bits=ones)
    for name in [name for name in ("a_type", "b_type", "d_type") if name in values]:
        code, codes = values[name], {code: type_name for type_name, code in known[name].items()}
        if code not in codes:
            limit = f"kind {kind.name} has {', '.join(f'{code} {type_name}' for code, type_name in codes.items())}"
            fix = f"Use code {list(codes)[-1 if name == 'd_type' else 0]}."
            yield TCGEN05["type"].violation(name, f"{name[0].upper()} type code {code}", limit, fix, code=code)


# What else, beside the kind, decides what a field may be.
_DECIDED_BY = {"a_major": ("a_type",), "b_major": ("b_type",), "max_shift": ("m", "n")}


def _problems(kind: Tcgen05Kind, values: dict[str, Any]) -> Iterator[Violation]:
    """All that no instruction of the kind has."""
    b_bytes = values["b_major"] == "MN" and values["b_type"].bits == 8
    shape: dict[str, Any] = {"sparse": values["sparse"], "k": values["k"], "transposed_bytes": b_bytes}
    told = {name: getattr(value, "name", value) for name, value in values.items()}
    for name, (broken, allowed, why) in _limits(kind, told, kind.shapes(**shape)).items():
        value = told[name]
        if value not in allowed:
            kinds = " or ".join(row.name for row in KINDS.values() if value in row.codes)
            beside = {other: told[other] for other in _DECIDED_BY.get(name, ())}
            others = " with " * bool(beside) + ", ".join(f"{other} = {held}" for other, held in beside.items())
            limit = f"{name} of kind {kind.name}{others} is {' or '.join(map(str, allowed))}{why}"
            fix = f"Use kind {kinds}." if name in ("a_type", "b_type") and kinds else f"Use {name}={allowed[0]!r}."
            numbers = beside | {name: value}
            yield TCGEN05[broken].violation(name, f"{name} = {printed(value)}", limit, fix, **numbers)
    yield from shape_problems(kind, values["m"], values["n"], **shape)


def _limits(
    kind: Tcgen05Kind, told: dict[str, Any], shapes: tuple[Shapes, ...]
) -> dict[str, tuple[str, tuple[Any, ...], str]]:
    """What the fields may be: the rule, the values with the usual one first, and the reason if it is no matter of the kind."""
    is_i8, types = kind.name == "i8", (told["a_type"], told["b_type"])
    signs = ("flag", (False,) if is_i8 else (False, True), ": only the other kinds negate" * is_i8)
    sums = kind.accumulators[::-1]
    if "bfloat16" in types and "float32" in sums:
        sums = ("float32",)
    majors = [("K", "MN") if name in _TRANSPOSABLE and not kind.is_dense_4_bit else ("K",) for name in types]
    transposable = f": MN-major operands are of {', '.join(_TRANSPOSABLE)}"
    scale_ids: tuple[int, ...] = (0,)
    if kind.is_scaled:  # ue4m3 scales 16 elements, ue8m0 32 (or 16): a row's first byte leaves room for all of them
        scale_ids = (0, 1, 2, 3) if not kind.is_dense_4_bit or told["k"] == WIDE_K else (0, 2)
        if told["scale_type"] == "ue4m3":
            scale_ids = (0, 2) if told["k"] == WIDE_K else (0,)
    selectors: tuple[int, ...] = (0,)
    why_selector = ": a dense A has no metadata" if not told["sparse"] else ""
    if told["sparse"] and kind.name in _SELECTED_KINDS:
        selectors = (0, 1, 2, 3)
    elif told["sparse"]:
        why_selector = (
            f": one instruction takes all of its metadata columns; only kinds {' and '.join(_SELECTED_KINDS)} select"
        )
    shifts = any(row.form.endswith(".ws") and told["m"] in row.m and told["n"] in row.n for row in shapes)
    ws = "" if shifts or kind.is_scaled else ": a shift belongs to .ws: m 32, 64, 128 with n 64, 128 or, dense, 256"
    return {
        "a_type": ("type", tuple(kind.codes), ""), "b_type": ("type", tuple(kind.codes), ""),
        "d_type": ("type", sums, ": products of bfloat16 are summed in float32" * ("bfloat16" in types)),
        "a_major": ("major", majors[0], transposable), "b_major": ("major", majors[1], transposable),
        "negate_a": signs, "negate_b": signs, "saturate": ("flag", (False, True) if is_i8 else (False,), ": only i8 saturates"),
        "sparsity_selector": ("field", selectors, why_selector),
        "max_shift": ("field", MAX_SHIFTS if shifts else (0,), ws), "scale_type": ("field", kind.scales or (None,), ""),
        "a_scale_id": ("field", scale_ids, ""), "b_scale_id": ("field", scale_ids, ""),
        "k": ("field", (kind.k, WIDE_K) if kind.is_dense_4_bit and not told["sparse"] else (kind.k,), ""),
    }  # fmt: skip


def inspect_instruction_descriptor(word: int, mma_kind: str) -> Inspection:
    """What a 32-bit number means as an instruction descriptor of a kind, field by field, sound or not.

    >>> found = inspect_instruction_descriptor(0x08400010, "tf32")  # its types are code 0; tf32 is 2
    >>> found.sound, found.violations[0].found
    (False, 'A type code 0')
    """
    kind = Tcgen05Kind.named(mma_kind)
    form = word_format(kind)
    word, problems = form.checked(word), list[Violation]()
    descriptor = attempted(problems, None, InstructionDescriptor.decode, word, kind.name)
    meanings = {name: _meaning(kind, name, value) for name, value in form.decode(word).items()}
    return Inspection(
        name=f"{form.name}, kind {kind.name}", bits=form.bits, word=word, fields=form.described(word, meanings),
        violations=tuple(problems), described=descriptor,
    )  # fmt: skip


# A field's number in words: its value, or the words for 0 and for 1.
_MEANINGS: dict[str, str | tuple[str, str]] = {
    "m": "{value} rows of A and D",
    "n": "{value} columns of B and D",
    "sparsity_selector": "sparsity selector {value}",
    "a_type": "A is {types}",
    "b_type": "B is {types}",
    "d_type": "D is {accumulators}",
    "a_major": ("A is K-major", "A is MN-major"),
    "b_major": ("B is K-major", "B is MN-major"),
    "negate_a": ("A is taken as it is", "A is negated"),
    "negate_b": ("B is taken as it is", "B is negated"),
    "sparse": ("dense", "A is sparse"),
    "saturate": ("sums wrap", "sums saturate"),
    "max_shift": ("no shift", ".ws reuses B with shifts of up to {shift}"),
    "scale_type": ("scale factors are ue4m3", "scale factors are ue8m0"),
    "k": ("k is 64, sparse 128", "k is 96 (sm_103a)"),
    "a_scale_id": "scale factors of A from byte {value}",
    "b_scale_id": "scale factors of B from byte {value}",
}


def _meaning(kind: Tcgen05Kind, name: str, value: int) -> str:
    said = _MEANINGS[name]
    if name == "saturate" and kind.name != "i8":
        said = ("not set: only i8 saturates", "set, but only i8 saturates")
    types, accumulators = (
        {code: type_name for type_name, code in codes.items()}.get(value, f"of no type: code {value}")
        for codes in (kind.codes, ACCUMULATOR_CODES)
    )
    told = {"value": value, "types": types, "accumulators": accumulators, "shift": MAX_SHIFTS[value % len(MAX_SHIFTS)]}
    return (said if isinstance(said, str) else said[bool(value)]).format(**told)
