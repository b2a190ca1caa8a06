"""A matrix product as the chip makes it: TMA, swizzled shared memory, tensor core; every byte where it would lie.

    A (m, k)  ──┐  global memory ── TMA boxes ──▶ shared memory ─┬─ ldmatrix ──▶ fragments ──▶ mma      ─┐
    B (k, n)  ──┘  K-major or MN-major           canonical atoms └─ descriptors, K step by K step: wgmma, ├─▶ D (m, n)
                                                                    tcgen05                              ─┘

Integers are summed exactly, floats in double precision and rounded once at the end: how the chip rounds is not claimed.

What is read comes back as a matrix of (mn, k) elements, so that a byte that went astray shows as a wrong element.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import ArchName
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.layout import AtomOrder, Layout, Major, major_named
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER, Consumer, ConsumerName
from tilescope.mma.descriptor_loop import SmemOperand, smem_tile
from tilescope.mma.fragment import array_where, as_array, fragment
from tilescope.mma.instruction import INSTRUCTIONS, K_STEP_BYTES
from tilescope.mma.ldmatrix import ldmatrix
from tilescope.mma.scale_packing import Scaling, scaling_of
from tilescope.mma.tcgen05_kind import MMA_GROUP
from tilescope.mma.tcgen05_product import PairShare, Tcgen05Product, compressed, pair_shares, pairs_of, tcgen05_product
from tilescope.reading import flag, integer, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, rule
from tilescope.sentence import by, printed
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES, SwizzleName
from tilescope.tensor_map import TensorMap
from tilescope.tma import load_multicast
from tilescope.tma.elements import packed, unpacked

_MAX_BOX_ROWS = 256
_MMA_M, _MMA_N = 16, 8
_PRODUCT = 'ts.emulate_mma(np.zeros({}), np.zeros({}), data_type={!r}, consumer="ldmatrix", {})'
MMA_SHAPE = rule(
    "mma-shape",
    "A is m x k and B is k x n, with one k, and both are whole numbers of the blocks that an instruction takes.",
    source="PTX ISA, mma: shapes",
    passing=_PRODUCT.format((16, 64), (64, 8), "bf16", ""),
    failing=_PRODUCT.format((16, 64), (32, 8), "bf16", ""),
)
MMA_TYPE = rule(
    "mma-type",
    "ldmatrix and mma multiply certain types, and MN-major those of 16 bits alone.",
    source="PTX ISA, mma and ldmatrix: types",
    passing=_PRODUCT.format((64, 64), (64, 8), "bf16", "a_major='MN'"),
    failing=_PRODUCT.format((128, 128), (128, 8), "e4m3", "a_major='MN'"),
)
Matrix = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


def emulate_mma(
    a: npt.ArrayLike, b: npt.ArrayLike, *, data_type: Any = None, consumer: ConsumerName = "wgmma", a_major: Major = "K",
    b_major: Major = "K", swizzle: SwizzleName | tuple[SwizzleName, SwizzleName] = "128B", atom_order: AtomOrder = "column",
    smem_address: int = 0, a_layout: Layout | None = None, b_layout: Layout | None = None, c: npt.ArrayLike | None = None,
    cta_group: int = 1, cluster: tuple[int, int] | None = None, ws: bool = False, sparse: bool = False,
    a_in_tensor_memory: bool = False, instruction_k: int | None = None, scale_kind: Any = None,
    a_scales: npt.ArrayLike | None = None, b_scales: npt.ArrayLike | None = None,
    disable_output_lane: tuple[int, ...] | None = None,
) -> Matrix:  # fmt: skip
    """The product D = A B of an (m, k) and a (k, n) matrix, brought by TMA and read by `consumer`.

    Both operands lie in shared memory from `smem_address` on, A first, in atoms of `swizzle` (one for both, or a pair) in
    `atom_order`. `a_layout` and `b_layout` replace all of that: a `Layout` of the (mn, k) elements that one block holds. If it is
    not made of a tensor core's atoms, threads store the tile. Without `data_type` the type is that of `a`. D is float32, or
    int32 for integers; `c` is what it held before. What the path does not have (a majorness that the type lacks, a tile
    that is no whole number of atoms) is refused with its reasons.

    tcgen05 keeps D in tensor memory, from which it is loaded here; lanes that `disable_output_lane` masks keep `c`. With
    cta_group=2 A and B are the pair's: each block brings half of A's rows and half of B's columns; in a `cluster` of (x, y)
    blocks what several of them hold is multicast (see tcgen05_product.py). `ws`, `sparse` and `instruction_k` choose the .ws and
    .sp instructions and the k = 96 of sm_103a; a sparse A is passed with its zeros. `scale_kind` is mxfp8, mxfp4 or nvfp4, with
    scale factors `a_scales` (m, blocks) and `b_scales` (n, blocks), a byte each.

    >>> a = np.arange(64 * 64).reshape(64, 64) % 7 - 3.0
    >>> b = np.arange(64 * 32).reshape(64, 32) % 5 - 2.0
    >>> d = emulate_mma(a, b, data_type="bf16", b_major="MN", swizzle="64B", smem_address=0x480)
    >>> bool((d == a @ b).all())
    True
    >>> tile = Layout((64, 64), 16, swizzle="128B", start=0x400)
    >>> bool((emulate_mma(a, b, data_type="bf16", a_layout=tile) == d).all())
    True
    >>> ones = np.full((128, 4), 127, np.uint8)  # 2 ** 0 in ue8m0
    >>> a, b = np.eye(128), np.arange(128 * 64).reshape(128, 64) % 5
    >>> d = emulate_mma(a, b, data_type="e4m3", consumer="tcgen05", scale_kind="mxfp8", a_scales=ones + 1, b_scales=ones[:64])
    >>> bool((d == 2 * b).all())
    True
    """
    core = CONSUMER[known_name("consumer", consumer, CONSUMER)]
    row = DataType.named(as_array("a", a).dtype if data_type is None else data_type)
    left, right = _elements("a", a, row), _elements("b", b, row).T
    (m, k), (n, b_rows) = left.shape, right.shape
    if k != b_rows:
        found, limit = f"A is {m} x {k}, B is {b_rows} x {n}", "A is m x k and B is k x n, with one k"
        raise MMA_SHAPE.error("a, b", found, limit, f"Use a B of {k} rows.", a=(m, k), b=(b_rows, n))
    asked = {"ws": ws, "sparse": sparse, "a_in_tensor_memory": a_in_tensor_memory}
    flags = {name: flag(name, value) for name, value in asked.items()}
    options = {
        "scale_kind": scale_kind, "a_scales": a_scales, "b_scales": b_scales, "disable_output_lane": disable_output_lane,
        "cluster": cluster, "instruction_k": instruction_k,
    }  # fmt: skip
    initial = _initial(c, (m, n), row)
    path = OperandPath(row, core, (a_major, b_major), swizzle, atom_order, smem_address, (a_layout, b_layout))
    if core.accumulators == "registers":
        only_tcgen05 = [name for name, held in flags.items() if held]
        only_tcgen05 += [name for name, option in options.items() if option is not None]
        only_tcgen05 += [] if is_one_of(cta_group, (1,)) else [f"cta_group={printed(cta_group)}"]
        if only_tcgen05:
            found, limit = f"{consumer} with {', '.join(only_tcgen05)}", "only tcgen05 has that"
            raise MMA_GROUP.error("consumer", found, limit, 'Use consumer="tcgen05".', cta_group=plain_int(cta_group))
        wide = np.float64 if row.is_float else np.int64
        a_read, b_read = (operand.astype(wide) for operand in path.read([left], [right])[0])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(a_read @ b_read.T + initial).astype(initial.dtype)
    scaling = scaling_of(scale_kind, a_scales, b_scales, (m, n, k), sparse=flags["sparse"])
    pairs = (1, 1) if cluster is None else pairs_of(cluster, cta_group, (m, n))
    product = tcgen05_product(
        (m // pairs[0], n // pairs[1], k), row, None if scaling is None else scaling.format, cta_group=cta_group,
        instruction_k=instruction_k, exact=cluster is not None, **flags,
    )  # fmt: skip
    shares = () if cluster is None else pair_shares(cluster, product.m, product.n)
    path = path._replace(product=product, shares=shares)
    return _by_pairs(path, product, left, right, scaling, initial, disable_output_lane)


def _by_pairs(
    path: OperandPath, product: Tcgen05Product, left: Matrix, right: Matrix, scaling: Scaling | None, initial: Matrix, disabled: Any
) -> Matrix:  # fmt: skip
    """D of tcgen05: what the blocks hold is brought and read, then every pair (or block) multiplies its part."""
    stored, metadata = compressed(left, path.row) if product.sparse else (left, left[:, :0])
    rows, columns = (
        [np.arange(*getattr(share, held)) for share in path.shares]
        or [product.share(cta, extent, step) for cta in range(product.cta_group)]
        for held, extent, step in (("a_rows", len(left), product.m), ("b_columns", len(right), product.n))
    )
    read = path.read([stored[row] for row in rows], [right[column] for column in columns])
    operands = [(a, b, metadata[held]) for (a, b), held in zip(read, rows, strict=True)]
    if not path.shares:
        return product.multiplied(operands, scaling, initial, disabled)
    d = np.empty_like(initial)
    for share in path.shares[::2]:
        part = slice(share.d_rows[0], share.d_rows[0] + product.m), slice(*share.d_columns)
        own = scaling and scaling.part(*part)
        d[part] = product.multiplied(operands[share.rank : share.rank + 2], own, initial[part], disabled)
    return d


def _initial(c: npt.ArrayLike | None, shape: tuple[int, int], row: DataType) -> Matrix:
    """What D held before: zeros, or C."""
    dtype = np.float32 if row.is_float else np.int32
    if c is None:
        return np.zeros(shape, dtype)
    limit, fix = f"numbers, {by(shape)} as D", f"Use np.zeros({shape})."
    before = array_where("c", c, lambda c: c.shape == shape and c.dtype.kind in "iuf", limit, fix, d=shape)
    return before.astype(dtype)


def _elements(name: str, operand: npt.ArrayLike, row: DataType) -> Matrix:
    """A matrix as elements of the type, rounded as numpy rounds; narrow ones in a byte each."""
    dtype, matrix = row.numpy, as_array(name, operand)
    try:
        elements = matrix if matrix.dtype == dtype else matrix.astype(dtype)
    except (TypeError, ValueError):
        shown = f"an array of {matrix.dtype}"
        raise ARGUMENT_TYPE.error(name, shown, f"numbers that {row.name} can hold", "Use an array of floats.") from None
    if elements.ndim != 2 or 0 in elements.shape:
        shown, limit = f"an array of shape {elements.shape}", "a matrix: two dimensions, neither empty"
        raise ARGUMENT_RANGE.error(name, shown, limit, "Use an array of shape (64, 64).", shape=elements.shape)
    return elements


class OperandPath(NamedTuple):
    """How operands come to shared memory and are read from it."""

    row: DataType
    consumer: Consumer
    majors: tuple[Major, Major]
    swizzle: Any
    atom_order: Any
    smem_address: Any
    layouts: tuple[Layout | None, Layout | None]
    product: Tcgen05Product | None = None
    shares: tuple[PairShare, ...] = ()  # of the blocks of a cluster

    def read(self, a: list[Matrix], b: list[Matrix]) -> list[tuple[Matrix, Matrix]]:
        """A (m, k) and B (n, k) of every block as its tensor core reads them."""
        swizzles = self.swizzle if isinstance(self.swizzle, tuple) and len(self.swizzle) == 2 else (self.swizzle,) * 2
        a_read, b_start = a, self.smem_address
        if self.product is None or not self.product.a_in_tensor_memory:
            a_tile = self._tile("A", a[0].shape, swizzles[0], self.smem_address)
            a_read = self._through_smem("A", a_tile, a, [share.a_multicast for share in self.shares])
            b_start = a_tile.start + rounded_up(a_tile.size_bytes, SMEM_LINE_BYTES)
        b_tile = self._tile("B", b[0].shape, swizzles[1], b_start)
        b_read = self._through_smem("B", b_tile, b, [share.b_multicast for share in self.shares])
        return list(zip(a_read, b_read, strict=True))

    def _tile(self, operand: SmemOperand, shape: tuple[int, ...], swizzle: Any, start: Any) -> Layout:
        """Where one block holds the operand: in its own layout, or in atoms from `start` on."""
        index = "AB".index(operand)
        layout: Any = self.layouts[index]
        (mn, k), row, name = shape, self.row, f"{operand.lower()}_layout"
        if layout is None:
            if rest := integer("smem_address", start, 0) % SMEM_LINE_BYTES:
                found, limit, below = f"smem_address = {start:#x}", "TMA writes to multiples of 128 bytes", start - rest
                change, told = {"smem_address": below}, {"smem_address": start}
                raise SMEM_ALIGNMENT.error("smem_address", found, limit, f"Use {below:#x}.", change, **told)
            canonical = canonical_layout(major_named(self.majors[index]), swizzle, row)
            return canonical.tile((mn, k), atom_order=self.atom_order, start=start)
        tile = smem_tile(name, layout)
        if tile.shape != shape or tile.element_bits != row.smem_bits:
            found = f"a layout of {by(tile.shape)} elements of {tile.element_bits} bits"
            group = 1 if self.product is None else self.product.cta_group
            holder = "one block of a pair" if group == 2 else "one block"
            limit = f"{holder} holds {by(shape)} (mn x k) of {row.name}, {row.smem_bits} bits"
            fix, values = f"Use Layout({shape}, {row.smem_bits}).", {"layout": tile.shape, "shape": shape}
            raise MMA_SHAPE.error(name, found, limit, fix, **values, element_bits=tile.element_bits)
        return tile

    def _through_smem(self, operand: SmemOperand, tile: Layout, parts: list[Matrix], masks: list[int]) -> list[Matrix]:
        """One operand of every block, brought and read; blocks of one mask hold the same, which is multicast to them."""
        smems = [np.zeros(tile.size_bytes + tile.alignment_bytes, np.uint8) for _ in parts]
        for mask in dict.fromkeys(masks or [1 << rank for rank in range(len(parts))]):
            ranks = [rank for rank in range(len(parts)) if mask >> rank & 1]
            _bring(tile, parts[ranks[0]], self.row, [smems[rank] for rank in ranks])
        loop, options = self.consumer.loop, {}
        if self.product is not None:
            loop, options = self.product.loop, {"k_step_bytes": self.product.k * self.row.smem_bits // 8}
        if loop is None:
            return [_read_fragments(self.consumer, operand, tile, self.row, smem) for smem in smems]
        address = loop(tile, operand, self.row, **options).addresses() - _smem_base(tile)
        return [_values(smem, address, self.row) for smem in smems]


def _smem_base(tile: Layout) -> int:
    """The line in which the tile begins: the first address of the emulated shared memory."""
    return tile.start // SMEM_LINE_BYTES * SMEM_LINE_BYTES


def _bring(layout: Layout, elements: Matrix, row: DataType, smems: list[Bytes]) -> None:
    """Copy an operand to the shared memory of some blocks, by TMA in boxes one atom wide and as high as a run of atoms.

    Threads store what TMA cannot: a tile that is not made of a tensor core's atoms.
    """
    base, tile = _smem_base(layout), layout.as_rows()
    if CanonicalLayout.of(layout) is None or tile.tiling is None:
        if row.bits < 8:
            limit = "elements below a byte lie in a tensor core's atoms"
            fix = 'Use swizzle="128B", and leave the layout out.'
            raise DESCRIPTOR_LAYOUT.error("layout", f"{layout!r}", limit, fix, element_bits=row.bits)
        place = (layout.addresses() - base)[..., None] + np.arange(row.bits // 8)
        for smem in smems:
            smem[place] = np.ascontiguousarray(elements)[..., None].view(np.uint8)
        return
    stored = np.ascontiguousarray(elements if layout.major == "K" else elements.T)
    memory = packed(stored, row.bits) if row.bits < 8 else stored
    (rows, columns), (atom_rows, width) = tile.shape, tile.tiling.atom
    run = rows if layout.atom_order == "column" else atom_rows
    height = max(extent for extent in range(atom_rows, min(run, _MAX_BOX_ROWS) + 1, atom_rows) if run % extent == 0)
    arch: ArchName = "sm_90" if row.bits >= 8 and layout.swizzle.feature == "tma" else "sm_100"
    dims, box, pitch = (columns, rows), (width, height), columns * row.bits // 8
    tensor_map = TensorMap(row.tma, dims, (pitch,), box, swizzle=layout.swizzle, arch=arch)
    for column, first in itertools.product(range(0, columns, width), range(0, rows, height)):
        address, everyone = tile.logical(first, column), (1 << len(smems)) - 1
        targets = [smem[address - base :] for smem in smems]
        load_multicast(tensor_map, memory, (column, first), targets, cta_mask=everyone, smem_address=address)


def _values(smem: Bytes, address: npt.NDArray[np.int64], row: DataType) -> Matrix:
    """The elements at these addresses."""
    if row.bits >= 8:
        element_bytes = row.bits // 8  # a tensor core's atoms keep elements aligned
        return np.asarray(smem.view(f"u{element_bytes}")[address // element_bytes]).view(row.numpy)
    # Narrow elements (K-major): sixteen of them in a piece, dense or padded to a byte.
    per_chunk = CHUNK_BYTES * 8 // row.smem_bits
    chunks = smem[address[:, ::per_chunk, None] + np.arange(CHUNK_BYTES * row.bits // row.smem_bits)]
    return unpacked(chunks, row.bits).reshape(len(address), -1).view(row.numpy)


def _read_fragments(consumer: Consumer, operand: SmemOperand, tile: Layout, row: DataType, smem: Bytes) -> Matrix:
    """What ldmatrix brings into the registers of mma, put together again as the fragments say."""
    block_mn, block_k = _MMA_M if operand == "A" else _MMA_N, K_STEP_BYTES * 8 // row.smem_bits
    held = fragment(_mma_for(consumer, row, tile, block_k), operand, row)
    mn, k = tile.shape
    if mn % block_mn or k % block_k:
        whole = rounded_up(mn, block_mn), rounded_up(k, block_k)
        found, limit = f"operand {operand} of {mn} x {k} (mn x k)", f"mma takes it in blocks of {block_mn} x {block_k}"
        values = {"mn": mn, "k": k, "block": (block_mn, block_k)}
        raise MMA_SHAPE.error(operand.lower(), found, limit, f"Pad it to {by(whole)}.", **values)
    transposed, matrices = tile.major == "MN", block_mn // 8 * 2
    matrix, line = np.divmod(np.arange(32) % (8 * matrices), 8)  # addresses of lanes beyond the rows are not used
    # Matrix j: the first or second 8 of mn, then the second half of k. Its rows run along k, or (.trans) along mn.
    first_mn, first_k = matrix % (block_mn // 8) * 8, matrix // (block_mn // 8) * (block_k // 2)
    lane_mn, lane_k = (first_mn, first_k + line) if transposed else (first_mn + line, first_k)
    blocks_mn, blocks_k = np.arange(0, mn, block_mn)[:, None, None], np.arange(0, k, block_k)[None, :, None]
    registers = ldmatrix(
        smem, tile.address(blocks_mn + lane_mn, blocks_k + lane_k), count=matrices, transpose=transposed,
        smem_address=_smem_base(tile), form="m8n8.b16" if row.bits == row.smem_bits else "m8n16.b6x16_p32",
    )  # fmt: skip
    codes, (_, place, column) = np.ascontiguousarray(registers).view(np.uint8), held.indices()
    codes = unpacked(codes, row.bits) if row.smem_bits < 8 else codes
    blocks = np.empty((*registers.shape[:2], *held.shape), row.numpy)
    blocks[..., place, column] = codes.view(row.numpy)
    blocks = blocks.swapaxes(-1, -2) if operand == "B" else blocks
    return blocks.swapaxes(1, 2).reshape(mn, k)


def _mma_for(consumer: Consumer, row: DataType, tile: Layout, block_k: int) -> str:
    """The mma whose k is 32 bytes of the type as it lies in shared memory."""
    major = tile.major or "K"
    canonical = CanonicalLayout.of(tile) or CanonicalLayout(major, "none", tile.element_bits)
    rows = [row for row in INSTRUCTIONS if (row.family, row.m, row.n) == ("mma", _MMA_M, (_MMA_N,))]
    own = (mma.name for mma in rows if mma.k == block_k and row.name in mma.types and consumer.reads(canonical, major))
    if (name := next(own, None)) is not None:
        return name
    types = [DataType.named(name) for name in dict.fromkeys(name for mma in rows for name in mma.types)]
    known = [known.name for known in types if known.numpy_name and known.smem_bits <= 32]
    limit = f"ldmatrix and mma multiply {', '.join(known)}; MN-major those of 16 bits alone"
    fix = "Use K-major operands." if row.name in known else "Use bfloat16."
    raise MMA_TYPE.error("data_type", f"{row.name}, {tile.major}-major", limit, fix, element_bits=row.smem_bits)
