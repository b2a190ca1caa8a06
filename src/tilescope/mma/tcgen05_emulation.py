"""What tcgen05.mma does beyond reading its operands: scale factors, pairs of blocks, accumulators in tensor memory.

    block 0 of a pair          block 1                         both issue one instruction of M x N
    A rows 0 .. M/2            A rows M/2 .. M                  each block multiplies its own rows of A
    B columns 0 .. N/2         B columns N/2 .. N               by both halves of B
    D rows 0 .. M/2, all n     D rows M/2 .. M, all n           in its own tensor memory
    scales of its A rows       scales of its A rows
    scales of all n            scales of all n

Scale factors go the whole way: packed into atoms, copied by tcgen05.cp, found by column and id for each K step. D is written to
the lanes and columns of its layout and read back by tcgen05.ld, quarter by quarter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, printed
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_layout import ScaleLayout, ScaleOperand, scale_layout
from tilescope.mma.tcgen05_kind import TCGEN05, Shapes, Tcgen05Kind, tcgen05_for
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tensor_memory_rules import MMA_GROUP, MMA_LANES, MMA_SCALES
from tilescope.mma.tmem_address import LANE_BITS, QUARTER_LANES, QUARTERS, TmemAddress
from tilescope.mma.tmem_allocation import ALLOC_COLUMNS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.reading import integers, is_one_of
from tilescope.value import read_only

Matrix = npt.NDArray[Any]
_LARGEST_LOAD = 128  # columns of tcgen05.ld.32x32b.x128


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scale factors of both operands, as bytes: A (m, blocks), B (n, blocks)."""

    format: ScaleFormat
    a: Matrix
    b: Matrix


@dataclass(frozen=True, slots=True)
class Tcgen05Product:
    """How a product of m x n is cut into instructions, and what each block of a group holds of it."""

    kind: Tcgen05Kind
    m: int  # of one instruction
    n: int
    cta_group: int

    def rows_of(self, cta: int, extent: int) -> npt.NDArray[np.int64]:
        """The rows of A (and D) that a block holds, in the order of the instructions."""
        return _share(extent, self.m, cta, self.cta_group)

    def columns_of(self, cta: int, extent: int) -> npt.NDArray[np.int64]:
        """The columns of B that a block holds."""
        return _share(extent, self.n, cta, self.cta_group)


def _share(extent: int, instruction: int, cta: int, ctas: int) -> npt.NDArray[np.int64]:
    pieces = np.arange(extent).reshape(-1, ctas, instruction // ctas)
    return np.ascontiguousarray(pieces[:, cta]).reshape(-1)


def tcgen05_product(m: int, n: int, data_type: DataType, cta_group: Any, scaled: ScaleFormat | None) -> Tcgen05Product:
    """The largest instruction that cuts m x n evenly, for one block or a pair; refused where there is none.

    >>> product = tcgen05_product(256, 96, DataType.named("bf16"), 2, None)
    >>> product.m, product.n, product.rows_of(1, 256)[:2].tolist(), product.columns_of(1, 96)[:2].tolist()
    (256, 96, [128, 129], [48, 49])
    """
    if not is_one_of(cta_group, (1, 2)):
        raise MMA_GROUP.error("cta_group", printed(cta_group), "one block multiplies, or a pair", "Use 1 or 2.")
    kind = tcgen05_for(data_type) if scaled is None else scaled.kind_row
    if scaled is not None and data_type.name not in kind.codes:
        found = f"{data_type.name} with {scaled.name}"
        raise MMA_SCALES.error(
            "data_type", found, f"kind {kind.name} takes {', '.join(kind.codes)}", f"Use {next(iter(kind.codes))}."
        )
    if scaled is not None and data_type.name == "e2m1" and not kind.is_dense_4_bit:
        raise MMA_SCALES.error(
            "scale_kind", f"e2m1 with {scaled.name}",
            "a tile of e2m1 is dense, two to a byte, which kinds mxf4 and mxf4nvf4 read",
            "Use mxfp4 or nvfp4.",
        )  # fmt: skip
    form = _form(kind, int(cta_group))
    found_m = [each for each in form.m if m % each == 0]
    found_n = [each for each in form.n if n % each == 0]
    if not found_m or not found_n:
        raise TCGEN05["shape"].error(
            "a, b", f"a product of {m} x {n}",
            f"kind {kind.name} in cta_group::{cta_group} has m {', '.join(map(str, form.m))}, n {form.n[0]} to {form.n[-1]} in steps of "
            f"{form.n[1] - form.n[0]}", f"Pad to a multiple of {form.m[0]} x {form.n[0]}.",
        )  # fmt: skip
    return Tcgen05Product(kind, found_m[-1], found_n[-1], int(cta_group))


def _form(kind: Tcgen05Kind, cta_group: int) -> Shapes:
    return next(form for form in kind.shapes() if form.form == f"cta_group::{cta_group}")


def multiplied(
    product: Tcgen05Product,
    operands: list[tuple[Matrix, Matrix]],
    scaling: Scaling | None,
    initial: Matrix,
    disabled: Any,
) -> Matrix:
    """D (m, n) of the operands that each block read: A (rows, k) and B (columns, k), in double precision or int64.

    `initial` is what D held before; lanes that `disabled` masks keep it.
    """
    masks = _lane_masks(disabled, product.cta_group)
    m, n = initial.shape
    found = np.empty_like(initial)
    for first_m in range(0, m, product.m):
        for first_n in range(0, n, product.n):
            block = slice(first_m, first_m + product.m), slice(first_n, first_n + product.n)
            found[block] = _instruction(product, operands, scaling, initial[block], masks, (first_m, first_n))
    return found


def _instruction(
    product: Tcgen05Product, operands: list[tuple[Matrix, Matrix]], scaling: Scaling | None, initial: Matrix,
    masks: list[npt.NDArray[np.bool_]], origin: tuple[int, int],
) -> Matrix:  # fmt: skip
    """The accumulator of one place of the product, over all of k."""
    rows, columns = product.m // product.cta_group, product.n // product.cta_group
    first_row, first_column = (at // product.cta_group for at in origin)
    halves = [b[first_column : first_column + columns] for _, b in operands]
    b = np.concatenate(halves)  # the pair reads both halves
    layout = tmem_layout((product.m, product.n), cta_group=product.cta_group)
    found = []
    for cta, (a_read, _) in enumerate(operands):
        a, sums = a_read[first_row : first_row + rows], b
        before = initial[cta * rows : (cta + 1) * rows]
        memory = TensorMemory().alloc(512)
        if scaling is not None:
            first_a = origin[0] + cta * rows
            a = a * _scales_read(scaling.format, scaling.a[first_a : first_a + rows], "A", product)
            sums = b * _scales_read(scaling.format, scaling.b[origin[1] : origin[1] + product.n], "B", product)
        with np.errstate(over="ignore", invalid="ignore"):
            d = (a @ sums.T + before).astype(before.dtype)
        memory = _accumulated(memory, layout, before, np.zeros(128, np.bool_))
        memory = _accumulated(memory, layout, d, masks[cta])
        found.append(_drained(memory, layout).view(before.dtype))
    return np.concatenate(found)


def _scales_read(row: ScaleFormat, scales: Matrix, operand: ScaleOperand, product: Tcgen05Product) -> Matrix:
    """The factor of every element (row, k), as the instructions find it in tensor memory."""
    where: Any = {"m": product.m, "cta_group": product.cta_group}
    layout = scale_layout(len(scales), scales.shape[1] * row.block, row)
    memory = TensorMemory().alloc(512)
    smem = layout.in_shared_memory(scales, operand, **where)
    for copy in layout.copies(operand, **where):
        memory = memory.copy(copy.shape, smem, copy.descriptor, copy.address)
    placed = layout.tensor_memory(operand, **where).bit_addresses()
    copies = [_steps_read(memory, layout, placed[..., copy]) for copy in range(placed.shape[2])]
    assert all((each == copies[0]).all() for each in copies)  # every quarter reads its own
    values = copies[0].view(DataType.named("ue8m0" if row.scale_type == "ue8m0" else "e4m3").numpy).astype(np.float64)
    return np.repeat(values, row.block, axis=1)


def _steps_read(memory: TensorMemory, layout: ScaleLayout, placed: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The bytes (row, block) that the instructions read, each by the column of its word and its id."""
    cells = memory.cells.view(np.uint8).reshape(128, -1)
    found = np.empty((layout.rows, layout.blocks), np.uint8)
    lane, first_column = placed[: layout.rows, 0] // LANE_BITS, placed[: layout.rows, 0] % LANE_BITS // 32
    for step in layout.steps():
        byte = (first_column + step.column) * 4 + step.scale_id
        for number, block in enumerate(step.scales):
            found[:, block] = cells[lane, byte + number]
    return found


def _accumulated(memory: TensorMemory, layout: TmemLayout, d: Matrix, disabled: npt.NDArray[np.bool_]) -> TensorMemory:
    """The memory after tcgen05.mma wrote its accumulator; masked lanes keep what they hold."""
    cells, place = memory.cells.copy(), layout.bit_addresses()[..., 0] >> 5
    lane, column = place >> 16, place & 0xFFFF
    written = ~disabled[lane]
    cells[lane[written], column[written]] = np.ascontiguousarray(d).view(np.uint32)[written]
    return replace(memory, cells=read_only(cells))


def _drained(memory: TensorMemory, layout: TmemLayout) -> Matrix:
    """The accumulator as four warps load it with .32x32b, each from its quarter."""
    columns = next(each for each in ALLOC_COLUMNS if each >= layout.columns)
    width = min(columns, _LARGEST_LOAD)
    cells = np.empty((128, columns), np.uint32)
    for warp in range(QUARTERS):
        for first in range(0, columns, width):
            quarter = slice(warp * QUARTER_LANES, (warp + 1) * QUARTER_LANES)
            registers = memory.load(f"32x32b.x{width}", TmemAddress(warp * QUARTER_LANES, first), warp=warp)
            cells[quarter, first : first + width] = registers
    place = layout.bit_addresses()[..., 0] >> 5
    found: Matrix = cells[place >> 16, place & 0xFFFF]
    return found


def _lane_masks(disabled: Any, ctas: int) -> list[npt.NDArray[np.bool_]]:
    """Which lanes of each block are not written: bit 0 of the first 32-bit mask is lane 0 of the first block."""
    if disabled is None:
        return [np.zeros(128, np.bool_) for _ in range(ctas)]
    words = integers("disable_output_lane", disabled)
    if len(words) != QUARTERS * ctas or not all(0 <= each < 1 << 32 for each in words):
        raise MMA_LANES.error("disable_output_lane", printed(disabled),
            f"{QUARTERS * ctas} masks of 32 bits, one for each quarter of each block",
            "Use 0 for lanes that are written.",
        )  # fmt: skip
    bits = np.array([[word >> bit & 1 for bit in range(32)] for word in words], np.bool_)
    return list(bits.reshape(ctas, 128))


def scaling_of(kind: Any, a_scales: Any, b_scales: Any, m: int, n: int, k: int) -> Scaling | None:
    """The scale factors as bytes, or None where there are none; all that is wrong at once."""
    if kind is None and a_scales is None and b_scales is None:
        return None
    if kind is None or a_scales is None or b_scales is None:
        given = [
            name
            for name, each in (("scale_kind", kind), ("a_scales", a_scales), ("b_scales", b_scales))
            if each is not None
        ]
        raise MMA_SCALES.error(
            "scale_kind",
            " and ".join(given),
            "scaled products need scale_kind, a_scales and b_scales",
            'Pass all three: scale_kind="mxfp8", a_scales=…, b_scales=….',
        )
    row = ScaleFormat.named(kind)
    problems, found = [], []
    for name, scales, extent in (("a_scales", a_scales, m), ("b_scales", b_scales, n)):
        wanted = extent, -(-k // row.block)
        try:
            array = np.asarray(scales)
        except Exception:  # noqa: BLE001  __array__ of a foreign object may raise whatever it likes
            array = np.empty(0, object)
        if array.shape != wanted or array.dtype.itemsize != 1 or array.dtype.kind in "bS":
            problems.append(MMA_SCALES.violation(
                name, f"an array of shape {array.shape}, {array.dtype}",
                f"{row.name} has one {row.scale_type} byte for {row.block} elements of k: {wanted[0]} x {wanted[1]} of them",
                f"Use a uint8 array of shape {wanted}.",
            ))  # fmt: skip
            continue
        found.append(np.ascontiguousarray(array).view(np.uint8))
        if row.scale_type == "ue4m3" and (found[-1] & 0x80).any():
            problems.append(MMA_SCALES.violation(
                name, "a scale with its sign bit set", "ue4m3 has no sign: the top bit is zero", "Use magnitudes.",
            ))  # fmt: skip
    if problems:
        raise RuleError(problems)
    return Scaling(row, found[0], found[1])
