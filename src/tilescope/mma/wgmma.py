"""The 64-bit descriptor with which wgmma finds an operand in shared memory (Hopper): measured on an H200.

    bits    63 62   51 … 49       45 … 32        29 … 16        13 … 0
            mode    base offset   stride / 16    leading / 16   start / 16

Majorness is not in the word: imm-trans-a and -b of the instruction choose it. What leading and stride connect is
told in operand_descriptor.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.bits import WordField, WordFormat
from tilescope.mma.operand_descriptor import DescriptorForm, OperandDescriptor
from tilescope.swizzle import SWIZZLE

# PTX ISA, "Matrix Descriptor Format" of wgmma.
# fmt: off
WGMMA_WORD = WordFormat("wgmma descriptor", 64, (
    #          name            bits    unit
    WordField("start_address",  0, 13,  16),
    WordField("leading_bytes", 16, 29,  16),
    WordField("stride_bytes",  32, 45,  16),
    WordField("base_offset",   49, 51),
    WordField("swizzle",       62, 63),
))
# fmt: on


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class WgmmaDescriptor(OperandDescriptor):
    """A wgmma matrix descriptor: start, leading and stride in bytes, swizzle, base offset.

    >>> descriptor = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> hex(descriptor.encode())
    '0x4000004000010040'
    >>> WgmmaDescriptor.decode(0x4000004000010040) == descriptor
    True
    >>> print(WgmmaDescriptor.decode(0x0000001000080040))
    start 0x400, leading 128 bytes, stride 256 bytes, none (core matrices)
    >>> descriptor.addresses(rows=16, k=16)[:, 0].tolist()  # where k = 0 of the first rows lies
    [1024, 1168, 1312, 1456, 1600, 1744, 1888, 2032, 2048, 2192, 2336, 2480, 2624, 2768, 2912, 3056]
    >>> descriptor.ignored_fields("K")
    ('leading_bytes',)
    """

    form: ClassVar[DescriptorForm] = DescriptorForm(
        "wgmma", WGMMA_WORD, {row.wgmma_code: row for row in SWIZZLE.values() if row.wgmma_code is not None},
        "measured", "14-15, 30-31, 46-48 and 52-61",
        resembles=" Bit 46 set alone marks a tcgen05 descriptor (Blackwell), whose swizzle codes differ too.",
    )  # fmt: skip
