"""From facts to text: templates that read like the code they make, and what a tensor core multiplies as they spell it.

The kernels that prove a plan multiply its tile by an identity: `one` is the bit pattern of 1, and the sums of a value
and zeros are exact. Test data are bit patterns of numbers of moderate size, made from a hash `h` of 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

from tilescope.data_type import DataType
from tilescope.errors import Wording
from tilescope.rule import rule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment

Facts = dict[str, object]  # by the names that templates use
EMIT = rule(
    "emit",
    "Programs can be emitted for wgmma, ldmatrix and threads, GEMMs also for tcgen05, with types that these multiply "
    "or copy.",
    argument="consumer",
    found="consumer = {consumer}",
    limit="programs of one tile are emitted for wgmma, ldmatrix and threads",
    fix='Plan for sm_90, take snippets of this plan, or emit a GEMM: ts.plan_gemm(…, {arch:="sm_100"}).',
    source="tilescope's templates",
    passing='ts.emit(ts.plan((64, 64), "bf16").best, "ptx")',
    failing='ts.emit(ts.plan((128, 64), "bf16", arch="sm_100").best, "ptx")',
)
TYPE_NOT_MULTIPLIED = EMIT.worded(
    argument="data_type",
    found="{data_type} for {user}",
    limit="tensor cores multiply {known:, } in emitted programs",
    fix='Plan for {consumer:="ld.b128 rows"}.',
)
GEMM_TYPE_NOT_MULTIPLIED = TYPE_NOT_MULTIPLIED.worded(fix='Plan with {data_type:="bf16"}.')


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tilescope.emitter"),
        undefined=StrictUndefined,
        block_start_string="<%",  # {% would collide with the registers of inline assembly
        block_end_string="%>",
        variable_start_string="${",
        variable_end_string="}",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  source code, not HTML
    )
    environment.filters["nested"] = indent_text
    return environment


def indent_text(text: str, indent: int = 2) -> str:
    r"""Text further to the right; directives of the preprocessor stay at the margin.

    >>> print(indent_text("#pragma unroll\nfor (;;) {}"))
    #pragma unroll
      for (;;) {}
    """
    return "\n".join(indent_lines(text.strip("\n").split("\n"), indent))


def indent_lines(lines: Iterable[str], indent: int) -> Iterator[str]:
    """Lines further to the right; directives of the preprocessor stay at the margin, and empty lines empty."""
    for line in lines:
        stays = line.startswith("#") or not line
        yield line if stays else " " * indent + line


def render(template: str, facts: Mapping[str, object]) -> str:
    """The text of a template: never more than one empty line, none at the end."""
    text = _environment().get_template(template).render(facts)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class SourceText(str):
    """Source code: a string that IPython and notebooks show line by line, without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: _PrettyPrinter, cycle: bool) -> None:
        printer.text(str(self))


class _PrettyPrinter(Protocol):
    """What IPython hands to an object that prints itself."""

    def text(self, text: str) -> None: ...


def template_values(*parts: DataclassInstance) -> Facts:
    """The values of records by the names of their fields, which templates use."""
    return {field.name: getattr(part, field.name) for part in parts for field in fields(part)}


@dataclass(frozen=True, slots=True)
class WgmmaText:
    """A wgmma instruction as templates spell it."""

    wgmma: str  # shape and types
    wgmma_registers: int  # of the sums of one thread
    wgmma_flags: str  # behind the operands: scales, majornesses


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A type that tensor cores multiply."""

    name: str  # PTX's
    accumulator: Literal["f32", "s32"]
    one: str
    exponent_bits: int  # 0: an integer
    mantissa_bits: int
    sample: str  # bits of test data, from h
    integer: str = ""  # the C type of an integer's value

    @property
    def bias(self) -> int:
        """What the exponent's bits count from."""
        return (1 << self.exponent_bits) // 2 - 1

    @property
    def sum_type(self) -> str:
        """The C type of a sum."""
        return "float" if self.accumulator == "f32" else "int"

    @property
    def constraint(self) -> str:
        """The register of a sum in inline assembly."""
        return "f" if self.accumulator == "f32" else "r"

    def wgmma(self, n: int, k_step: int, a_major: str | None, b_major: str) -> WgmmaText:
        """The instruction for n columns, with the majorness of A and B; A of None is in registers."""
        flags = ""
        if self.exponent_bits:
            flags = ", 1, 1"  # scales of the operands
        if self.name in ("bf16", "f16"):
            by_descriptor = [b_major] if a_major is None else [a_major, b_major]
            flags += "".join(f", {int(major == 'MN')}" for major in by_descriptor)
        return WgmmaText(
            wgmma=f"m64n{n}k{k_step}.{self.accumulator}.{self.name}.{self.name}",
            wgmma_registers=n // 2,
            wgmma_flags=flags,
        )

    def mma(self, k_step: int) -> str:
        """The instruction of a warp."""
        return f"m16n8k{k_step}.row.col.{self.accumulator}.{self.name}.{self.name}.{self.accumulator}"


_ROWS = (
    Multiplied(
        "bf16",
        accumulator="f32",
        one="0x3F80",
        exponent_bits=8,
        mantissa_bits=7,
        sample="(h & 0x807F) | (0x78 + (h >> 16 & 7)) << 7",
    ),
    Multiplied(
        "f16",
        accumulator="f32",
        one="0x3C00",
        exponent_bits=5,
        mantissa_bits=10,
        sample="(h & 0x83FF) | (12 + (h >> 16 & 3)) << 10",
    ),
    Multiplied(
        "tf32",
        accumulator="f32",
        one="0x3F800000",
        exponent_bits=8,
        mantissa_bits=23,
        sample="(h & 0x807FE000) | (0x78 + (h >> 40 & 7)) << 23",
    ),
    Multiplied(
        "e4m3",
        accumulator="f32",
        one="0x38",
        exponent_bits=4,
        mantissa_bits=3,
        sample="(h & 0x87) | (4 + (h >> 16 & 3)) << 3",
    ),
    Multiplied(
        "e5m2",
        accumulator="f32",
        one="0x3C",
        exponent_bits=5,
        mantissa_bits=2,
        sample="(h & 0x83) | (12 + (h >> 16 & 3)) << 2",
    ),
    Multiplied("s8", accumulator="s32", one="1", exponent_bits=0, mantissa_bits=0, sample="h", integer="signed char"),
    Multiplied("u8", accumulator="s32", one="1", exponent_bits=0, mantissa_bits=0, sample="h", integer="unsigned char"),
)
MULTIPLIED = {row.name: row for row in _ROWS}
SCALED_E2M1 = Multiplied(  # two per byte, and multiplied only with scale factors
    "e2m1", accumulator="f32", one="0x2", exponent_bits=2, mantissa_bits=1, sample="h & 0xF"
)


def multiplied_row(data_type: DataType, user: str, refused: Wording) -> Multiplied:
    """The row of a type that `user` multiplies, refused where no emitted instruction does.

    >>> multiplied_row(DataType.named("bf16"), "a GEMM", GEMM_TYPE_NOT_MULTIPLIED).one
    '0x3F80'
    """
    if data_type.ptx not in MULTIPLIED:
        raise refused.error(data_type=data_type.name, user=user, known=tuple(MULTIPLIED))
    return MULTIPLIED[data_type.ptx]


def _by_ptx(instruction: str, constraint: str) -> str:
    return f'unsigned short bits; asm("{instruction}" : "=h"(bits) : {constraint}); return bits;'


# (type of the sum, type of C): the body of a function from `value` to the bits that C holds
CONVERSION = {
    ("f32", "bf16"): _by_ptx("cvt.rn.bf16.f32 %0, %1;", '"f"(value)'),
    ("f32", "f16"): _by_ptx("cvt.rn.f16.f32 %0, %1;", '"f"(value)'),
    ("f32", "f32"): "return __float_as_uint(value);",
    ("f32", "tf32"): "return __float_as_uint(value);",
    ("f32", "e4m3"): _by_ptx("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;", '"f"(0.0f), "f"(value)'),
    ("f32", "e5m2"): _by_ptx("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;", '"f"(0.0f), "f"(value)'),
    ("s32", "s32"): "return static_cast<Output>(value);",
    ("s32", "bf16"): _by_ptx("cvt.rn.bf16.f32 %0, %1;", '"f"(static_cast<float>(value))'),
    ("s32", "f16"): _by_ptx("cvt.rn.f16.f32 %0, %1;", '"f"(static_cast<float>(value))'),
    ("s32", "f32"): "return __float_as_uint(static_cast<float>(value));",
    ("s32", "s8"): "return static_cast<Output>(value < -128 ? -128 : value > 127 ? 127 : value);",
    ("s32", "u8"): "return static_cast<Output>(value < 0 ? 0 : value > 255 ? 255 : value);",
}
_HALF_AS_FLOAT = 'float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"({bits})); return value;'
# type: the body of a function from its `bits` to a float
DECODING = {
    "bf16": "return __uint_as_float(static_cast<unsigned>(bits) << 16);",
    "f16": _HALF_AS_FLOAT.format(bits="bits"),
    "f32": "return __uint_as_float(bits);",
    "tf32": "return __uint_as_float(bits);",
    "e4m3": "const int exponent = bits >> 3 & 15, mantissa = bits & 7;\n"
    "  const float value = exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);\n"
    "  return bits & 128 ? -value : value;",
    "e5m2": _HALF_AS_FLOAT.format(bits="static_cast<unsigned short>(bits << 8)"),
}
