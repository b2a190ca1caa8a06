"""The 64-bit descriptor with which tcgen05 finds an operand in shared memory (Blackwell): known from documents.

    bits   63 … 61   52     51 … 49       48 … 46   45 … 32        29 … 16        13 … 0
           mode      LBO    base offset   0 0 1     stride / 16    leading / 16   start / 16

It reads as wgmma's does (operand_descriptor.py), with three bits of mode and other codes, and two things more: MN-major
32-bit elements in 128B atoms of 32 bytes, and a leading field that may hold an address (bit 52, sm_103a).

The second serves instructions that take 48 bytes along k (96 values of 4 bits). Every third of them runs over the end of
its 128-byte row, and goes on at the address that the leading field holds:

    k bytes     0        48        96     128│       16        64       112    128│ …
    step        ├─── 0 ───┼─── 1 ───┼── 2 ───┼──┤
    atom        └──────────── first ─────────┘└─ second, from `leading_bytes` on

The start of the second chunk may lie anywhere, so a ring of buffers needs no copy at its seam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilescope.bits import WordField, WordFormat
from tilescope.errors import Violation
from tilescope.layout import Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.operand_descriptor import DESCRIPTOR_READ, DescriptorForm, OperandDescriptor
from tilescope.reading import flag, is_one_of
from tilescope.rule import rule
from tilescope.swizzle import SMEM_LINE_BYTES, SWIZZLE, Swizzle, SwizzleName

# PTX ISA, "Shared memory descriptor" of tcgen05; CuTe calls bits 46-47 the version.
# fmt: off
TCGEN05_WORD = WordFormat("tcgen05 descriptor", 64, (
    #          name                  bits    unit
    WordField("start_address",        0, 13,  16),
    WordField("leading_bytes",       16, 29,  16),
    WordField("stride_bytes",        32, 45,  16),
    WordField("version",             46, 48),
    WordField("base_offset",         49, 51),
    WordField("leading_is_address",  52, 52),
    WordField("swizzle",             61, 63),
))
# fmt: on


_SEAM = (
    "ts.Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle={swizzle!r}, leading_is_address=True)"
)
LEADING_ADDRESS = rule(
    "tcgen05-leading-address", "A leading address exists K-major with swizzle 128B and base offset 0, on sm_103a.",
    source='PTX ISA, "Shared memory descriptor" of tcgen05: leading dimension mode', architectures=("sm_103",),
    passing=_SEAM.format(swizzle="128B"), failing=_SEAM.format(swizzle="64B"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Tcgen05Descriptor(OperandDescriptor):
    """A tcgen05 shared-memory descriptor: as wgmma's, with `leading_is_address` for the mode of sm_103a.

    >>> descriptor = Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> hex(descriptor.encode()), Tcgen05Descriptor.decode(0x4000404000010040) == descriptor
    ('0x4000404000010040', True)
    >>> mn_major = Tcgen05Descriptor(0x400, leading_bytes=512, stride_bytes=1024, swizzle="128B_ATOM_32B")
    >>> hex(mn_major.encode()), mn_major.addresses("MN", rows=64, k=8, element_bits=32)[[0, 8, 32], 1].tolist()
    ('0x2000404000200040', [1184, 1152, 1696])

    48 bytes of k, of which the last 16 lie in the next atom, at 0x4000:

    >>> seam = Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle="128B", leading_is_address=True)
    >>> [hex(address) for address in seam.addresses(rows=8, k=96, element_bits=4)[0, ::32]]
    ['0x60', '0x70', '0x4000']
    """

    form: ClassVar[DescriptorForm] = DescriptorForm(
        "tcgen05", TCGEN05_WORD, {row.tcgen05_code: row for row in SWIZZLE.values() if row.tcgen05_code is not None},
        "documented", "14-15, 30-31 and 53-60", {"version": 1},
        " Bits 46-48 zero, and bits 62-63 in use, mark a wgmma descriptor (Hopper).",
    )  # fmt: skip

    leading_is_address: bool

    def __init__(
        self, start_address: int, *, leading_bytes: int, stride_bytes: int, swizzle: SwizzleName | Swizzle,
        base_offset: int = 0, leading_is_address: bool = False,
    ) -> None:  # fmt: skip
        is_bit = is_one_of(leading_is_address, (0, 1))  # as a word has it
        leading_is_address = bool(leading_is_address) if is_bit else flag("leading_is_address", leading_is_address)
        self._fill(
            start_address=start_address, leading_bytes=leading_bytes, stride_bytes=stride_bytes,
            base_offset=base_offset, swizzle=swizzle, leading_is_address=int(leading_is_address),
        )  # fmt: skip
        object.__setattr__(self, "leading_is_address", leading_is_address)
        if self.leading_is_address and (self.swizzle.name, self.base_offset) != ("128B", 0):
            raise LEADING_ADDRESS.error(
                "leading_is_address",
                f"leading_is_address with swizzle {self.swizzle.name} and base offset {self.base_offset}",
                "a leading address exists with swizzle 128B and base offset 0 alone (sm_103a)", "Use swizzle 128B.",
            )  # fmt: skip

    def _logical(self, layout: CanonicalLayout, mn: Any, k: Any) -> Any:
        inside = OperandDescriptor._logical(self, layout, mn, k)
        if not self.leading_is_address:
            return inside
        row = inside - self.start_address - k * layout.element_bits // 8
        beyond = self.start_address % SMEM_LINE_BYTES + k * layout.element_bits // 8 - SMEM_LINE_BYTES
        return np.where(beyond < 0, inside, self.leading_bytes + row + beyond)

    def _read_problems(self, major: Major, rows: Any, k: Any, element_bits: Any) -> list[Violation]:
        problems = OperandDescriptor._read_problems(self, major, rows, k, element_bits)
        if self.leading_is_address and major != "K":
            limit = "a leading address exists for K-major operands alone"
            problems.append(DESCRIPTOR_READ["tcgen05"].violation("major", f"major = {major}", limit, 'Use major="K".'))
        return problems

    def ignored_fields(self, major: Major = "K") -> tuple[str, ...]:
        """Fields that the hardware does not look at in this mode."""
        ignored = OperandDescriptor.ignored_fields(self, major)
        return tuple(name for name in ignored if not (self.leading_is_address and name == "leading_bytes"))

    def _leading_shown(self) -> str:
        address = f"second chunk at {self.leading_bytes:#x}"
        return address if self.leading_is_address else OperandDescriptor._leading_shown(self)
