"""The path of an operand to the tensor core: global memory, TMA boxes, shared memory, then descriptors or ldmatrix.

What is read comes back as a matrix of (mn, k) elements, so that a byte that went astray shows as a wrong element.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import ArchName
from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type, by, ceil_div
from tilescope.layout import Layout, Major, major_named
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER, ConsumerName
from tilescope.mma.cta_pair import PairShare
from tilescope.mma.descriptor_loop import SmemOperand
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction import INSTRUCTIONS, K_STEP_BYTES
from tilescope.mma.instruction_loops import Tcgen05PairLoop, Tcgen05WsLoop
from tilescope.mma.ldmatrix import ldmatrix
from tilescope.mma.tcgen05_emulation import Tcgen05Product
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import integer
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load_multicast
from tilescope.tma.packing import packed, unpacked

_HIGHEST_BOX = 256
_MMA_M, _MMA_N = 16, 8

_PRODUCT = 'ts.emulate_mma(np.zeros({a}), np.zeros({b}), data_type={type!r}, consumer="ldmatrix", {more})'
MMA_SHAPE = rule(
    "mma-shape", "A is m x k and B is k x n, with one k, and both are whole numbers of the blocks that an instruction takes.",
    source="PTX ISA, mma: shapes", passing=_PRODUCT.format(a=(16, 64), b=(64, 8), type="bf16", more=""),
    failing=_PRODUCT.format(a=(16, 64), b=(32, 8), type="bf16", more=""),
)  # fmt: skip
MMA_TYPE = rule(
    "mma-type", "ldmatrix and mma multiply certain types, and MN-major those of 16 bits alone.",
    source="PTX ISA, mma and ldmatrix: types", passing=_PRODUCT.format(a=(64, 64), b=(64, 8), type="bf16", more="a_major='MN'"),
    failing=_PRODUCT.format(a=(128, 128), b=(128, 8), type="e4m3", more="a_major='MN'"),
)  # fmt: skip

Matrix = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class OperandPath(NamedTuple):
    """How operands come to shared memory and are read from it."""

    row: DataType
    consumer: ConsumerName
    majors: tuple[Major, Major]
    swizzle: Any
    atom_order: Any
    smem_address: Any
    layouts: tuple[Layout | None, Layout | None]
    product: Tcgen05Product | None = None
    shares: tuple[PairShare, ...] = ()  # of the blocks of a cluster

    def read(self, a: list[Matrix], b: list[Matrix]) -> list[tuple[Matrix, Matrix]]:
        """A (m, k) and B (n, k) of each block as its tensor core reads them."""
        swizzles = self.swizzle if isinstance(self.swizzle, tuple) and len(self.swizzle) == 2 else (self.swizzle,) * 2
        a_masks, b_masks = ([getattr(share, name) for share in self.shares] for name in ("a_multicast", "b_multicast"))
        one, after = a, self.smem_address
        if self.product is None or not self.product.a_in_tensor_memory:
            first = self._tile(0, a[0].shape, swizzles[0], after)
            one = self._through_smem("A", first, a, a_masks)
            after = first.start + ceil_div(first.size_bytes, SMEM_LINE_BYTES) * SMEM_LINE_BYTES
        second = self._tile(1, b[0].shape, swizzles[1], after)
        return list(zip(one, self._through_smem("B", second, b, b_masks), strict=True))

    def _tile(self, place: int, shape: tuple[int, ...], swizzle: Any, start: Any) -> Layout:
        given: Any = self.layouts[place]
        if given is None:
            return _tile(shape, self.row, self.majors[place], swizzle, self.atom_order, start)
        name = f"{'ab'[place]}_layout"
        if not isinstance(given, Layout) or isinstance(given, TmemLayout):
            raise RuleError([argument_type(name, given, "a Layout of shared memory", "Use parse_layout(text).")])
        tile = (given.stage() or given) if len(given.shape) > 2 else given
        if tile.shape != shape or tile.element_bits != self.row.smem_bits:
            raise MMA_SHAPE.error(
                name, f"a layout of {by(tile.shape)} elements of {tile.element_bits} bits",
                f"one block holds {by(shape)} (mn x k) of {self.row.name}, {self.row.smem_bits} bits", "Use a layout of this shape.",
            )  # fmt: skip
        return tile

    def _through_smem(self, operand: SmemOperand, tile: Layout, parts: list[Matrix], masks: list[int]) -> list[Matrix]:
        """One operand of each block, brought and read; blocks of one mask hold the same, which is multicast to them."""
        smems = [np.zeros(tile.size_bytes + tile.alignment_bytes, np.uint8) for _ in parts]
        for mask in dict.fromkeys(masks or [1 << rank for rank in range(len(parts))]):
            ranks = [rank for rank in range(len(parts)) if mask >> rank & 1]
            _bring(tile, parts[ranks[0]], self.row, [smems[rank] for rank in ranks])
        options, loop = {}, CONSUMER[self.consumer].loop
        if self.product is not None:
            loop = Tcgen05WsLoop if self.product.ws else Tcgen05PairLoop if self.product.cta_group == 2 else loop
            options = {"k_step_bytes": self.product.k * self.row.smem_bits // 8}
        if loop is None:
            return [_read_fragments(operand, tile, self.row, smem) for smem in smems]
        address = loop(tile, operand, self.row, **options).addresses() - _smem_base(tile)
        return [_values(smem, address, self.row) for smem in smems]


def _smem_base(tile: Layout) -> int:
    """The line in which the tile begins: the first address of the emulated shared memory."""
    return tile.start // SMEM_LINE_BYTES * SMEM_LINE_BYTES


def _tile(
    shape: tuple[int, ...], row: DataType, major: Any, swizzle: Any, atom_order: Any, smem_address: Any
) -> Layout:
    if rest := integer("smem_address", smem_address, 0) % SMEM_LINE_BYTES:
        raise SMEM_ALIGNMENT.error(
            "smem_address", f"smem_address = {smem_address:#x}", "TMA writes to multiples of 128 bytes",
            f"Use {smem_address - rest:#x}.", {"smem_address": smem_address - rest}, smem_address=smem_address,
        )  # fmt: skip
    mn, k = shape
    return canonical_layout(major_named(major), swizzle, row).tile((mn, k), atom_order=atom_order, start=smem_address)


def _bring(layout: Layout, elements: Matrix, row: DataType, smems: list[Bytes]) -> None:
    """Copy an operand to the shared memory of some blocks: boxes one atom wide, as high as the atoms that follow each other.

    Threads store what TMA cannot: a tile that is not made of a tensor core's atoms.
    """
    tile = layout.as_rows()
    if CanonicalLayout.of(layout) is None or tile.tiling is None:
        if row.bits < 8:
            limit = "elements below a byte lie in a tensor core's atoms"
            raise DESCRIPTOR_LAYOUT.error("layout", f"{layout!r}", limit, "Use canonical_layout(...).tile(shape).")
        place = (layout.addresses() - _smem_base(layout))[..., None] + np.arange(row.bits // 8)
        for smem in smems:
            smem[place] = np.ascontiguousarray(elements)[..., None].view(np.uint8)
        return
    stored = np.ascontiguousarray(elements if layout.major == "K" else elements.T)
    memory = packed(stored, row.bits) if row.bits < 8 else stored
    rows, columns = tile.shape
    atom_rows, width = tile.tiling.atom
    run = rows if layout.atom_order == "column" else atom_rows
    height = max(extent for extent in range(atom_rows, min(run, _HIGHEST_BOX) + 1, atom_rows) if run % extent == 0)
    arch: ArchName = "sm_90" if row.bits >= 8 and layout.swizzle.feature == "tma" else "sm_100"
    tensor_map = TensorMap(
        row.tma, (columns, rows), (columns * row.bits // 8,), (width, height), swizzle=layout.swizzle, arch=arch
    )
    for column in range(0, columns, width):
        for first in range(0, rows, height):
            address = tile.logical(first, column)
            load_multicast(
                tensor_map, memory, (column, first), [smem[address - _smem_base(layout) :] for smem in smems],
                cta_mask=(1 << len(smems)) - 1, smem_address=address,
            )  # fmt: skip


def _values(smem: Bytes, address: npt.NDArray[np.int64], row: DataType) -> Matrix:
    """The elements at these addresses."""
    if row.bits >= 8:
        element_bytes = row.bits // 8
        elements: Matrix = smem[address[..., None] + np.arange(element_bytes)].reshape(len(address), -1).view(row.numpy)
        return elements
    # Narrow elements (K-major): sixteen of them in a piece, dense or padded to a byte each.
    per_chunk = CHUNK_BYTES * 8 // row.smem_bits
    chunks = smem[address[:, ::per_chunk, None] + np.arange(CHUNK_BYTES * row.bits // row.smem_bits)]
    return unpacked(chunks, row.bits).reshape(len(address), -1).view(row.numpy)


def _read_fragments(operand: SmemOperand, tile: Layout, row: DataType, smem: Bytes) -> Matrix:
    """What ldmatrix brings into the registers of mma, put together again as the fragments say."""
    instruction = _mma_for(row, tile)
    held = fragment(instruction, operand, row)
    mn, k = tile.shape
    block_mn = _MMA_M if operand == "A" else _MMA_N
    block_k = K_STEP_BYTES * 8 // row.smem_bits
    _require_blocks(operand, tile, block_mn, block_k)
    transposed = tile.major == "MN"
    matrices = block_mn // 8 * 2
    lane = np.arange(32) % (8 * matrices)  # lanes beyond the rows repeat them; nobody looks
    matrix, line = lane // 8, lane % 8
    # Matrix j: the first or second 8 of mn, then the second half of k. Its rows run along k, or (.trans) along mn.
    first_mn, first_k = matrix % (block_mn // 8) * 8, matrix // (block_mn // 8) * (block_k // 2)
    lane_mn, lane_k = (first_mn, first_k + line) if transposed else (first_mn + line, first_k)
    blocks_mn, blocks_k = np.arange(0, mn, block_mn)[:, None, None], np.arange(0, k, block_k)[None, :, None]
    registers = ldmatrix(
        smem, tile.address(blocks_mn + lane_mn, blocks_k + lane_k), count=matrices, transpose=transposed,
        smem_address=_smem_base(tile), form="m8n8.b16" if row.bits == row.smem_bits else "m8n16.b6x16_p32",
    )  # fmt: skip
    values = np.ascontiguousarray(registers).view(np.uint8)
    values = unpacked(values, row.bits) if row.smem_bits < 8 else values
    _, place, column = held.indices()
    blocks = np.empty((*registers.shape[:2], *held.shape), row.numpy)
    blocks[..., place, column] = values.view(row.numpy)
    if operand == "B":
        blocks = blocks.swapaxes(-1, -2)
    return blocks.swapaxes(1, 2).reshape(mn, k)


def _mma_for(row: DataType, tile: Layout) -> str:
    """The mma whose k is 32 bytes of the type as it lies in shared memory."""
    block_k = K_STEP_BYTES * 8 // row.smem_bits
    canonical = CanonicalLayout.of(tile) or CanonicalLayout(tile.major or "K", "none", tile.element_bits)
    readers = [reader.instruction for reader in canonical.readers]
    wanted = "ldmatrix.trans" if tile.major == "MN" else "ldmatrix"
    for instruction in INSTRUCTIONS:
        fits = (instruction.family, instruction.m, instruction.n, instruction.k) == ("mma", _MMA_M, (_MMA_N,), block_k)
        if fits and row.name in instruction.types and wanted in readers:
            return instruction.name
    known = dict.fromkeys(
        name for instruction in INSTRUCTIONS if instruction.family == "mma" and instruction.m == _MMA_M for name in instruction.types
        if DataType.named(name).numpy_name and DataType.named(name).smem_bits <= 32
    )  # fmt: skip
    raise MMA_TYPE.error(
        "data_type", f"{row.name}, {tile.major}-major",
        f"ldmatrix and mma multiply {', '.join(known)}; MN-major those of 16 bits alone",
        "Use K-major operands." if row.name in known else "Use bfloat16.",
    )  # fmt: skip


def _require_blocks(operand: str, tile: Layout, block_mn: int, block_k: int) -> None:
    mn, k = tile.shape
    if mn % block_mn or k % block_k:
        whole = ceil_div(mn, block_mn) * block_mn, ceil_div(k, block_k) * block_k
        raise MMA_SHAPE.error(
            operand.lower(), f"operand {operand} of {mn} x {k} (mn x k)",
            f"mma takes it in blocks of {block_mn} x {block_k}", f"Pad it to {by(whole)}.",
            mn=mn, k=k, block=(block_mn, block_k),
        )  # fmt: skip
