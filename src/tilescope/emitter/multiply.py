"""What a tensor core multiplies, as emitted code spells it: one row a type.

The kernels that prove a plan multiply its tile by an identity: `one` is the bit pattern of 1, and the sums of a value
and zeros are exact. Test data are bit patterns of numbers of moderate size, made from a hash `h` of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.data_type import DataType


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A type that tensor cores multiply."""

    name: str  # PTX's
    accumulator: str  # PTX's
    one: str
    exponent_bits: int  # 0: an integer
    mantissa_bits: int
    sample: str  # bits of test data, from h
    integer: str = ""  # the C type of an integer's value

    c_accumulator: ClassVar[dict[str, str]] = {"f32": "float", "s32": "int"}
    constraints: ClassVar[dict[str, str]] = {"f32": "f", "s32": "r"}

    @property
    def bias(self) -> int:
        """What the exponent's bits count from."""
        return (1 << self.exponent_bits) // 2 - 1


# fmt: off
MULTIPLIED = {row.name: row for row in (
    #          type    sum    1             exponent, mantissa  sample
    Multiplied("bf16", "f32", "0x3F80",     8,  7, "(h & 0x807F) | (0x78 + (h >> 16 & 7)) << 7"),
    Multiplied("f16",  "f32", "0x3C00",     5, 10, "(h & 0x83FF) | (12 + (h >> 16 & 3)) << 10"),
    Multiplied("tf32", "f32", "0x3F800000", 8, 23, "(h & 0x807FE000) | (0x78 + (h >> 40 & 7)) << 23"),
    Multiplied("e4m3", "f32", "0x38",       4,  3, "(h & 0x87) | (4 + (h >> 16 & 3)) << 3"),
    Multiplied("e5m2", "f32", "0x3C",       5,  2, "(h & 0x83) | (12 + (h >> 16 & 3)) << 2"),
    Multiplied("s8",   "s32", "1",          0,  0, "h", "signed char"),
    Multiplied("u8",   "s32", "1",          0,  0, "h", "unsigned char"),
)}
# fmt: on


def multiplied(data_type: DataType) -> Multiplied | None:
    """The row of a type; None where no emitted instruction multiplies it.

    >>> multiplied(DataType.named("bf16")).one, multiplied(DataType.named("f64"))
    ('0x3F80', None)
    """
    return MULTIPLIED.get(data_type.ptx)


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
    ("s32", "s8"): "return static_cast<Output>(value < -128 ? -128 : value > 127 ? 127 : value);",
    ("s32", "u8"): "return static_cast<Output>(value < 0 ? 0 : value > 255 ? 255 : value);",
}
