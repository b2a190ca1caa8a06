"""What the 64-bit descriptors of wgmma and tcgen05 share: an operand in shared memory, by start, leading and stride.

    bits    63 … 61     51 … 49       45 … 32        29 … 16        13 … 0
            mode        base offset   stride / 16    leading / 16   start / 16

`leading` and `stride` (LBO and SBO) lead from one atom to its neighbours. Which neighbours depends on
majorness, which is not in the word (the instruction chooses it), and on the mode:

              K-major none     K-major swizzled     MN-major none     MN-major swizzled
    leading   next 16 B of k   ignored              next 8 k          next span of mn
    stride    next 8 mn        next 8 mn            next 16 B of mn   next 8 k

The two change roles between MN-major none and MN-major swizzled: the usual source of wrong descriptors.

The XOR of the swizzle takes its line from (address / 128 - base_offset). With base offset 0 the pattern starts
where the absolute address says, as TMA wrote it, also when the descriptor starts in the middle of an atom.

The two formats differ in their codes and in a few bits: a `DescriptorForm` says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.bits import WordFormat
from tilescope.errors import Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.canonical import READERS, CanonicalLayout
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.reading import integer, plain_int
from tilescope.rule import rule
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, hex_field, row_field

_MOST_K_BYTES = 2 * K_STEP_BYTES  # a sparse one, of B
_MAX_ROWS = 256


_MAKE = "ts.{descriptor}(0x400, leading_bytes=16, stride_bytes=1024, swizzle={swizzle!r})"
_CLASSES = {"wgmma": "WgmmaDescriptor", "tcgen05": "Tcgen05Descriptor"}
_SOURCES = {
    "wgmma": 'PTX ISA, "Matrix Descriptor Format" of wgmma',
    "tcgen05": 'PTX ISA, "Shared memory descriptor" of tcgen05',
}
DESCRIPTOR_RESERVED = rule(
    "descriptor-reserved", "Bits of a descriptor that belong to no field are zero, and its constants are what PTX says.",
    source="; ".join(_SOURCES.values()), passing="ts.WgmmaDescriptor.decode(0x4000004000010040)",
    failing="ts.WgmmaDescriptor.decode(0x4000404000010040)",
)  # fmt: skip
DESCRIPTOR_SWIZZLE = {
    name: rule(
        f"{name}-swizzle",
        f"A {name} descriptor has codes for the swizzles {modes}.",
        source=_SOURCES[name],
        passing=_MAKE.format(descriptor=descriptor, swizzle="128B"),
        failing=_MAKE.format(descriptor=descriptor, swizzle="128B_ATOM_64B"),
    )
    for (name, descriptor), modes in zip(
        _CLASSES.items(), ("none, 32B, 64B and 128B", "none, 32B, 64B, 128B and 128B_ATOM_32B"), strict=True
    )
}
DESCRIPTOR_READ = {
    name: rule(
        f"{name}-read",
        f"One {instruction} reads up to 256 rows and one K step, in a layout that it knows.",
        source=_SOURCES[name],
        passing=f"{_MAKE.format(descriptor=_CLASSES[name], swizzle='128B')}.addresses(rows=256)",
        failing=f"{_MAKE.format(descriptor=_CLASSES[name], swizzle='128B')}.addresses(rows=257)",
    )
    for name, instruction in (("wgmma", "wgmma"), ("tcgen05", "tcgen05.mma"))
}


@dataclass(frozen=True, slots=True)
class DescriptorForm:
    """How one instruction family writes its descriptors down."""

    instruction: str
    word: WordFormat
    swizzles: Mapping[int, Swizzle]  # by code
    basis: Basis
    reserved: str  # which bits are zero, in words
    constants: dict[str, int] = field(default_factory=dict)  # fields that always hold one value
    resembles: str = ""  # what a word with wrong bits may be instead

    @property
    def codes(self) -> dict[str, int]:
        """The code of each swizzle."""
        return {row.name: code for code, row in self.swizzles.items()}

    def word_problems(self, word: int) -> list[Violation]:
        """Why a 64-bit word is no such descriptor: bits that must be zero, constants, a code that has no mode."""
        problems = []

        def refuse(found: str, limit: str, fix: str) -> None:
            problems.append(DESCRIPTOR_RESERVED.violation("word", f"{word:#x} has {found}", limit, fix))

        built = f"Check how the word was built: start, leading and stride are masked to 18 bits and shifted by 4.{self.resembles}"
        if ones := self.word.reserved_ones(word):
            limit = f"a {self.word.name} keeps bits {self.reserved} zero"
            refuse(f"bits {', '.join(map(str, ones))} set", limit, built)
        values = self.word.decode(word)
        for name, constant in self.constants.items():
            if values[name] != constant:
                bits = self.word.field(name)
                limit = f"a {self.word.name} holds {constant:#b} in bits {bits.low}-{bits.high}"
                refuse(f"{values[name]:#b} in bits {bits.low}-{bits.high}", limit, built)
        if values["swizzle"] not in self.swizzles:
            known = ", ".join(f"{code} {row.name}" for code, row in sorted(self.swizzles.items()))
            fix = f"Use code {self.codes['128B']} for 128B."
            refuse(f"swizzle code {values['swizzle']}", f"a {self.word.name} has {known}", fix)
        return problems


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class OperandDescriptor(Value):
    """A descriptor of an operand in shared memory: start, leading and stride in bytes, swizzle, base offset."""

    form: ClassVar[DescriptorForm]

    start_address: int = hex_field()
    leading_bytes: int
    stride_bytes: int
    swizzle: Swizzle = row_field(Swizzle.named)
    base_offset: int

    def __init__(
        self, start_address: int, *, leading_bytes: int, stride_bytes: int, swizzle: SwizzleName | Swizzle,
        base_offset: int = 0,
    ) -> None:  # fmt: skip
        self._fill(
            start_address=start_address, leading_bytes=leading_bytes, stride_bytes=stride_bytes,
            base_offset=base_offset, swizzle=swizzle,
        )  # fmt: skip

    def _fill(self, *, swizzle: SwizzleName | Swizzle, **numbers: Any) -> None:
        """Set the fields, once all of them fit their bits."""
        values = {name: number if (read := plain_int(number)) is None else read for name, number in numbers.items()}
        row = Swizzle.named(swizzle)
        code = self.form.codes.get(row.name)
        problems = self.form.word.problems(values | self.form.constants | {"swizzle": code or 0})
        if code is None:
            limit = f"a {self.form.word.name} has {', '.join(self.form.codes)}"
            problems.append(
                DESCRIPTOR_SWIZZLE[self.form.instruction].violation("swizzle", f"swizzle {row.name}", limit, "Use 128B.")
            )  # fmt: skip
        raise_all(problems)
        for name, value in (values | {"swizzle": row}).items():
            object.__setattr__(self, name, value)

    def encode(self) -> int:
        """The 64-bit word."""
        numbers = {field.name: getattr(self, field.name, 0) for field in self.form.word.fields}
        return self.form.word.encode(numbers | self.form.constants | {"swizzle": self.form.codes[self.swizzle.name]})

    @classmethod
    def decode(cls, word: int) -> Self:
        """The descriptor in a 64-bit word; a word with reserved bits set is refused."""
        word = integer("word", word)
        raise_all(cls.form.word.word_problems(word) or cls.form.word_problems(word))
        values: dict[str, Any] = cls.form.word.decode(word)
        values = {name: value for name, value in values.items() if name not in cls.form.constants}
        return cls(**values | {"swizzle": cls.form.swizzles[values["swizzle"]]})

    @property
    def basis(self) -> Basis:
        """Whether a card was seen to read such descriptors, or documents say how."""
        return self.form.basis

    @property
    def mode(self) -> str:
        """The swizzle's name, with what "none" means to a tensor core."""
        return "none (core matrices)" if self.swizzle.bits == 0 else self.swizzle.name

    def layout(self, major: Major = "K", element_bits: int = 16) -> CanonicalLayout:
        """The canonical layout that the descriptor describes, read with this majorness and element width."""
        return CanonicalLayout(major, self.swizzle, element_bits)

    def addresses(
        self, major: Major = "K", rows: int = 64, k: int = 16, element_bits: int = 16
    ) -> npt.NDArray[np.int64]:
        """Physical byte addresses that one instruction reads, as an array of (rows, k).

        `rows` counts mn: rows of A, columns of B. One dense instruction reads 32 bytes along k; a sparse one 64 of B.
        Of elements narrower than a byte, the address is that of the byte that holds the first bit.
        """
        major, element_bits = major_named(major), integer("element_bits", element_bits)
        rows, k = integer("rows", rows), integer("k", k)
        raise_all(self._read_problems(major, rows, k, element_bits))
        logical = self._logical(self.layout(major, element_bits), np.arange(rows)[:, None], np.arange(k)[None, :])
        addresses: npt.NDArray[np.int64] = self.physical(logical)
        return addresses

    def physical(self, logical: Any) -> Any:
        """Where the bytes before the swizzle lie; its own inverse.

        The XOR sees the address as if the pattern started base_offset lines later.
        """
        seen = logical + (8 - self.base_offset) * SMEM_LINE_BYTES
        return logical ^ seen ^ self.swizzle.apply(seen)

    def _logical(self, layout: CanonicalLayout, mn: Any, k: Any) -> Any:
        return layout.logical(
            mn, k, start=self.start_address, leading_bytes=self.leading_bytes, stride_bytes=self.stride_bytes
        )

    def ignored_fields(self, major: Major = "K") -> tuple[str, ...]:
        """Fields that the hardware does not look at in this mode."""
        return ignored_fields(self.layout(major))

    def _read_problems(self, major: Major, rows: Any, k: Any, element_bits: Any) -> list[Violation]:
        problems = []
        name = self.form.instruction

        def refuse(argument: str, found: Any, limit: str, fix: str) -> None:
            problems.append(DESCRIPTOR_READ[name].violation(argument, f"{argument} = {found}", limit, fix))

        widths = readable_bits(name, major, self.swizzle)
        if not widths:
            refuse("major", major, f"{name} reads no {major}-major operand with {self.mode}", 'Use major="MN".')
            return problems
        if element_bits not in widths:
            listed = ", ".join(map(str, widths))
            limit = f"{name} reads {major}-major elements of {listed} bits"
            refuse("element_bits", element_bits, limit, f"Use {widths[-1]}.")
            return problems
        limit_k = _MOST_K_BYTES * 8 // element_bits
        if not 1 <= rows <= _MAX_ROWS:
            refuse("rows", rows, f"one instruction reads 1 to {_MAX_ROWS}", "Use 64 for A, n for B.")
        if not 1 <= k <= limit_k:
            refuse(
                "k", k, f"one instruction reads {limit_k // 2} elements of {element_bits} bits along k (sparse: {limit_k} of B)",
                f"Take the descriptor of each K step: {name}_descriptors.",
            )  # fmt: skip
        return problems

    def _leading_shown(self) -> str:
        return f"leading {self.leading_bytes} bytes"

    def __str__(self) -> str:
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        return f"start {self.start_address:#x}, {self._leading_shown()}, stride {self.stride_bytes} bytes, {self.mode}{base}"


def readable_bits(instruction: str, major: Major, swizzle: Swizzle) -> tuple[int, ...]:
    """Widths of the elements that an instruction reads in this layout; none where it does not know the layout.

    >>> readable_bits("tcgen05", "MN", Swizzle.named("128B_ATOM_32B")), readable_bits("wgmma", "K", Swizzle.named("64B"))
    ((32,), (1, 8, 16, 32))
    """
    return tuple(sorted({
        bits
        for reader in READERS
        if (reader.instruction, reader.major) == (instruction, major) and swizzle.name in reader.swizzles
        for bits in reader.element_bits
    }))  # fmt: skip


def ignored_fields(layout: CanonicalLayout) -> tuple[str, ...]:
    """Fields of a descriptor that the hardware does not look at in this layout.

    >>> ignored_fields(CanonicalLayout("K", "128B")), ignored_fields(CanonicalLayout("K", "none"))
    (('leading_bytes',), ('base_offset',))
    """
    leading = ("leading_bytes",) if layout.leading_step is None else ()
    return leading + (("base_offset",) if layout.swizzle.bits == 0 else ())


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
