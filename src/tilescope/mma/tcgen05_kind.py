"""The kinds of tcgen05.mma: which types they multiply, by which codes, in which shapes.

One dense instruction takes 32 bytes along k, a sparse one twice as many of B; on sm_103a mxf4 and mxf4nvf4 also
come with k = 96. m and n are those of the whole instruction: with cta_group::2 of both blocks together. All of this
is known from documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import Violation
from tilescope.mma.mma_instruction import no_such_type
from tilescope.reading import known_row
from tilescope.rule import Basis, rule

BLACKWELL = ("sm_100", "sm_103", "sm_110")  # the architectures with tcgen05
WIDE_K = 96  # of mxf4 and mxf4nvf4 on sm_103a
_BLOCK_N = tuple(range(8, 257, 8))
_PAIR_N = tuple(range(16, 257, 16))
_INTEGER_BLOCK_N = (8, 16, 24, *range(32, 257, 16))
_INTEGER_PAIR_N = tuple(range(32, 257, 32))

TCGEN05_TYPE = rule(
    "tcgen05-type",
    "tcgen05 multiplies the types of its kinds, with the accumulator types that the kind lists.",
    argument="{field}",
    found="{field} = {asked}",
    limit="{field} of kind {kind} is {allowed: or }[[: {reason}]]",
    fix="Use {instead}.",
    source='PTX ISA, tcgen05.mma: "Instruction descriptor"',
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor("f16", 128, 256, a_type="bf16")',
    failing='ts.InstructionDescriptor("f16", 128, 256, a_type="e4m3")',
)
TCGEN05_SHAPE = rule(
    "tcgen05-shape",
    "The m and n of tcgen05 are those of its kind, for one or two CTAs.",
    argument="m, n",
    found="m = {m}, n = {n}[[, {conditions:, }]][[, and {transposed}]]",
    limit="kind {kind}[[, {conditions:, },]] has {forms:; }",
    fix="Use [[m = {other_m}, ]]n = {other_n}.",
    source='PTX ISA, tcgen05.mma: "Matrix shape"',
    architectures=BLACKWELL,
    passing='ts.InstructionDescriptor("f16", 128, 256, a_type="bf16")',
    failing='ts.InstructionDescriptor("f16", 128, 260, a_type="bf16")',
)
MMA_GROUP = rule(
    "mma-group",
    "One block multiplies, or a pair with tcgen05; block-scaled kinds have m 128, for a pair also 256.",
    argument="cta_group",
    found="{asked}",
    limit="one block multiplies, or a pair",
    fix="Use 1 or 2.",
    source="PTX ISA, tcgen05.mma: .cta_group",
    architectures=BLACKWELL,
    passing=(
        'ts.emulate_mma(np.zeros((128, 64)), np.zeros((64, 32)), data_type="bf16", consumer="tcgen05", cta_group=2)'
    ),
    failing=(
        'ts.emulate_mma(np.zeros((128, 64)), np.zeros((64, 32)), data_type="bf16", consumer="wgmma", cta_group=2)'
    ),
)


class Documented:
    """A value for Blackwell, not measured on a card."""

    __slots__ = ()

    @property
    def basis(self) -> Basis:
        """Whether the behaviour was "measured" on a card or is only "documented"."""
        return "documented"


class Shapes(NamedTuple):
    """The m and n of one form of the instruction."""

    form: str  # how the instruction is written
    m: tuple[int, ...]
    n: tuple[int, ...]

    def with_n_in_steps(self, step: int) -> Shapes:
        """Those whose n is a multiple of `step`."""
        return self._replace(n=tuple(n for n in self.n if n % step == 0))


@dataclass(frozen=True, slots=True)
class Tcgen05Kind:
    """A row of the table: one .kind of tcgen05.mma.

    >>> kind = Tcgen05Kind.named("f16")
    >>> kind.codes, kind.accumulators, kind.k
    ({'float16': 0, 'bfloat16': 1}, ('float16', 'float32'), 16)
    """

    name: str
    codes: Mapping[str, int]  # of A and B
    accumulators: tuple[str, ...]
    k: int  # elements that a dense instruction takes along k
    scales: tuple[str, ...] = ()  # types of the scale factors
    feature: str = "tcgen05"  # what an architecture must have (see arch.py)

    @classmethod
    def named(cls, name: object) -> Tcgen05Kind:
        """The row called `name`; .kind::f16 is understood too."""
        return known_row(Tcgen05Kind, "kind of tcgen05.mma", "mma_kind", name, KINDS, plain=_plain_name)

    @property
    def is_scaled(self) -> bool:
        """Whether A and B come with scale factors."""
        return bool(self.scales)

    @property
    def is_dense_4_bit(self) -> bool:
        """Whether two values share a byte."""
        return self.k == 64

    def shapes(
        self, *, sparse: bool = False, k: int | None = None, transposed_bytes: bool = False
    ) -> tuple[Shapes, ...]:
        """The forms of the instruction, and their m and n.

        Those that are sparse, of k = 96 or with a transposed B of bytes have fewer.

        >>> [(form.form, form.m) for form in Tcgen05Kind.named("mxf4").shapes()]
        [('cta_group::1', (128,)), ('cta_group::2', (128, 256))]
        >>> wide = Tcgen05Kind.named("mxf4").shapes(k=96)  # PTX 9.4; up to 9.3 the pair alone
        >>> [(form.form, form.m) for form in wide]
        [('cta_group::1', (128,)), ('cta_group::2', (256,))]
        """
        block_m: tuple[int, ...] = (128,) if self.is_scaled else (64, 128)
        pair_m: tuple[int, ...] = (128, 256)
        if self.is_scaled and (sparse or k == WIDE_K):
            pair_m = (256,)
        is_integer = self.name == "i8"
        forms = [
            Shapes("cta_group::1", block_m, _INTEGER_BLOCK_N if is_integer else _BLOCK_N),
            Shapes("cta_group::2", pair_m, _INTEGER_PAIR_N if is_integer else _PAIR_N),
        ]
        if not self.is_scaled:
            forms.append(Shapes("cta_group::1.ws", (32, 64, 128), (64, 128) if sparse else (64, 128, 256)))
        if transposed_bytes:
            forms = [form.with_n_in_steps(32 if form.form == "cta_group::2" else 16) for form in forms]
        return tuple(forms)


def _plain_name(written: str) -> str:
    return written.strip().casefold().removeprefix(".").removeprefix("kind::")


_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_FLOATS = ("float16", "float32")
# PTX ISA, "Instruction descriptor" and "Matrix shape" of tcgen05.mma.
_ROWS = (
    Tcgen05Kind("f16", codes={"float16": 0, "bfloat16": 1}, accumulators=_FLOATS, k=16),
    Tcgen05Kind("tf32", codes={"tfloat32": 2}, accumulators=("float32",), k=8),
    Tcgen05Kind("f8f6f4", codes=_NARROW, accumulators=_FLOATS, k=32),
    Tcgen05Kind("i8", codes={"uint8": 0, "int8": 1}, accumulators=("int32",), k=32, feature="tcgen05_i8"),
    Tcgen05Kind("mxf8f6f4", codes=_NARROW, accumulators=("float32",), k=32, scales=("ue8m0",)),
    Tcgen05Kind("mxf4", codes={"e2m1": 1}, accumulators=("float32",), k=64, scales=("ue8m0",)),
    Tcgen05Kind("mxf4nvf4", codes={"e2m1": 1}, accumulators=("float32",), k=64, scales=("ue4m3", "ue8m0")),
)
KINDS: dict[str, Tcgen05Kind] = {row.name: row for row in _ROWS}
_BY_SMEM_TYPE = {
    **{name: kind for kind in ("f16", "tf32", "i8", "f8f6f4") for name in KINDS[kind].codes},
    "e2m1": "mxf4",  # two to a byte, as 16u4_align8b leaves them
    "16u4_align8b": "mxf4",
    "16u4_align16b": "f8f6f4",
    "16u6_align16b": "f8f6f4",
}


def tcgen05_for(data_type: object) -> Tcgen05Kind:
    """The kind that multiplies elements of this type as stored in shared memory.

    >>> tcgen05_for("bf16").name, tcgen05_for("e2m1").k, tcgen05_for("e2m3").name
    ('f16', 64, 'f8f6f4')
    """
    row = DataType.named(data_type)
    if row.name not in _BY_SMEM_TYPE:
        raise no_such_type(TCGEN05_TYPE, row, "tcgen05", list(_BY_SMEM_TYPE))
    return KINDS[_BY_SMEM_TYPE[row.name]]


def shape_problems(
    kind: Tcgen05Kind, m: int, n: int, *, transposed_bytes: bool, sparse: bool = False, k: int | None = None
) -> list[Violation]:
    """Why no form of the instruction has this m and n; the list of those that exist.

    >>> problem = shape_problems(Tcgen05Kind.named("mxf4"), 64, 60, transposed_bytes=False)[0]
    >>> problem.values["forms"][0]
    'cta_group::1 with m 128, n 8 to 256 in steps of 8'
    """
    shapes = kind.shapes(sparse=sparse, k=k, transposed_bytes=transposed_bytes)
    if any(m in form.m and n in form.n for form in shapes):
        return []
    conditions = []
    if sparse:
        conditions.append("sparse")
    if k == WIDE_K:
        conditions.append(f"k = {k}")
    existing = [(known_m, known_n) for form in shapes for known_m in form.m for known_n in form.n]
    other_m, other_n = min(existing, key=lambda shape: (abs(shape[0] - m), abs(shape[1] - n)))
    violation = TCGEN05_SHAPE.violation(
        m=m,
        n=n,
        kind=kind.name,
        conditions=tuple(conditions),
        transposed="B MN-major of 8 bits" if transposed_bytes else None,
        forms=tuple(f"{form.form} with m {', '.join(map(str, form.m))}, n {in_steps(form.n)}" for form in shapes),
        other_m=None if other_m == m else other_m,
        other_n=other_n,
    )
    return [violation]


def in_steps(extents: Sequence[int]) -> str:
    """A list of extents, its longest even run at the end in short.

    >>> in_steps((8, 16, 24, 32, 48, 64, 80))
    '8, 16, 24, 32 to 80 in steps of 16'
    """
    if len(extents) < 4:
        return ", ".join(map(str, extents))
    step = extents[-1] - extents[-2]
    first = len(extents) - 1  # of the run
    while first > 0 and extents[first] - extents[first - 1] == step:
        first -= 1
    if len(extents) - first < 4:
        return ", ".join(map(str, extents))
    run = f"{extents[first]} to {extents[-1]} in steps of {step}"
    return ", ".join([*map(str, extents[:first]), run])
