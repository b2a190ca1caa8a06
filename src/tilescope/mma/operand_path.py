"""How an operand comes to shared memory and is read from it: TMA boxes or stores of threads, descriptors or ldmatrix.

    (mn, k) elements ── boxes one atom wide ──▶ shared memory ── addresses of a K loop, or ldmatrix ──▶ (mn, k) elements

What is read comes back as a matrix of (mn, k) elements, so that a byte that went astray shows as a wrong element.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES, ArchName
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.layout import AtomOrder, Layout, Major, major_named
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, CanonicalLayout, canonical_layout
from tilescope.mma.consumer import Consumer
from tilescope.mma.descriptor_loop import smem_tile
from tilescope.mma.fragment import fragment
from tilescope.mma.ldmatrix import ldmatrix
from tilescope.mma.mma_instruction import INSTRUCTIONS, K_STEP_BYTES, Instruction
from tilescope.mma.pair_shares import PairShare
from tilescope.mma.readable_tile import SMEM_OPERANDS, SmemOperand
from tilescope.mma.tcgen05_product import Tcgen05Product
from tilescope.reading import integer
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES, SwizzleName
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.limits import LARGEST_BOX_EXTENT
from tilescope.tma import load_multicast
from tilescope.tma.elements import pack_values, unpack_values

_MMA_M = 16
_MMA_N = 8
_MMA_PRODUCTS = [mma for mma in INSTRUCTIONS if (mma.family, mma.m, mma.n) == ("mma", _MMA_M, (_MMA_N,))]

MMA_SHAPE = rule(
    "mma-shape",
    "A is m x k and B is k x n with the same k, and both are multiples of the instruction's shape.",
    argument="a, b",
    found="A is {a: x }, B is {b: x }",
    limit="A is m x k and B is k x n, with one k",
    fix="Use a B of {k} rows.",
    source="PTX ISA, mma: shapes",
    passing="ts.emulate_mma(np.zeros((16, 64)), np.zeros((64, 8)), data_type='bf16', consumer=\"ldmatrix\", )",
    failing="ts.emulate_mma(np.zeros((16, 64)), np.zeros((32, 8)), data_type='bf16', consumer=\"ldmatrix\", )",
)
LAYOUT_SHAPE = MMA_SHAPE.worded(
    argument="{layout_name}",
    found="a layout of {layout: x } elements of {element_bits} bits",
    limit="{holder} holds {shape: x } (mn x k) of {data_type}, {smem_bits} bits",
    fix="Use Layout({shape}, {smem_bits}).",
)
PARTIAL_BLOCKS = MMA_SHAPE.worded(
    argument="{operand_name}",
    found="operand {operand} of {mn} x {k} (mn x k)",
    limit="mma takes it in blocks of {block: x }",
    fix="Pad it to {whole: x }.",
)
MMA_TYPE = rule(
    "mma-type",
    "ldmatrix and mma multiply only certain types, and MN-major operands only with 16 bits.",
    argument="data_type",
    found="{data_type}, {major}-major",
    limit="ldmatrix and mma multiply {known:, }; MN-major those of 16 bits alone",
    fix="Use bfloat16.",
    source="PTX ISA, mma and ldmatrix: types",
    passing="ts.emulate_mma(np.zeros((64, 64)), np.zeros((64, 8)), data_type='bf16', consumer=\"ldmatrix\", major=('MN', 'K'))",
    failing="ts.emulate_mma(np.zeros((128, 128)), np.zeros((128, 8)), data_type='e4m3', consumer=\"ldmatrix\", major=('MN', 'K'))",
)
MN_MAJOR_TYPE = MMA_TYPE.worded(fix="Use K-major operands.")
TMA_START = SMEM_ALIGNMENT.worded(
    argument="smem_address",
    found="smem_address = {smem_address:#x}",
    limit="TMA writes to multiples of 128 bytes",
    fix="Use {below:#x}.",
)
NARROW_ELEMENTS = DESCRIPTOR_LAYOUT.worded(
    limit="elements below a byte are stored in a tensor core's atoms",
    fix='Use {swizzle:="128B"}, and leave the layout out.',
)
Matrix = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class OperandPath(NamedTuple):
    """How operands come to shared memory and are read from it."""

    row: DataType
    consumer: Consumer
    majors: tuple[Major, Major]
    swizzles: tuple[SwizzleName, SwizzleName]
    atom_order: AtomOrder
    smem_address: int
    layouts: tuple[Layout | None, Layout | None]
    product: Tcgen05Product | None = None
    shares: tuple[PairShare, ...] = ()  # of the blocks of a cluster

    def read(self, a: list[Matrix], b: list[Matrix]) -> list[tuple[Matrix, Matrix]]:
        """A (m, k) and B (n, k) of every block as its tensor core reads them."""
        a_read = a
        b_start = self.smem_address
        if self.product is None or not self.product.a_in_tensor_memory:
            a_tile = self._tile("A", a[0].shape, self.smem_address)
            a_read = self._through_smem("A", a_tile, a, [share.a_multicast for share in self.shares])
            b_start = a_tile.start + rounded_up(a_tile.size_bytes, SMEM_LINE_BYTES)
        b_tile = self._tile("B", b[0].shape, b_start)
        b_read = self._through_smem("B", b_tile, b, [share.b_multicast for share in self.shares])
        return list(zip(a_read, b_read, strict=True))

    def _tile(self, operand: SmemOperand, shape: tuple[int, ...], start: int) -> Layout:
        """Where one block holds the operand: in its own layout, or in atoms from `start` on."""
        index = SMEM_OPERANDS.index(operand)
        row = self.row
        layout = self.layouts[index]
        if layout is None:
            canonical_start = integer("smem_address", start, 0)
            past_bytes = canonical_start % SMEM_LINE_BYTES
            if past_bytes:
                below = canonical_start - past_bytes
                raise TMA_START.error(smem_address=canonical_start, below=below, change={"smem_address": below})
            canonical = canonical_layout(major_named(self.majors[index]), self.swizzles[index], row)
            mn, k = shape
            return canonical.tile((mn, k), atom_order=self.atom_order, start=start)
        name = "layout" if self.layouts[0] is self.layouts[1] else f"layout[{index}]"
        tile = smem_tile(name, layout)
        if tile.shape != shape or tile.element_bits != row.smem_bits:
            is_pair = self.product is not None and self.product.cta_group == 2
            raise LAYOUT_SHAPE.error(
                layout_name=name,
                layout=tile.shape,
                element_bits=tile.element_bits,
                holder="one block of a pair" if is_pair else "one block",
                shape=shape,
                data_type=row.name,
                smem_bits=row.smem_bits,
            )
        return tile

    def _through_smem(self, operand: SmemOperand, tile: Layout, parts: list[Matrix], masks: list[int]) -> list[Matrix]:
        """One operand of every block, loaded and read; blocks of one mask have the same data, which is multicast to them."""
        smems = [np.zeros(tile.size_bytes + tile.alignment_bytes, np.uint8) for _ in parts]
        for mask in dict.fromkeys(masks or [1 << rank for rank in range(len(parts))]):
            ranks = [rank for rank in range(len(parts)) if mask >> rank & 1]
            _bring(tile, parts[ranks[0]], self.row, [smems[rank] for rank in ranks])
        if self.product is not None:
            step_bytes = self.product.k * self.row.smem_bits // 8
            addresses = self.product.loop(tile, operand, self.row, k_step_bytes=step_bytes).addresses()
        elif self.consumer.loop is not None:
            addresses = self.consumer.loop(tile, operand, self.row).addresses()
        else:
            return [_read_fragments(self.consumer, operand, tile, self.row, smem) for smem in smems]
        return [_values(smem, addresses - _smem_base(tile), self.row) for smem in smems]


def _smem_base(tile: Layout) -> int:
    """The line in which the tile begins: the first address of the emulated shared memory."""
    return tile.start // SMEM_LINE_BYTES * SMEM_LINE_BYTES


def _bring(layout: Layout, elements: Matrix, row: DataType, smems: list[Bytes]) -> None:
    """Copy an operand to the shared memory of some blocks, by TMA in boxes one atom wide and as high as a run of atoms.

    Threads store what TMA cannot: a tile that is not made of a tensor core's atoms.
    """
    base = _smem_base(layout)
    tile = layout.as_rows()
    if CanonicalLayout.of(layout) is None or tile.tiling is None:
        _store_by_threads(layout, elements, row, smems)
        return
    stored = np.ascontiguousarray(elements if layout.major == "K" else elements.T)
    memory = pack_values(stored, row.bits) if row.bits < 8 else stored
    rows, columns = tile.shape
    atom_rows, width = tile.tiling.atom
    run = rows if layout.atom_order == "column" else atom_rows
    heights = range(atom_rows, min(run, LARGEST_BOX_EXTENT) + 1, atom_rows)
    height = max(extent for extent in heights if run % extent == 0)
    arch: ArchName = "sm_90" if row.bits >= 8 and layout.swizzle.feature == "tma" else "sm_100"
    pitch_bytes = columns * row.bits // 8
    tensor_map = TensorMap(row.tma, (columns, rows), (pitch_bytes,), (width, height), swizzle=layout.swizzle, arch=arch)
    everyone = (1 << len(smems)) - 1
    for column, first in itertools.product(range(0, columns, width), range(0, rows, height)):
        address = tile.logical(first, column)
        targets = [smem[address - base :] for smem in smems]
        load_multicast(tensor_map, memory, (column, first), targets, cta_mask=everyone, smem_address=address)


def _store_by_threads(layout: Layout, elements: Matrix, row: DataType, smems: list[Bytes]) -> None:
    """Store every element of an operand at its address in the layout."""
    if row.bits < 8:
        raise NARROW_ELEMENTS.error(layout=repr(layout), element_bits=row.bits)
    place = (layout.addresses() - _smem_base(layout))[..., None] + np.arange(row.bits // 8)
    for smem in smems:
        smem[place] = np.ascontiguousarray(elements)[..., None].view(np.uint8)


def _values(smem: Bytes, address: npt.NDArray[np.int64], row: DataType) -> Matrix:
    """The elements at these addresses."""
    if row.bits >= 8:
        element_bytes = row.bits // 8  # a tensor core's atoms keep elements aligned
        return np.asarray(smem.view(f"u{element_bytes}")[address // element_bytes]).view(row.numpy)
    # Narrow elements (K-major): sixteen of them in a piece, dense or padded to a byte.
    per_chunk = CHUNK_BYTES * 8 // row.smem_bits
    chunks = smem[address[:, ::per_chunk, None] + np.arange(CHUNK_BYTES * row.bits // row.smem_bits)]
    return unpack_values(chunks, row.bits).reshape(len(address), -1).view(row.numpy)


def _read_fragments(consumer: Consumer, operand: SmemOperand, tile: Layout, row: DataType, smem: Bytes) -> Matrix:
    """The registers of mma after ldmatrix, put together again by the fragments."""
    block_mn = _MMA_M if operand == "A" else _MMA_N
    block_k = K_STEP_BYTES * 8 // row.smem_bits
    mma_fragment = fragment(_mma_for(consumer, row, tile, block_k), operand, row)
    mn, k = tile.shape
    if mn % block_mn or k % block_k:
        raise PARTIAL_BLOCKS.error(
            operand_name=operand.lower(),
            operand=operand,
            mn=mn,
            k=k,
            block=(block_mn, block_k),
            whole=(rounded_up(mn, block_mn), rounded_up(k, block_k)),
        )
    is_transposed = tile.major == "MN"
    matrices_mn = block_mn // 8
    matrices = 2 * matrices_mn
    lane_row = np.arange(WARP_LANES) % (8 * matrices)  # addresses of lanes beyond the rows are not used
    matrix, line = np.divmod(lane_row, 8)
    # Matrix j: the first or second 8 of mn, then the second half of k. Its rows run along k, or (.trans) along mn.
    lane_mn = matrix % matrices_mn * 8
    lane_k = matrix // matrices_mn * (block_k // 2)
    if is_transposed:
        lane_k = lane_k + line
    else:
        lane_mn = lane_mn + line
    blocks_mn = np.arange(0, mn, block_mn)[:, None, None]
    blocks_k = np.arange(0, k, block_k)[None, :, None]
    registers = ldmatrix(
        smem,
        tile.address(blocks_mn + lane_mn, blocks_k + lane_k),
        count=matrices,
        transpose=is_transposed,
        smem_address=_smem_base(tile),
        form="m8n8.b16" if row.bits == row.smem_bits else "m8n16.b6x16_p32",
    )
    codes = np.ascontiguousarray(registers).view(np.uint8)
    if row.smem_bits < 8:
        codes = unpack_values(codes, row.bits)
    _, place, column = mma_fragment.indices()
    blocks = np.empty((*registers.shape[:2], *mma_fragment.shape), row.numpy)
    blocks[..., place, column] = codes.view(row.numpy)
    if operand == "B":
        blocks = blocks.swapaxes(-1, -2)
    return blocks.swapaxes(1, 2).reshape(mn, k)


def _mma_for(consumer: Consumer, row: DataType, tile: Layout, block_k: int) -> str:
    """The mma whose k is 32 bytes of the type as stored in shared memory."""
    major = tile.major or "K"
    canonical = CanonicalLayout.of(tile) or CanonicalLayout(major, "none", tile.element_bits)
    fitting = mma_with_k(row, block_k)
    if consumer.reads(canonical, major) and fitting:
        return fitting[0].name
    names = dict.fromkeys(name for mma in _MMA_PRODUCTS for name in mma.types)
    types = [DataType.named(name) for name in names]
    type_names = tuple(data_type.name for data_type in types if data_type.numpy_name and data_type.smem_bits <= 32)
    wording = MN_MAJOR_TYPE if row.name in type_names else MMA_TYPE.wording
    raise wording.error(data_type=row.name, major=tile.major, known=type_names, element_bits=row.smem_bits)


def mma_with_k(row: DataType, k: int) -> list[Instruction]:
    """The mma with this k that multiply the type."""
    return [mma for mma in _MMA_PRODUCTS if mma.k == k and row.name in mma.types]
