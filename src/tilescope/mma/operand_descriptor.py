"""The 64-bit descriptors with which wgmma (Hopper) and tcgen05 (Blackwell) find an operand in shared memory.

The fields of the word are drawn in descriptor_form.py. `leading` and `stride` (LBO and SBO) lead from one atom to its
neighbours. Which neighbours depends on majorness, which is not in the word (the instruction chooses it), and on the mode:

              K-major none     K-major swizzled     MN-major none     MN-major swizzled
    leading   next 16 B of k   ignored              next 8 k          next span of mn
    stride    next 8 mn        next 8 mn            next 16 B of mn   next 8 k (4 in 128B_ATOM_32B)

The two change roles between MN-major none and MN-major swizzled: the usual source of wrong descriptors.

The XOR of the swizzle takes its line from (address / 128 - base_offset). With base offset 0 the pattern follows the
absolute address, as TMA wrote it, even if the descriptor starts in the middle of an atom.

wgmma's descriptor was measured on an H200; tcgen05's is known from documentation. tcgen05 also reads MN-major 32-bit
elements in 128B atoms of 32 bytes, and its leading field may contain an address (bit 52, sm_103a), at which a step of
48 bytes continues beyond the end of its 128-byte row (drawn in descriptor_loop.py). This address is arbitrary: a ring
of buffers needs no copy at its seam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tilescope.errors import Violation, raise_all
from tilescope.layout import Major, major_named
from tilescope.mma.canonical import READS_NO_SUCH_LAYOUT, READS_OTHER_WIDTHS, CanonicalLayout, mode_of, readable_bits
from tilescope.mma.descriptor_form import TCGEN05_FORM, WGMMA_FORM, DescriptorForm
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.reading import flag, integer, plain_int
from tilescope.rule import Basis, rule
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, hex_field, row_field

_MAX_K_BYTES = 2 * K_STEP_BYTES  # of B in a sparse instruction
_PATTERN_LINES = 8  # after which every swizzle repeats
MAX_ROWS = 256

LEADING_ADDRESS = rule(
    "tcgen05-leading-address",
    "Leading holds an address only for K-major operands with swizzle 128B and base offset 0, on sm_103a.",
    argument="leading_is_address",
    found="leading_is_address with swizzle {swizzle} and base offset {base_offset}",
    limit="a leading address needs swizzle 128B and base offset 0 (sm_103a)",
    fix="Use swizzle 128B and {base_offset:=0}.",
    source='PTX ISA, "Shared memory descriptor" of tcgen05: leading dimension mode',
    architectures=("sm_103",),
    passing="ts.Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle='128B', leading_is_address=True)",
    failing="ts.Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle='64B', leading_is_address=True)",
)


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
        self._fill(start_address, leading_bytes, stride_bytes, base_offset, swizzle)

    def _fill(
        self,
        start_address: int,
        leading_bytes: int,
        stride_bytes: int,
        base_offset: int,
        swizzle: SwizzleName | Swizzle,
    ) -> None:
        """Set the fields that both descriptors have, once all of them fit their bits."""
        form = self.form
        row = Swizzle.named(swizzle)
        values = {
            "start_address": _plain(start_address),
            "leading_bytes": _plain(leading_bytes),
            "stride_bytes": _plain(stride_bytes),
            "base_offset": _plain(base_offset),
        }
        problems = form.word.problems(values)
        if row.name not in form.codes:
            problems.append(form.swizzle_rule.violation(swizzle=row.name, swizzles=tuple(form.codes)))
        raise_all(problems)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "swizzle", row)

    def encode(self) -> int:
        """The 64-bit word."""
        form = self.form
        return form.word.encode(
            {
                "start_address": self.start_address,
                "leading_bytes": self.leading_bytes,
                "stride_bytes": self.stride_bytes,
                "base_offset": self.base_offset,
                "swizzle": form.codes[self.swizzle.name],
                "version": form.version or 0,
                "leading_is_address": int(self.leading_is_address),
            }
        )

    @classmethod
    def decode(cls, word: int) -> Self:
        """The descriptor in a 64-bit word; a word with reserved bits set is refused."""
        word = cls.form.word.checked(word)
        raise_all(cls.form.word_problems(word))
        values = cls.form.word.decode(word)
        arguments: dict[str, Any] = {
            "start_address": values["start_address"],
            "leading_bytes": values["leading_bytes"],
            "stride_bytes": values["stride_bytes"],
            "base_offset": values["base_offset"],
            "swizzle": cls.form.swizzles[values["swizzle"]],
        }
        if "leading_is_address" in values:  # a field only in tcgen05's word
            arguments["leading_is_address"] = bool(values["leading_is_address"])
        return cls(**arguments)

    @property
    def basis(self) -> Basis:
        """Whether such descriptors were "measured" on a card or are only "documented"."""
        return self.form.basis

    @property
    def mode(self) -> str:
        """The name of the swizzle; for "none", with its meaning for a tensor core."""
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
        major = major_named(major)
        element_bits = integer("element_bits", element_bits)
        rows = integer("rows", rows)
        k = integer("k", k)
        raise_all(self._read_problems(major, rows, k, element_bits))
        mn = np.arange(rows)[:, None]
        along_k = np.arange(k)
        logical = self.layout(major, element_bits).logical(
            mn, along_k, start=self.start_address, leading_bytes=self.leading_bytes, stride_bytes=self.stride_bytes
        )
        if self.leading_is_address:
            logical = self._continue_rows(logical, along_k * element_bits // 8)
        return np.asarray(self.physical(logical))

    def _continue_rows(self, logical: npt.NDArray[np.int64], k_bytes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The addresses of a step that goes on at the leading address where its 128-byte row ends.

        `k_bytes` has the position of each element along k.
        """
        beyond_bytes = self.start_address % SMEM_LINE_BYTES + k_bytes - SMEM_LINE_BYTES
        from_first_row_bytes = logical - self.start_address - k_bytes
        return np.where(beyond_bytes < 0, logical, self.leading_bytes + from_first_row_bytes + beyond_bytes)

    def physical(self, logical: Any) -> Any:
        """Physical address of a logical byte; its own inverse.

        The XOR sees the address as if the pattern started base_offset lines later. Patterns repeat after 8 lines at most,
        so 8 more change nothing; they keep the address positive.
        """
        seen = logical + (_PATTERN_LINES - self.base_offset) * SMEM_LINE_BYTES
        return logical ^ seen ^ self.swizzle.apply(seen)

    def ignored_fields(self, major: Major = "K") -> tuple[str, ...]:
        """Fields that the hardware ignores in this mode."""
        ignored = self.layout(major).ignored_fields
        if not self.leading_is_address:
            return ignored
        return tuple(name for name in ignored if name != "leading_bytes")

    def _read_problems(self, major: Major, rows: int, k: int, element_bits: int) -> list[Violation]:
        read_rule = self.form.read_rule
        instruction = self.form.instruction
        problems = []
        if major != "K" and self.leading_is_address:
            only_k_major = read_rule.worded(
                argument="major",
                found="major = {major}",
                limit="only K-major operands have a leading address",
                fix='Use {major:="K"}.',
            )
            problems.append(only_k_major.violation(major=major))
        widths = readable_bits(instruction, major, self.swizzle)
        if element_bits not in widths:
            problems.append(self._unread(major, element_bits, widths))
        if not 1 <= rows <= MAX_ROWS:
            problems.append(read_rule.violation(rows=rows, most=MAX_ROWS))
        max_k = _MAX_K_BYTES * 8 // (element_bits or 1)
        if element_bits in widths and not 1 <= k <= max_k:
            one_step = read_rule.worded(
                argument="k",
                found="k = {k}",
                limit="one instruction reads {dense_k} elements of {element_bits} bits along k (sparse: {max_k} of B)",
                fix="Use k = {dense_k}, and {instruction}_descriptors for the other K steps.",
            )
            problems.append(
                one_step.violation(
                    k=k, dense_k=max_k // 2, element_bits=element_bits, max_k=max_k, instruction=instruction
                )
            )
        return problems

    def _unread(self, major: Major, element_bits: int, widths: tuple[int, ...]) -> Violation:
        """The instruction reads other widths in this layout, or none at all."""
        instruction = self.form.instruction
        if widths:
            other_width = self.form.read_rule.worded(
                argument="element_bits",
                found="element_bits = {element_bits}",
                limit=READS_OTHER_WIDTHS,
                fix="Use {widest}.",
            )
            return other_width.violation(
                element_bits=element_bits,
                instruction=instruction,
                major=major,
                mode=self.mode,
                widths=widths,
                widest=widths[-1],
            )
        no_such_layout = self.form.read_rule.worded(
            argument="major", found="major = {major}", limit=READS_NO_SUCH_LAYOUT, fix='Use {major:="MN"}.'
        )
        return no_such_layout.violation(instruction=instruction, major=major, mode=self.mode)

    def __str__(self) -> str:
        parts = [f"start {self.start_address:#x}"]
        if self.leading_is_address:
            parts.append(f"second chunk at {self.leading_bytes:#x}")
        else:
            parts.append(f"leading {self.leading_bytes} bytes")
        parts += [f"stride {self.stride_bytes} bytes", self.mode]
        if self.base_offset:
            parts.append(f"base offset {self.base_offset}")
        return ", ".join(parts)


def _plain(number: int) -> int:
    """An integer of numpy as Python's own; what is none is refused later, by the field."""
    read = plain_int(number)
    return number if read is None else read


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
    >>> descriptor.addresses(rows=16, k=16)[:, 0].tolist()  # where k = 0 of the first rows is stored
    [1024, 1168, 1312, 1456, 1600, 1744, 1888, 2032, 2048, 2192, 2336, 2480, 2624, 2768, 2912, 3056]
    >>> descriptor.ignored_fields("K")
    ('leading_bytes',)
    """

    form: ClassVar[DescriptorForm] = WGMMA_FORM


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Tcgen05Descriptor(OperandDescriptor):
    """A tcgen05 shared-memory descriptor: as wgmma's, with `leading_is_address` for the mode of sm_103a.

    >>> descriptor = Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> hex(descriptor.encode()), Tcgen05Descriptor.decode(0x4000404000010040) == descriptor
    ('0x4000404000010040', True)
    >>> mn_major = Tcgen05Descriptor(0x400, leading_bytes=512, stride_bytes=1024, swizzle="128B_ATOM_32B")
    >>> hex(mn_major.encode()), mn_major.addresses("MN", rows=64, k=8, element_bits=32)[[0, 8, 32], 1].tolist()
    ('0x2000404000200040', [1184, 1152, 1696])

    48 bytes of k, of which the last 16 are in the next atom, at 0x4000:

    >>> seam = Tcgen05Descriptor(0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle="128B", leading_is_address=True)
    >>> [hex(address) for address in seam.addresses(rows=8, k=96, element_bits=4)[0, ::32]]
    ['0x60', '0x70', '0x4000']
    """

    form: ClassVar[DescriptorForm] = TCGEN05_FORM

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
        self._fill(start_address, leading_bytes, stride_bytes, base_offset, swizzle)
        object.__setattr__(self, "leading_is_address", is_address)
        if is_address and (self.swizzle.name, self.base_offset) != ("128B", 0):
            raise LEADING_ADDRESS.error(
                swizzle=self.swizzle.name,
                base_offset=self.base_offset,
                change={"swizzle": "128B", "base_offset": 0},
            )
