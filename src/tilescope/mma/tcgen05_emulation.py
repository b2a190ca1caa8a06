"""What tcgen05.mma does beyond reading its operands: scale factors, sparse A, tensor memory.

Scale factors go the whole way: packed into atoms, copied by tcgen05.cp, found by column and id in every K step. So do the
metadata of a sparse A, and A where it lies in tensor memory. D is written to the lanes and columns of its layout and read back
by tcgen05.ld, quarter by quarter.

Of a sparse A half of the elements are stored, and metadata in tensor memory says where in k the stored ones belong:

    A             a 0 b 0 | 0 c 0 d | …         of every 4 elements at most 2 are not zero
    stored A      a   b   |   c   d | …         what lies in shared or tensor memory
    metadata      0   2   |   1   3 | …         2 bits each, the first in the low bits: a nibble for a group, 0x8, 0xD, …

    A             group    stored      a position counts
    16, 8 bits    4        2           elements
    tf32          2        1           halves of an element: nibble 0x4 for the first, 0xE for the second
    4 bits        8        4           pairs of elements
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import Violation, by, ceil_div, printed, raise_all
from tilescope.mma.fragment import as_array
from tilescope.mma.scale_layout import ScaleFormat, ScaleOperand, scale_layout
from tilescope.mma.tcgen05_kind import blackwell_rule
from tilescope.mma.tcgen05_product import MMA_SCALES, Tcgen05Product
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.mma.tmem_agreement import tmem_budget
from tilescope.mma.tmem_form import DECOMPRESSIONS
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import integers
from tilescope.rule import rule

_PRODUCT = 'ts.emulate_mma(np.eye(128), np.eye(128), data_type="e4m3", consumer="tcgen05", {})'
_SPARSE = 'ts.emulate_mma({}, np.zeros((128, 8)), data_type="bf16", consumer="tcgen05", sparse=True)'
# fmt: off
MMA_LANES = blackwell_rule(
    "mma-lanes", "disable-output-lane is one 32-bit mask for each quarter of each block.", "tcgen05.mma: disable-output-lane",
    _PRODUCT.format("disable_output_lane=(1, 0, 0, 0)"), _PRODUCT.format("disable_output_lane=(1, 0)"),
)
MMA_SPARSE = rule(
    "mma-sparse", "A sparse A has at most 2 elements of every 4 that are not zero: 1 of 2 for tf32, 2 of 4 pairs for 4 bits.",
    source="PTX ISA, tcgen05.mma: sparse matrices", passing=_SPARSE.format("np.eye(128)"), failing=_SPARSE.format("np.ones((128, 128))"),
)
# fmt: on
Matrix = npt.NDArray[Any]
_LARGEST_LOAD = 128  # columns of tcgen05.ld.32x32b.x128
_PIECE = {4: 2, 8: 1, 16: 1, 32: 1}  # elements that stay together, by bits of an element in shared memory
_TF32_NIBBLES = np.array([0x4, 0xE], np.uint8)


class Scaling(NamedTuple):
    """Scale factors of both operands, as bytes: A (m, blocks), B (n, blocks)."""

    format: ScaleFormat
    a: Matrix
    b: Matrix

    def part(self, rows: slice, columns: slice) -> Scaling:
        """Those of a part of D."""
        return Scaling(self.format, self.a[rows], self.b[columns])


class BlockOperands(NamedTuple):
    """What one block holds: A (rows, k), of a sparse A the stored half; B (columns, k); the nibbles of a sparse A."""

    a: Matrix
    b: Matrix
    metadata: Matrix


def multiplied(
    product: Tcgen05Product, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, disabled: Any
) -> Matrix:
    """D (m, n) of what the blocks read, in double precision or int64.

    `initial` is what D held before; lanes that `disabled` masks keep it.
    """
    masks = _lane_masks(disabled, product.cta_group)
    d = np.empty_like(initial)
    for first_m in range(0, initial.shape[0], product.m):
        for first_n in range(0, initial.shape[1], product.n):
            block = slice(first_m, first_m + product.m), slice(first_n, first_n + product.n)
            rows, columns = (slice(part.start // product.cta_group, part.stop // product.cta_group) for part in block)
            held = [BlockOperands(part.a[rows], part.b[columns], part.metadata[rows]) for part in operands]
            d[block] = _instruction(product, held, scaling and scaling.part(*block), initial[block], masks)
    return d


def _instruction(
    product: Tcgen05Product, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, masks: Matrix
) -> Matrix:
    """The accumulator of one place of the product, over all of k."""
    rows, layout = product.m // product.cta_group, product.layout("D", product.n)
    wide = np.float64 if product.data_type.is_float else np.int64
    b = np.concatenate([block.b for block in operands]).astype(wide) * _scales_read(scaling, "B", product)
    lane, column = np.divmod(layout.bit_addresses()[..., 0] >> 5, 1 << 16)
    accumulators = []
    for cta, block in enumerate(operands):
        part = slice(cta * rows, (cta + 1) * rows)
        copies = _a_read(product, block, layout)
        factors = _scales_read(scaling and scaling.part(part, slice(0)), "A", product)
        parts = np.split(b, len(copies))  # lanes of a second part of n read a copy of A of their own
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [a.astype(wide) * factors @ columns.T for a, columns in zip(copies, parts, strict=True)]
            d = (np.concatenate(sums, axis=1) + initial[part]).astype(initial.dtype)
        cells = np.zeros((TMEM_LANES, TMEM_COLUMNS), np.uint32)
        cells[lane, column] = np.where(masks[cta, lane], initial[part], d).view(np.uint32)
        accumulators.append(_drained(cells, layout.columns)[lane, column].view(initial.dtype))
    return np.concatenate(accumulators)


def _drained(cells: Matrix, columns: int) -> Matrix:
    """The first columns as four warps load them with .32x32b, each from its quarter."""
    memory = TensorMemory(cells, ((0, TMEM_COLUMNS),))
    width, quarters = min(_LARGEST_LOAD, 1 << (columns - 1).bit_length()), range(0, TMEM_LANES, QUARTER_LANES)
    return np.block([
        [memory.load(f"32x32b.x{width}", TmemAddress(lane, first), warp=lane // QUARTER_LANES) for first in range(0, columns, width)]
        for lane in quarters
    ])  # fmt: skip


def _a_read(product: Tcgen05Product, block: BlockOperands, d: TmemLayout) -> list[Matrix]:
    """A (rows, k) as the instructions read it: once, or as often as it lies in tensor memory."""
    copies, row = [block.a], product.data_type
    if product.a_in_tensor_memory:
        layout = product.layout("A", block.a.shape[1])
        raise_all(tmem_budget({"D": d, "A": layout}).violations)
        padded = [spread for spread in DECOMPRESSIONS.values() if spread.bits == row.bits < layout.element_bits]
        low = padded[0].lowest_bit if padded else 0  # in a byte, as tcgen05.cp spreads them; others lie dense
        codes = np.ascontiguousarray(block.a).view(np.uint8).reshape(*block.a.shape, -1) << low
        read = _through_tensor_memory(codes, layout.with_start(TmemAddress(0, d.columns))) >> low
        copies = list(read.view(row.numpy)[..., 0])
    if product.sparse:
        nibbles = _metadata_read(product, block.metadata)
        copies = [_expanded(copy, nibbles, row) for copy in copies]
    return copies


def _through_tensor_memory(codes: Matrix, layout: TmemLayout) -> Matrix:
    """Elements (rows, columns, their bytes) written to the cells of a layout, and read back as (copies, rows, columns, bytes)."""
    unit = min(layout.element_bits, 8)
    bits = layout.bit_addresses()[..., None] + unit * np.arange(codes.shape[-1])
    place = bits // LANE_BITS, bits % LANE_BITS // unit
    cells = np.zeros((TMEM_LANES, TMEM_COLUMNS * CELL_BITS // unit), np.uint8)
    cells[place] = codes[:, :, None]
    return np.moveaxis(cells[place], 2, 0)


def _metadata_read(product: Tcgen05Product, nibbles: Matrix) -> Matrix:
    """The nibbles (row, group) as the instructions find them in tensor memory, one K step after the other."""
    layout = product.layout("metadata", 2 * product.k)
    group = 2 if product.data_type.smem_bits == 32 else 4 * _PIECE[product.data_type.smem_bits]
    shift = (4 * np.arange(group) // group).astype(
        np.uint8
    )  # an element's first bit in the nibble; pairs of 4 bits share it
    codes = nibbles[..., None] >> shift & (1 << layout.element_bits) - 1
    steps = codes.reshape(len(nibbles), -1, 2 * product.k, 1)
    read = np.stack([_through_tensor_memory(steps[:, step], layout)[0] for step in range(steps.shape[1])], axis=1)
    merged: Matrix = np.bitwise_or.reduce(read.reshape(codes.shape) << shift, axis=-1)
    return merged


def _scales_read(scaling: Scaling | None, operand: ScaleOperand, product: Tcgen05Product) -> Any:
    """The factor of every element (row, k), as the instructions find it in tensor memory: by column of the word, and id."""
    if scaling is None:
        return 1
    row, scales = scaling.format, scaling.a if operand == "A" else scaling.b
    where: Any = {"m": product.m, "cta_group": product.cta_group}
    layout = scale_layout(len(scales), scales.shape[1] * row.block, row)
    memory, smem = TensorMemory().alloc(TMEM_COLUMNS), layout.in_shared_memory(scales, operand, **where)
    for copy in layout.copies(operand, **where):
        memory = memory.copy(copy.shape, smem, copy.descriptor, copy.address)
    cells = memory.cells.view(np.uint8).reshape(TMEM_LANES, -1)
    placed = layout.tensor_memory(operand, **where).bit_addresses()[: layout.rows, 0]  # (rows, copies)
    lane, first_column = placed // LANE_BITS, placed % LANE_BITS // CELL_BITS
    read = np.empty((*placed.shape, layout.blocks), np.uint8)
    for step in layout.steps(product.k):
        for number, block in enumerate(step.scales):
            further, byte = divmod(step.scale_id + number, 4)  # those of k = 96 run on into the next word
            column = first_column + step.column + further * layout.word_columns
            read[..., block] = cells[lane, column * 4 + byte]
    assert (read == read[:, :1]).all()  # every quarter reads its own
    values = read[:, 0].copy().view(DataType.named("ue8m0" if row.scale_type == "ue8m0" else "e4m3").numpy)
    return np.repeat(values.astype(np.float64), row.block * (1 + product.sparse), axis=1)


def _lane_masks(disabled: Any, ctas: int) -> Matrix:
    """Which lanes of the blocks are not written, (blocks, lanes): bit 0 of the first 32-bit mask is lane 0 of the first block."""
    none = (0,) * (ctas * TMEM_LANES // 32)
    words = none if disabled is None else integers("disable_output_lane", disabled)
    if len(words) != len(none) or not all(0 <= word < 1 << 32 for word in words):
        limit = f"{len(none)} masks of 32 bits, one for each quarter of each block"
        fix = f"Use {none}: all lanes are written."
        raise MMA_LANES.error("disable_output_lane", printed(disabled), limit, fix, masks=words)
    return (np.array(words)[:, None] >> np.arange(32) & 1).astype(np.bool_).reshape(ctas, TMEM_LANES)


def scaling_of(
    kind: Any, a_scales: Any, b_scales: Any, shape: tuple[int, int, int], *, sparse: bool = False
) -> Scaling | None:
    """The scale factors as bytes, or None without any; all mistakes are named at once."""
    passed = {"scale_kind": kind, "a_scales": a_scales, "b_scales": b_scales}
    present = [name for name, value in passed.items() if value is not None]
    if not present:
        return None
    if len(present) < 3:
        limit = "scaled products need scale_kind, a_scales and b_scales"
        fix = 'Pass all three: scale_kind="mxfp8", a_scales=…, b_scales=….'
        raise MMA_SCALES.error("scale_kind", " and ".join(present), limit, fix)
    row, (m, n, k) = ScaleFormat.named(kind), shape
    block = row.block * (1 + sparse)  # a sparse instruction takes twice the k with as many scales
    problems: list[Violation] = []
    scales = []
    for name, extent in (("a_scales", m), ("b_scales", n)):
        wanted, array = (extent, ceil_div(k, block)), as_array(name, passed[name])
        if array.shape != wanted or array.dtype.itemsize != 1 or array.dtype.kind in "bS":
            found = f"an array of shape {array.shape}, {array.dtype}"
            limit = f"{row.name} has one {row.scale_type} byte for {block} elements of k: {by(wanted)} of them"
            fix, values = f"Use a uint8 array of shape {wanted}.", {"shape": array.shape, "scales": wanted}
            problems.append(MMA_SCALES.violation(name, found, limit, fix, **values))
            continue
        scales.append(np.ascontiguousarray(array).view(np.uint8))
        if row.scale_type == "ue4m3" and (scales[-1] & 0x80).any():
            found, limit = "a scale with its sign bit set", "ue4m3 has no sign: the top bit is zero"
            problems.append(MMA_SCALES.violation(name, found, limit, f"Use {name} & 0x7F."))
    raise_all(problems)
    return Scaling(row, *scales)


def compressed(a: Matrix, data_type: DataType) -> tuple[Matrix, Matrix]:
    """The stored half of A (m, k), and its metadata: a nibble for a group of a row.

    >>> stored, nibbles = compressed(np.array([[5, 0, 7, 0, 0, 2, 0, 3]]), DataType.named("f16"))
    >>> stored.tolist(), [hex(nibble) for nibble in nibbles[0]]
    ([[5, 7, 2, 3]], ['0x8', '0xd'])
    """
    pieces = _pieces(a, data_type)
    _, groups, count, together = pieces.shape
    filled = (pieces != 0).any(axis=-1)
    keep, used = count // 2, filled.sum(axis=-1)
    if (used > keep).any():
        row, group = np.argwhere(used > keep)[0].tolist()
        extent, unit = a.shape[1] // groups, "pairs" if together > 1 else "elements"
        nonzero, first, last = int(used[row, group]), group * extent, (group + 1) * extent - 1
        found = f"row {row} has {nonzero} {unit} that are not zero in k {first} to {last}"
        limit, values = f"a sparse A of {data_type.name} has at most {keep} of {count} {unit}", {"k": (first, last)}
        fix = f"Prune A to {keep} of {count} {unit}, or use sparse=False."
        raise MMA_SPARSE.error("a", found, limit, fix, row=row, nonzero=nonzero, **values)
    positions = np.sort(np.argsort(~filled, axis=-1, kind="stable")[..., :keep], axis=-1)
    stored = np.take_along_axis(pieces, positions[..., None], axis=2).reshape(len(a), -1)
    nibbles = _TF32_NIBBLES[positions[..., 0]] if keep == 1 else (positions @ [1, 4]).astype(np.uint8)
    return stored, nibbles


def _expanded(stored: Matrix, nibbles: Matrix, data_type: DataType) -> Matrix:
    """A (m, k) as the tensor core sees it: the stored elements at the positions that the metadata names."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]), stored.dtype)
    pieces = _pieces(dense, data_type)
    kept = stored.reshape(*pieces.shape[:2], pieces.shape[2] // 2, pieces.shape[3])
    positions = np.stack([nibbles & 3, nibbles >> 2], axis=-1).astype(np.int64)
    if pieces.shape[2] == 2:
        positions = (nibbles == _TF32_NIBBLES[1]).astype(np.int64)[..., None]
    np.put_along_axis(pieces, positions[..., None], kept, axis=2)
    return pieces.reshape(dense.shape)


def _pieces(a: Matrix, data_type: DataType) -> Matrix:
    """A as (m, groups, pieces of a group, elements of a piece)."""
    return a.reshape(len(a), -1, 2 if data_type.smem_bits == 32 else 4, _PIECE[data_type.smem_bits])
