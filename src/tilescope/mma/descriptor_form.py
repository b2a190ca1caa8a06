"""How wgmma (Hopper) and tcgen05 (Blackwell) write a descriptor down: the fields of its 64-bit word.

    bits      63 … 61       52    51 … 49       48 … 46   45 … 32        29 … 16        13 … 0
    wgmma     mode (63 62)  0     base offset   0 0 0     stride / 16    leading / 16   start / 16
    tcgen05   mode          LBO   base offset   0 0 1     stride / 16    leading / 16   start / 16

    0x4000004000010040     wgmma: mode 1 (128B), stride 0x40 * 16 = 1024, leading 1 * 16, start 0x40 * 16 = 0x400

Bits between the fields are zero; a word with other bits set is not a descriptor of this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilescope.bits import WordField, WordFormat
from tilescope.errors import Violation
from tilescope.rule import Basis, Rule, rule
from tilescope.swizzle import SWIZZLE, Swizzle

DESCRIPTOR_RESERVED = rule(
    "descriptor-reserved",
    "Bits of a descriptor that belong to no field are zero, and its constant fields have the values that PTX "
    "specifies.",
    argument="word",
    found="{word:#x} has bits {bits:, } set",
    limit="a {descriptor} keeps bits {reserved} zero",
    fix="Check how the word was built: start, leading and stride are masked to 18 bits and shifted by 4. {resembles}",
    source='PTX ISA, "Matrix Descriptor Format" of wgmma; PTX ISA, "Shared memory descriptor" of tcgen05',
    passing="ts.WgmmaDescriptor.decode(0x4000004000010040)",
    failing="ts.WgmmaDescriptor.decode(0x4000404000010040)",
)
ONE_RESERVED_BIT = DESCRIPTOR_RESERVED.worded(found="{word:#x} has bit {bits:, } set")
DESCRIPTOR_VERSION = DESCRIPTOR_RESERVED.worded(
    found="{word:#x} has {version:#b} in bits {low}-{high}",
    limit="a {descriptor} holds {constant:#b} in bits {low}-{high}",
)
SWIZZLE_CODE = DESCRIPTOR_RESERVED.worded(
    found="{word:#x} has swizzle code {code}",
    limit="a {descriptor} has {known:, }",
    fix="Use code {usual} for 128B.",
)
WGMMA_SWIZZLE = rule(
    "wgmma-swizzle",
    "A wgmma descriptor has codes for the swizzles none, 32B, 64B, 128B.",
    argument="swizzle",
    found="swizzle {swizzle}",
    limit="a wgmma descriptor has {swizzles:, }",
    fix="Use 128B.",
    source='PTX ISA, "Matrix Descriptor Format" of wgmma',
    passing="ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B')",
    failing="ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B_ATOM_64B')",
)
WGMMA_READ = rule(
    "wgmma-read",
    "One wgmma instruction reads up to 256 rows and one K step, in a layout that it supports.",
    argument="rows",
    found="rows = {rows}",
    limit="one instruction reads 1 to {most}",
    fix="Use rows = {most}.",
    source='PTX ISA, "Matrix Descriptor Format" of wgmma',
    passing="ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B').addresses(rows=256)",
    failing="ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B').addresses(rows=257)",
)
TCGEN05_SWIZZLE = rule(
    "tcgen05-swizzle",
    "A tcgen05 descriptor has codes for the swizzles none, 32B, 64B, 128B, 128B_ATOM_32B.",
    argument="swizzle",
    found="swizzle {swizzle}",
    limit="a tcgen05 descriptor has {swizzles:, }",
    fix="Use 128B.",
    source='PTX ISA, "Shared memory descriptor" of tcgen05',
    passing="ts.Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B')",
    failing="ts.Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B_ATOM_64B')",
)
TCGEN05_READ = rule(
    "tcgen05-read",
    "One tcgen05 instruction reads up to 256 rows and one K step, in a layout that it supports.",
    argument="rows",
    found="rows = {rows}",
    limit="one instruction reads 1 to {most}",
    fix="Use rows = {most}.",
    source='PTX ISA, "Shared memory descriptor" of tcgen05',
    passing="ts.Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B').addresses(rows=256)",
    failing="ts.Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle='128B').addresses(rows=257)",
)


@dataclass(frozen=True, slots=True)
class DescriptorForm:
    """How one instruction writes its descriptors down, and the rules that are its own."""

    instruction: str
    word: WordFormat
    codes: Mapping[str, int]  # of the swizzles
    basis: Basis
    reserved: str  # which bits are zero, in words
    resembles: str  # what a word with wrong bits may be instead
    version: int | None  # what the field of that name always holds; None: there is none
    swizzle_rule: Rule
    read_rule: Rule

    @property
    def swizzles(self) -> dict[int, Swizzle]:
        """The swizzle of every code."""
        return {code: SWIZZLE[name] for name, code in self.codes.items()}

    @property
    def swizzle_bits(self) -> str:
        """The bits of the swizzle's code: "62-63"."""
        field = self.word.field("swizzle")
        return f"{field.low}-{field.high}"

    def word_problems(self, word: int) -> Iterator[Violation]:
        """Why a 64-bit word is not such a descriptor: bits that must be zero, its version, or an undefined swizzle code."""
        name = self.word.name
        values = self.word.decode(word)
        ones = self.word.reserved_ones(word)
        if ones:
            wording = ONE_RESERVED_BIT if len(ones) == 1 else DESCRIPTOR_RESERVED.wording
            yield wording.violation(
                word=word, bits=ones, descriptor=name, reserved=self.reserved, resembles=self.resembles
            )
        if self.version is not None and values["version"] != self.version:
            field = self.word.field("version")
            yield DESCRIPTOR_VERSION.violation(
                word=word,
                version=values["version"],
                low=field.low,
                high=field.high,
                descriptor=name,
                constant=self.version,
                resembles=self.resembles,
            )
        code = values["swizzle"]
        if code not in self.swizzles:
            code_names = tuple(f"{known_code} {row.name}" for known_code, row in sorted(self.swizzles.items()))
            yield SWIZZLE_CODE.violation(
                word=word, code=code, descriptor=name, known=code_names, usual=self.codes["128B"]
            )


_FIELDS = (
    # name, first bit, last bit
    WordField("start_address", 0, 13, unit=16),
    WordField("leading_bytes", 16, 29, unit=16),
    WordField("stride_bytes", 32, 45, unit=16),
    WordField("base_offset", 49, 51),
)
WGMMA_FORM = DescriptorForm(
    instruction="wgmma",
    word=WordFormat("wgmma descriptor", 64, (*_FIELDS, WordField("swizzle", 62, 63))),
    codes={row.name: row.wgmma_code for row in SWIZZLE.values() if row.wgmma_code is not None},
    basis="measured",
    reserved="14-15, 30-31, 46-48 and 52-61",
    resembles="Bit 46 set alone marks a tcgen05 descriptor (Blackwell), whose swizzle codes differ too.",
    version=None,
    swizzle_rule=WGMMA_SWIZZLE,
    read_rule=WGMMA_READ,
)
TCGEN05_FORM = DescriptorForm(
    instruction="tcgen05",
    word=WordFormat(
        "tcgen05 descriptor",
        64,
        (
            *_FIELDS,
            WordField("version", 46, 48),  # what CuTe calls bits 46-47
            WordField("leading_is_address", 52, 52),
            WordField("swizzle", 61, 63),
        ),
    ),
    codes={row.name: row.tcgen05_code for row in SWIZZLE.values() if row.tcgen05_code is not None},
    basis="documented",
    reserved="14-15, 30-31 and 53-60",
    resembles="Bits 46-48 zero, and bits 62-63 in use, mark a wgmma descriptor (Hopper).",
    version=1,
    swizzle_rule=TCGEN05_SWIZZLE,
    read_rule=TCGEN05_READ,
)
