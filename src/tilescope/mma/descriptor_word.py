"""What a 64-bit number says as a descriptor of wgmma or tcgen05, field by field, whether or not it is a sound one."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.layout import Major, major_named
from tilescope.mma.bits import plain_int
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.operand_descriptor import OperandDescriptor, ignored_fields, neighbours_in_words
from tilescope.mma.tcgen05 import Tcgen05Descriptor
from tilescope.mma.wgmma import WgmmaDescriptor
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.tensor_map.descriptor import DescriptorField
from tilescope.value import Value, hex_field, is_one_of

DESCRIPTORS: dict[str, type[OperandDescriptor]] = {"wgmma": WgmmaDescriptor, "tcgen05": Tcgen05Descriptor}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorWord(Value):
    """Everything a 64-bit word says as a descriptor of `instruction`; `descriptor` is None when it is none.

    >>> word = inspect_descriptor(0x4000004000010040)
    >>> word.fields[2].meaning
    '1024 bytes from the atom at (mn 0, k 0) to the next 8 mn, at (mn 8, k 0)'
    >>> word.ignored
    ('leading_bytes',)
    """

    word: int = hex_field()
    major: Major
    element_bits: int
    fields: tuple[DescriptorField, ...]
    findings: tuple[Violation, ...]
    descriptor: OperandDescriptor | None
    instruction: str = "wgmma"

    @property
    def name(self) -> str:
        """What the word is read as."""
        return f"{self.instruction} descriptor"

    @property
    def sound(self) -> bool:
        """Whether it is such a descriptor."""
        return self.descriptor is not None

    @property
    def ignored(self) -> tuple[str, ...]:
        """The fields that the hardware does not look at in this mode."""
        if self.descriptor is not None:
            return self.descriptor.ignored_fields(self.major)
        layout = _layout(DESCRIPTORS[self.instruction], self.word, self.major, self.element_bits)
        return () if layout is None else ignored_fields(layout)


def inspect_descriptor(
    word: int, *, major: Major = "K", element_bits: int = 16, instruction: str = "wgmma"
) -> DescriptorWord:
    """What a 64-bit number means as a descriptor of wgmma or tcgen05, field by field, whether or not it is a sound one.

    Majorness and element width are not in the word; without them the usual K-major 16-bit operand is meant.

    >>> found = inspect_descriptor(0x4000404000010040)  # a tcgen05 descriptor: bit 46 is set
    >>> found.descriptor is None, found.findings[0].rule
    (True, 'descriptor-reserved')
    >>> print(inspect_descriptor(0x4000404000010040, instruction="tcgen05").descriptor)
    start 0x400, leading 16 bytes, stride 1024 bytes, 128B
    """
    if not is_one_of(instruction, DESCRIPTORS):
        raise RuleError([unknown_name("instruction", "instruction", instruction, DESCRIPTORS)])
    described = DESCRIPTORS[instruction]
    word = plain_int(word)
    problems = described.form.word.word_problems(word)
    if problems:
        raise RuleError(problems)
    major, element_bits = major_named(major), plain_int(element_bits)
    findings = described.form.word_problems(word)
    swizzle = described.form.swizzles.get(described.form.word.decode(word)["swizzle"])
    if swizzle is not None and swizzle.name == "128B_ATOM_32B" and major == "K":
        findings.append(Violation(
            "descriptor-major", "note", "major", "read as MN-major with 32-bit elements", f"{swizzle.name} exists so alone",
            'Give major="MN".',
        ))  # fmt: skip
        major, element_bits = "MN", 32
    layout = _layout(described, word, major, element_bits)
    descriptor = None
    if not any(finding.severity == "error" for finding in findings):
        try:
            descriptor = described.decode(word)
        except RuleError as error:
            findings += error.violations
    if descriptor is not None and layout is not None:
        findings += _advice(descriptor, layout)
    return DescriptorWord(
        word=word, major=major, element_bits=element_bits, fields=_in_words(described, word, layout),
        findings=tuple(findings), descriptor=descriptor, instruction=instruction,
    )  # fmt: skip


def _layout(described: type[OperandDescriptor], word: int, major: Major, element_bits: int) -> CanonicalLayout | None:
    """The layout that the word names; None where its code has no mode."""
    swizzle = described.form.swizzles.get(described.form.word.decode(word)["swizzle"])
    return None if swizzle is None else CanonicalLayout(major, swizzle, element_bits)


def _in_words(
    described: type[OperandDescriptor], word: int, layout: CanonicalLayout | None
) -> tuple[DescriptorField, ...]:
    form = described.form
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
    return tuple(
        DescriptorField(
            each.name,
            each.low,
            each.high - each.low + 1,
            meaning=meaning[each.name],
            raw=values[each.name] // each.unit,
        )
        for each in form.word.fields
    )


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

    def warn(rule: str, argument: str, limit: str, fix: str) -> None:
        found = f"{argument} = {getattr(descriptor, argument)}"
        findings.append(Violation(rule, "warning", argument, found, limit, fix))

    too_close = f"an atom is {layout.atom_bytes} bytes, so nearer neighbours overlap, if the operand has any there"
    for argument, step in (("leading_bytes", layout.leading_step), ("stride_bytes", layout.stride_step)):
        if step is not None and getattr(descriptor, argument) < layout.atom_bytes:
            warn("descriptor-overlap", argument, too_close, f"It leads {neighbours_in_words(layout, argument)}.")
    if layout.swizzle.bits and descriptor.base_offset:
        warn(
            "descriptor-base-offset", "base_offset", "TMA swizzles by the absolute address, which is base offset 0",
            "Use 0 unless the data was written with a pattern of its own.",
        )  # fmt: skip
    return findings
