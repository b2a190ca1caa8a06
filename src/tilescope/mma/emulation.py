"""A matrix product as the chip makes it: TMA, swizzled shared memory, tensor core; every byte where it would lie.

    A (m, k)  ──┐  global memory ── TMA boxes ──▶ shared memory ─┬─ ldmatrix ──▶ fragments ──▶ mma      ─┐
    B (k, n)  ──┘  K-major or MN-major           canonical atoms └─ descriptors, K step by K step: wgmma, ├─▶ D (m, n)
                                                                    tcgen05                              ─┘

Numbers are summed exactly enough to compare: integers as such, floats in double precision, rounded once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arch import ArchName
from tilescope.data_type import DataType
from tilescope.errors import by, ceil_div
from tilescope.layout import AtomOrder, Layout, Major, major_named
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER, ConsumerName
from tilescope.mma.descriptor_loop import DescriptorLoop, SmemOperand
from tilescope.mma.fragment import as_array, fragment
from tilescope.mma.instruction import INSTRUCTIONS, K_STEP_BYTES
from tilescope.mma.ldmatrix import ldmatrix
from tilescope.reading import integer, known_name
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES, SwizzleName
from tilescope.tensor_map import TensorMap
from tilescope.tma import load
from tilescope.tma.packing import packed, unpacked

_HIGHEST_BOX = 256
_MMA_M, _MMA_N = 16, 8

_PRODUCT = 'ts.emulate_mma(np.zeros({a}), np.zeros({b}), data_type={type!r}, consumer="ldmatrix", {more})'
MMA_SHAPE = rule(
    "mma-shape",
    "A is m x k and B is k x n, with one k, and both are whole numbers of the blocks that an instruction takes.",
    source="PTX ISA, mma: shapes",
    passing=_PRODUCT.format(a=(16, 64), b=(64, 8), type="bf16", more=""),
    failing=_PRODUCT.format(a=(16, 64), b=(32, 8), type="bf16", more=""),
)
MMA_TYPE = rule(
    "mma-type",
    "ldmatrix and mma multiply certain types, and MN-major those of 16 bits alone.",
    source="PTX ISA, mma and ldmatrix: types",
    passing=_PRODUCT.format(a=(64, 64), b=(64, 8), type="bf16", more="a_major='MN'"),
    failing=_PRODUCT.format(a=(128, 128), b=(128, 8), type="e4m3", more="a_major='MN'"),
)

Matrix = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


def emulate_mma(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    data_type: Any = None,
    consumer: ConsumerName = "wgmma",
    a_major: Major = "K",
    b_major: Major = "K",
    swizzle: SwizzleName | tuple[SwizzleName, SwizzleName] = "128B",
    atom_order: AtomOrder = "column",
    smem_address: int = 0,
) -> Matrix:
    """The product D = A B of an (m, k) and a (k, n) matrix, brought by TMA and read by `consumer`.

    Both operands lie in shared memory from `smem_address` on, A first, in atoms of `swizzle` (one for both, or a pair) in
    `atom_order`. Without `data_type` it is that of the arrays. D is float32, or int32 for integers. What the path does not
    have (a majorness that the type lacks, a tile that is no whole number of atoms) is refused with its reasons.

    >>> a = np.arange(64 * 64).reshape(64, 64) % 7 - 3.0
    >>> b = np.arange(64 * 32).reshape(64, 32) % 5 - 2.0
    >>> d = emulate_mma(a, b, data_type="bf16", b_major="MN", swizzle="64B", smem_address=0x480)
    >>> bool((d == a @ b).all())
    True
    """
    loop = CONSUMER[known_name("consumer", consumer, CONSUMER)].loop
    row = DataType.named(np.asarray(a).dtype if data_type is None else data_type)
    left, right = (_elements(name, operand, row) for name, operand in (("a", a), ("b", b)))
    if left.shape[1] != right.shape[0]:
        raise MMA_SHAPE.error(
            "a, b", f"A is {by(left.shape)}, B is {by(right.shape)}", "A is m x k and B is k x n, with one k",
            f"Use a B of {left.shape[1]} rows.", values={"a": left.shape, "b": right.shape},
        )  # fmt: skip
    a_swizzle, b_swizzle = swizzle if isinstance(swizzle, tuple) and len(swizzle) == 2 else (swizzle, swizzle)
    first = _tile(left.shape, row, a_major, a_swizzle, atom_order, smem_address)
    after = ceil_div(smem_address + first.size_bytes, SMEM_LINE_BYTES) * SMEM_LINE_BYTES
    second = _tile(right.T.shape, row, b_major, b_swizzle, atom_order, after)
    smem = np.zeros(after - smem_address + second.size_bytes, np.uint8)
    read = _read_fragments if loop is None else partial(_read_descriptors, loop)
    operands: list[Matrix] = []
    tiles: tuple[tuple[SmemOperand, Layout, Matrix], ...] = (("A", first, left), ("B", second, right.T))
    for operand, tile, elements in tiles:
        _bring(tile, elements, row, smem, smem_address)
        operands.append(read(operand, tile, row, smem, smem_address))
    one, other = (operand.astype(np.float64 if row.is_float else np.int64) for operand in operands)
    with np.errstate(over="ignore", invalid="ignore"):
        product: Matrix = (one @ other.T).astype(np.float32 if row.is_float else np.int32)
    return product


def _elements(name: str, operand: npt.ArrayLike, row: DataType) -> Matrix:
    """A matrix as elements of the type, rounded as numpy rounds; narrow ones in a byte each."""
    dtype, matrix = row.numpy, as_array(name, operand)
    try:
        elements = matrix if matrix.dtype == dtype else matrix.astype(dtype)
    except (TypeError, ValueError):
        shown = f"an array of {matrix.dtype}"
        raise ARGUMENT_TYPE.error(name, shown, f"numbers that {row.name} can hold", "Use an array of floats.") from None
    if elements.ndim != 2 or 0 in elements.shape:
        shown = f"an array of shape {elements.shape}"
        raise ARGUMENT_RANGE.error(
            name, shown, "a matrix: two dimensions, neither empty", "Reshape it, such as to (64, 64)."
        )
    return elements


def _tile(
    shape: tuple[int, ...], row: DataType, major: Any, swizzle: Any, atom_order: Any, smem_address: Any
) -> Layout:
    if rest := integer("smem_address", smem_address, 0) % SMEM_LINE_BYTES:
        raise SMEM_ALIGNMENT.error(
            "smem_address", f"smem_address = {smem_address:#x}", "TMA writes to multiples of 128 bytes",
            f"Use {smem_address - rest:#x}.", {"smem_address": smem_address - rest}, {"smem_address": smem_address},
        )  # fmt: skip
    mn, k = shape
    return canonical_layout(major_named(major), swizzle, row).tile((mn, k), atom_order=atom_order, start=smem_address)


def _bring(layout: Layout, elements: Matrix, row: DataType, smem: Bytes, smem_address: int) -> None:
    """Copy an operand to shared memory: boxes one atom wide, as high as the atoms that follow each other."""
    stored = np.ascontiguousarray(elements if layout.major == "K" else elements.T)
    memory = packed(stored, row.bits) if row.bits < 8 else stored
    tile = layout.as_rows()
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
            load(tensor_map, memory, (column, first), smem=smem[address - smem_address :], smem_address=address)


def _read_descriptors(
    described: type[DescriptorLoop],
    operand: SmemOperand,
    layout: Layout,
    row: DataType,
    smem: Bytes,
    smem_address: int,
) -> Matrix:
    """What the tensor core reads by descriptor, block by block and K step by K step."""
    return _values(smem, described(layout, operand, row).addresses() - smem_address, row)


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


def _read_fragments(operand: SmemOperand, tile: Layout, row: DataType, smem: Bytes, smem_address: int) -> Matrix:
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
        smem_address=smem_address, form="m8n8.b16" if row.bits == row.smem_bits else "m8n16.b6x16_p32",
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
    canonical = CanonicalLayout.of(tile)
    readers = [reader.instruction for reader in canonical.readers] if canonical else []
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
            values={"mn": mn, "k": k, "block": (block_mn, block_k)},
        )  # fmt: skip
