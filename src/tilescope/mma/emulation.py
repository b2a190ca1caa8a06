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
from tilescope.errors import by, ceil_div, printed
from tilescope.layout import AtomOrder, Layout, Major, major_named
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER, ConsumerName
from tilescope.mma.descriptor_loop import DescriptorLoop, SmemOperand
from tilescope.mma.fragment import as_array, fragment
from tilescope.mma.instruction import INSTRUCTIONS, K_STEP_BYTES
from tilescope.mma.ldmatrix import ldmatrix
from tilescope.mma.tcgen05_emulation import multiplied, scaling_of, tcgen05_product
from tilescope.mma.tcgen05_loop import Tcgen05PairLoop
from tilescope.mma.tensor_memory_rules import MMA_GROUP, MMA_MATRIX
from tilescope.reading import integer, is_one_of, known_name
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
    cta_group: int = 1,
    scale_kind: Any = None,
    a_scales: npt.ArrayLike | None = None,
    b_scales: npt.ArrayLike | None = None,
    c: npt.ArrayLike | None = None,
    disable_output_lane: tuple[int, ...] | None = None,
) -> Matrix:
    """The product D = A B of an (m, k) and a (k, n) matrix, brought by TMA and read by `consumer`.

    Both operands lie in shared memory from `smem_address` on, A first, in atoms of `swizzle` (one for both, or a pair) in
    `atom_order`. Without `data_type` it is that of the arrays. D is float32, or int32 for integers. What the path does not
    have (a majorness that the type lacks, a tile that is no whole number of atoms) is refused with its reasons.

    tcgen05 keeps D in tensor memory, from which it is loaded here. With cta_group=2 each block of a pair brings half of A's rows
    and half of B's columns. `scale_kind` is mxfp8, mxfp4 or nvfp4, with scale factors `a_scales` (m, blocks) and `b_scales`
    (n, blocks), a byte each. `c` is what D held before; lanes that `disable_output_lane` masks keep it.

    >>> a = np.arange(64 * 64).reshape(64, 64) % 7 - 3.0
    >>> b = np.arange(64 * 32).reshape(64, 32) % 5 - 2.0
    >>> d = emulate_mma(a, b, data_type="bf16", b_major="MN", swizzle="64B", smem_address=0x480)
    >>> bool((d == a @ b).all())
    True
    >>> ones = np.full((128, 4), 127, np.uint8)  # 2 ** 0 in ue8m0
    >>> a, b = np.eye(128), np.arange(128 * 64).reshape(128, 64) % 5
    >>> d = emulate_mma(a, b, data_type="e4m3", consumer="tcgen05", scale_kind="mxfp8", a_scales=ones + 1, b_scales=ones[:64])
    >>> bool((d == 2 * b).all())
    True
    """
    known_name("consumer", consumer, CONSUMER)
    row = DataType.named(np.asarray(a).dtype if data_type is None else data_type)
    left, right = (_elements(name, operand, row) for name, operand in (("a", a), ("b", b)))
    if left.shape[1] != right.shape[0]:
        raise MMA_SHAPE.error(
            "a, b", f"A is {by(left.shape)}, B is {by(right.shape)}", "A is m x k and B is k x n, with one k",
            f"Use a B of {left.shape[1]} rows.", values={"a": left.shape, "b": right.shape},
        )  # fmt: skip
    (m, k), n = left.shape, right.shape[1]
    scaling = scaling_of(scale_kind, a_scales, b_scales, m, n, k)
    product = None
    if consumer == "tcgen05":
        product = tcgen05_product(m, n, row, cta_group, None if scaling is None else scaling.format)
    elif scaling is not None or disable_output_lane is not None or not is_one_of(cta_group, (1,)):
        raise MMA_GROUP.error("consumer", f"{consumer} with scales, masked lanes or cta_group {printed(cta_group)}",
            "pairs of blocks, tensor memory and its scale factors belong to tcgen05", 'Use consumer="tcgen05".',
        )  # fmt: skip
    initial = _initial(c, (m, n), row)
    read = partial(_read_operands, row, consumer, cta_group, (a_major, b_major), swizzle, atom_order, smem_address)
    if product is None:
        one, other = read(left, right.T)
        with np.errstate(over="ignore", invalid="ignore"):
            d: Matrix = (one @ other.T + initial).astype(initial.dtype)
        return d
    blocks = [
        read(left[product.rows_of(cta, m)], right.T[product.columns_of(cta, n)]) for cta in range(product.cta_group)
    ]
    return multiplied(product, blocks, scaling, initial, disable_output_lane)


def _read_operands(
    row: DataType, consumer: ConsumerName, cta_group: int, majors: tuple[Major, Major], swizzle: Any, atom_order: Any, smem_address: Any,
    left: Matrix, right: Matrix,
) -> tuple[Matrix, Matrix]:  # fmt: skip
    """A (m, k) and B (n, k) as one block's tensor core reads them from its shared memory, in double precision or int64."""
    a_swizzle, b_swizzle = swizzle if isinstance(swizzle, tuple) and len(swizzle) == 2 else (swizzle, swizzle)
    first = _tile(left.shape, row, majors[0], a_swizzle, atom_order, smem_address)
    after = ceil_div(smem_address + first.size_bytes, SMEM_LINE_BYTES) * SMEM_LINE_BYTES
    second = _tile(right.shape, row, majors[1], b_swizzle, atom_order, after)
    smem = np.zeros(after - smem_address + second.size_bytes, np.uint8)
    loop = Tcgen05PairLoop if cta_group == 2 else CONSUMER[consumer].loop
    read = _read_fragments if loop is None else partial(_read_descriptors, loop)
    operands: list[Matrix] = []
    tiles: tuple[tuple[SmemOperand, Layout, Matrix], ...] = (("A", first, left), ("B", second, right))
    for operand, tile, elements in tiles:
        _bring(tile, elements, row, smem, smem_address)
        operands.append(read(operand, tile, row, smem, smem_address))
    one, other = (each.astype(np.float64 if row.is_float else np.int64) for each in operands)
    return one, other


def _initial(c: npt.ArrayLike | None, shape: tuple[int, int], row: DataType) -> Matrix:
    """What D held before: zeros, or C."""
    dtype = np.float32 if row.is_float else np.int32
    if c is None:
        return np.zeros(shape, dtype)
    given = as_array("c", c)
    if given.shape != shape or given.dtype.kind not in "iuf":
        found, limit = f"an array of shape {given.shape}, {given.dtype}", f"numbers, {shape[0]} x {shape[1]} as D"
        raise MMA_MATRIX.error("c", found, limit, "Reshape it.")
    return given.astype(dtype)


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
