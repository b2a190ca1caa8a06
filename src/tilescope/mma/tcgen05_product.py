"""A product by tcgen05.mma: how it is cut into instructions, which block of a pair holds what, and what the instructions do.

    block 0 of a pair          block 1                         both issue one instruction of M x N
    A rows 0 .. M/2            A rows M/2 .. M                  each block multiplies its own rows of A
    B columns 0 .. N/2         B columns N/2 .. N               by both halves of B
    D rows 0 .. M/2, all n     D rows M/2 .. M, all n           in its own tensor memory
    scales of its A rows       scales of its A rows
    scales of all n            scales of all n

Clusters of several pairs are in pair_shares.py.

Scale factors take the complete path: packed into atoms, copied by tcgen05.cp, located by column and id in every K step.
So do the metadata of a sparse A, and A if it is in tensor memory. D is written to the lanes and columns of its layout
and read back by tcgen05.ld, quarter by quarter.

For a sparse A, half of the elements are stored, and metadata in tensor memory has the positions of the stored ones
along k:

    A             a 0 b 0 | 0 c 0 d | …         of every 4 elements at most 2 are not zero
    stored A      a   b   |   c   d | …         what lies in shared or tensor memory
    metadata      0   2   |   1   3 | …         2 bits each, the first in the low bits: nibbles 0x8, 0xD, …

    A             group    stored      a position counts
    16, 8 bits    4        2           elements
    tf32          2        1           halves of an element: nibble 0x4 for the first, 0xE for the second
    4 bits        8        4           pairs of elements
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import raise_all
from tilescope.mma.accumulation import ScaleFactors, k_loop_sum, summed_once
from tilescope.mma.consumer import Tcgen05Loop, Tcgen05PairLoop, Tcgen05WsLoop
from tilescope.mma.product_scales import MMA_SCALES, Scaling
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_lanes import ScaleOperand
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.sparsity import Matrix, Nibbles, entries_of_elements, expand_rows, nibbles_of_entries
from tilescope.mma.tcgen05_kind import (
    BLACKWELL,
    MMA_GROUP,
    TCGEN05_SHAPE,
    WIDE_K,
    Shapes,
    Tcgen05Kind,
    in_steps,
    tcgen05_for,
)
from tilescope.mma.tensor_core_arithmetic import Arithmetic
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import (
    CELL_BITS,
    LANE_BITS,
    QUARTER_LANES,
    TMEM_COLUMNS,
    TMEM_LANES,
    TmemAddress,
    cells_of,
)
from tilescope.mma.tmem_budget import tmem_budget
from tilescope.mma.tmem_copy import DECOMPRESSIONS
from tilescope.mma.tmem_form import TMEM_FORMS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.reading import integers, is_one_of, plain_int
from tilescope.rule import rule
from tilescope.sentence import format_value

MMA_LANES = rule(
    "mma-lanes",
    "disable-output-lane has one 32-bit mask for each quarter of each block.",
    argument="disable_output_lane",
    found="masks {asked}",
    limit="{count} masks of 32 bits, one for each quarter of each block",
    fix="Use {disable_output_lane:={whole}}.",
    source="PTX ISA, tcgen05.mma: disable-output-lane",
    architectures=BLACKWELL,
    passing=(
        'ts.emulate_mma(np.eye(128), np.eye(128), data_type="bf16", consumer="tcgen05", '
        "disable_output_lane=(1, 0, 0, 0))"
    ),
    failing=(
        'ts.emulate_mma(np.eye(128), np.eye(128), data_type="bf16", consumer="tcgen05", disable_output_lane=(1, 0))'
    ),
)
NO_SUCH_GROUP = MMA_GROUP.worded(
    found="{asked}[[ with {qualifier}]]",
    limit="one block multiplies, or a pair; .ws has one block",
    fix="Use {cta_group:=1}.",
)
NO_SCALED_TYPE = MMA_SCALES.worded(
    argument="data_type",
    found="{data_type} with {format}",
    limit="kind {kind} takes tiles of {types:, }",
    fix="Use {first}.",
)
NO_SUCH_K = TCGEN05_SHAPE.worded(
    argument="instruction_k",
    found="{asked}",
    limit="kind {kind} takes {own_k} of k, dense 4-bit kinds also {wide_k}",
    fix="Use {own_k}.",
)
NO_SUCH_FORM = TCGEN05_SHAPE.worded(
    argument="ws", found="{form}", limit="kind {kind} has {forms:, }", fix="Use {ws:=False}."
)
UNEVEN_PRODUCT = TCGEN05_SHAPE.worded(
    argument="a, b",
    found="a product of {m} x {n} x {k}[[ for {holder}]]",
    limit="kind {kind}[[, {condition},]] in {form} has m {known_m:, }, n {known_n}, k {step_k}",
    fix="Pad to a multiple of {step: x }.",
)
LaneMasks = npt.NDArray[np.bool_]
# What one block holds: A (rows, k), of a sparse A the stored half; B (columns, k); the nibbles of a sparse A.
BlockOperands = tuple[Matrix, Matrix, Nibbles]
_MASK_BITS = 32  # of disable-output-lane
_SPARSE_ROWS = 128  # of a block; the place of metadata with fewer rows is known only for .ws


@dataclass(frozen=True, slots=True)
class Tcgen05Product:
    """How a product of m x n is cut into instructions, and what the blocks of a group hold of it."""

    data_type: DataType
    m: int  # of one instruction
    n: int
    cta_group: int
    k: int  # elements of A that one instruction takes; of a sparse A the stored ones
    ws: bool
    sparse: bool
    a_in_tensor_memory: bool
    arithmetic: Arithmetic | None = None  # how its instructions add; None: in double precision or int64, rounded once

    @property
    def loop(self) -> type[Tcgen05Loop]:
        """The K loop of its instruction."""
        if self.ws:
            return Tcgen05WsLoop
        return Tcgen05PairLoop if self.cta_group == 2 else Tcgen05Loop

    def share(self, cta: int, extent: int, instruction: int) -> npt.NDArray[np.int64]:
        """What a block holds of the rows of A (and D), or of the columns of B, in the order of the instructions."""
        return np.arange(extent).reshape(-1, self.cta_group, instruction // self.cta_group)[:, cta].ravel()

    def layout(self, operand: Literal["D", "A", "metadata"], extent: int) -> TmemLayout:
        """The place of D, A or the metadata of one instruction in tensor memory."""
        return tmem_layout(
            (self.m, extent),
            operand=operand,
            data_type=None if operand == "D" else self.data_type,
            cta_group=self.cta_group,
            ws=self.ws,
            sparse=self.sparse,
        )

    def multiplied(
        self, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, disabled: object
    ) -> Matrix:
        """D (m, n) of what the blocks read (A, B, the metadata of a sparse A).

        `initial` is what D held before; lanes that `disabled` masks keep it.
        """
        masks = _lane_masks(disabled, self.cta_group)
        d = np.empty_like(initial)
        own_m = self.m // self.cta_group
        own_n = self.n // self.cta_group
        for first_m in range(0, initial.shape[0], self.m):
            for first_n in range(0, initial.shape[1], self.n):
                block = slice(first_m, first_m + self.m), slice(first_n, first_n + self.n)
                rows = slice(first_m // self.cta_group, first_m // self.cta_group + own_m)
                columns = slice(first_n // self.cta_group, first_n // self.cta_group + own_n)
                block_operands = [(a[rows], b[columns], metadata[rows]) for a, b, metadata in operands]
                scales = None if scaling is None else scaling.part(*block)
                d[block] = _instruction(self, block_operands, scales, initial[block], masks)
        return d


def tcgen05_product(
    shape: tuple[int, int, int],
    data_type: DataType,
    scaled: ScaleFormat | None = None,
    *,
    cta_group: int = 1,
    ws: bool = False,
    sparse: bool = False,
    a_in_tensor_memory: bool = False,
    instruction_k: int | None = None,
    exact: bool = False,
) -> Tcgen05Product:
    """The largest instruction that cuts m x n evenly, for one block or a pair; refused if no instruction does.

    With `exact` one instruction takes all of m and n, as the pairs of a cluster do.

    >>> product = tcgen05_product((256, 96, 64), DataType.named("bf16"), cta_group=2)
    >>> product.m, product.share(1, 256, product.m)[:2].tolist()
    (256, [128, 129])
    >>> product.n, product.share(1, 96, product.n)[:2].tolist()
    (96, [48, 49])
    """
    if not is_one_of(cta_group, (1, 2)) or (ws and cta_group == 2):
        qualifier = ".ws" if ws else None
        raise NO_SUCH_GROUP.error(cta_group=plain_int(cta_group), asked=format_value(cta_group), qualifier=qualifier)
    kind = tcgen05_for(data_type) if scaled is None else _scaled_kind(data_type, scaled)
    step = _step_k(kind, instruction_k, sparse=sparse)
    form = _form(kind, int(cta_group), ws=ws, sparse=sparse)
    m, n, k = shape
    if sparse and not ws:
        form = form._replace(m=tuple(rows for rows in form.m if rows == _SPARSE_ROWS * cta_group))
    fits_m = _fitting(m, form.m, exact=exact)
    fits_n = _fitting(n, form.n, exact=exact)
    step_k = 2 * step if sparse else step
    if not fits_m or not fits_n or k % step_k:
        raise UNEVEN_PRODUCT.error(
            m=m,
            n=n,
            k=k,
            holder="one pair" if exact else None,
            kind=kind.name,
            condition="sparse" if sparse else None,
            form=form.form,
            known_m=form.m,
            known_n=in_steps(form.n),
            step_k=step_k,
            step=(form.m[0], form.n[0], step_k),
        )
    return Tcgen05Product(data_type, fits_m[-1], fits_n[-1], int(cta_group), step, ws, sparse, a_in_tensor_memory)


def _scaled_kind(data_type: DataType, scaled: ScaleFormat) -> Tcgen05Kind:
    """The kind of a scaled product; refused if it does not take tiles of this type."""
    kind = scaled.kind_row
    types = tuple(name for name in kind.codes if name != "e2m1" or kind.is_dense_4_bit)  # like a tile of e2m1
    if data_type.name not in types:
        raise NO_SCALED_TYPE.error(
            data_type=data_type.name, format=scaled.name, kind=kind.name, types=types, first=types[0]
        )
    return kind


def _step_k(kind: Tcgen05Kind, instruction_k: int | None, *, sparse: bool) -> int:
    """The k of one instruction: the kind's, or the requested 96."""
    if instruction_k is None:
        return kind.k
    allowed = (kind.k, WIDE_K) if kind.is_dense_4_bit and not sparse else (kind.k,)
    if not is_one_of(instruction_k, allowed):
        number = plain_int(instruction_k)
        raise NO_SUCH_K.error(k=number, asked=format_value(instruction_k), kind=kind.name, own_k=kind.k, wide_k=WIDE_K)
    return int(instruction_k)


def _form(kind: Tcgen05Kind, cta_group: int, *, ws: bool, sparse: bool) -> Shapes:
    """The form of the instruction; an error if the kind does not have it.

    k = 96: PTX's table has one block with m 128 and a pair with m 256; CUTLASS also issues a pair with m 128.
    """
    written = f"cta_group::{cta_group}.ws" if ws else f"cta_group::{cta_group}"
    forms = {shapes.form: shapes for shapes in kind.shapes(sparse=sparse)}
    if written not in forms:
        raise NO_SUCH_FORM.error(form=written, kind=kind.name, forms=tuple(forms))
    return forms[written]


def _fitting(whole: int, known: tuple[int, ...], *, exact: bool) -> list[int]:
    """The extents of instructions that cut the whole evenly, or, exactly, are the whole."""
    if exact:
        return [extent for extent in known if extent == whole]
    return [extent for extent in known if whole % extent == 0]


def _instruction(
    product: Tcgen05Product,
    operands: list[BlockOperands],
    scaling: Scaling | None,
    initial: Matrix,
    masks: LaneMasks,
) -> Matrix:
    """The accumulator of one place of the product, over all of k."""
    rows = product.m // product.cta_group
    layout = product.layout("D", product.n)
    all_b: Matrix = np.concatenate([b for _, b, _ in operands])
    b_scales = None if scaling is None else _scales_read(scaling, "B", product)
    lane, column, _ = cells_of(layout.bit_addresses()[..., 0])
    accumulators = []
    for cta, (stored_a, _, metadata) in enumerate(operands):
        part = slice(cta * rows, (cta + 1) * rows)
        before = initial[part]
        scales = None
        if scaling is not None and b_scales is not None:
            a_scales = _scales_read(scaling.part(part, slice(0)), "A", product)
            scales = ScaleFactors(a_scales, b_scales, scaling.format.scale_data_type)
        copies = _a_read(product, stored_a, metadata, layout)
        width = product.n // len(copies)  # lanes of a second part of n read another copy of A
        sums = []
        for number, copy in enumerate(copies):
            columns = slice(number * width, (number + 1) * width)
            own_scales = None if scales is None else scales._replace(b=scales.b[columns])
            sums.append(_sum_block(product, copy, all_b[columns], before[:, columns], own_scales))
        d = np.concatenate(sums, axis=1)
        cells = np.zeros((TMEM_LANES, TMEM_COLUMNS), np.uint32)
        cells[lane, column] = np.where(masks[cta, lane], before, d).view(np.uint32)
        accumulators.append(_load_accumulators(cells, layout.columns)[lane, column].view(initial.dtype))
    return np.concatenate(accumulators)


def _sum_block(product: Tcgen05Product, a: Matrix, b: Matrix, before: Matrix, scales: ScaleFactors | None) -> Matrix:
    """What one block makes of its rows of A, and of B: as its instructions add, or rounded once."""
    if product.arithmetic is not None:
        instruction_k = 2 * product.k if product.sparse else product.k
        arithmetic = product.arithmetic
        return k_loop_sum(
            a, b, before, instruction_k, arithmetic=arithmetic, data_type=product.data_type, scales=scales
        )
    return summed_once(a, b, before, product.data_type, scales)


def _load_accumulators(cells: npt.NDArray[np.uint32], columns: int) -> npt.NDArray[np.uint32]:
    """The first columns as four warps load them with .32x32b, each from its quarter."""
    memory = TensorMemory(cells, ((0, TMEM_COLUMNS),))
    width = min(TMEM_FORMS["32x32b"].max_count, 1 << (columns - 1).bit_length())
    quarters = []
    for lane in range(0, TMEM_LANES, QUARTER_LANES):
        warp = lane // QUARTER_LANES
        starts = [TmemAddress(lane, column) for column in range(0, columns, width)]
        loads = [memory.load(f"32x32b.x{width}", start, warp=warp) for start in starts]
        quarters.append(np.concatenate(loads, axis=1))
    return np.concatenate(quarters)


def _a_read(product: Tcgen05Product, a: Matrix, metadata: Nibbles, d: TmemLayout) -> list[Matrix]:
    """A (rows, k) as the instructions read it: once, or as often as tensor memory has it."""
    copies = _through_cells_of_a(product, a, d) if product.a_in_tensor_memory else [a]
    if not product.sparse:
        return copies
    nibbles = _metadata_read(product, metadata)
    parts = max(len(copies), len(nibbles))  # one of both may be in one place for all parts of n
    all_copies = copies * (parts // len(copies))
    all_nibbles = nibbles * (parts // len(nibbles))
    return [
        expand_rows(copy, copy_nibbles, product.data_type)
        for copy, copy_nibbles in zip(all_copies, all_nibbles, strict=True)
    ]


def _through_cells_of_a(product: Tcgen05Product, a: Matrix, d: TmemLayout) -> list[Matrix]:
    """A in tensor memory after D: all its copies."""
    element = product.data_type
    layout = product.layout("A", a.shape[1])
    raise_all(tmem_budget({"D": d, "A": layout}).violations)
    lowest_bit = np.uint8(0)  # in a byte, as tcgen05.cp spreads padded elements; others are dense
    for spread in DECOMPRESSIONS.values():
        if spread.bits == element.bits < layout.element_bits:
            lowest_bit = np.uint8(spread.lowest_bit)
    codes = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, -1) << lowest_bit
    read = _through_tensor_memory(codes, layout.with_start(TmemAddress(0, d.columns))) >> lowest_bit
    return list(read.view(element.numpy)[..., 0])


def _through_tensor_memory(codes: npt.NDArray[np.uint8], layout: TmemLayout) -> npt.NDArray[np.uint8]:
    """Elements written to the cells of a layout and read back.

    (rows, columns, bytes of an element) become (copies, rows, columns, bytes).
    """
    unit_bits = min(layout.element_bits, 8)
    bits = layout.bit_addresses()[..., None] + unit_bits * np.arange(codes.shape[-1])
    lane = bits // LANE_BITS
    unit = bits % LANE_BITS // unit_bits
    cells = np.zeros((TMEM_LANES, TMEM_COLUMNS * CELL_BITS // unit_bits), np.uint8)
    cells[lane, unit] = codes[:, :, None]
    return np.moveaxis(cells[lane, unit], 2, 0)


def _metadata_read(product: Tcgen05Product, nibbles: Nibbles) -> list[Nibbles]:
    """Every copy of the nibbles (row, group) as the instructions find them in tensor memory, K step after K step."""
    layout = product.layout("metadata", 2 * product.k)
    entries = entries_of_elements(nibbles, product.data_type, layout.element_bits)
    steps = entries.reshape(len(nibbles), -1, 2 * product.k, 1)
    # (copies, rows, K steps, elements of a step, their byte)
    read = np.stack([_through_tensor_memory(steps[:, step], layout) for step in range(steps.shape[1])], axis=2)
    return [nibbles_of_entries(copy.reshape(entries.shape), product.data_type) for copy in read]


def _scales_read(scaling: Scaling, operand: ScaleOperand, product: Tcgen05Product) -> npt.NDArray[np.uint8]:
    """The factor of every block (row, block), as the instructions find it: by column of the word, and id."""
    row = scaling.format
    scales = scaling.a if operand == "A" else scaling.b
    m = product.m
    cta_group = product.cta_group
    layout = scale_layout(len(scales), scales.shape[1] * row.block, row)
    memory = TensorMemory().alloc(TMEM_COLUMNS)
    smem = layout.in_shared_memory(scales, operand, m=m, cta_group=cta_group)
    for copy in layout.copies(operand, m=m, cta_group=cta_group):
        memory = memory.copy(copy.shape, smem, copy.descriptor, copy.address)
    cells = memory.cells.view(np.uint8).reshape(TMEM_LANES, -1)
    placed = layout.tensor_memory(operand, m=m, cta_group=cta_group).bit_addresses()[: layout.rows, 0]  # (rows, copies)
    lane, first_column, _ = cells_of(placed)
    read = np.empty((*placed.shape, layout.blocks), np.uint8)
    word_columns = layout.columns_per_word(operand, m=m, cta_group=cta_group)
    for step in layout.steps(product.k, operand, m=m, cta_group=cta_group):
        for number, block in enumerate(step.scales):
            further, byte = divmod(step.scale_id + number, 4)  # those of k = 96 run on into the next word
            column = first_column + step.column + further * word_columns
            read[..., block] = cells[lane, column * 4 + byte]
    assert (read == read[:, :1]).all()  # every quarter reads its own
    return read[:, 0]


def _lane_masks(disabled: object, ctas: int) -> LaneMasks:
    """Which lanes of the blocks are not written, (blocks, lanes).

    Bit 0 of the first 32-bit mask is lane 0 of the first block.
    """
    count = ctas * TMEM_LANES // _MASK_BITS
    words = (0,) * count if disabled is None else integers("disable_output_lane", disabled)
    if len(words) != count or not all(0 <= word < 1 << _MASK_BITS for word in words):
        missing = [0] * (count - len(words))
        padded = [*words[:count], *missing]
        raise MMA_LANES.error(
            masks=words,
            asked=format_value(disabled),
            count=count,
            whole=tuple(word & (1 << _MASK_BITS) - 1 for word in padded),
        )
    return (np.array(words)[:, None] >> np.arange(_MASK_BITS) & 1).astype(np.bool_).reshape(ctas, TMEM_LANES)
