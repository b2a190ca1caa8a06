"""The 64-bit descriptor with which wgmma finds an operand in shared memory, both ways, and the bytes it reads.

    bits    63 62   51 … 49       45 … 32        29 … 16        13 … 0
            mode    base offset   stride / 16    leading / 16   start / 16

`leading` and `stride` (LBO and SBO) lead from one atom to its neighbours. Which neighbours depends on
majorness, which is not in the word (imm-trans-a and -b of the instruction choose it), and on the mode:

              K-major none     K-major swizzled     MN-major none     MN-major swizzled
    leading   next 16 B of k   ignored              next 8 k          next span of mn
    stride    next 8 mn        next 8 mn            next 16 B of mn   next 8 k

The two change roles between MN-major none and MN-major swizzled: the usual source of wrong descriptors.

The XOR of the swizzle takes its line from (address / 128 - base_offset). With base offset 0 the pattern starts
where the absolute address says, as TMA wrote it, also when the descriptor starts in the middle of an atom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation
from tilescope.mma.bits import WordField, WordFormat, plain_int
from tilescope.mma.canonical import CanonicalLayout, Major, major_named
from tilescope.mma.instruction import WGMMA_K_BYTES
from tilescope.swizzle import SMEM_LINE_BYTES, SWIZZLE, Swizzle, SwizzleName
from tilescope.tensor_map.descriptor import DescriptorField
from tilescope.value import Value, hex_field, row_field

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
_SWIZZLES = {row.wgmma_code: row for row in SWIZZLE.values() if row.wgmma_code is not None}
_MAX_ROWS = 256


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class WgmmaDescriptor(Value):
    """A wgmma matrix descriptor: start, leading and stride in bytes, swizzle, base offset.

    >>> descriptor = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> hex(descriptor.encode())
    '0x4000004000010040'
    >>> WgmmaDescriptor.decode(0x4000004000010040) == descriptor
    True
    >>> descriptor.addresses(rows=16, k=16)[:, 0].tolist()  # where k = 0 of the first rows lies
    [1024, 1168, 1312, 1456, 1600, 1744, 1888, 2032, 2048, 2192, 2336, 2480, 2624, 2768, 2912, 3056]
    """

    start_address: int = hex_field()
    leading_bytes: int
    stride_bytes: int
    swizzle: Swizzle = row_field(Swizzle.named)
    base_offset: int

    def __init__(
        self,
        start_address: int,
        *,
        leading_bytes: int,
        stride_bytes: int,
        swizzle: SwizzleName | Swizzle,
        base_offset: int = 0,
    ) -> None:
        values: dict[str, Any] = {
            "start_address": plain_int(start_address),
            "leading_bytes": plain_int(leading_bytes),
            "stride_bytes": plain_int(stride_bytes),
            "base_offset": plain_int(base_offset),
        }
        swizzle = Swizzle.named(swizzle)
        problems = WGMMA_WORD.problems(values | {"swizzle": swizzle.wgmma_code or 0})
        if swizzle.wgmma_code is None:
            problems.append(_no_such_swizzle(swizzle))
        if problems:
            raise RuleError(problems)
        for name, value in (values | {"swizzle": swizzle}).items():
            object.__setattr__(self, name, value)

    def encode(self) -> int:
        """The 64-bit word."""
        return WGMMA_WORD.encode(
            {
                "start_address": self.start_address,
                "leading_bytes": self.leading_bytes,
                "stride_bytes": self.stride_bytes,
                "base_offset": self.base_offset,
                "swizzle": self.swizzle.wgmma_code or 0,
            }
        )

    @classmethod
    def decode(cls, word: int) -> WgmmaDescriptor:
        """The descriptor in a 64-bit word; a word with reserved bits set is refused.

        >>> print(WgmmaDescriptor.decode(0x0000001000080040))
        start 0x400, leading 128 bytes, stride 256 bytes, none (core matrices)
        """
        word = plain_int(word)
        problems = WGMMA_WORD.word_problems(word) or _reserved(word)
        if problems:
            raise RuleError(problems)
        values: dict[str, Any] = WGMMA_WORD.decode(word)
        return cls(**values | {"swizzle": _SWIZZLES[values["swizzle"]]})

    def layout(self, major: Major = "K", element_bits: int = 16) -> CanonicalLayout:
        """The canonical layout that the descriptor describes, read with this majorness and element width."""
        return CanonicalLayout(major, self.swizzle, element_bits)

    def addresses(
        self, major: Major = "K", rows: int = 64, k: int = 16, element_bits: int = 16
    ) -> npt.NDArray[np.int64]:
        """Physical byte addresses that one instruction reads, as an array of (rows, k).

        `rows` counts mn: rows of A, columns of B. One dense wgmma reads 32 bytes along k; a sparse one 64 of B.

        >>> descriptor = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=256, swizzle="32B")
        >>> descriptor.addresses(rows=8, k=16)[4, [0, 8]].tolist()  # row 4 is in the second line: chunks exchanged
        [144, 128]
        """
        major, rows, k, element_bits = major_named(major), plain_int(rows), plain_int(k), plain_int(element_bits)
        problems = _read_problems(major, rows, k, element_bits)
        if problems:
            raise RuleError(problems)
        mn_index, k_index = np.arange(rows)[:, None], np.arange(k)[None, :]
        logical = self.layout(major, element_bits).logical(
            mn_index, k_index,
            start=self.start_address, leading_bytes=self.leading_bytes, stride_bytes=self.stride_bytes,
        )  # fmt: skip
        # The XOR sees the address as if the pattern started base_offset lines later.
        seen = logical + (8 - self.base_offset) * SMEM_LINE_BYTES
        physical: npt.NDArray[np.int64] = logical ^ seen ^ self.swizzle.apply(seen)
        return physical

    def ignored_fields(self, major: Major = "K") -> tuple[str, ...]:
        """Fields that the hardware does not look at in this mode.

        >>> WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B").ignored_fields("K")
        ('leading_bytes',)
        """
        return _ignored(self.layout(major))

    def __str__(self) -> str:
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        return (
            f"start {self.start_address:#x}, leading {self.leading_bytes} bytes, stride {self.stride_bytes} bytes, "
            f"{self.layout().mode}{base}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorWord(Value):
    """Everything a 64-bit word says as a wgmma descriptor; `descriptor` is None when it is none.

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
    descriptor: WgmmaDescriptor | None

    @property
    def ignored(self) -> tuple[str, ...]:
        """The fields that the hardware does not look at in this mode."""
        return _ignored(CanonicalLayout(self.major, _SWIZZLES[WGMMA_WORD.decode(self.word)["swizzle"]]))


def inspect_descriptor(word: int, *, major: Major = "K", element_bits: int = 16) -> DescriptorWord:
    """What a 64-bit number means as a wgmma descriptor, field by field, whether or not it is a sound one.

    Majorness and element width are not in the word; without them the usual K-major 16-bit operand is meant.

    >>> found = inspect_descriptor(0x4000404000010040)  # a tcgen05 descriptor: bit 46 is set
    >>> found.descriptor is None, found.findings[0].rule
    (True, 'descriptor-reserved')
    """
    word = plain_int(word)
    problems = WGMMA_WORD.word_problems(word)
    if problems:
        raise RuleError(problems)
    major = major_named(major)
    values = WGMMA_WORD.decode(word)
    swizzle = _SWIZZLES[values["swizzle"]]
    layout = CanonicalLayout(major, swizzle, element_bits)
    findings = _reserved(word)
    descriptor = None if findings else WgmmaDescriptor.decode(word)
    if descriptor is not None:
        findings = _advice(descriptor, layout)
    return DescriptorWord(
        word=word, major=major, element_bits=element_bits,
        fields=_in_words(word, layout), findings=tuple(findings), descriptor=descriptor,
    )  # fmt: skip


def neighbours_in_words(layout: CanonicalLayout, name: str) -> str:
    """Which two elements `leading_bytes` or `stride_bytes` connects.

    >>> neighbours_in_words(CanonicalLayout("MN", "128B"), "leading_bytes")
    'from the atom at (mn 0, k 0) to the next 128 bytes of mn, at (mn 64, k 0)'
    """
    step = layout.leading_step if name == "leading_bytes" else layout.stride_step
    if step is None:
        return "(ignored: inside a swizzled atom k is contiguous, and one instruction stays inside)"
    mn, k = step
    piece = "core matrix" if layout.swizzle.bits == 0 else "atom"
    along = "mn" if mn else "k"
    contiguous = "k" if layout.major == "K" else "mn"
    amount = f"{layout.span_bytes} bytes of {along}" if along == contiguous else f"{mn or k} {along}"
    return f"from the {piece} at (mn 0, k 0) to the next {amount}, at (mn {mn}, k {k})"


def _ignored(layout: CanonicalLayout) -> tuple[str, ...]:
    leading = ("leading_bytes",) if layout.leading_step is None else ()
    return leading + (("base_offset",) if layout.swizzle.bits == 0 else ())


def _in_words(word: int, layout: CanonicalLayout) -> tuple[DescriptorField, ...]:
    values = WGMMA_WORD.decode(word)
    line, place = divmod(values["start_address"], SMEM_LINE_BYTES)
    mn, k = layout.atom
    meaning = {
        "start_address": f"{values['start_address']:#x}, before the swizzle: line {line}, byte {place}",
        "leading_bytes": f"{values['leading_bytes']} bytes {neighbours_in_words(layout, 'leading_bytes')}",
        "stride_bytes": f"{values['stride_bytes']} bytes {neighbours_in_words(layout, 'stride_bytes')}",
        "base_offset": _base_in_words(values["base_offset"], layout),
        "swizzle": f"{layout.mode}: atoms of {mn} x {k} (mn x k), {layout.atom_bytes} bytes",
    }
    return tuple(
        DescriptorField(
            name=each.name,
            bit=each.low,
            width_bits=each.high - each.low + 1,
            raw=values[each.name] // each.unit,
            meaning=meaning[each.name],
        )
        for each in WGMMA_WORD.fields
    )


def _base_in_words(base: int, layout: CanonicalLayout) -> str:
    if layout.swizzle.bits == 0:
        return f"{base}, ignored: nothing is swizzled"
    if base == 0:
        return "0: the pattern starts where the absolute address says, as TMA writes it"
    return (
        f"{base}: the pattern starts {base} lines ({base * SMEM_LINE_BYTES} bytes) later than the absolute address says"
    )


def _reserved(word: int) -> list[Violation]:
    ones = WGMMA_WORD.reserved_ones(word)
    if not ones:
        return []
    looks = ""
    if 46 in ones:
        looks = " Bit 46 marks a tcgen05 descriptor (Blackwell), whose swizzle codes differ too."
    return [
        Violation(
            "descriptor-reserved",
            "error",
            "word",
            f"{word:#x} has bit{'s' if len(ones) > 1 else ''} {', '.join(map(str, ones))} set",
            "a wgmma descriptor keeps bits 14-15, 30-31, 46-48 and 52-61 zero",
            f"Check how the word was built: each of start, leading and stride is masked to 18 bits and shifted by 4.{looks}",
        )
    ]


def _advice(descriptor: WgmmaDescriptor, layout: CanonicalLayout) -> list[Violation]:
    """What is legal but probably not meant."""
    findings = []

    def warn(rule: str, argument: str, limit: str, fix: str) -> None:
        found = f"{argument} = {getattr(descriptor, argument)}"
        findings.append(Violation(rule, "warning", argument, found, limit, fix))

    too_close = f"an atom is {layout.atom_bytes} bytes, so nearer neighbours overlap, if the operand has any there"
    if layout.leading_step is not None and descriptor.leading_bytes < layout.atom_bytes:
        warn(
            "descriptor-overlap",
            "leading_bytes",
            too_close,
            f"It leads {neighbours_in_words(layout, 'leading_bytes')}.",
        )
    if descriptor.stride_bytes < layout.atom_bytes:
        warn(
            "descriptor-overlap", "stride_bytes", too_close, f"It leads {neighbours_in_words(layout, 'stride_bytes')}."
        )
    if layout.swizzle.bits and descriptor.base_offset:
        warn(
            "descriptor-base-offset", "base_offset", "TMA swizzles by the absolute address, which is base offset 0",
            "Use 0 unless the data was written with a pattern of its own.",
        )  # fmt: skip
    return findings


def _no_such_swizzle(swizzle: Swizzle) -> Violation:
    known = ", ".join(row.name for row in _SWIZZLES.values())
    return Violation(
        "wgmma-swizzle",
        "error",
        "swizzle",
        f"swizzle {swizzle.name}",
        f"a wgmma descriptor has {known}",
        "Use one of these.",
    )


def _read_problems(major: Major, rows: Any, k: Any, element_bits: Any) -> list[Violation]:
    problems = []

    def refuse(argument: str, found: Any, limit: str, fix: str) -> None:
        problems.append(Violation("wgmma-read", "error", argument, f"{argument} = {found!r}", limit, fix))

    widths = tuple(sorted({bits for bits in (1, 8, 16, 32) if major == "K" or bits == 16}))
    if element_bits not in widths:
        listed = ", ".join(map(str, widths))
        refuse(
            "element_bits", element_bits, f"wgmma reads {major}-major elements of {listed} bits", f"Use {widths[-1]}."
        )
        return problems
    limit_k = 2 * WGMMA_K_BYTES * 8 // element_bits
    if not isinstance(rows, int) or not 1 <= rows <= _MAX_ROWS:
        refuse("rows", rows, f"one instruction reads 1 to {_MAX_ROWS}", "Use 64 for A, n for B.")
    if not isinstance(k, int) or not 1 <= k <= limit_k:
        refuse(
            "k", k, f"one instruction reads {limit_k // 2} elements of {element_bits} bits along k (sparse: {limit_k} of B)",
            "Take the descriptor of each K step: wgmma_descriptors.",
        )  # fmt: skip
    return problems
