"""The kinds of tcgen05.mma: which types they multiply, by which codes, in which shapes.

One dense instruction takes 32 bytes along k, a sparse one twice as many of B; on sm_103a mxf4 and mxf4nvf4 also come with
k = 96. m and n are those of the whole instruction: with cta_group::2 of both blocks together. All of this is known from
documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import Severity, Violation
from tilescope.mma.instruction import no_such_type
from tilescope.reading import known_row
from tilescope.rule import Basis, Rule, rule

BLACKWELL = ("sm_100", "sm_103", "sm_110")  # the architectures with tcgen05


def blackwell_rule(
    name: str, demand: str, source: str, passing: str, failing: str, *, severity: Severity = "error"
) -> Rule:
    """A rule about tcgen05 or tensor memory; `source` is a section of the PTX ISA, or begins with another source's name."""
    where = source if source.startswith(_OTHER_SOURCES) else f"PTX ISA, {source}"
    return rule(
        name, demand, source=where, architectures=BLACKWELL, passing=passing, failing=failing, severity=severity
    )


Check = tuple[Any, Rule, str, str, str, str]  # whether it fails; the rule, the argument, found, limit and fix


def failed(*checks: Check, **values: Any) -> list[Violation]:
    """The violations of the checks that fail; `values` are the numbers of their sentences."""
    return [
        rule.violation(name, found, limit, fix, **values) for fails, rule, name, found, limit, fix in checks if fails
    ]


class Documented:
    """A value of Blackwell: no card was asked."""

    __slots__ = ()

    @property
    def basis(self) -> Basis:
        """What the value rests on."""
        return "documented"


_OTHER_SOURCES = ("CuTe", "CUTLASS", "TVM", "the run-time checks")
_MAKE = "ts.InstructionDescriptor({})"
_DECODE = 'ts.InstructionDescriptor.decode({}, "f16")'
# fmt: off
TCGEN05 = {name: blackwell_rule(
    f"tcgen05-{name}", demand, f"tcgen05.mma: {source}", call.format(passing), call.format(failing),
) for name, demand, source, call, passing, failing in (
    ("type", "tcgen05 multiplies the types of its kinds, and accumulates in those that the kind lists.",
     '"Instruction descriptor"', _MAKE, '"f16", 128, 256, a_type="bf16"', '"f16", 128, 256, a_type="e4m3"'),
    ("shape", "A kind of tcgen05 has certain m and n, which also depend on the number of CTAs.",
     '"Matrix shape"', _MAKE, '"f16", 128, 256, a_type="bf16"', '"f16", 128, 260, a_type="bf16"'),
    ("field", "A field of an instruction descriptor has the values that its kind allows.",
     '"Instruction descriptor"', _MAKE, '"f16", 64, 64, a_type="bf16", max_shift=16', '"f16", 64, 64, a_type="bf16", max_shift=4'),
    ("reserved", "Bits of an instruction descriptor that its kind does not use are zero.",
     '"Instruction descriptor"', _DECODE, "0x08400010", "0x08400050"),
    ("major", "MN-major operands of tcgen05 are of the types that PTX lets be transposed.",
     "valid layouts, which CuTe lists by type", _MAKE, '"f8f6f4", 128, 64, a_type="e4m3", a_major="MN"',
     '"f8f6f4", 128, 64, a_type="e2m1", a_major="MN"'),
    ("flag", "Only kind i8 saturates, and only the other kinds negate.",
     '"Instruction descriptor"', _MAKE, '"i8", 128, 64, a_type="s8", saturate=True', '"f16", 128, 64, a_type="bf16", saturate=True'),
)}
MMA_GROUP = blackwell_rule(
    "mma-group", "One block multiplies, or, with tcgen05, a pair; block-scaled kinds have m 128, a pair also 256.",
    "tcgen05.mma: .cta_group",
    'ts.emulate_mma(np.zeros((128, 64)), np.zeros((64, 32)), data_type="bf16", consumer="tcgen05", cta_group=2)',
    'ts.emulate_mma(np.zeros((128, 64)), np.zeros((64, 32)), data_type="bf16", consumer="wgmma", cta_group=2)',
)
# fmt: on
WIDE_K = 96  # of mxf4 and mxf4nvf4 on sm_103a
_FLOAT_N = tuple(range(8, 257, 8)), tuple(range(16, 257, 16))  # of one block, of a pair
_INTEGER_N = (8, 16, 24, *range(32, 257, 16)), tuple(range(32, 257, 32))


class Shapes(NamedTuple):
    """The m and n of one form of the instruction."""

    form: str  # how the instruction is written
    m: tuple[int, ...]
    n: tuple[int, ...]


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
    def named(cls, name: Any) -> Tcgen05Kind:
        """The row called `name`; .kind::f16 is understood too."""
        return known_row(
            Tcgen05Kind, "kind of tcgen05.mma", "mma_kind", name, KINDS,
            plain=lambda written: written.strip().casefold().removeprefix(".").removeprefix("kind::"),
        )  # fmt: skip

    @property
    def is_scaled(self) -> bool:
        """Whether A and B come with scale factors."""
        return bool(self.scales)

    @property
    def is_dense_4_bit(self) -> bool:
        """Whether two values share a byte."""
        return self.k == 64

    def shapes(self, *, sparse: bool = False, k: Any = None, transposed_bytes: bool = False) -> tuple[Shapes, ...]:
        """The forms of the instruction, and their m and n; those that are sparse, of k = 96 or with a transposed B of bytes have fewer.

        >>> [(form.form, form.m) for form in Tcgen05Kind.named("mxf4").shapes()]
        [('cta_group::1', (128,)), ('cta_group::2', (128, 256))]
        >>> [(form.form, form.m) for form in Tcgen05Kind.named("mxf4").shapes(k=96)]  # PTX 9.4; up to 9.3 the pair alone
        [('cta_group::1', (128,)), ('cta_group::2', (256,))]
        """
        scaled, wide = self.is_scaled, self.is_scaled and k == WIDE_K
        one_n, two_n = _INTEGER_N if self.name == "i8" else _FLOAT_N
        forms: tuple[Shapes, ...] = (
            Shapes("cta_group::1", (128,) if scaled else (64, 128), one_n),
            Shapes("cta_group::2", (256,) if wide or (scaled and sparse) else (128, 256), two_n),
        )
        if not scaled:
            forms += (Shapes("cta_group::1.ws", (32, 64, 128), (64, 128) if sparse else (64, 128, 256)),)
        if not transposed_bytes:
            return forms
        steps = {"cta_group::2": 32}  # others 16
        return tuple(form._replace(n=tuple(n for n in form.n if n % steps.get(form.form, 16) == 0)) for form in forms)


_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_FLOATS = ("float16", "float32")
# PTX ISA, "Instruction descriptor" and "Matrix shape" of tcgen05.mma.
# fmt: off
KINDS: dict[str, Tcgen05Kind] = {row.name: row for row in (
    #           name        codes of A and B                 D             k  scale factors
    Tcgen05Kind("f16",      {"float16": 0, "bfloat16": 1},   _FLOATS,      16),
    Tcgen05Kind("tf32",     {"tfloat32": 2},                 ("float32",),  8),
    Tcgen05Kind("f8f6f4",   _NARROW,                         _FLOATS,      32),
    Tcgen05Kind("i8",       {"uint8": 0, "int8": 1},         ("int32",),   32, feature="tcgen05_i8"),
    Tcgen05Kind("mxf8f6f4", _NARROW,                         ("float32",), 32, ("ue8m0",)),
    Tcgen05Kind("mxf4",     {"e2m1": 1},                     ("float32",), 64, ("ue8m0",)),
    Tcgen05Kind("mxf4nvf4", {"e2m1": 1},                     ("float32",), 64, ("ue4m3", "ue8m0")),
)}
# fmt: on
_BY_SMEM_TYPE = {
    **{name: kind for kind in ("f16", "tf32", "i8", "f8f6f4") for name in KINDS[kind].codes},
    "e2m1": "mxf4",  # two to a byte, as 16u4_align8b leaves them
    "16u4_align8b": "mxf4",
    "16u4_align16b": "f8f6f4",
    "16u6_align16b": "f8f6f4",
}


def tcgen05_for(data_type: object) -> Tcgen05Kind:
    """The kind that multiplies elements of this type as they lie in shared memory.

    >>> tcgen05_for("bf16").name, tcgen05_for("e2m1").k, tcgen05_for("e2m3").name
    ('f16', 64, 'f8f6f4')
    """
    row = DataType.named(data_type)
    if row.name not in _BY_SMEM_TYPE:
        raise no_such_type(TCGEN05["type"], row, "tcgen05", list(_BY_SMEM_TYPE))
    return KINDS[_BY_SMEM_TYPE[row.name]]


def shape_problems(
    kind: Tcgen05Kind, m: int, n: int, *, transposed_bytes: bool, sparse: bool = False, k: Any = None
) -> list[Violation]:
    """Why no form of the instruction has this m and n; the list of those that exist.

    >>> print(shape_problems(Tcgen05Kind.named("mxf4"), 64, 60, transposed_bytes=False)[0].limit)
    kind mxf4 has cta_group::1 with m 128, n 8 to 256 in steps of 8; cta_group::2 with m 128, 256, n 16 to 256 in steps of 16
    """
    shapes = kind.shapes(sparse=sparse, k=k, transposed_bytes=transposed_bytes)
    if any(m in form.m and n in form.n for form in shapes):
        return []
    known = [f"{form.form} with m {', '.join(map(str, form.m))}, n {in_steps(form.n)}" for form in shapes]
    near = sorted((extent for form in shapes if m in form.m for extent in form.n), key=lambda extent: abs(extent - n))
    fix = f"Use n = {near[0]}." if near else f"Use m = {shapes[0].m[-1]}, n = {shapes[0].n[-1]}."
    conditions = ", sparse" * sparse + f", k = {k}" * (k == WIDE_K)
    found = f"m = {m}, n = {n}{conditions}" + ", and B MN-major of 8 bits" * transposed_bytes
    limit = f"kind {kind.name}{conditions}{',' * bool(conditions)} has {'; '.join(known)}"
    return [TCGEN05["shape"].violation("m, n", found, limit, fix, m=m, n=n)]


def in_steps(extents: Sequence[int]) -> str:
    """A list of extents, its longest even run at the end in short.

    >>> in_steps((8, 16, 24, 32, 48, 64, 80))
    '8, 16, 24, 32 to 80 in steps of 16'
    """
    if len(extents) < 4:
        return ", ".join(map(str, extents))
    step = extents[-1] - extents[-2]
    run = [extent for extent in extents if extents[-1] - extent == (len(extents) - 1 - extents.index(extent)) * step]
    if len(run) < 4:
        return ", ".join(map(str, extents))
    single = [f"{extent}, " for extent in extents[: -len(run)]]
    return f"{''.join(single)}{run[0]} to {run[-1]} in steps of {step}"
