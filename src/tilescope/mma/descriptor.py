"""The 64-bit descriptors with which wgmma (Hopper) and tcgen05 (Blackwell) find an operand in shared memory.

    bits      63 … 61       52    51 … 49       48 … 46   45 … 32        29 … 16        13 … 0
    wgmma     mode (63 62)  0     base offset   0 0 0     stride / 16    leading / 16   start / 16
    tcgen05   mode          LBO   base offset   0 0 1     stride / 16    leading / 16   start / 16

`leading` and `stride` (LBO and SBO) lead from one atom to its neighbours. Which neighbours depends on
majorness, which is not in the word (the instruction chooses it), and on the mode:

              K-major none     K-major swizzled     MN-major none     MN-major swizzled
    leading   next 16 B of k   ignored              next 8 k          next span of mn
    stride    next 8 mn        next 8 mn            next 16 B of mn   next 8 k (4 in 128B_ATOM_32B)

The two change roles between MN-major none and MN-major swizzled: the usual source of wrong descriptors.

The XOR of the swizzle takes its line from (address / 128 - base_offset). With base offset 0 the pattern starts
where the absolute address says, as TMA wrote it, also when the descriptor starts in the middle of an atom.

wgmma's descriptor was measured on an H200; tcgen05's is known from documents. tcgen05 also reads MN-major 32-bit elements in
128B atoms of 32 bytes, and its leading field may hold an address (bit 52, sm_103a), at which a step of 48 bytes goes on where it
runs over the end of its 128-byte row (drawn in descriptor_loop.py). That may lie anywhere: a ring of buffers needs no copy at its seam.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tilescope.bits import WordField, WordFormat
from tilescope.errors import Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.canonical import CanonicalLayout, mode_of, readable_bits, unread_layout
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.reading import flag, integer, plain_int
from tilescope.rule import Basis, Rule, rule
from tilescope.swizzle import SMEM_LINE_BYTES, SWIZZLE, Swizzle, SwizzleName
from tilescope.value import Value, hex_field, row_field

_MAX_K_BYTES = 2 * K_STEP_BYTES  # of B in a sparse instruction
MAX_ROWS = 256
_SEAM = "ts.Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle={!r}, leading_is_address=True)"
# fmt: off
DESCRIPTOR_RESERVED, LEADING_ADDRESS = (
    rule(name, demand, source=f"PTX ISA, {source}", architectures=where, passing=passing, failing=failing)
    for name, demand, source, where, passing, failing in (
        ("descriptor-reserved", "Bits of a descriptor that belong to no field are zero, and its constants are what PTX says.",
         '"Matrix Descriptor Format" of wgmma; PTX ISA, "Shared memory descriptor" of tcgen05', (),
         "ts.WgmmaDescriptor.decode(0x4000004000010040)", "ts.WgmmaDescriptor.decode(0x4000404000010040)"),
        ("tcgen05-leading-address", "A leading address exists K-major with swizzle 128B and base offset 0, on sm_103a.",
         '"Shared memory descriptor" of tcgen05: leading dimension mode', ("sm_103",), _SEAM.format("128B"), _SEAM.format("64B")),
    )
)
# fmt: on


@dataclass(frozen=True, slots=True)
class DescriptorForm:
    """How one instruction writes its descriptors down, and the rules that are its own."""

    instruction: str
    word: WordFormat
    codes: Mapping[str, int]  # of the swizzles
    basis: Basis
    reserved: str  # which bits are zero, in words
    resembles: str  # what a word with wrong bits may be instead
    constants: Mapping[str, int]  # fields that always hold one value
    swizzle_rule: Rule
    read_rule: Rule

    @property
    def swizzles(self) -> dict[int, Swizzle]:
        """The swizzle of every code."""
        return {code: SWIZZLE[name] for name, code in self.codes.items()}

    def word_problems(self, word: int) -> Iterator[Violation]:
        """Why a 64-bit word is no such descriptor: bits that must be zero, constants, a code that has no mode."""
        values = self.word.decode(word)
        built = f"Check how the word was built: start, leading and stride are masked to 18 bits and shifted by 4.{self.resembles}"

        def refused(found: str, limit: str, fix: str, **told: Any) -> Violation:
            found, limit = f"{word:#x} has {found}", f"a {self.word.name} {limit}"
            return DESCRIPTOR_RESERVED.violation("word", found, limit, fix, word=word, **told)

        if ones := self.word.reserved_ones(word):
            found = f"bit{'s' * (len(ones) > 1)} {', '.join(map(str, ones))} set"
            yield refused(found, f"keeps bits {self.reserved} zero", built, bits=ones)
        for name, constant in self.constants.items():
            if (held := values[name]) != constant:
                bits = f"in bits {self.word.field(name).low}-{self.word.field(name).high}"
                yield refused(f"{held:#b} {bits}", f"holds {constant:#b} {bits}", built, **{name: held})
        if (code := values["swizzle"]) not in self.codes.values():
            known = ", ".join(f"{code} {name}" for name, code in sorted(self.codes.items(), key=lambda item: item[1]))
            yield refused(f"swizzle code {code}", f"has {known}", f"Use code {self.codes['128B']} for 128B.", code=code)


def _form(
    instruction: str, section: str, fields: tuple[WordField, ...], basis: Basis, reserved: str, resembles: str,
    **constants: int,
) -> DescriptorForm:  # fmt: skip
    codes = {name: code for name, row in SWIZZLE.items() if (code := getattr(row, f"{instruction}_code")) is not None}
    make = f"ts.{instruction.title()}Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle={{!r}})"
    read, known = f"{make.format('128B')}.addresses(rows={{}})", ", ".join(codes)
    swizzle_rule, read_rule = (
        rule(f"{instruction}-{name}", demand, source=f'PTX ISA, "{section}" of {instruction}', passing=passing, failing=failing)
        for name, demand, passing, failing in (
            ("swizzle", f"A {instruction} descriptor has codes for the swizzles {known}.", make.format("128B"),
             make.format("128B_ATOM_64B")),
            ("read", f"One {instruction} instruction reads up to {MAX_ROWS} rows and one K step, in a layout that it knows.",
             read.format(MAX_ROWS), read.format(MAX_ROWS + 1)),
        )
    )  # fmt: skip
    word = WordFormat(f"{instruction} descriptor", 64, (*_FIELDS, *fields))
    return DescriptorForm(instruction, word, codes, basis, reserved, resembles, constants, swizzle_rule, read_rule)


# fmt: off
_FIELDS = (
    #          name            bits    unit
    WordField("start_address",  0, 13,  16),
    WordField("leading_bytes", 16, 29,  16),
    WordField("stride_bytes",  32, 45,  16),
    WordField("base_offset",   49, 51),
)
_NAMES = tuple(field.name for field in _FIELDS)
# CuTe calls bits 46-47 of tcgen05's word the version.
FORMS = {form.instruction: form for form in (
    _form("wgmma", "Matrix Descriptor Format", (WordField("swizzle", 62, 63),), "measured",
          "14-15, 30-31, 46-48 and 52-61",
          " Bit 46 set alone marks a tcgen05 descriptor (Blackwell), whose swizzle codes differ too."),
    _form("tcgen05", "Shared memory descriptor",
          (WordField("version", 46, 48), WordField("leading_is_address", 52, 52), WordField("swizzle", 61, 63)), "documented",
          "14-15, 30-31 and 53-60", " Bits 46-48 zero, and bits 62-63 in use, mark a wgmma descriptor (Hopper).", version=1),
)}
# fmt: on


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class OperandDescriptor(Value):
    """A descriptor of an operand in shared memory: start, leading and stride in bytes, swizzle, base offset."""

    form: ClassVar[DescriptorForm]
    leading_is_address = False  # no field: only tcgen05 has the mode

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
        self._fill(swizzle, start_address, leading_bytes, stride_bytes, base_offset)

    def _fill(self, swizzle: SwizzleName | Swizzle, *numbers: Any, **more: Any) -> None:
        """Set the fields, once all of them fit their bits."""
        form, row = self.form, Swizzle.named(swizzle)
        values = {
            name: number if type(number) is int or (read := plain_int(number)) is None else read
            for name, number in (*zip(_NAMES, numbers, strict=True), *more.items())
        }
        problems = form.word.problems(values)
        if row.name not in form.codes:
            limit = f"a {form.word.name} has {', '.join(form.codes)}"
            problems.append(form.swizzle_rule.violation("swizzle", f"swizzle {row.name}", limit, "Use 128B."))
        raise_all(problems)
        for name, value in (values | {"swizzle": row}).items():
            object.__setattr__(self, name, value)

    def encode(self) -> int:
        """The 64-bit word."""
        form = self.form
        numbers = {field.name: getattr(self, field.name, 0) for field in form.word.fields}
        return form.word.encode({**numbers, **form.constants, "swizzle": form.codes[self.swizzle.name]})

    @classmethod
    def decode(cls, word: int) -> Self:
        """The descriptor in a 64-bit word; a word with reserved bits set is refused."""
        word = cls.form.word.checked(word)
        raise_all(cls.form.word_problems(word))
        values: dict[str, Any] = cls.form.word.decode(word)
        values["swizzle"] = cls.form.swizzles[values["swizzle"]]
        if "leading_is_address" in values:
            values["leading_is_address"] = bool(values["leading_is_address"])
        return cls(**{name: value for name, value in values.items() if name not in cls.form.constants})

    @property
    def basis(self) -> Basis:
        """Whether a card was measured to read such descriptors, or only documents say how."""
        return self.form.basis

    @property
    def mode(self) -> str:
        """The swizzle's name, with what "none" means to a tensor core."""
        return mode_of(self.swizzle)

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
        mn, along_k = np.arange(rows)[:, None], np.arange(k)
        logical = self.layout(major, element_bits).logical(
            mn, along_k, start=self.start_address, leading_bytes=self.leading_bytes, stride_bytes=self.stride_bytes
        )
        if self.leading_is_address:  # k goes on there at the end of the 128-byte row
            k_bytes = along_k * element_bits // 8
            beyond = self.start_address % SMEM_LINE_BYTES + k_bytes - SMEM_LINE_BYTES
            continued = self.leading_bytes + logical - self.start_address - k_bytes + beyond
            logical = np.where(beyond < 0, logical, continued)
        return np.asarray(self.physical(logical))

    def physical(self, logical: Any) -> Any:
        """Where the bytes before the swizzle lie; its own inverse.

        The XOR sees the address as if the pattern started base_offset lines later.
        """
        seen = logical + (8 - self.base_offset) * SMEM_LINE_BYTES
        return logical ^ seen ^ self.swizzle.apply(seen)

    def ignored_fields(self, major: Major = "K") -> tuple[str, ...]:
        """Fields that the hardware does not look at in this mode."""
        ignored = self.layout(major).ignored_fields
        return ignored[1:] if self.leading_is_address else ignored

    def _read_problems(self, major: Major, rows: int, k: int, element_bits: int) -> list[Violation]:
        name, widths = self.form.instruction, readable_bits(self.form.instruction, major, self.swizzle)
        unread, max_k = unread_layout(name, major, self.swizzle, element_bits), _MAX_K_BYTES * 8 // (element_bits or 1)
        reads = f"one instruction reads {max_k // 2} elements of {element_bits} bits along k (sparse: {max_k} of B)"
        checks = (
            (major == "K" or not self.leading_is_address, "major", major,
             "only K-major operands have a leading address", 'Use major="K".'),
            (not unread, *(("element_bits", element_bits) if widths else ("major", major)), unread,
             f"Use {widths[-1]}." if widths else 'Use major="MN".'),
            (1 <= rows <= MAX_ROWS, "rows", rows, f"one instruction reads 1 to {MAX_ROWS}", f"Use rows = {MAX_ROWS}."),
            (unread or 1 <= k <= max_k, "k", k, reads,
             f"Use k = {max_k // 2}, and {name}_descriptors for the other K steps."),
        )  # fmt: skip
        return [
            self.form.read_rule.violation(argument, f"{argument} = {value}", limit, fix, **{argument: value})
            for holds, argument, value, limit, fix in checks
            if not holds
        ]

    def __str__(self) -> str:
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        distance, address = f"leading {self.leading_bytes} bytes", f"second chunk at {self.leading_bytes:#x}"
        leading = address if self.leading_is_address else distance
        return f"start {self.start_address:#x}, {leading}, stride {self.stride_bytes} bytes, {self.mode}{base}"


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

    form: ClassVar[DescriptorForm] = FORMS["wgmma"]


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

    form: ClassVar[DescriptorForm] = FORMS["tcgen05"]

    leading_is_address: bool

    def __init__(
        self,
        start_address: int,
        *,
        leading_bytes: int,
        stride_bytes: int,
        swizzle: SwizzleName | Swizzle,
        base_offset: int = 0,
        leading_is_address: bool = False,
    ) -> None:
        is_address = flag("leading_is_address", leading_is_address)
        self._fill(swizzle, start_address, leading_bytes, stride_bytes, base_offset, leading_is_address=int(is_address))
        object.__setattr__(self, "leading_is_address", is_address)
        if is_address and (self.swizzle.name, self.base_offset) != ("128B", 0):
            found = f"leading_is_address with swizzle {self.swizzle.name} and base offset {self.base_offset}"
            limit = "a leading address needs swizzle 128B and base offset 0 (sm_103a)"
            fix, right = "Use swizzle 128B and base_offset=0.", {"swizzle": "128B", "base_offset": 0}
            told = {"swizzle": self.swizzle.name, "base_offset": self.base_offset}
            raise LEADING_ADDRESS.error("leading_is_address", found, limit, fix, right, **told)
