"""The shapes of tcgen05.cp: rows of shared memory, and their lanes and columns in tensor memory.

tcgen05.cp copies rows of shared memory, 16 or 32 bytes each, to lanes of one, two or four quarters at once (CP_SHAPES).
The source is a K-major operand as the descriptor describes it; byte b of a row goes to byte b mod 4 of column b/4. The
copy can also spread 16 values of 4 or 6 bits, padded to 16 bytes, to a byte each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.layout import Modes
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import integer, known_name, readable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.elements import unpack_values
from tilescope.tma.transfer import SMEM_EXTENT

TMEM_CP_SHAPE = rule(
    "tmem-cp-shape",
    "tcgen05.cp has six shapes; those of 64 and 32 rows are multicast to two or four quarters.",
    argument="shape",
    found=".{shape} with .{multicast}",
    limit=(
        "64 rows are multicast to two quarters (.warpx2::02_13, .warpx2::01_23), 32 rows to four (.warpx4), others not"
    ),
    fix="Use .{known: or .}.",
    source=(
        "PTX ISA, tcgen05.cp; the lanes as CuTe and TVM have them, "
        "JAX those of 128x128b, 64x128b.warpx2::01_23 and 32x128b.warpx4"
    ),
    architectures=BLACKWELL,
    passing=(
        "ts.TensorMemory().alloc(32).copy('32x128b.warpx4', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 0).findings"
    ),
    failing=(
        "ts.TensorMemory().alloc(32).copy('32x128b', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 0).findings"
    ),
)
NO_MULTICAST = TMEM_CP_SHAPE.worded(found=".{shape} alone")
TMEM_CP_COLUMN = rule(
    "tmem-cp-column",
    "tcgen05.cp writes to columns from a multiple of 4 on, as in all known kernels.",
    argument="address",
    found="column {column}",
    limit="every kernel seen copies to a multiple of 4 columns",
    fix="Use column {below}.",
    source="TVM and every kernel seen",
    architectures=BLACKWELL,
    severity="warning",
    passing=(
        "ts.TensorMemory().alloc(32).copy('32x128b.warpx4', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 4).findings"
    ),
    failing=(
        "ts.TensorMemory().alloc(32).copy('32x128b.warpx4', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 2).findings"
    ),
)
TMEM_DECOMPRESSION = rule(
    "tmem-decompression",
    "The position of 4- and 6-bit values in their bytes comes from one source, or is unconfirmed.",
    argument="decompress",
    found=".{decompression}",
    limit="{sources}",
    fix="Try it on a card before you rely on the bit positions.",
    source="CuTe DSL, the example of a decompressing copy",
    architectures=BLACKWELL,
    severity="note",
    passing=(
        "ts.TensorMemory().alloc(32).copy('32x128b.warpx4', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 0).findings"
    ),
    failing=(
        "ts.TensorMemory().alloc(32).copy('32x128b.warpx4', np.zeros(4096, np.uint8), "
        "ts.Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle='none'), 0, "
        "decompress='b8x16.b6x16_p32').findings"
    ),
)
DESCRIPTOR_BEYOND_SMEM = SMEM_EXTENT.worded(
    argument="smem",
    found="{size_bytes} bytes from {smem_address:#x}",
    limit="the descriptor reads bytes {first:#x} to {last:#x}",
    fix="Pass shared memory up to byte {last:#x}, or a descriptor that starts lower.",
)


@dataclass(frozen=True)
class CpShape:
    """A row of the table: the bytes of a row of shared memory, and the lanes that its copies go to.

    >>> CP_SHAPES["64x128b.warpx2::01_23"].lanes[40].tolist()
    [72, 104]
    """

    name: str
    row_bytes: int
    modes: Modes  # (row, copy) → lane
    source: str  # the source for the destination of rows

    @property
    def rows(self) -> int:
        """Rows of shared memory."""
        return len(self.lanes)

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.row_bytes // 4

    @cached_property
    def lanes(self) -> npt.NDArray[np.int64]:
        """The lanes that the rows go to, (rows, copies)."""
        return self.modes.offsets()


_BOTH, _ALL = "CuTe and TVM", "CuTe, TVM and JAX"
# PTX ISA, "tcgen05.cp"; the lanes as CuTe's copy_traits_sm100 and TVM have them, and JAX for the shapes that it issues.
_ROWS = (
    CpShape("128x256b", row_bytes=32, modes=Modes((128, 1), (1, 0)), source=_BOTH),
    CpShape("128x128b", row_bytes=16, modes=Modes((128, 1), (1, 0)), source=_ALL),
    CpShape("64x128b.warpx2::02_13", row_bytes=16, modes=Modes((64, 2), (1, 64)), source=_BOTH),
    CpShape("64x128b.warpx2::01_23", row_bytes=16, modes=Modes(((32, 2), 2), ((1, 64), 32)), source=_ALL),
    CpShape("32x128b.warpx4", row_bytes=16, modes=Modes((32, 4), (1, 32)), source=_ALL),
    CpShape("4x256b", row_bytes=32, modes=Modes((4, 1), (32, 0)), source=_BOTH),
)
CP_SHAPES: dict[str, CpShape] = {row.name: row for row in _ROWS}


class Decompression(NamedTuple):
    """Values of fewer than 8 bits, and where in a byte they land."""

    bits: int
    lowest_bit: int
    note: str


_FOUR = "one source: the CuTe DSL's example, and the same place in mma.sync"
_SIX = "unconfirmed: the CuTe DSL's example puts 6-bit values at bits 6-1, mma.sync takes them from bits 5-0"
Bytes = npt.NDArray[np.uint8]
DECOMPRESSIONS = {"b8x16.b4x16_p64": Decompression(4, 2, _FOUR), "b8x16.b6x16_p32": Decompression(6, 1, _SIX)}


def cp_shape(name: object) -> CpShape:
    """The shape called `name`; refused if its multicast is missing or does not exist.

    >>> cp_shape("tcgen05.cp.cta_group::1.32x128b.warpx4").rows
    32
    """
    written = name.strip().casefold() if isinstance(name, str) else ""
    plain = re.sub(r"^(tcgen05\.)?(cp\.)?(cta_group::\d\.)?\.?", "", written)
    if plain in CP_SHAPES:
        return CP_SHAPES[plain]
    shape, _, multicast = plain.partition(".")
    fitting = tuple(shape_name for shape_name in CP_SHAPES if shape_name.split(".")[0] == shape)
    if fitting:
        wording = TMEM_CP_SHAPE if multicast else NO_MULTICAST
        raise wording.error(shape=shape, multicast=multicast, known=fitting)
    raise RuleError([unknown_name("shape of tcgen05.cp", "shape", name, CP_SHAPES)])


def copied_words(
    shape: CpShape, smem: npt.ArrayLike, descriptor: object, smem_address: int, decompress: str | None
) -> npt.NDArray[np.uint32]:
    """The 32-bit words that a copy writes, (rows, columns), read from shared memory by its descriptor."""
    memory = readable("smem", smem)
    base = integer("smem_address", smem_address, 0, (1 << 32) - 1)
    if not isinstance(descriptor, Tcgen05Descriptor):
        raise ARGUMENT_TYPE.error(
            argument="descriptor",
            found=f"a {type(descriptor).__name__}",
            limit="a Tcgen05Descriptor",
            fix="Use Tcgen05Descriptor(…), or Tcgen05Descriptor.decode(word).",
        )
    addresses = descriptor.addresses("K", rows=shape.rows, k=shape.row_bytes, element_bits=8)
    first = int(addresses.min())
    last = int(addresses.max())
    if first < base or last >= base + len(memory):
        raise DESCRIPTOR_BEYOND_SMEM.error(size_bytes=len(memory), smem_address=base, first=first, last=last)
    rows = memory[addresses - base]
    if decompress is not None:
        spread = DECOMPRESSIONS[known_name("decompress", decompress, DECOMPRESSIONS, "decompression of tcgen05.cp")]
        rows = spread_bytes(rows, spread)
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(rows).view(np.uint32)
    return words


def padded_codes(stored: Bytes, bits: int) -> Bytes:
    """Codes of elements of 4 or 6 bits from rows of 16-byte chunks: 16 elements at the front of each, then padding.

    >>> chunk = np.zeros((1, 16), np.uint8)
    >>> chunk[0, :8] = 0x21
    >>> padded_codes(chunk, 4)[0].tolist()[:4]
    [1, 2, 1, 2]
    """
    rows = len(stored)
    filled = stored.reshape(rows, -1, CHUNK_BYTES)[..., : CHUNK_BYTES * bits // 8]
    return unpack_values(filled, bits).reshape(rows, -1)


def spread_bytes(stored: Bytes, spread: Decompression) -> Bytes:
    """Rows as tcgen05.cp spreads them: a byte for each element, at the bits where the tensor core takes it from."""
    return (padded_codes(stored, spread.bits) << np.uint8(spread.lowest_bit)).astype(np.uint8)


def copy_notes(column: int, decompress: str | None) -> list[Violation]:
    """What a copy to this column rests on, and what is advised against."""
    notes = []
    if decompress in DECOMPRESSIONS:
        sources = DECOMPRESSIONS[decompress].note
        notes.append(TMEM_DECOMPRESSION.violation(column=column, decompression=decompress, sources=sources))
    if column % 4:
        notes.append(TMEM_CP_COLUMN.violation(column=column, below=column // 4 * 4))
    return notes
