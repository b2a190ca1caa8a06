"""The shapes of tcgen05.cp: which lanes of tensor memory a row of shared memory goes to.

    shape                       rows   columns   row i lands in lanes
    .128x256b                   128    8         i
    .128x128b                   128    4         i
    .64x128b.warpx2::02_13       64    4         i and i + 64
    .64x128b.warpx2::01_23       64    4         i mod 32 + 64 (i/32), and 32 further
    .32x128b.warpx4              32    4         i, i + 32, i + 64, i + 96
    .4x256b                       4    8         32 i

The source is a K-major operand as the descriptor describes it, 16 or 32 bytes to a row; byte b of a row goes to byte b mod 4 of
column b/4. On the way 16 values of 4 or 6 bits, padded to 16 bytes, may be spread to a byte each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.tcgen05_kind import blackwell_rule
from tilescope.reading import integer
from tilescope.rule import ARGUMENT_TYPE
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.packing import unpacked
from tilescope.tma.transfer import SMEM_EXTENT

_COPY = (
    "ts.TensorMemory().alloc(32).copy({shape!r}, np.zeros(4096, np.uint8), "
    "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), {column}{more}).findings"
)
# fmt: off
TMEM_CP_SHAPE = blackwell_rule(
    "tmem-cp-shape", "tcgen05.cp has six shapes; those of 64 and 32 rows are multicast to two or four quarters.", "tcgen05.cp",
    _COPY.format(shape="32x128b.warpx4", column=0, more=""), _COPY.format(shape="32x128b", column=0, more=""),
)
TMEM_CP_COLUMN = blackwell_rule(
    "tmem-cp-column", "tcgen05.cp writes from a multiple of 4 columns on, as in every kernel seen.", "TVM and every kernel seen",
    _COPY.format(shape="32x128b.warpx4", column=4, more=""), _COPY.format(shape="32x128b.warpx4", column=2, more=""), severity="warning",
)
TMEM_DECOMPRESSION = blackwell_rule(
    "tmem-decompression", "Where 4- and 6-bit values land in their bytes rests on one source, or is unconfirmed.",
    "CuTe DSL, the example of a decompressing copy", _COPY.format(shape="32x128b.warpx4", column=0, more=""),
    _COPY.format(shape="32x128b.warpx4", column=0, more=", decompress='b8x16.b6x16_p32'"), severity="note",
)
# fmt: on
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CpShape:
    """A row of the table: rows read, bytes of a row, lane modes (extent, step) of a row, and steps of its copies.

    >>> CP_SHAPES["64x128b.warpx2::01_23"].lanes()[40].tolist()
    [72, 104]
    """

    name: str
    row_bytes: int
    row_modes: tuple[tuple[int, int], ...]
    copy_lanes: tuple[int, ...] = (0,)

    @property
    def rows(self) -> int:
        """Rows of shared memory."""
        return int(np.prod([extent for extent, _ in self.row_modes]))

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.row_bytes // 4

    def lanes(self) -> npt.NDArray[np.int64]:
        """The lanes that each row goes to, (rows, copies)."""
        row, lane = np.arange(self.rows), np.zeros(self.rows, np.int64)
        for extent, step in self.row_modes:
            lane += row % extent * step
            row = row // extent
        lanes: npt.NDArray[np.int64] = lane[:, None] + np.array(self.copy_lanes)
        return lanes


# PTX ISA, "tcgen05.cp"; the lanes as CuTe's copy_traits_sm100 and TVM have them.
# fmt: off
CP_SHAPES: dict[str, CpShape] = {row.name: row for row in (
    #       name                     bytes  rows (extent, lanes)   copies
    CpShape("128x256b",               32, ((128, 1),)),
    CpShape("128x128b",               16, ((128, 1),)),
    CpShape("64x128b.warpx2::02_13",  16, ((64, 1),),           (0, 64)),
    CpShape("64x128b.warpx2::01_23",  16, ((32, 1), (2, 64)),   (0, 32)),
    CpShape("32x128b.warpx4",         16, ((32, 1),),           (0, 32, 64, 96)),
    CpShape("4x256b",                 32, ((4, 32),)),
)}
# fmt: on


class Decompression(NamedTuple):
    """Values of fewer than 8 bits, and where in its byte each lands."""

    bits: int
    lowest_bit: int
    note: str


_FOUR = "one source: the CuTe DSL's example, and the same place in mma.sync"
_SIX = "unconfirmed: the CuTe DSL's example puts 6-bit values at bits 6-1, mma.sync takes them from bits 5-0"
DECOMPRESSIONS = {"b8x16.b4x16_p64": Decompression(4, 2, _FOUR), "b8x16.b6x16_p32": Decompression(6, 1, _SIX)}


def cp_shape(name: Any) -> CpShape:
    """The shape called `name`; a multicast that is missing or too much is said.

    >>> cp_shape("tcgen05.cp.cta_group::1.32x128b.warpx4").rows
    32
    """
    if isinstance(name, str):
        words = [each for each in name.strip().casefold().split(".") if each not in ("", "tcgen05", "cp")]
        plain = ".".join(word for word in words if not word.startswith("cta_group"))
        if plain in CP_SHAPES:
            return CP_SHAPES[plain]
        shape, _, cast = plain.partition(".")
        fitting = [each for each in CP_SHAPES if each.split(".")[0] == shape]
        if fitting:
            found = f".{shape} with .{cast}" if cast else f".{shape} alone"
            limit = "64 rows are multicast to two quarters (.warpx2::02_13, .warpx2::01_23), 32 rows to four (.warpx4), others not"
            raise TMEM_CP_SHAPE.error("shape", found, limit, f"Use .{' or .'.join(fitting)}.")
    raise RuleError([unknown_name("shape of tcgen05.cp", "shape", name, CP_SHAPES)])


def copied_words(
    shape: CpShape, smem: Bytes, descriptor: Any, smem_address: int, decompress: str | None
) -> npt.NDArray[np.uint32]:
    """The 32-bit words that a copy writes, (rows, columns), read from shared memory by its descriptor."""
    if not isinstance(descriptor, Tcgen05Descriptor):
        found = f"a {type(descriptor).__name__}"
        raise ARGUMENT_TYPE.error(
            "descriptor", found, "a Tcgen05Descriptor", "Use Tcgen05Descriptor(…), or Tcgen05Descriptor.decode(word)."
        )
    first = integer("smem_address", smem_address, 0, (1 << 32) - 1)
    addresses = descriptor.addresses("K", rows=shape.rows, k=shape.row_bytes, element_bits=8) - first
    if addresses.min() < 0 or addresses.max() >= len(smem):
        raise SMEM_EXTENT.error("smem", f"{len(smem)} bytes from {first:#x}",
            f"the descriptor reads bytes {int(addresses.min()) + first:#x} to {int(addresses.max()) + first:#x}",
            f"Pass shared memory up to byte {int(addresses.max()) + first:#x}, or a descriptor that starts lower.",
        )  # fmt: skip
    found_bytes = smem[addresses]
    if decompress is not None:
        row = decompression(decompress)
        chunks = found_bytes.reshape(shape.rows, -1, CHUNK_BYTES)[..., : CHUNK_BYTES * row.bits // 8]
        found_bytes = (unpacked(chunks, row.bits) << row.lowest_bit).reshape(shape.rows, -1).astype(np.uint8)
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(found_bytes).view(np.uint32)
    return words


def decompression(name: Any) -> Decompression:
    """The decompression called `name`."""
    if not isinstance(name, str) or name not in DECOMPRESSIONS:
        raise RuleError([unknown_name("decompression of tcgen05.cp", "decompress", name, DECOMPRESSIONS)])
    return DECOMPRESSIONS[name]


def decompression_note(name: str) -> Violation:
    """What a decompression rests on."""
    row = decompression(name)
    fix = "Try it on a card before you rely on the bit positions."
    return TMEM_DECOMPRESSION.violation("decompress", f".{name}", row.note, fix)
