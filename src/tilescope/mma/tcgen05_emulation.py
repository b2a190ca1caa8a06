"""What tcgen05.mma does beyond reading its operands: scale factors, pairs of blocks, sparse A, tensor memory.

    block 0 of a pair          block 1                         both issue one instruction of M x N
    A rows 0 .. M/2            A rows M/2 .. M                  each block multiplies its own rows of A
    B columns 0 .. N/2         B columns N/2 .. N               by both halves of B
    D rows 0 .. M/2, all n     D rows M/2 .. M, all n           in its own tensor memory
    scales of its A rows       scales of its A rows
    scales of all n            scales of all n

Scale factors go the whole way: packed into atoms, copied by tcgen05.cp, found by column and id for each K step. So do the metadata
of a sparse A, and A where it lies in tensor memory. D is written to the lanes and columns of its layout and read back by
tcgen05.ld, quarter by quarter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, printed, raise_all
from tilescope.mma.fragment import as_array
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_layout import ScaleLayout, ScaleOperand, scale_layout
from tilescope.mma.sparse_a import expanded, nibble_places
from tilescope.mma.tcgen05_kind import MMA_GROUP, TCGEN05, WIDE_K, Shapes, Tcgen05Kind, blackwell_rule, tcgen05_for
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import LANE_BITS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TmemAddress
from tilescope.mma.tmem_allocation import ALLOC_COLUMNS, tmem_budget
from tilescope.mma.tmem_cp import DECOMPRESSIONS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.reading import integers, is_one_of
from tilescope.tma.packing import packed, unpacked
from tilescope.value import read_only

_PRODUCT = 'ts.emulate_mma(np.eye(128), np.eye(128), data_type="e4m3", consumer="tcgen05", {})'
# fmt: off
MMA_LANES = blackwell_rule(
    "mma-lanes", "disable-output-lane is one 32-bit mask for each quarter of each block.", "tcgen05.mma: disable-output-lane",
    _PRODUCT.format("disable_output_lane=(1, 0, 0, 0)"), _PRODUCT.format("disable_output_lane=(1, 0)"),
)
MMA_SCALES = blackwell_rule(
    "mma-scales", "A block-scaled product has a kind, and one scale byte for each block of both operands.", "tcgen05.mma: Block scaling",
    _PRODUCT.format('scale_kind="mxfp8", a_scales=np.ones((128, 4), np.uint8), b_scales=np.ones((128, 4), np.uint8)'),
    _PRODUCT.format('scale_kind="mxfp8", a_scales=np.ones((128, 3), np.uint8), b_scales=np.ones((128, 4), np.uint8)'),
)
# fmt: on
Matrix = npt.NDArray[Any]
_LARGEST_LOAD = 128  # columns of tcgen05.ld.32x32b.x128
_SPARSE_ROWS = 128  # of a block: for fewer no document says where the metadata lies


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scale factors of both operands, as bytes: A (m, blocks), B (n, blocks)."""

    format: ScaleFormat
    a: Matrix
    b: Matrix


class BlockOperands(NamedTuple):
    """What one block holds: A (rows, k), of a sparse A the stored half; B (columns, k); the nibbles of a sparse A."""

    a: Matrix
    b: Matrix
    metadata: Matrix | None = None


@dataclass(frozen=True, slots=True)
class Tcgen05Product:
    """How a product of m x n is cut into instructions, and what each block of a group holds of it."""

    kind: Tcgen05Kind
    data_type: DataType
    m: int  # of one instruction
    n: int
    cta_group: int
    k: int  # elements of A that one instruction takes; of a sparse A the stored ones
    ws: bool = False
    sparse: bool = False
    a_in_tensor_memory: bool = False

    def rows_of(self, cta: int, extent: int) -> npt.NDArray[np.int64]:
        """The rows of A (and D) that a block holds, in the order of the instructions."""
        return _share(extent, self.m, cta, self.cta_group)

    def columns_of(self, cta: int, extent: int) -> npt.NDArray[np.int64]:
        """The columns of B that a block holds."""
        return _share(extent, self.n, cta, self.cta_group)

    def layout(self, operand: Any, extent: int) -> TmemLayout:
        """Where D, A or the metadata of one instruction lies in tensor memory."""
        return tmem_layout(
            (self.m, extent), operand=operand, data_type=None if operand == "D" else self.data_type, cta_group=self.cta_group, ws=self.ws,
            sparse=self.sparse,
        )  # fmt: skip


def _share(extent: int, instruction: int, cta: int, ctas: int) -> npt.NDArray[np.int64]:
    pieces = np.arange(extent).reshape(-1, ctas, instruction // ctas)
    return np.ascontiguousarray(pieces[:, cta]).reshape(-1)


def tcgen05_product(
    shape: tuple[int, int, int], data_type: DataType, scaled: ScaleFormat | None = None, *, cta_group: Any = 1, ws: bool = False,
    sparse: bool = False, a_in_tensor_memory: bool = False, instruction_k: Any = None, exact: bool = False,
) -> Tcgen05Product:  # fmt: skip
    """The largest instruction that cuts m x n evenly, for one block or a pair; refused where there is none.

    With `exact` one instruction takes all of m and n, as in a cluster each pair does.

    >>> product = tcgen05_product((256, 96, 64), DataType.named("bf16"), cta_group=2)
    >>> product.m, product.n, product.rows_of(1, 256)[:2].tolist(), product.columns_of(1, 96)[:2].tolist()
    (256, 96, [128, 129], [48, 49])
    """
    m, n, k = shape
    if not is_one_of(cta_group, (1, 2)) or (ws and cta_group == 2):
        found = f"{printed(cta_group)}{' with .ws' if ws else ''}"
        raise MMA_GROUP.error("cta_group", found, "one block multiplies, or a pair; .ws has one block", "Use 1 or 2.")
    kind = tcgen05_for(data_type) if scaled is None else scaled.kind_row
    _require_type(kind, data_type, scaled)
    step = kind.k if instruction_k is None else instruction_k
    if not is_one_of(step, (kind.k, WIDE_K) if kind.is_dense_4_bit and not sparse else (kind.k,)):
        limit = f"kind {kind.name} takes {kind.k} of k, dense 4-bit kinds also {WIDE_K}"
        raise TCGEN05["shape"].error("instruction_k", printed(instruction_k), limit, f"Use {kind.k}.")
    form = _form(kind, int(cta_group), ws, sparse, wide=step == WIDE_K)
    m_known = tuple(each for each in form.m if not sparse or each == _SPARSE_ROWS * cta_group)
    found_m = [each for each in m_known if (m == each if exact else m % each == 0)]
    found_n = [each for each in form.n if (n == each if exact else n % each == 0)]
    k_multiple = step * (2 if sparse else 1)
    if not found_m or not found_n or k % k_multiple:
        raise TCGEN05["shape"].error(
            "a, b", f"a product of {m} x {n} x {k}{' for one pair' if exact else ''}",
            f"kind {kind.name}{', sparse,' if sparse else ''} in {form.form} has m {', '.join(map(str, m_known))}, n {form.n[0]} to "
            f"{form.n[-1]} in steps of {form.n[1] - form.n[0]}, k {k_multiple}",
            f"Pad to a multiple of {m_known[0]} x {form.n[0]} x {k_multiple}.",
        )  # fmt: skip
    return Tcgen05Product(
        kind, data_type, found_m[-1], found_n[-1], int(cta_group), int(step), ws, sparse, a_in_tensor_memory
    )


def _require_type(kind: Tcgen05Kind, data_type: DataType, scaled: ScaleFormat | None) -> None:
    if scaled is None:
        return
    if data_type.name not in kind.codes:
        found, limit = f"{data_type.name} with {scaled.name}", f"kind {kind.name} takes {', '.join(kind.codes)}"
        raise MMA_SCALES.error("data_type", found, limit, f"Use {next(iter(kind.codes))}.")
    if data_type.name == "e2m1" and not kind.is_dense_4_bit:
        limit = "a tile of e2m1 is dense, two to a byte, which kinds mxf4 and mxf4nvf4 read"
        raise MMA_SCALES.error("scale_kind", f"e2m1 with {scaled.name}", limit, "Use mxfp4 or nvfp4.")


def _form(kind: Tcgen05Kind, cta_group: int, ws: bool, sparse: bool, *, wide: bool) -> Shapes:
    wanted = f"cta_group::{cta_group}{'.ws' if ws else ''}"
    found = next((form for form in kind.shapes(sparse=sparse) if form.form == wanted), None)
    if found is None:
        limit = f"kind {kind.name} has {', '.join(form.form for form in kind.shapes(sparse=sparse))}"
        raise TCGEN05["shape"].error("ws", wanted, limit, "Leave .ws out.")
    # k = 96: PTX's table has a pair with m 256 alone; CUTLASS issues these shapes, with n in steps of 16.
    return found._replace(n=tuple(n for n in found.n if n % 16 == 0)) if wide else found


def multiplied(
    product: Tcgen05Product, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, disabled: Any
) -> Matrix:
    """D (m, n) of what each block read, in double precision or int64.

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
    product: Tcgen05Product, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix,
    masks: list[npt.NDArray[np.bool_]], origin: tuple[int, int],
) -> Matrix:  # fmt: skip
    """The accumulator of one place of the product, over all of k."""
    rows, columns = product.m // product.cta_group, product.n // product.cta_group
    first_row, first_column = (at // product.cta_group for at in origin)
    wide = np.float64 if product.data_type.is_float else np.int64
    b = np.concatenate([block.b[first_column : first_column + columns] for block in operands]).astype(wide)
    layout = product.layout("D", product.n)
    found = []
    for cta, block in enumerate(operands):
        copies = [each.astype(wide) for each in _a_read(product, block, slice(first_row, first_row + rows), layout)]
        before, factors = initial[cta * rows : (cta + 1) * rows], b
        if scaling is not None:
            first_a, repeat = origin[0] + cta * rows, 1 + product.sparse
            a_scales, b_scales = scaling.a[first_a : first_a + rows], scaling.b[origin[1] : origin[1] + product.n]
            copies = [copy * _scales_read(scaling.format, a_scales, "A", product, repeat) for copy in copies]
            factors = b * _scales_read(scaling.format, b_scales, "B", product, repeat)
        parts = np.split(factors, len(copies))  # lanes of a second part of n read a copy of A of their own
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.concatenate([a @ part.T for a, part in zip(copies, parts, strict=True)], axis=1)
            d = (sums + before).astype(before.dtype)
        memory = _accumulated(TensorMemory().alloc(TMEM_COLUMNS), layout, before, np.zeros(128, np.bool_))
        memory = _accumulated(memory, layout, d, masks[cta])
        found.append(_drained(memory, layout).view(before.dtype))
    return np.concatenate(found)


def _a_read(product: Tcgen05Product, block: BlockOperands, rows: slice, d: TmemLayout) -> list[Matrix]:
    """A (rows, k) as the instructions read it: once, or as often as it lies in tensor memory."""
    copies = [block.a[rows]]
    if product.a_in_tensor_memory:
        layout = product.layout("A", block.a.shape[1])
        raise_all(tmem_budget({"D": d, "A": layout}).violations)
        behind = layout.with_start(TmemAddress(0, d.columns).encode())
        copies = _through_tensor_memory(copies[0], behind, product.data_type)
    if block.metadata is not None:
        nibbles = _metadata_read(product, block.metadata[rows])
        copies = [expanded(copy, nibbles, product.data_type) for copy in copies]
    return copies


def _through_tensor_memory(a: Matrix, layout: TmemLayout, row: DataType) -> list[Matrix]:
    """Every copy of A read back from the cells of its layout; narrow elements lie dense, or in a byte as tcgen05.cp spreads them."""
    width = layout.element_bits
    codes: Matrix = a.view(np.uint8).reshape(len(a), -1)
    low = next(
        (decompression.lowest_bit for decompression in DECOMPRESSIONS.values() if decompression.bits == row.bits < width), 0,
    )  # fmt: skip
    codes = packed(codes, width) if width < 8 else codes << low
    cells = np.zeros(128 * TMEM_COLUMNS * 4, np.uint8)
    step, places = max(1, 8 // width), []
    for copy in range(layout.copies):
        first = layout.bit_addresses()[: len(a), ::step, copy, None] + 8 * np.arange(max(1, width // 8))
        byte = (first // LANE_BITS * TMEM_COLUMNS * 4 + first % LANE_BITS // 8).reshape(len(a), -1)
        cells[byte] = codes
        places.append(byte)
    read = [unpacked(cells[byte], width) if width < 8 else cells[byte] >> low for byte in places]
    return [each.view(row.numpy).reshape(a.shape) for each in read]


def _metadata_read(product: Tcgen05Product, nibbles: Matrix) -> Matrix:
    """The nibbles (row, group) as the instructions find them in tensor memory, one K step after the other."""
    layout = product.layout("metadata", 2 * product.k)
    place = nibble_places(layout)
    index = (place // LANE_BITS, place % LANE_BITS)
    found = np.empty_like(nibbles)
    for first in range(0, nibbles.shape[1], place.shape[1]):
        step = slice(first, first + place.shape[1])
        cells = np.zeros((128, layout.columns * 32), np.uint8)
        cells[index] = np.unpackbits(nibbles[:, step, None], axis=-1, count=4, bitorder="little")
        found[:, step] = np.packbits(cells[index], axis=-1, bitorder="little")[..., 0]
    return found


def _scales_read(
    row: ScaleFormat, scales: Matrix, operand: ScaleOperand, product: Tcgen05Product, repeat: int
) -> Matrix:
    """The factor of every element (row, k), as the instructions find it in tensor memory."""
    where: Any = {"m": product.m, "cta_group": product.cta_group}
    layout = scale_layout(len(scales), scales.shape[1] * row.block, row)
    memory = TensorMemory().alloc(TMEM_COLUMNS)
    smem = layout.in_shared_memory(scales, operand, **where)
    for copy in layout.copies(operand, **where):
        memory = memory.copy(copy.shape, smem, copy.descriptor, copy.address)
    placed = layout.tensor_memory(operand, **where).bit_addresses()
    copies = [_steps_read(memory, layout, placed[..., copy], product.k) for copy in range(placed.shape[2])]
    assert all((each == copies[0]).all() for each in copies)  # every quarter reads its own
    values = copies[0].view(DataType.named("ue8m0" if row.scale_type == "ue8m0" else "e4m3").numpy).astype(np.float64)
    return np.repeat(values, row.block * repeat, axis=1)


def _steps_read(
    memory: TensorMemory, layout: ScaleLayout, placed: npt.NDArray[np.int64], step_k: int
) -> npt.NDArray[np.uint8]:
    """The bytes (row, block) that the instructions read, each by the column of its word and its id."""
    cells = memory.cells.view(np.uint8).reshape(128, -1)
    found = np.empty((layout.rows, layout.blocks), np.uint8)
    lane, first_column = placed[: layout.rows, 0] // LANE_BITS, placed[: layout.rows, 0] % LANE_BITS // 32
    for step in layout.steps(step_k):
        for number, block in enumerate(step.scales):
            further, byte = divmod(step.scale_id + number, 4)  # those of k = 96 run on into the next word
            column = first_column + step.column + further * layout.word_columns
            found[:, block] = cells[lane, column * 4 + byte]
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
    columns = next(column for column in ALLOC_COLUMNS if column >= layout.columns)
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


def scaling_of(
    kind: Any, a_scales: Any, b_scales: Any, shape: tuple[int, int, int], *, sparse: bool = False
) -> Scaling | None:
    """The scale factors as bytes, or None where there are none; all that is wrong at once."""
    if kind is None and a_scales is None and b_scales is None:
        return None
    if kind is None or a_scales is None or b_scales is None:
        given = {"scale_kind": kind, "a_scales": a_scales, "b_scales": b_scales}
        said = " and ".join(name for name, each in given.items() if each is not None)
        limit = "scaled products need scale_kind, a_scales and b_scales"
        fix = 'Pass all three: scale_kind="mxfp8", a_scales=…, b_scales=….'
        raise MMA_SCALES.error("scale_kind", said, limit, fix)
    row, (m, n, k) = ScaleFormat.named(kind), shape
    block = row.block * (1 + sparse)  # a sparse instruction takes twice the k with as many scales
    problems, found = [], []
    for name, scales, extent in (("a_scales", a_scales, m), ("b_scales", b_scales, n)):
        wanted, array = (extent, -(-k // block)), as_array(name, scales)
        if array.shape != wanted or array.dtype.itemsize != 1 or array.dtype.kind in "bS":
            problems.append(MMA_SCALES.violation(
                name, f"an array of shape {array.shape}, {array.dtype}",
                f"{row.name} has one {row.scale_type} byte for {block} elements of k: {wanted[0]} x {wanted[1]} of them",
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
