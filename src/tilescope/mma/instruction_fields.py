"""What the fields of an instruction descriptor may be, under a kind: the rules, and what else decides.

field                     allowed                                    decided by
a_type, b_type            the types of the kind                      kind
d_type                    the accumulators of the kind               kind; bfloat16 is summed in float32
a_major, b_major          K, MN for types that may be transposed     kind, type
negate_a, negate_b        not for i8                                 kind
saturate                  i8 alone                                   kind
sparsity_selector         0 to 3 for sparse f16 and tf32             kind, sparse
max_shift                 0, 8, 16, 32 where .ws has m and n         kind, m, n
scale_type, scale ids     those of block-scaled kinds                kind, k
k                         the kind's, dense 4-bit kinds also 96      kind, sparse
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from tilescope.data_type import DataType
from tilescope.errors import Violation
from tilescope.layout import Major
from tilescope.mma.tcgen05_kind import BLACKWELL, KINDS, TCGEN05_TYPE, WIDE_K, Shapes, Tcgen05Kind, shape_problems
from tilescope.rule import Rule, rule
from tilescope.sentence import argument_said, format_value, listed

MAX_SHIFTS = (0, 8, 16, 32)  # of B's reuse by .ws
_SELECTED_KINDS = ("f16", "tf32")  # whose metadata is one column of a pair; PTX: the selector is 0 for i8 and f8f6f4
# CuTe names these as the types that may be MN-major; PTX has the same by way of the valid layouts.
_TRANSPOSABLE = ("float16", "bfloat16", "tfloat32", "e4m3", "e5m2", "int8", "uint8")

TYPE_OF_OTHER_KIND = TCGEN05_TYPE.worded(fix="Use kind {kinds: or }.")
TCGEN05_FIELD = rule(
    "tcgen05-field",
    "A field of an instruction descriptor has the values that its kind allows.",
    argument="{field}",
    found="{field} = {asked}",
    limit="{field} of kind {kind}[[ with {beside:, }]] is {allowed: or }[[: {reason}]]",
    fix="Use {instead}.",
    source='PTX ISA, tcgen05.mma: "Instruction descriptor"',
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor("f16", 64, 64, a_type="bf16", max_shift=16)',
    failing='ts.InstructionDescriptor("f16", 64, 64, a_type="bf16", max_shift=4)',
)
TCGEN05_MAJOR = rule(
    "tcgen05-major",
    "MN-major operands of tcgen05 have the types for which PTX allows transposition.",
    argument="{field}",
    found="{field} = {asked}",
    limit="{field} of kind {kind} with {beside:, } is {allowed: or }: {reason}",
    fix="Use {instead}.",
    source="PTX ISA, tcgen05.mma: valid layouts, which CuTe lists by type",
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor("f8f6f4", 128, 64, a_type="e4m3", a_major="MN")',
    failing='ts.InstructionDescriptor("f8f6f4", 128, 64, a_type="e2m1", a_major="MN")',
)
TCGEN05_FLAG = rule(
    "tcgen05-flag",
    "Only kind i8 saturates, and only the other kinds negate.",
    argument="{field}",
    found="{field} = {asked}",
    limit="{field} of kind {kind} is {allowed: or }: {reason}",
    fix="Use {instead}.",
    source='PTX ISA, tcgen05.mma: "Instruction descriptor"',
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor("i8", 128, 64, a_type="s8", saturate=True)',
    failing='ts.InstructionDescriptor("f16", 128, 64, a_type="bf16", saturate=True)',
)


class InstructionFields(Protocol):
    """The fields of an instruction descriptor, as the checks read them."""

    @property
    def m(self) -> int:
        """Rows of D: with cta_group::2 of both blocks together, and so is n."""

    @property
    def n(self) -> int:
        """Columns of D."""

    @property
    def k(self) -> int:
        """Of a dense instruction; a sparse one takes as many of A, and twice as many of B."""

    @property
    def a_type(self) -> DataType:
        """Elements of A."""

    @property
    def b_type(self) -> DataType:
        """Elements of B."""

    @property
    def d_type(self) -> DataType:
        """Elements of D."""

    @property
    def a_major(self) -> Major:
        """Contiguous index of A."""

    @property
    def b_major(self) -> Major:
        """Contiguous index of B."""

    @property
    def negate_a(self) -> bool:
        """Whether A is negated."""

    @property
    def negate_b(self) -> bool:
        """Whether B is negated."""

    @property
    def saturate(self) -> bool:
        """Whether sums of i8 saturate."""

    @property
    def sparse(self) -> bool:
        """Whether A is sparse."""

    @property
    def sparsity_selector(self) -> int:
        """Which column of metadata is taken."""

    @property
    def max_shift(self) -> int:
        """Of .ws: 0, 8, 16 or 32 columns."""

    @property
    def scale_type(self) -> str | None:
        """Type of the scale factors; None without any."""

    @property
    def a_scale_id(self) -> int:
        """Byte at which the scale factors of A begin."""

    @property
    def b_scale_id(self) -> int:
        """Byte at which the scale factors of B begin."""


def transposes_bytes(word: InstructionFields) -> bool:
    """Whether B is MN-major and of 8 bits: there are fewer n for it."""
    return word.b_major == "MN" and word.b_type.bits == 8


def shapes_of(word: InstructionFields, kind: Tcgen05Kind) -> tuple[Shapes, ...]:
    """The m and n that instructions of its kind have with its operands."""
    return kind.shapes(sparse=word.sparse, k=word.k, transposed_bytes=transposes_bytes(word))


class _Choice(NamedTuple):
    """The allowed values of a field, and the rule that limits them."""

    field: str
    value: object
    rule: Rule
    allowed: tuple[object, ...]  # the usual one first
    reason: str | None = None  # the reason, if it is not only the kind
    beside: Mapping[str, object] = {}  # what else decides


def field_problems(word: InstructionFields, kind: Tcgen05Kind) -> Iterator[Violation]:
    """All that no instruction of the kind has."""
    for choice in _choices(word, kind):
        if choice.value in choice.allowed:
            continue
        other_kinds = _kinds_with(choice.value) if choice.field in ("a_type", "b_type") else ()
        broken_rule = TYPE_OF_OTHER_KIND if other_kinds else choice.rule
        numbers: dict[str, Any] = {**choice.beside, choice.field: choice.value}
        yield broken_rule.violation(
            field=choice.field,
            asked=format_value(choice.value),
            kind=kind.name,
            beside=tuple(f"{name} = {value}" for name, value in choice.beside.items()),
            allowed=choice.allowed,
            reason=choice.reason,
            instead=argument_said(choice.field, choice.allowed[0]),
            kinds=other_kinds,
            **numbers,
        )
    yield from shape_problems(
        kind, word.m, word.n, transposed_bytes=transposes_bytes(word), sparse=word.sparse, k=word.k
    )


def _kinds_with(type_name: object) -> tuple[str, ...]:
    return tuple(row.name for row in KINDS.values() if type_name in row.codes)


def _choices(word: InstructionFields, kind: Tcgen05Kind) -> list[_Choice]:
    """What the fields may be."""
    types = tuple(kind.codes)
    is_i8 = kind.name == "i8"
    signs = (False,) if is_i8 else (False, True)
    signs_reason = "only the other kinds negate" if is_i8 else None
    saturations = (False, True) if is_i8 else (False,)
    transposable = f"MN-major operands are of {', '.join(_TRANSPOSABLE)}"
    scale_ids = _scale_ids(word, kind)
    steps = (kind.k, WIDE_K) if kind.is_dense_4_bit and not word.sparse else (kind.k,)
    a_type = word.a_type.name
    b_type = word.b_type.name
    return [
        _Choice("a_type", a_type, TCGEN05_TYPE, types),
        _Choice("b_type", b_type, TCGEN05_TYPE, types),
        _accumulator(word, kind),
        _Choice("a_major", word.a_major, TCGEN05_MAJOR, _majors(a_type, kind), transposable, {"a_type": a_type}),
        _Choice("b_major", word.b_major, TCGEN05_MAJOR, _majors(b_type, kind), transposable, {"b_type": b_type}),
        _Choice("negate_a", word.negate_a, TCGEN05_FLAG, signs, signs_reason),
        _Choice("negate_b", word.negate_b, TCGEN05_FLAG, signs, signs_reason),
        _Choice("saturate", word.saturate, TCGEN05_FLAG, saturations, "only i8 saturates"),
        _selector(word, kind),
        _shift(word, kind),
        _Choice("scale_type", word.scale_type, TCGEN05_FIELD, kind.scales or (None,)),
        _Choice("a_scale_id", word.a_scale_id, TCGEN05_FIELD, scale_ids),
        _Choice("b_scale_id", word.b_scale_id, TCGEN05_FIELD, scale_ids),
        _Choice("k", word.k, TCGEN05_FIELD, steps),
    ]


def _accumulator(word: InstructionFields, kind: Tcgen05Kind) -> _Choice:
    if "bfloat16" not in (word.a_type.name, word.b_type.name):
        return _Choice("d_type", word.d_type.name, TCGEN05_TYPE, kind.accumulators[::-1])
    allowed = ("float32",) if "float32" in kind.accumulators else kind.accumulators[::-1]
    reason = "products of bfloat16 are summed in float32"
    return _Choice("d_type", word.d_type.name, TCGEN05_TYPE, allowed, reason)


def _majors(type_name: str, kind: Tcgen05Kind) -> tuple[Major, ...]:
    return ("K", "MN") if type_name in _TRANSPOSABLE and not kind.is_dense_4_bit else ("K",)


def _selector(word: InstructionFields, kind: Tcgen05Kind) -> _Choice:
    allowed: tuple[int, ...] = (0,)
    reason = None
    if not word.sparse:
        reason = "a dense A has no metadata"
    elif kind.name in _SELECTED_KINDS:
        allowed = (0, 1, 2, 3)
    else:
        reason = f"one instruction takes all of its metadata columns; only kinds {listed(_SELECTED_KINDS)} select"
    return _Choice("sparsity_selector", word.sparsity_selector, TCGEN05_FIELD, allowed, reason)


def _shift(word: InstructionFields, kind: Tcgen05Kind) -> _Choice:
    shapes = shapes_of(word, kind)
    has_ws = any(row.form.endswith(".ws") and word.m in row.m and word.n in row.n for row in shapes)
    allowed = MAX_SHIFTS if has_ws else (0,)
    reason = None
    if not has_ws and not kind.is_scaled:
        reason = "a shift belongs to .ws: m 32, 64, 128 with n 64, 128 or, dense, 256"
    return _Choice("max_shift", word.max_shift, TCGEN05_FIELD, allowed, reason, {"m": word.m, "n": word.n})


def _scale_ids(word: InstructionFields, kind: Tcgen05Kind) -> tuple[int, ...]:
    """The bytes at which the scales of a row may begin, so that all of them have room behind it.

    ue4m3 scales 16 elements, ue8m0 32 (or 16).
    """
    if not kind.is_scaled:
        return (0,)
    is_wide = word.k == WIDE_K
    if word.scale_type == "ue4m3":
        return (0, 2) if is_wide else (0,)
    return (0, 2) if kind.is_dense_4_bit and not is_wide else (0, 1, 2, 3)
