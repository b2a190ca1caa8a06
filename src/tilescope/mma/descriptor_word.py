"""What a 64-bit number says as a descriptor of wgmma or tcgen05, field by field, whether or not it is a sound one."""

from __future__ import annotations

from tilescope.bits import Inspection
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.operand_descriptor import DescriptorForm, OperandDescriptor, ignored_fields, neighbours_in_words
from tilescope.mma.tcgen05 import Tcgen05Descriptor
from tilescope.mma.wgmma import WgmmaDescriptor
from tilescope.reading import integer, known_name
from tilescope.rule import Rule, rule
from tilescope.swizzle import SMEM_LINE_BYTES

_READ = (
    "ts.inspect_descriptor(ts.WgmmaDescriptor(0, leading_bytes={leading}, stride_bytes={stride}, swizzle='128B', "
    "base_offset={base}).encode()).violations"
)
_TCGEN05_READ = (
    "ts.inspect_descriptor(ts.Tcgen05Descriptor(0, leading_bytes=512, stride_bytes=1024, swizzle='128B_ATOM_32B').encode(), "
    "instruction='tcgen05', major={major!r}, element_bits=32).violations"
)
DESCRIPTOR_MAJOR = rule(
    "descriptor-major", "128B_ATOM_32B exists for MN-major operands of 32 bits alone.", severity="note",
    source='PTX ISA, "Canonical Layouts" of tcgen05', passing=_TCGEN05_READ.format(major="MN"),
    failing=_TCGEN05_READ.format(major="K"),
)  # fmt: skip
DESCRIPTOR_OVERLAP = rule(
    "descriptor-overlap", "Neighbouring atoms that a descriptor steps over do not overlap.", severity="warning",
    source='PTX ISA, "Canonical Layouts": the bytes of an atom', passing=_READ.format(leading=16, stride=1024, base=0),
    failing=_READ.format(leading=16, stride=512, base=0),
)  # fmt: skip
DESCRIPTOR_BASE_OFFSET = rule(
    "descriptor-base-offset", "TMA swizzles by the absolute address, which is base offset 0.", severity="warning",
    source="measured on an H200", basis="measured", passing=_READ.format(leading=16, stride=1024, base=0),
    failing=_READ.format(leading=16, stride=1024, base=1),
)  # fmt: skip
DESCRIPTOR_LEADING = rule(
    "descriptor-leading",
    "A swizzled K-major operand ignores leading; a distance of an atom or more there suggests an MN-major operand.",
    severity="note", source='PTX ISA, "Strides": leading dimension byte offset',
    passing=_READ.format(leading=16, stride=1024, base=0), failing=_READ.format(leading=8192, stride=1024, base=0),
)  # fmt: skip
DESCRIPTORS: dict[str, type[OperandDescriptor]] = {"wgmma": WgmmaDescriptor, "tcgen05": Tcgen05Descriptor}


def inspect_descriptor(
    word: int, *, major: Major = "K", element_bits: int = 16, instruction: str = "wgmma"
) -> Inspection:
    """What a 64-bit number means as a descriptor of wgmma or tcgen05, field by field, whether or not it is a sound one.

    Majorness and element width are not in the word; without them the usual K-major 16-bit operand is meant.

    >>> found = inspect_descriptor(0x4000404000010040)  # a tcgen05 descriptor: bit 46 is set
    >>> found.descriptor is None, found.violations[0].rule
    (True, 'descriptor-reserved')
    >>> print(inspect_descriptor(0x4000404000010040, instruction="tcgen05").descriptor)
    start 0x400, leading 16 bytes, stride 1024 bytes, 128B
    """
    described = DESCRIPTORS[known_name("instruction", instruction, list(DESCRIPTORS))]
    form = described.form
    word = integer("word", word)
    raise_all(form.word.word_problems(word))
    major, element_bits = major_named(major), integer("element_bits", element_bits)
    findings = form.word_problems(word)
    swizzle = form.swizzles.get(form.word.decode(word)["swizzle"])
    if swizzle is not None and swizzle.name == "128B_ATOM_32B" and major == "K":
        findings.append(DESCRIPTOR_MAJOR.violation(
            "major", "read as MN-major with 32-bit elements", f"{swizzle.name} exists so alone", 'Use major="MN".',
        ))  # fmt: skip
        major, element_bits = "MN", 32
    layout = None if swizzle is None else CanonicalLayout(major, swizzle, element_bits)
    descriptor = None
    if not any(finding.severity == "error" for finding in findings):
        try:
            descriptor = described.decode(word)
        except RuleError as error:
            findings += error.violations
    if descriptor is not None and layout is not None:
        findings += _advice(descriptor, layout)
    ignored = () if layout is None else ignored_fields(layout)
    return Inspection(
        name=form.word.name, bits=form.word.bits, word=word, fields=form.word.described(word, _meanings(form, word, layout)),
        violations=tuple(findings), described=descriptor, major=major, element_bits=element_bits,
        ignored=ignored if descriptor is None else descriptor.ignored_fields(major),
    )  # fmt: skip


def _meanings(form: DescriptorForm, word: int, layout: CanonicalLayout | None) -> dict[str, str]:
    """Every field in words; what leading and stride connect depends on the layout."""
    values = form.word.decode(word)
    line, place = divmod(values["start_address"], SMEM_LINE_BYTES)
    meaning = {
        "start_address": f"{values['start_address']:#x}, before the swizzle: line {line}, byte {place}",
        "leading_bytes": f"{values['leading_bytes']} bytes",
        "stride_bytes": f"{values['stride_bytes']} bytes",
        "base_offset": str(values["base_offset"]),
        "swizzle": f"no mode has code {values['swizzle']}",
        "version": "1 in every tcgen05 descriptor" if values.get("version") == 1 else "must be 1",
        "leading_is_address": "leading is a distance in bytes",
    }
    if layout is not None:
        mn, k = layout.atom
        meaning |= {
            "leading_bytes": f"{values['leading_bytes']} bytes {neighbours_in_words(layout, 'leading_bytes')}",
            "stride_bytes": f"{values['stride_bytes']} bytes {neighbours_in_words(layout, 'stride_bytes')}",
            "base_offset": _base_in_words(values["base_offset"], layout),
            "swizzle": f"{layout.mode}: atoms of {mn} x {k} (mn x k), {layout.atom_bytes} bytes",
        }
    if values.get("leading_is_address"):
        address = values["leading_bytes"]
        meaning["leading_bytes"] = f"{address:#x}: where k goes on at the end of the 128-byte row (sm_103a)"
        meaning["leading_is_address"] = "leading is an address"
    return meaning


def _base_in_words(base: int, layout: CanonicalLayout) -> str:
    if layout.swizzle.bits == 0:
        return f"{base}, ignored: nothing is swizzled"
    if base == 0:
        return "0: the pattern starts where the absolute address says, as TMA writes it"
    return (
        f"{base}: the pattern starts {base} lines ({base * SMEM_LINE_BYTES} bytes) later than the absolute address says"
    )


def _advice(descriptor: OperandDescriptor, layout: CanonicalLayout) -> list[Violation]:
    """What is legal but probably not meant."""
    findings = []

    def warn(rule: Rule, argument: str, limit: str, fix: str) -> None:
        value = getattr(descriptor, argument)
        findings.append(rule.violation(argument, f"{argument} = {value}", limit, fix, **{argument: value}))

    too_close = f"an atom is {layout.atom_bytes} bytes, so nearer neighbours overlap, if the operand has any there"
    for argument, step in (("leading_bytes", layout.leading_step), ("stride_bytes", layout.stride_step)):
        if step is not None and getattr(descriptor, argument) < layout.atom_bytes:
            warn(DESCRIPTOR_OVERLAP, argument, too_close, f"It leads {neighbours_in_words(layout, argument)}.")
    if "leading_bytes" in descriptor.ignored_fields(layout.major) and descriptor.leading_bytes >= layout.atom_bytes:
        warn(
            DESCRIPTOR_LEADING, "leading_bytes",
            "K-major with a swizzle ignores it, while an MN-major operand steps by it from span to span along mn",
            "If the operand is MN-major, read it so: major MN; K-major code writes 0 or 16 here.",
        )  # fmt: skip
    if layout.swizzle.bits and descriptor.base_offset:
        warn(
            DESCRIPTOR_BASE_OFFSET, "base_offset", "TMA swizzles by the absolute address, which is base offset 0",
            "Use 0 unless the data was written with a pattern of its own.",
        )  # fmt: skip
    return findings
