"""Where a swizzle puts each 16-byte chunk of a 128-byte line of shared memory.

Shared memory has 32 banks of 4 bytes: one line is 128 bytes, eight chunks of 16 bytes. Rows of a tile
that lie below each other start in the same bank, so reading a column of chunks would serialise. A
swizzle moves the chunks of each line by an XOR with the line's number, and the columns fan out:

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

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis, architectures_with
from tilescope.errors import RuleError, broken, unknown_name
from tilescope.value import Row

SwizzleName = Literal[
    "none", "32B", "64B", "96B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"
]  # fmt: skip
SMEM_LINE_BYTES = 128  # 32 banks of 4 bytes
CHUNK_BYTES = 16  # what ldmatrix reads of a row, and the smallest piece TMA moves
CHUNKS_PER_LINE = SMEM_LINE_BYTES // CHUNK_BYTES
_ADDRESS_BITS = 32  # widest XOR swizzle worth describing

Addresses = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Swizzle(Row):
    """A shared-memory swizzle: `bits` address bits at `base` are XORed with those `shift` above them.

    In CuTe's words Swizzle<bits, base, shift> on byte addresses. For the 64B mode, Swizzle<2,4,3>:

        bit     9 8 7 6 5 4 3 2 1 0
                  y y   z z              z ^= y      (2 bits, from bit 7 + i into bit 4 + i)

    Given by name and found in the table `SWIZZLE`; `Swizzle.xor` makes any other.

    >>> Swizzle.named("128B").apply(1 * 128 + 0 * 16)  # line 1, chunk 0 goes to chunk 1
    144
    """

    name: str
    span_bytes: int | None  # widest inner box row; None: no limit of its own
    bits: int  # how many address bits change; 2**bits lines (or groups) have a pattern of their own
    base: int  # lowest changed bit; pieces of 2**base bytes stay whole
    shift: int  # distance to the bits that cause the change; negative: they lie below
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
            raise RuleError([unknown_name("swizzle", "swizzle", name, SWIZZLE)])
        row = SWIZZLE.get(name) or _BY_FOLDED_NAME.get(name.strip().casefold().removeprefix("cu_tensor_map_swizzle_"))
        if row is not None:
            return row
        triple = re.fullmatch(
            r"\s*(?:xor|swizzle|sw|s)\s*[:(<]\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(-?\d{1,4})\s*[)>]?\s*",
            name,
            re.IGNORECASE,
        )
        if triple is None:
            raise RuleError([unknown_name("swizzle", "swizzle", name, SWIZZLE)])
        return cls.xor(*map(int, triple.groups()))

    @classmethod
    def xor(cls, bits: int, base: int, shift: int) -> Swizzle:
        """Any other XOR swizzle, as CuTe's Swizzle<bits, base, shift> on byte addresses.

        >>> transpose = Swizzle.xor(5, 2, 5)  # 32 x 32 floats: word ^= row
        >>> transpose.apply(1 * 128 + 0 * 4)
        132
        """
        for argument, given in (("bits", bits), ("base", base), ("shift", shift)):
            if not isinstance(given, int) or isinstance(given, bool):
                raise broken("xor-swizzle", argument, repr(given), "an integer", f"Give {argument} as an integer.")
        top = base + abs(shift) + bits
        if bits < 0 or base < 0 or top > _ADDRESS_BITS:
            raise broken(
                "xor-swizzle",
                "bits, base, shift",
                f"xor:{bits},{base},{shift} uses address bits {base} to {top - 1}",
                f"bits 0 to {_ADDRESS_BITS - 1} of an address exist",
                "Choose bits, base >= 0 with base + abs(shift) + bits inside that range.",
            )
        if abs(shift) < bits:
            raise broken(
                "xor-swizzle",
                "shift",
                f"shift = {shift} with bits = {bits}",
                "the changed bits must not overlap the bits that change them, or the map has no inverse",
                f"Use a shift of at least {bits}.",
            )
        codes = (None, None, None, None, None, None)
        return cls(f"xor:{bits},{base},{shift}", None, bits, base, shift, 0, *codes, "documented")

    @classmethod
    def from_ptx(cls, mode: int | str, atomicity: int | str | None = None) -> Swizzle:
        """The row for PTX's pair of .swizzle_mode and .swizzle_atomicity (numbers or spellings).

        >>> Swizzle.from_ptx("128B", "32B+8B-flip").name, Swizzle.from_ptx(3, 3).name
        ('128B_ATOM_32B_FLIP_8B', '128B_ATOM_64B')
        """
        mode_code = _PTX_MODE.get(mode, mode) if isinstance(mode, int | str) else mode
        atom_code = _PTX_ATOMICITY.get(atomicity, atomicity) if isinstance(atomicity, str) else atomicity
        if mode_code == 0 and atom_code == 0:
            atom_code = None
        elif mode_code != 0 and atom_code is None:
            atom_code = 0
        for row in SWIZZLE.values():
            if (row.ptx_mode, row.ptx_atomicity) == (mode_code, atom_code):
                return row
        valid = ", ".join(f"{_spelled(_PTX_MODE, row.ptx_mode)} with {_spelled(_PTX_ATOMICITY, row.ptx_atomicity)}"
                          for row in SWIZZLE.values() if row.ptx_mode is not None)  # fmt: skip
        raise broken(
            "ptx-swizzle-pair",
            "mode, atomicity",
            f"swizzle mode {mode!r} with atomicity {atomicity!r}",
            f"PTX's table of valid combinations has {valid}",
            "Use one of these pairs: only the 128B mode has a choice of atoms.",
        )

    @property
    def atom_bytes(self) -> int:
        """The piece that moves whole."""
        return 1 << self.base

    @property
    def repeat_bytes(self) -> int:
        """Bytes after which the pattern starts again: 1024, 512, 256 for 128B, 64B, 32B; a line for none.

        >>> [SWIZZLE[name].repeat_bytes for name in ("none", "32B", "64B", "128B")]
        [128, 256, 512, 1024]
        """
        return max(SMEM_LINE_BYTES, 1 << (self.base + abs(self.shift) + self.bits))

    @property
    def period_lines(self) -> int:
        """Lines after which the pattern starts again."""
        return self.repeat_bytes // SMEM_LINE_BYTES

    @property
    def block_bytes(self) -> int:
        """The map permutes each aligned block of this many bytes within itself."""
        if self.bits == 0:
            return 1
        return 1 << (self.base + max(-self.shift, 0) + self.bits)

    @property
    def architectures(self) -> tuple[str, ...]:
        """Where TMA knows the mode; none for a software swizzle.

        >>> SWIZZLE["96B"].architectures
        ('sm_103',)
        """
        return () if self.feature is None else architectures_with(self.feature)

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

        Its own inverse: the line picks the XOR, and the XOR leaves the line alone.

        >>> Swizzle.named("64B").apply(np.array([0, 128, 384]))
        array([  0, 144, 432])
        """
        if isinstance(address, int):
            if address < 0:
                raise _not_an_address(address)
            physical_address: int = address ^ self._change(address)
            return physical_address
        array = np.asarray(address)
        if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.size and array.min() < 0):
            raise _not_an_address(address)
        if array.dtype.itemsize < 8:
            array = array.astype(np.int64)
        physical: Addresses = array ^ self._change(array)
        return int(physical) if np.isscalar(address) else physical

    def _change(self, address: Any) -> Any:
        """The bits that differ between the logical and the physical address."""
        target = self.base + max(-self.shift, 0)
        source = self.base + max(self.shift, 0)
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
        return self.apply(line * SMEM_LINE_BYTES + chunk * CHUNK_BYTES) % SMEM_LINE_BYTES // CHUNK_BYTES

    def chunk_in_row(self, row: int, chunk: int, address: int = 0) -> int:
        """Where chunk `chunk` of box row `row` goes within its row, when rows are one span wide.

        Rows are not lines: two 64-byte rows, four 32-byte rows share a line and its XOR. Row 2 of a
        64B box lies in line 1, so `row % 4` (the classic mistake) names the wrong chunk:

        >>> Swizzle.named("64B").chunk_in_row(2, 0), Swizzle.named("64B").chunk_in_line(2, 0)
        (1, 2)
        """
        self._require_whole_chunks()
        span_bytes = self.span_bytes or SMEM_LINE_BYTES
        start = address + row * span_bytes
        return (self.apply(start + chunk * CHUNK_BYTES) - start) // CHUNK_BYTES

    def pattern(self) -> tuple[tuple[int, ...], ...]:
        """The source chunk found at each place: one tuple of 8 per line of the period.

        >>> Swizzle.named("32B").pattern()
        ((0, 1, 2, 3, 4, 5, 6, 7), (1, 0, 3, 2, 5, 4, 7, 6))
        """
        self._require_whole_chunks()
        places = range(CHUNKS_PER_LINE)
        return tuple(tuple(self.chunk_in_line(line, place) for place in places) for line in range(self.period_lines))

    def base_offset(self, address: int) -> int:
        """Which line of the pattern a buffer at shared address `address` starts on.

        >>> Swizzle.named("128B").base_offset(0x480)
        1
        """
        return address // SMEM_LINE_BYTES % self.period_lines

    def swizzle(self, data: Any, address: int = 0, *, out: Any = None, threads: int = 1) -> Any:
        r"""Logical bytes as they lie in shared memory from `address` on.

        Bytes give bytes, arrays keep shape and dtype; `out` is an array of the same number of bytes.

        >>> Swizzle.named("32B").swizzle(bytes(range(256)))[128:160:16]
        b'\x90\x80'
        """
        return self._permuted(data, address, out, threads)

    def unswizzle(self, data: Any, address: int = 0, *, out: Any = None, threads: int = 1) -> Any:
        """Shared memory from `address` on, back in logical order. Every mode is its own inverse.

        >>> mode = Swizzle.named("128B")
        >>> mode.unswizzle(mode.swizzle(b"0123456789abcdef" * 64)) == b"0123456789abcdef" * 64
        True
        """
        return self._permuted(data, address, out, threads)

    def _permuted(self, data: Any, address: int, out: Any, threads: int) -> Any:
        gives_bytes = isinstance(data, bytes | bytearray | memoryview)
        source = np.frombuffer(data, np.uint8) if gives_bytes else np.ascontiguousarray(data)
        if source.dtype.hasobject:
            raise broken("buffer", "data", f"an array of {source.dtype}", "plain bytes", "Give numbers, not objects.")
        if not isinstance(threads, int) or threads < 1:
            raise broken("threads", "threads", repr(threads), "an integer of at least 1", "Use threads=1.")
        length_bytes = source.nbytes
        self._require_closed(address, length_bytes)
        target = np.empty_like(source) if out is None else _checked_out(out, length_bytes)
        flat = source.reshape(-1).view(np.uint8)
        flat_out = target.reshape(-1).view(np.uint8)
        if out is not None and np.may_share_memory(flat, flat_out):
            flat = flat.copy()
        if self.bits == 0:
            flat_out[...] = flat
        else:
            _permute(self, address % self.repeat_bytes, flat, flat_out, threads)
        if out is not None:
            return out
        return target.tobytes() if gives_bytes else target

    def _require_closed(self, address: int, length_bytes: int) -> None:
        if not isinstance(address, int) or address < 0:
            raise _not_an_address(address)
        block = self.block_bytes
        if address % block == 0 and length_bytes % block == 0:
            return
        start, end = address // block * block, -(-(address + length_bytes) // block) * block
        found = f"{length_bytes} bytes from address {address:#x}"
        near = np.unique(np.r_[0 : min(block, length_bytes), max(0, length_bytes - block) : length_bytes]) + address
        physical = self.apply(near)
        leaving = near[(physical < address) | (physical >= address + length_bytes)]
        if leaving.size:
            found += f": logical byte {int(leaving[0]):#x} would leave to {self.apply(int(leaving[0])):#x}"
        raise broken(
            "swizzle-closure",
            "data",
            found,
            f"swizzle {self.name} permutes whole blocks of {block} bytes",
            f"Start at {start:#x} and pad to {end - start} bytes.",
        )

    def _require_whole_chunks(self) -> None:
        if self.bits and (self.base < 4 or self.block_bytes > SMEM_LINE_BYTES):
            raise broken(
                "swizzle-chunks",
                "swizzle",
                f"{self.name} moves pieces of {self.atom_bytes} bytes within blocks of {self.block_bytes}",
                "chunk tables show 16-byte chunks that stay within their 128-byte line",
                "Use apply() on byte addresses.",
            )

    def __str__(self) -> str:
        return self.name


def _checked_out(out: Any, length_bytes: int) -> Any:
    problem = None
    if not isinstance(out, np.ndarray):
        problem = f"a {type(out).__name__}"
    elif not out.flags.c_contiguous:
        problem = "an array that is not C-contiguous"
    elif not out.flags.writeable:
        problem = "a read-only array"
    elif out.nbytes != length_bytes:
        problem = f"an array of {out.nbytes} bytes"
    if problem is not None:
        limit = f"a writeable C-contiguous array of {length_bytes} bytes"
        raise broken("out-array", "out", problem, limit, f"Use np.empty({length_bytes}, np.uint8).")
    return out


def _permute(
    mode: Swizzle, phase: int, source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8], threads: int
) -> None:
    """Copy `source` into `target` in swizzled order; `phase` is the start's place in the pattern."""
    piece_bytes = mode.flip_bytes or min(CHUNK_BYTES, mode.atom_bytes)
    group_bytes, order = _group_order(mode, phase, piece_bytes)
    groups = len(source) // group_bytes
    pieces = _PIECE[piece_bytes]
    body = groups * group_bytes
    rows = source[:body].view(pieces).reshape(groups, len(order))
    rows_out = target[:body].view(pieces).reshape(groups, len(order))
    if threads == 1 or groups < 2 * threads:
        np.take(rows, order, axis=1, out=rows_out, mode="clip")
    else:
        edges = [groups * part // threads for part in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            for done in [
                pool.submit(np.take, rows[low:high], order, 1, rows_out[low:high], "clip")
                for low, high in itertools.pairwise(edges)
            ]:
                done.result()
    tail = source[body:].view(pieces)
    target[body:].view(pieces)[...] = tail[order[: len(tail)]]


@lru_cache(maxsize=256)
def _group_order(mode: Swizzle, phase: int, piece_bytes: int) -> tuple[int, npt.NDArray[np.intp]]:
    """A group of bytes after which the order repeats, and the source piece of each piece in it."""
    group_bytes = max(mode.repeat_bytes, 1024)  # long enough that a row of np.take is worth its call
    address = np.arange(phase, phase + group_bytes, piece_bytes)
    return group_bytes, ((mode.apply(address) - phase) // piece_bytes).astype(np.intp)


def _not_an_address(found: object) -> RuleError:
    shown = repr(found) if isinstance(found, int | float | str | None) else f"a {type(found).__name__}"
    return broken(
        "address", "address", shown, "an integer of at least 0, or an integer array of such", "Give a byte address."
    )


_PIECE: dict[int, type[np.generic]] = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
    16: np.complex128,
}  # fmt: skip  complex128 is numpy's only 16-byte item; take moves its bits unread
_PTX_MODE: dict[int | str, int] = {"none": 0, "32B": 1, "64B": 2, "128B": 3, "96B": 4}
_PTX_ATOMICITY: dict[int | str, int] = {"16B": 0, "32B": 1, "32B+8B-flip": 2, "64B": 3}


def _spelled(codes: dict[int | str, int], code: int | None) -> str:
    return next((str(name) for name, each in codes.items() if each == code), "no atomicity")


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
