"""A product by tcgen05.mma: how it is cut into instructions, which block holds what, and what the instructions do.

    block 0 of a pair          block 1                         both issue one instruction of M x N
    A rows 0 .. M/2            A rows M/2 .. M                  each block multiplies its own rows of A
    B columns 0 .. N/2         B columns N/2 .. N               by both halves of B
    D rows 0 .. M/2, all n     D rows M/2 .. M, all n           in its own tensor memory
    scales of its A rows       scales of its A rows
    scales of all n            scales of all n

In a cluster of pairs (cta_group::2) copies and commits are multicast:

    cluster of 4 x 2 blocks, rank = x + 4 y                pair: ranks that differ in bit 0

              x = 0        1       │  2        3
    y = 0   ┌──────────────────────┼─────────────────┐     A: rows by x, the same for every y
            │ pair 0, n 0 .. N     │ pair 1          │     B: half x mod 2 of the columns of y, the same for every pair
    y = 1   │ pair 2, n N .. 2 N   │ pair 3          │     D: rows by x, all columns of y
            └──────────────────────┴─────────────────┘

Blocks that hold the same part can share the work: each brings a piece of it and multicasts it to all. A stage may be
overwritten once every pair that its blocks write into has read theirs; so tcgen05.commit signals all of them.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import raise_all
from tilescope.mma.consumer import Tcgen05Loop, Tcgen05PairLoop, Tcgen05WsLoop
from tilescope.mma.scale_layout import ScaleOperand, scale_layout
from tilescope.mma.scale_packing import MMA_SCALES, ScaleFormat, Scaling
from tilescope.mma.tcgen05_kind import MMA_GROUP, TCGEN05, WIDE_K, Documented, blackwell_rule, in_steps, tcgen05_for
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.mma.tmem_agreement import tmem_budget
from tilescope.mma.tmem_form import DECOMPRESSIONS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.reading import integers, is_one_of, pair, plain_int
from tilescope.sentence import by, printed
from tilescope.value import Value

_PRODUCT = 'ts.emulate_mma({}, {}, data_type="bf16", consumer="tcgen05", {})'
# fmt: off
PAIR_CLUSTER, MMA_LANES, MMA_SPARSE = (
    blackwell_rule(name, demand, source, _PRODUCT.format(*passing), _PRODUCT.format(*failing))
    for name, demand, source, passing, failing in (
        ("pair-cluster", "A cluster of pairs has an even number of blocks in x, and at most 16.", "tcgen05: CTA Pair",
         ("np.eye(256)", "np.eye(256)", "cta_group=2, cluster=(2, 1)"), ("np.eye(256)", "np.eye(256)", "cta_group=2, cluster=(1, 2)")),
        ("mma-lanes", "disable-output-lane is one 32-bit mask for each quarter of each block.", "tcgen05.mma: disable-output-lane",
         ("np.eye(128)", "np.eye(128)", "disable_output_lane=(1, 0, 0, 0)"), ("np.eye(128)", "np.eye(128)", "disable_output_lane=(1, 0)")),
        ("mma-sparse", "A sparse A has at most 2 elements of every 4 that are not zero: 1 of 2 for tf32, 2 of 4 pairs for 4 bits.",
         "tcgen05.mma: sparse matrices", ("np.eye(128)", "np.zeros((128, 8))", "sparse=True"),
         ("np.ones((128, 128))", "np.zeros((128, 8))", "sparse=True")),
    )
)
# fmt: on
Matrix = npt.NDArray[Any]
# What one block holds: A (rows, k), of a sparse A the stored half; B (columns, k); the nibbles of a sparse A.
BlockOperands = tuple[Matrix, Matrix, Matrix]
_MAX_CLUSTER = 16  # bits of a multicast mask
_SPARSE_ROWS = 128  # of a block: for fewer, only those of .ws, formulas say where the metadata lies
_LARGEST_LOAD = 128  # columns of tcgen05.ld.32x32b.x128
_PIECE = {4: 2, 8: 1, 16: 1, 32: 1}  # elements that stay together, by bits of an element in shared memory
_TF32_NIBBLES = np.array([0x4, 0xE], np.uint8)


@dataclass(frozen=True, slots=True)
class Tcgen05Product:
    """How a product of m x n is cut into instructions, and what the blocks of a group hold of it."""

    data_type: DataType
    m: int  # of one instruction
    n: int
    cta_group: int
    k: int  # elements of A that one instruction takes; of a sparse A the stored ones
    ws: bool = False
    sparse: bool = False
    a_in_tensor_memory: bool = False

    @property
    def loop(self) -> type[Tcgen05Loop]:
        """The K loop of its instruction."""
        return Tcgen05WsLoop if self.ws else Tcgen05PairLoop if self.cta_group == 2 else Tcgen05Loop

    def share(self, cta: int, extent: int, instruction: int) -> npt.NDArray[np.int64]:
        """What a block holds of the rows of A (and D), or of the columns of B, in the order of the instructions."""
        return np.arange(extent).reshape(-1, self.cta_group, instruction // self.cta_group)[:, cta].ravel()

    def layout(self, operand: Any, extent: int) -> TmemLayout:
        """Where D, A or the metadata of one instruction lies in tensor memory."""
        held = None if operand == "D" else self.data_type
        shape, group = (self.m, extent), self.cta_group
        return tmem_layout(shape, operand=operand, data_type=held, cta_group=group, ws=self.ws, sparse=self.sparse)

    def multiplied(
        self, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, disabled: Any
    ) -> Matrix:
        """D (m, n) of what the blocks read (A, B, the metadata of a sparse A), in double precision or int64.

        `initial` is what D held before; lanes that `disabled` masks keep it.
        """
        masks, d, group = _lane_masks(disabled, self.cta_group), np.empty_like(initial), self.cta_group
        for first_m in range(0, initial.shape[0], self.m):
            for first_n in range(0, initial.shape[1], self.n):
                block = slice(first_m, first_m + self.m), slice(first_n, first_n + self.n)
                rows, columns = (slice(part.start // group, part.stop // group) for part in block)
                held = [(a[rows], b[columns], metadata[rows]) for a, b, metadata in operands]
                d[block] = _instruction(self, held, scaling and scaling.part(*block), initial[block], masks)
        return d


def tcgen05_product(
    shape: tuple[int, int, int], data_type: DataType, scaled: ScaleFormat | None = None, *, cta_group: Any = 1, ws: bool = False,
    sparse: bool = False, a_in_tensor_memory: bool = False, instruction_k: Any = None, exact: bool = False,
) -> Tcgen05Product:  # fmt: skip
    """The largest instruction that cuts m x n evenly, for one block or a pair; refused if no instruction does.

    With `exact` one instruction takes all of m and n, as the pairs of a cluster do.

    >>> product = tcgen05_product((256, 96, 64), DataType.named("bf16"), cta_group=2)
    >>> product.m, product.n, product.share(1, 256, product.m)[:2].tolist(), product.share(1, 96, product.n)[:2].tolist()
    (256, 96, [128, 129], [48, 49])
    """
    m, n, k = shape
    if not is_one_of(cta_group, (1, 2)) or (ws and cta_group == 2):
        found, limit = f"{printed(cta_group)}{' with .ws' * ws}", "one block multiplies, or a pair; .ws has one block"
        raise MMA_GROUP.error("cta_group", found, limit, "Use cta_group=1.", cta_group=plain_int(cta_group))
    kind = tcgen05_for(data_type) if scaled is None else scaled.kind_row
    takes = [name for name in kind.codes if name != "e2m1" or kind.is_dense_4_bit]  # as a tile of e2m1 lies
    if scaled is not None and data_type.name not in takes:
        found, limit = f"{data_type.name} with {scaled.name}", f"kind {kind.name} takes tiles of {', '.join(takes)}"
        raise MMA_SCALES.error("data_type", found, limit, f"Use {takes[0]}.")
    step = kind.k if instruction_k is None else instruction_k
    if not is_one_of(step, (kind.k, WIDE_K) if kind.is_dense_4_bit and not sparse else (kind.k,)):
        found, limit = printed(instruction_k), f"kind {kind.name} takes {kind.k} of k, dense 4-bit kinds also {WIDE_K}"
        raise TCGEN05["shape"].error("instruction_k", found, limit, f"Use {kind.k}.", k=plain_int(step))
    written, forms = f"cta_group::{cta_group}{'.ws' * ws}", {form.form: form for form in kind.shapes(sparse=sparse)}
    if written not in forms:
        raise TCGEN05["shape"].error("ws", written, f"kind {kind.name} has {', '.join(forms)}", "Use ws=False.")
    # k = 96: PTX's table has one block with m 128 and a pair with m 256; CUTLASS also issues a pair with m 128.
    known_n = forms[written].n
    known_m = [extent for extent in forms[written].m if not sparse or ws or extent == _SPARSE_ROWS * cta_group]
    fits_m, fits_n = (
        [extent for extent in known if (whole == extent if exact else whole % extent == 0)]
        for whole, known in ((m, known_m), (n, known_n))
    )
    k_multiple = step * (1 + sparse)
    if not fits_m or not fits_n or k % k_multiple:
        has = f"m {', '.join(map(str, known_m))}, n {in_steps(known_n)}, k {k_multiple}"
        limit = f"kind {kind.name}{', sparse,' * sparse} in {written} has {has}"
        fix = f"Pad to a multiple of {known_m[0]} x {known_n[0]} x {k_multiple}."
        found = f"a product of {m} x {n} x {k}{' for one pair' * exact}"
        raise TCGEN05["shape"].error("a, b", found, limit, fix, m=m, n=n, k=k)
    return Tcgen05Product(data_type, fits_m[-1], fits_n[-1], int(cta_group), int(step), ws, sparse, a_in_tensor_memory)


@dataclass(frozen=True, slots=True)
class PairShare(Documented, Value):
    """What one block of a cluster holds; ranges are (first, end) in rows or columns of the cluster's tile.

    >>> share = pair_shares((2, 2), 256, 128)[3]
    >>> share.a_rows, share.b_columns, share.d_rows, share.d_columns
    ((128, 256), (192, 256), (128, 256), (128, 256))
    >>> bin(share.a_multicast), bin(share.b_multicast), bin(share.commit)
    ('0b1010', '0b1000', '0b1111')
    """

    rank: int
    is_leader: bool  # the even rank of its pair, whose thread issues
    a_rows: tuple[int, int]
    b_columns: tuple[int, int]
    d_rows: tuple[int, int]
    d_columns: tuple[int, int]
    a_multicast: int  # mask of the blocks that hold the same rows of A
    b_multicast: int  # mask of the blocks that hold the same columns of B
    commit: int  # mask of the blocks that wait for this pair's reads


def pair_shares(cluster: tuple[int, int], m: int, n: int) -> tuple[PairShare, ...]:
    """What the blocks of a cluster of (x, y) hold, by rank; m and n are those of one pair's instruction."""
    wide, high = cluster
    ranks = np.arange(wide * high).reshape(high, wide)

    def mask(*held: npt.NDArray[np.int64]) -> int:
        return int(np.bitwise_or.reduce(1 << np.concatenate([part.ravel() for part in held])))

    shares = []
    for rank in range(wide * high):
        y, x = divmod(rank, wide)
        half = x % 2
        rows, columns = (x * m // 2, (x + 1) * m // 2), (y * n + half * n // 2, y * n + (half + 1) * n // 2)
        masks = mask(ranks[:, x]), mask(ranks[y, half::2]), mask(ranks[:, x - half : x - half + 2], ranks[y])
        shares.append(PairShare(rank, half == 0, rows, columns, rows, (y * n, (y + 1) * n), *masks))
    return tuple(shares)


def pairs_of(cluster: Any, cta_group: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """How many parts of m and of n the pairs of a cluster multiply; m and n are whole multiples of them.

    >>> pairs_of((4, 2), 2, (512, 256))
    (2, 2)
    """
    wide, high = pair("cluster", cluster, 1)
    uneven = wide % 2 or shape[0] % (wide // 2) or shape[1] % high
    if uneven or wide * high > _MAX_CLUSTER or not is_one_of(cta_group, (2,)):
        found = f"cluster {printed(cluster)} with cta_group {printed(cta_group)} for {by(shape)} (m x n)"
        limit = f"a cluster has pairs (cta_group=2) along x, at most {_MAX_CLUSTER} blocks, and shares m and n evenly"
        values = {"cluster": (wide, high), "m": shape[0], "n": shape[1]}
        raise PAIR_CLUSTER.error("cluster", found, limit, "Use cluster=(2, 1) with cta_group=2.", **values)
    return wide // 2, high


def _instruction(
    product: Tcgen05Product, operands: list[BlockOperands], scaling: Scaling | None, initial: Matrix, masks: Matrix
) -> Matrix:
    """The accumulator of one place of the product, over all of k."""
    rows, layout = product.m // product.cta_group, product.layout("D", product.n)
    wide = np.float64 if product.data_type.is_float else np.int64
    all_b = np.concatenate([b for _, b, _ in operands]).astype(wide) * _scales_read(scaling, "B", product)
    lane, column = np.divmod(layout.bit_addresses()[..., 0] >> 5, 1 << 16)
    accumulators = []
    for cta, (a, _, metadata) in enumerate(operands):
        part = slice(cta * rows, (cta + 1) * rows)
        copies = _a_read(product, a, metadata, layout)
        factors = _scales_read(scaling and scaling.part(part, slice(0)), "A", product)
        parts = np.split(all_b, len(copies))  # lanes of a second part of n read a copy of A of their own
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [copy.astype(wide) * factors @ columns.T for copy, columns in zip(copies, parts, strict=True)]
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


def _a_read(product: Tcgen05Product, a: Matrix, metadata: Matrix, d: TmemLayout) -> list[Matrix]:
    """A (rows, k) as the instructions read it: once, or as often as it lies in tensor memory."""
    copies, row = [a], product.data_type
    if product.a_in_tensor_memory:
        layout = product.layout("A", a.shape[1])
        raise_all(tmem_budget({"D": d, "A": layout}).violations)
        padded = [spread for spread in DECOMPRESSIONS.values() if spread.bits == row.bits < layout.element_bits]
        low = padded[0].lowest_bit if padded else 0  # in a byte, as tcgen05.cp spreads them; others lie dense
        codes = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, -1) << low
        read = _through_tensor_memory(codes, layout.with_start(TmemAddress(0, d.columns))) >> low
        copies = list(read.view(row.numpy)[..., 0])
    if product.sparse:
        nibbles = _metadata_read(product, metadata)
        parts = max(len(copies), len(nibbles))  # one of both may lie in one place for all parts of n
        copies, nibbles = (held * (parts // len(held)) for held in (copies, nibbles))
        copies = [_expanded(copy, own, row) for copy, own in zip(copies, nibbles, strict=True)]
    return copies


def _through_tensor_memory(codes: Matrix, layout: TmemLayout) -> Matrix:
    """Elements (rows, columns, their bytes) written to the cells of a layout, and read back as (copies, rows, columns, bytes)."""
    unit = min(layout.element_bits, 8)
    bits = layout.bit_addresses()[..., None] + unit * np.arange(codes.shape[-1])
    place = bits // LANE_BITS, bits % LANE_BITS // unit
    cells = np.zeros((TMEM_LANES, TMEM_COLUMNS * CELL_BITS // unit), np.uint8)
    cells[place] = codes[:, :, None]
    return np.moveaxis(cells[place], 2, 0)


def _metadata_read(product: Tcgen05Product, nibbles: Matrix) -> list[Matrix]:
    """The nibbles (row, group) as the instructions find them in tensor memory, one K step after the other: every copy."""
    layout = product.layout("metadata", 2 * product.k)
    group = 2 if product.data_type.smem_bits == 32 else 4 * _PIECE[product.data_type.smem_bits]
    # an element's first bit in the nibble; pairs of 4 bits share it
    shift = (4 * np.arange(group) // group).astype(np.uint8)
    codes = nibbles[..., None] >> shift & (1 << layout.element_bits) - 1
    steps = codes.reshape(len(nibbles), -1, 2 * product.k, 1)
    # (copies, rows, K steps, elements of a step, their byte)
    read = np.stack([_through_tensor_memory(steps[:, step], layout) for step in range(steps.shape[1])], axis=2)
    return [np.bitwise_or.reduce(copy.reshape(codes.shape) << shift, axis=-1) for copy in read]


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
    read, word_columns = np.empty((*placed.shape, layout.blocks), np.uint8), layout.columns_per_word(operand, **where)
    for step in layout.steps(product.k, operand, **where):
        for number, block in enumerate(step.scales):
            further, byte = divmod(step.scale_id + number, 4)  # those of k = 96 run on into the next word
            column = first_column + step.column + further * word_columns
            read[..., block] = cells[lane, column * 4 + byte]
    assert (read == read[:, :1]).all()  # every quarter reads its own
    values = read[:, 0].copy().view(DataType.named("ue8m0" if row.scale_type == "ue8m0" else "e4m3").numpy)
    return np.repeat(values.astype(np.float64), row.block * (1 + product.sparse), axis=1)


def _lane_masks(disabled: Any, ctas: int) -> Matrix:
    """Which lanes of the blocks are not written, (blocks, lanes): bit 0 of the first 32-bit mask is lane 0 of the first block."""
    count = ctas * TMEM_LANES // 32
    words = (0,) * count if disabled is None else integers("disable_output_lane", disabled)
    if len(words) != count or not all(0 <= word < 1 << 32 for word in words):
        limit = f"{count} masks of 32 bits, one for each quarter of each block"
        whole = tuple(word & (1 << 32) - 1 for word in (*words, *(0,) * count)[:count])
        fix = f"Use disable_output_lane={whole}."
        raise MMA_LANES.error("disable_output_lane", f"masks {printed(disabled)}", limit, fix, masks=words)
    return (np.array(words)[:, None] >> np.arange(32) & 1).astype(np.bool_).reshape(ctas, TMEM_LANES)


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
