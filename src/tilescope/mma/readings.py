"""What a number could be: the 64-bit descriptors of wgmma and tcgen05, the 32-bit ones of tcgen05's kinds, an address.

0x4000404000010040   bit 46 set, bits 61-63 = 2      tcgen05 descriptor, 128B
0x4000004000010040   bits 46-48 zero, 62-63 = 1      wgmma descriptor, 128B
0x0000000008400010   at most 32 bits                 instruction descriptor of kind f16, or of kind f8f6f4, …
0x0000000000600025   lane 96, column 37              tensor-memory address

Every field is explained, whether or not the number is a valid descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilescope.bits import Inspection
from tilescope.errors import Violation
from tilescope.layout import Major, major_named
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor_form import DescriptorForm
from tilescope.mma.instruction_descriptor import inspect_instruction_descriptor
from tilescope.mma.operand_descriptor import OperandDescriptor, Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tmem_address import inspect_tmem_address
from tilescope.reading import integer, known_name, try_read
from tilescope.rule import rule
from tilescope.sentence import by
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.value import Value, hex_field
from tilescope.written import word as pasted

INSTRUCTION_BITS = 32
_MAX_DIGITS = {"0x": 16, "0b": 64, "0o": 22, "": 20}  # of a 64-bit number, by its prefix
_READ = (
    "ts.inspect_descriptor(ts.WgmmaDescriptor(0, leading_bytes={leading}, stride_bytes={stride}, swizzle='128B', "
    "base_offset={base}).encode()).violations"
)
_TCGEN05_READ = (
    "ts.inspect_descriptor(ts.Tcgen05Descriptor(0, leading_bytes=512, stride_bytes=1024, swizzle='128B_ATOM_32B').encode(), "
    "instruction='tcgen05', major={major!r}, element_bits=32).violations"
)
_SOUND = _READ.format(leading=16, stride=1024, base=0)
DESCRIPTOR_MAJOR = rule(
    "descriptor-major",
    "128B_ATOM_32B exists only for MN-major operands with 32-bit elements.",
    argument="major",
    found='major = "K"',
    limit="{swizzle} holds only MN-major elements of 32 bits; the fields are shown for those",
    fix='Use {major:="MN"}, {element_bits:=32}.',
    severity="note",
    source='PTX ISA, "Canonical Layouts" of tcgen05',
    passing=_TCGEN05_READ.format(major="MN"),
    failing=_TCGEN05_READ.format(major="K"),
)
DESCRIPTOR_OVERLAP = rule(
    "descriptor-overlap",
    "Adjacent atoms of a descriptor do not overlap.",
    argument="{field}",
    found="{field} = {distance_bytes}",
    limit="an atom is {atom_bytes} bytes, so nearer neighbours overlap, if the operand has any there",
    fix="Use at least {atom_bytes}: it leads {neighbours}.",
    severity="warning",
    source='PTX ISA, "Canonical Layouts": the bytes of an atom',
    passing=_SOUND,
    failing=_READ.format(leading=16, stride=512, base=0),
)
DESCRIPTOR_BASE_OFFSET = rule(
    "descriptor-base-offset",
    "TMA swizzles by the absolute address, which is base offset 0.",
    argument="base_offset",
    found="base_offset = {base_offset}",
    limit="TMA swizzles by the absolute address, which is base offset 0",
    fix="Use 0 unless the data was written with another pattern.",
    severity="warning",
    source="measured on an H200",
    basis="measured",
    passing=_SOUND,
    failing=_READ.format(leading=16, stride=1024, base=1),
)
DESCRIPTOR_LEADING = rule(
    "descriptor-leading",
    "A swizzled K-major operand ignores leading; a distance of an atom or more there suggests an MN-major operand.",
    argument="leading_bytes",
    found="leading_bytes = {leading_bytes}",
    limit="K-major with a swizzle ignores it, while an MN-major operand steps by it from span to span along mn",
    fix="If the operand is MN-major, say major MN. K-major code writes 0 or 16 here.",
    severity="note",
    source='PTX ISA, "Strides": leading dimension byte offset',
    passing=_SOUND,
    failing=_READ.format(leading=8192, stride=1024, base=0),
)
DESCRIPTORS: dict[str, type[OperandDescriptor]] = {
    described.form.instruction: described for described in (WgmmaDescriptor, Tcgen05Descriptor)
}


@dataclass(frozen=True, slots=True)
class WordReadings(Value):
    """All readings of a number, the most likely first: valid without a warning, valid, invalid.

    >>> [reading.name for reading in descriptor_readings(0x4000404000010040).possible]
    ['tcgen05 descriptor']
    """

    word: int = hex_field()
    readings: tuple[Inspection, ...] = ()

    @property
    def possible(self) -> tuple[Inspection, ...]:
        """The readings under which the word is a sound descriptor."""
        return tuple(reading for reading in self.readings if reading.sound)


def descriptor_readings(word: int, *, major: Major = "K", element_bits: int = 16) -> WordReadings:
    """Every kind of descriptor that a number could be, with all fields described.

    Majorness and element width, which the 64-bit words do not hold, are those of the operand.

    >>> [reading.name for reading in descriptor_readings(0x08400010).possible][:2]
    ['tcgen05 instruction descriptor, kind f16', 'tcgen05 instruction descriptor, kind f8f6f4']
    """
    word = integer("word", word)
    readings = [
        inspect_descriptor(word, major=major, element_bits=element_bits, instruction=name) for name in DESCRIPTORS
    ]
    if word < 1 << INSTRUCTION_BITS:
        instructions = (inspect_instruction_descriptor(word, kind) for kind in KINDS)
        readings = [*instructions, inspect_tmem_address(word), *readings]
    likeliest_first = sorted(readings, key=lambda reading: (not reading.sound, bool(reading.violations)))
    return WordReadings(word, tuple(likeliest_first))


def pasted_word(text: str) -> int | None:
    """The integer that a text spells, or None if it has more than 64 bits or more digits than 64 bits need.

    >>> pasted_word("0x40"), pasted_word("0x1" + 16 * "0"), pasted_word(254 * "0")  # 254 zeros are 127 bytes, not a word
    (64, None, None)
    """
    plain = text.strip().casefold().replace("_", "")
    prefix = plain[:2] if plain[:2] in _MAX_DIGITS else ""
    if len(plain) - len(prefix) > _MAX_DIGITS[prefix]:
        return None
    try:
        number = pasted(text)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 64 else None


def inspect_descriptor(
    word: int, *, major: Major = "K", element_bits: int = 16, instruction: str = "wgmma"
) -> Inspection:
    """What a 64-bit number means as a descriptor of wgmma or tcgen05, field by field, whether or not it is valid.

    Majorness and element width are not in the word; by default the operand is K-major and has 16 bits.

    >>> found = inspect_descriptor(0x4000404000010040)  # a tcgen05 descriptor: bit 46 is set
    >>> found.descriptor is None, found.violations[0].rule
    (True, 'descriptor-reserved')
    >>> print(inspect_descriptor(0x4000404000010040, instruction="tcgen05").descriptor)
    start 0x400, leading 16 bytes, stride 1024 bytes, 128B
    """
    described = DESCRIPTORS[known_name("instruction", instruction, list(DESCRIPTORS))]
    form = described.form
    word = form.word.checked(word)
    major = major_named(major)
    element_bits = integer("element_bits", element_bits)
    findings: list[Violation] = []
    descriptor = try_read(findings, None, described.decode, word)
    swizzle = form.swizzles.get(form.word.decode(word)["swizzle"])
    if swizzle is not None and swizzle.name == "128B_ATOM_32B" and major == "K":
        findings.append(DESCRIPTOR_MAJOR.violation(swizzle=swizzle.name, element_bits=element_bits))
        major = "MN"
        element_bits = 32
    layout = None if swizzle is None else CanonicalLayout(major, swizzle, element_bits)
    ignored = () if layout is None else layout.ignored_fields
    if descriptor is not None and layout is not None:
        findings += _advice(descriptor, layout)
        ignored = descriptor.ignored_fields(major)
    return Inspection(
        name=form.word.name,
        bits=form.word.bits,
        word=word,
        fields=form.word.described(word, _meanings(form, word, layout)),
        violations=tuple(findings),
        described=descriptor,
        major=major,
        element_bits=element_bits,
        ignored=ignored,
    )


def _meanings(form: DescriptorForm, word: int, layout: CanonicalLayout | None) -> dict[str, str]:
    """Every field in words; what leading and stride connect depends on the layout."""
    values = form.word.decode(word)
    start = values["start_address"]
    leading = values["leading_bytes"]
    stride = values["stride_bytes"]
    base = values["base_offset"]
    line, byte = divmod(start, SMEM_LINE_BYTES)
    meaning = {
        "start_address": f"{start:#x}, before the swizzle: line {line}, byte {byte}",
        "leading_bytes": f"{leading} bytes",
        "stride_bytes": f"{stride} bytes",
        "base_offset": str(base),
        "swizzle": f"no mode has code {values['swizzle']}",
        "version": "1 in every tcgen05 descriptor" if values.get("version") == 1 else "must be 1",
        "leading_is_address": "leading is a distance in bytes",
    }
    if layout is not None:
        meaning["leading_bytes"] = f"{leading} bytes {layout.neighbours('leading_bytes')}"
        meaning["stride_bytes"] = f"{stride} bytes {layout.neighbours('stride_bytes')}"
        meaning["swizzle"] = f"{layout.mode}: atoms of {by(layout.atom)} (mn x k), {layout.atom_bytes} bytes"
        meaning["base_offset"] = _pattern_start(base, layout)
    if values.get("leading_is_address"):
        meaning["leading_bytes"] = f"{leading:#x}: where k goes on at the end of the 128-byte row (sm_103a)"
        meaning["leading_is_address"] = "leading is an address"
    return meaning


def _pattern_start(base_offset: int, layout: CanonicalLayout) -> str:
    """The effect of the base offset on the swizzle."""
    if layout.swizzle.bits == 0:
        return f"{base_offset}, ignored: nothing is swizzled"
    if base_offset == 0:
        return "0: the pattern starts where the absolute address says, as TMA writes it"
    later_bytes = base_offset * SMEM_LINE_BYTES
    lines = f"{base_offset} lines ({later_bytes} bytes)"
    return f"{base_offset}: the pattern starts {lines} later than the absolute address says"


def _advice(descriptor: OperandDescriptor, layout: CanonicalLayout) -> list[Violation]:
    """What is legal but probably not meant."""
    advice: list[Violation] = []
    if layout.leading_step is not None and descriptor.leading_bytes < layout.atom_bytes:
        advice.append(_overlap("leading_bytes", descriptor.leading_bytes, layout))
    if descriptor.stride_bytes < layout.atom_bytes:
        advice.append(_overlap("stride_bytes", descriptor.stride_bytes, layout))
    if "leading_bytes" in descriptor.ignored_fields(layout.major) and descriptor.leading_bytes >= layout.atom_bytes:
        advice.append(DESCRIPTOR_LEADING.violation(leading_bytes=descriptor.leading_bytes))
    if layout.swizzle.bits and descriptor.base_offset:
        advice.append(DESCRIPTOR_BASE_OFFSET.violation(base_offset=descriptor.base_offset))
    return advice


def _overlap(field: str, distance_bytes: int, layout: CanonicalLayout) -> Violation:
    """Neighbours that are nearer than an atom is long."""
    value: dict[str, Any] = {field: distance_bytes}
    return DESCRIPTOR_OVERLAP.violation(
        field=field,
        distance_bytes=distance_bytes,
        atom_bytes=layout.atom_bytes,
        neighbours=layout.neighbours(field),
        **value,
    )
