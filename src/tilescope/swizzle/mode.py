"""Where a swizzle puts the 16-byte chunks of a 128-byte line of shared memory.

Shared memory has 32 banks of 4 bytes: one line is 128 bytes, eight chunks of 16 bytes. Rows of a tile that are below
each other start in the same bank, so reading a column of chunks would serialise. A swizzle moves the chunks of a line
by an XOR with the line's number, so that columns are spread over the banks:

    128B mode, cell = source chunk          bits of the byte address

    chunk   0 1 2 3 4 5 6 7                 … 9 8 7 │ 6 5 4 │ 3 2 1 0
    line 0  0 1 2 3 4 5 6 7                   └line┘ └chunk┘ └ byte ┘
    line 1  1 0 3 2 5 4 7 6                      └──XOR──▲
    line 2  2 3 0 1 6 7 4 5
    line 3  3 2 1 0 7 6 5 4                 physical = logical ^ ((logical >> 3) & 0x70)
      …

The line number comes from the absolute shared address, not from the start of the buffer: a buffer that
does not start on the pattern's own boundary starts in the middle of the pattern (its *base offset*).
Every mode is its own inverse, and no mode moves data out of its line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from tilescope.arch import Basis, architectures_with
from tilescope.errors import RuleError, argument_range, argument_type, unknown_name
from tilescope.reading import integer, integer_array, plain_int
from tilescope.rule import rule
from tilescope.swizzle.spelling import XOR_BEYOND_ADDRESS, XOR_SWIZZLE, ptx_pair, written_triple
from tilescope.value import Row

if TYPE_CHECKING:  # a table of chunks needs no numpy
    import numpy as np
    import numpy.typing as npt

SwizzleName = Literal["none", "32B", "64B", "96B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]
SMEM_LINE_BYTES = 128  # 32 banks of 4 bytes
CHUNK_BYTES = 16  # what ldmatrix reads of a row, and the smallest piece TMA moves
CHUNKS_PER_LINE = SMEM_LINE_BYTES // CHUNK_BYTES
_ADDRESS_BITS = 32  # widest XOR swizzle worth describing

Addresses: TypeAlias = "npt.NDArray[np.integer[Any]]"
AddressOrArray = TypeVar("AddressOrArray", int, "Addresses")

SWIZZLE_CHUNKS = rule(
    "swizzle-chunks",
    "A table of chunks exists for swizzles that move 16-byte chunks within their 128-byte line.",
    argument="swizzle",
    found="{swizzle} moves pieces of {atom_bytes} bytes within blocks of {block_bytes}",
    limit="chunk tables show 16-byte chunks that stay within their 128-byte line",
    fix="Use apply() on byte addresses.",
    source="the definition of a chunk",
    passing="ts.Swizzle.xor(3, 4, 3).pattern()",
    failing="ts.Swizzle.xor(5, 2, 5).pattern()",
)
SMEM_ALIGNMENT = rule(
    "smem-alignment",
    "A tile that TMA writes starts at a shared address that is a multiple of 128 bytes, swizzled or not.",
    argument="address",
    found="a box at {address:#x}",
    limit="TMA writes boxes at multiples of 128 bytes",
    fix="Use {below:#x}.",
    source="measured on an H200",
    basis="measured",
    passing='ts.Swizzle.named("128B").chunk_in_row(1, 0, address=0x480)',
    failing='ts.Swizzle.named("128B").chunk_in_row(1, 0, address=0x440)',
)


@dataclass(frozen=True, slots=True, eq=False)
class Swizzle(Row):
    """A shared-memory swizzle: `bits` address bits at `base` are XORed with those `shift` above them.

    In CuTe's words Swizzle<bits, base, shift> on byte addresses. For the 64B mode, Swizzle<2,4,3>:

        bit     9 8 7 6 5 4 3 2 1 0
                  y y   z z              z ^= y      (2 bits, from bit 7 + i into bit 4 + i)

    A negative shift puts the causing bits at `base` and the changed ones above them. The modes of the
    hardware are the rows of the table `SWIZZLE`, found by name; `Swizzle.xor` makes any other.

    >>> Swizzle.named("128B").apply(1 * 128 + 0 * 16)  # line 1, chunk 0 goes to chunk 1
    144
    """

    name: str
    span_bytes: int | None  # widest inner box row; None: no limit
    bits: int  # how many address bits change; 2**bits lines (or groups) have a distinct pattern
    base: int  # pieces of 2**base bytes stay whole; the lowest changed bit, or causing bit if the shift is negative
    shift: int  # from the changed bits up to those that cause the change; negative: down
    flip_bytes: int  # 8: odd lines also exchange the halves of every chunk; 0: they do not
    driver_code: int | None  # CUtensorMapSwizzle
    ptx_mode: int | None  # .swizzle_mode of tensormap.replace
    ptx_atomicity: int | None  # .swizzle_atomicity
    wgmma_code: int | None  # bits 62-63 of a wgmma descriptor
    tcgen05_code: int | None  # bits 61-63 of a tcgen05 descriptor
    feature: str | None  # what an architecture must have (see arch.py); None: software only
    basis: Basis  # measured on a card, or documented only

    @classmethod
    def named(cls, name: object) -> Swizzle:
        """The mode called `name`; driver names and "xor:B,M,S" or "Swizzle<B,M,S>" are understood too.

        >>> Swizzle.named("CU_TENSOR_MAP_SWIZZLE_64B").name, Swizzle.named("xor:5,2,5").atom_bytes
        ('64B', 4)
        """
        if isinstance(name, Swizzle):
            return name
        if not isinstance(name, str):
            raise _unknown(name)
        if name in SWIZZLE:
            return SWIZZLE[name]
        folded = name.strip().casefold().removeprefix("cu_tensor_map_swizzle_")
        if folded in _BY_FOLDED_NAME:
            return _BY_FOLDED_NAME[folded]
        triple = written_triple(name)
        if triple is None:
            raise _unknown(name)
        return cls.xor(*triple)

    @classmethod
    def xor(cls, bits: int, base: int, shift: int) -> Swizzle:
        """Any other XOR swizzle, as CuTe's Swizzle<bits, base, shift> on byte addresses.

        >>> transpose = Swizzle.xor(5, 2, 5)  # 32 x 32 floats: word ^= row
        >>> transpose.apply(1 * 128 + 0 * 4)
        132
        """
        bits = integer("bits", bits)
        base = integer("base", base)
        shift = integer("shift", shift)
        top = base + abs(shift) + bits - 1
        if bits < 0 or base < 0 or top >= _ADDRESS_BITS:
            raise XOR_BEYOND_ADDRESS.error(bits=bits, base=base, shift=shift, top=top, address_bits=_ADDRESS_BITS)
        if abs(shift) < bits:
            raise XOR_SWIZZLE.error(bits=bits, shift=shift, least=-bits if shift < 0 else bits)
        return cls(
            name=f"xor:{bits},{base},{shift}",
            span_bytes=None,
            bits=bits,
            base=base,
            shift=shift,
            flip_bytes=0,
            driver_code=None,
            ptx_mode=None,
            ptx_atomicity=None,
            wgmma_code=None,
            tcgen05_code=None,
            feature=None,
            basis="documented",
        )

    @classmethod
    def from_ptx(cls, mode: int | str, atomicity: int | str | None = None) -> Swizzle:
        """The row for PTX's pair of .swizzle_mode and .swizzle_atomicity (numbers or spellings).

        Without an atomicity the mode has 16-byte atoms. Mode none has no atomicity; the number 0, which the
        field holds at rest, is taken for none.

        >>> Swizzle.from_ptx("128B", "32B+8B-flip").name, Swizzle.from_ptx(3, 3).name
        ('128B_ATOM_32B_FLIP_8B', '128B_ATOM_64B')
        """
        pairs = {(row.ptx_mode, row.ptx_atomicity): row for row in SWIZZLE.values()}
        return pairs[ptx_pair(mode, atomicity, tuple(pairs))]

    @property
    def atom_bytes(self) -> int:
        """The bytes that stay together."""
        return 1 << self.base

    @property
    def piece_bytes(self) -> int:
        """What a copy moves at a time: a chunk, or less where the mode cuts chunks.

        >>> SWIZZLE["128B_ATOM_64B"].piece_bytes, SWIZZLE["128B_ATOM_32B_FLIP_8B"].piece_bytes
        (16, 8)
        """
        return self.flip_bytes or min(CHUNK_BYTES, self.atom_bytes)

    @property
    def repeat_bytes(self) -> int:
        """Bytes after which the pattern starts again: 1024, 512, 256 for 128B, 64B, 32B; a line for none.

        >>> [SWIZZLE[name].repeat_bytes for name in ("none", "32B", "64B", "128B")]
        [128, 256, 512, 1024]
        """
        if self.bits == 0:
            return SMEM_LINE_BYTES
        return max(SMEM_LINE_BYTES, 1 << (self.base + abs(self.shift) + self.bits))

    @property
    def period_lines(self) -> int:
        """Lines after which the pattern starts again."""
        return self.repeat_bytes // SMEM_LINE_BYTES

    @property
    def block_bytes(self) -> int:
        """The map permutes every aligned block of this many bytes within itself.

        >>> [SWIZZLE[name].block_bytes for name in ("none", "32B", "64B", "128B", "128B_ATOM_64B")]
        [1, 32, 64, 128, 128]
        """
        return 1 << (self.base + max(-self.shift, 0) + self.bits) if self.bits else 1

    @property
    def architectures(self) -> tuple[str, ...]:
        """Architectures whose TMA supports the mode; none for a software swizzle.

        >>> SWIZZLE["96B"].architectures
        ('sm_103',)
        """
        return () if self.feature is None else architectures_with(self.feature)

    @property
    def hardware_mode(self) -> Swizzle | None:
        """The mode of the hardware with the same address map, for any width of the rows; None if there is none.

        >>> Swizzle.xor(3, 4, 3).hardware_mode, Swizzle.xor(5, 2, 5).hardware_mode
        (Swizzle.named('128B'), None)
        """
        return self if self.feature is not None else _BY_MOVES.get(self.moves)

    @property
    def moves(self) -> tuple[int, ...]:
        """The parameters of the address map: equal for swizzles that map every address in the same way.

        >>> SWIZZLE["128B"].moves == Swizzle.xor(3, 4, 3).moves, SWIZZLE["none"].moves
        (True, ())
        """
        return (self.bits, self.base, self.shift, self.flip_bytes) if self.bits else ()

    @property
    def c_expression(self) -> str:
        """The physical address as a C expression of the logical byte address `a`.

        >>> SWIZZLE["128B"].c_expression, SWIZZLE["none"].c_expression
        ('a ^ ((a >> 3) & 0x70)', 'a')
        """
        if self.bits == 0:
            return "a"
        arrow, distance = (">>", self.shift) if self.shift > 0 else ("<<", -self.shift)
        mask = ((1 << self.bits) - 1) << (self.base + max(-self.shift, 0))
        flip = f" ^ ((a >> 4) & {self.flip_bytes:#x})" if self.flip_bytes else ""
        return f"a ^ ((a {arrow} {distance}) & {mask:#x}){flip}"

    @overload
    def apply(self, address: int) -> int: ...
    @overload
    def apply(self, address: Addresses) -> Addresses: ...
    def apply(self, address: int | Addresses) -> int | Addresses:
        """Physical byte address of logical byte `address` (an int or an integer array).

        It is its own inverse: the line selects the XOR, and the XOR does not change the line.

        >>> import numpy as np
        >>> Swizzle.named("64B").apply(np.array([0, 128, 384]))
        array([  0, 144, 432])
        """
        if type(address) is int:
            if address < 0:
                raise _not_an_address(address)
            return address ^ self._change(address)
        import numpy as np

        array = integer_array(address)
        if array is None or (array.dtype.kind == "i" and array.size and array.min() < 0):
            raise _not_an_address(address)
        if array.dtype.itemsize < 8:
            array = array.astype(np.int64)
        physical: Addresses = array ^ self._change(array)
        return physical if isinstance(address, np.ndarray) or physical.ndim else int(physical)

    def _change(self, address: AddressOrArray) -> AddressOrArray:
        """The bits that differ between the logical and the physical address."""
        source = self.base + max(self.shift, 0)
        target = self.base + max(-self.shift, 0)
        change = (address >> source & (1 << self.bits) - 1) << target
        if self.flip_bytes:
            change = change | (address >> 7 & 1) * self.flip_bytes
        return change

    def chunk_in_line(self, line: int, chunk: int) -> int:
        """Where chunk `chunk` of 128-byte line `line` goes: the same relation, by line and chunk.

        >>> Swizzle.named("64B").chunk_in_line(2, 0)
        2
        """
        self._require_whole_chunks()
        line = integer("line", line, least=0)
        chunk = integer("chunk", chunk, 0, CHUNKS_PER_LINE - 1)
        return self.apply(line * SMEM_LINE_BYTES + chunk * CHUNK_BYTES) % SMEM_LINE_BYTES // CHUNK_BYTES

    def chunk_in_row(self, row: int, chunk: int, address: int = 0) -> int:
        """Where chunk `chunk` of box row `row` goes within its row, when rows are one span wide.

        Rows are not lines: two 64-byte rows, or four 32-byte rows, share a line and its XOR. Row 2 of a 64B box is in
        line 1, so `row % 4` (the classic mistake) gives the wrong chunk:

            row of the box    0   1   2   3   4   5   6   7
            128-byte line     0   0   1   1   2   2   3   3
            chunk 0 goes to   0   0   1   1   2   2   3   3      (row / 2) mod 4
            the mistake       0   1   2   3   0   1   2   3      row mod 4

        >>> Swizzle.named("64B").chunk_in_row(2, 0), Swizzle.named("64B").chunk_in_line(2, 0)
        (1, 2)
        """
        self._require_whole_chunks()
        span_bytes = self.span_bytes or SMEM_LINE_BYTES
        row = integer("row", row, least=0)
        chunk = integer("chunk", chunk, 0, span_bytes // CHUNK_BYTES - 1)
        start = integer("address", address, least=0)
        if start % SMEM_LINE_BYTES:
            raise SMEM_ALIGNMENT.error(address=start, below=start // SMEM_LINE_BYTES * SMEM_LINE_BYTES)
        start += row * span_bytes
        return (self.apply(start + chunk * CHUNK_BYTES) - start) // CHUNK_BYTES

    def pattern(self) -> tuple[tuple[int, ...], ...]:
        """The source chunk at every place: one tuple of 8 per line of the period.

        >>> Swizzle.named("32B").pattern()
        ((0, 1, 2, 3, 4, 5, 6, 7), (1, 0, 3, 2, 5, 4, 7, 6))
        """
        places = range(CHUNKS_PER_LINE)
        return tuple(tuple(self.chunk_in_line(line, place) for place in places) for line in range(self.period_lines))

    def base_offset(self, address: int) -> int:
        """Which line of the pattern a buffer at shared address `address` starts on.

        >>> Swizzle.named("128B").base_offset(0x480)
        1
        """
        return integer("address", address, least=0) // SMEM_LINE_BYTES % self.period_lines

    def swizzle(self, data: Any, address: int = 0, *, out: Any = None, threads: int = 1) -> Any:
        r"""Logical bytes as they are stored in shared memory from `address` on.

        Bytes give bytes, arrays keep shape and dtype; `out` is an array of the same number of bytes. The
        buffer starts and ends where a block of the mode does, or bytes would leave it:

            32B mode, blocks of 32 bytes      line 1, chunks     │ 0 1 │ 2 3 │ 4 5 │ 6 7 │
                                              as stored          │ 1 0 │ 3 2 │ 5 4 │ 7 6 │

        From 64 MiB on, the extra `fast` (numba) writes past the processor's cache: as fast as a copy. Its first use
        loads numba and compiles, which takes a second or less; the compiled loop is cached on disk.

        >>> Swizzle.named("32B").swizzle(bytes(range(256)))[128:160:16]
        b'\x90\x80'
        """
        from tilescope.swizzle.permutation import permute_bytes

        return permute_bytes(self, data, address, out=out, threads=threads)

    def unswizzle(self, data: Any, address: int = 0, *, out: Any = None, threads: int = 1) -> Any:
        """Shared memory from `address` on, back in logical order. Every mode is its own inverse.

        >>> mode = Swizzle.named("128B")
        >>> mode.unswizzle(mode.swizzle(b"0123456789abcdef" * 64)) == b"0123456789abcdef" * 64
        True
        """
        from tilescope.swizzle.permutation import permute_bytes

        return permute_bytes(self, data, address, out=out, threads=threads)

    def _require_whole_chunks(self) -> None:
        if self.bits and (self.base < 4 or self.block_bytes > SMEM_LINE_BYTES):
            raise SWIZZLE_CHUNKS.error(swizzle=self.name, atom_bytes=self.atom_bytes, block_bytes=self.block_bytes)

    def __str__(self) -> str:
        return self.name


def _unknown(name: object) -> RuleError:
    """The error for what names no swizzle; a number may be a CUtensorMapSwizzle of the driver."""
    unknown = unknown_name("swizzle", "swizzle", name, SWIZZLE)
    if isinstance(name, int) and not isinstance(name, bool):
        for mode in SWIZZLE.values():
            if mode.driver_code == name:
                fix = f"Did you mean {mode.name}, the driver's {name}?"
                return RuleError([replace(unknown, fix=fix, change={"swizzle": mode.name})])
    return RuleError([unknown])


def _not_an_address(address: object) -> RuleError:
    if plain_int(address) is not None:
        return RuleError([argument_range("address", address, "at least 0", "Use 0 or more.")])
    expected = "an integer, or an array of integers, of at least 0"
    return RuleError([argument_type("address", address, expected, "Use 0x400, for example.")])


# Patterns: PTX ISA, "Swizzling Modes"; codes: cuda.h, "tensormap.replace", "Matrix Descriptor Format"
# of wgmma, "Shared memory descriptor" of tcgen05. The parity of the flipped lines (odd) and the row
# pitch of 96B are readings of the text that no card has confirmed.
# fmt: off
SWIZZLE: dict[str, Swizzle] = {row.name: row for row in (
    #        name                    span  bits base shift flip driver mode atom wgmma tcgen05 needs                basis
    Swizzle("none",                  None,    0,   4,    3,   0,    0,    0, None,    0,    0, "tma",               "measured"),
    Swizzle("32B",                     32,    1,   4,    3,   0,    1,    1,    0,    3,    6, "tma",               "measured"),
    Swizzle("64B",                     64,    2,   4,    3,   0,    2,    2,    0,    2,    4, "tma",               "measured"),
    Swizzle("96B",                     96,    1,   4,    3,   0, None,    4,    0, None, None, "swizzle_96B",       "documented"),
    Swizzle("128B",                   128,    3,   4,    3,   0,    3,    3,    0,    1,    2, "tma",               "measured"),
    Swizzle("128B_ATOM_32B",          128,    2,   5,    2,   0,    4,    3,    1, None,    1, "swizzle_atomicity", "documented"),
    Swizzle("128B_ATOM_32B_FLIP_8B",  128,    2,   5,    2,   8,    5,    3,    2, None, None, "swizzle_atomicity", "documented"),
    Swizzle("128B_ATOM_64B",          128,    1,   6,    1,   0,    6,    3,    3, None, None, "swizzle_atomicity", "documented"),
)}
# fmt: on
_BY_FOLDED_NAME = {name.casefold(): row for name, row in SWIZZLE.items()}
_BY_MOVES = {row.moves: row for row in reversed(SWIZZLE.values())}  # of two rows the first: 32B, not 96B
