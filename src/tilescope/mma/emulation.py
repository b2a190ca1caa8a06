"""A matrix product as the chip makes it: TMA, swizzled shared memory, tensor core; every byte where it would lie.

    A (m, k)  ──┐  global memory ── TMA boxes ──▶ shared memory ─┬─ ldmatrix ──▶ fragments ──▶ mma      ─┐
    B (k, n)  ──┘  K-major or MN-major           canonical atoms └─ descriptors, K step by K step: wgmma, ├─▶ D (m, n)
                                                                    tcgen05                              ─┘

Numbers are summed exactly enough to compare: integers as such, floats in double precision, rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import by, printed
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.consumer import CONSUMER, ConsumerName
from tilescope.mma.fragment import as_array
from tilescope.mma.operand_path import MMA_SHAPE, OperandPath
from tilescope.mma.tcgen05_emulation import BlockOperands, Scaling, compressed, multiplied, scaling_of
from tilescope.mma.tcgen05_kind import MMA_GROUP
from tilescope.mma.tcgen05_product import pair_shares, pairs_of, tcgen05_product
from tilescope.reading import flag, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE
from tilescope.swizzle import SwizzleName

Matrix = npt.NDArray[Any]


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
    `atom_order`. `a_layout` and `b_layout`, a `Layout` of what one block holds as (mn, k), say all of that themselves; threads
    store a tile that is not made of a tensor core's atoms. Without `data_type` it is that of the arrays. D is float32, or
    int32 for integers; `c` is what it held before. What the path does not have (a majorness that the type lacks, a tile
    that is no whole number of atoms) is refused with its reasons.

    tcgen05 keeps D in tensor memory, from which it is loaded here; lanes that `disable_output_lane` masks keep `c`. With
    cta_group=2 each block of a pair brings half of A's rows and half of B's columns; in a `cluster` of (x, y) blocks what several
    of them hold is multicast (see tcgen05_product.py). `ws`, `sparse` and `instruction_k` choose the .ws and .sp instructions and
    the k = 96 of sm_103a; a sparse A is passed with its zeros. `scale_kind` is mxfp8, mxfp4 or nvfp4, with scale factors
    `a_scales` (m, blocks) and `b_scales` (n, blocks), a byte each.

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
    row = DataType.named(np.asarray(a).dtype if data_type is None else data_type)
    left, right = _elements("a", a, row), _elements("b", b, row)
    if left.shape[1] != right.shape[0]:
        found, limit = f"A is {by(left.shape)}, B is {by(right.shape)}", "A is m x k and B is k x n, with one k"
        fix = f"Use a B of {left.shape[1]} rows."
        raise MMA_SHAPE.error("a, b", found, limit, fix, a=left.shape, b=right.shape)
    (m, k), n = left.shape, right.shape[1]
    flags = {"ws": ws, "sparse": sparse, "a_in_tensor_memory": a_in_tensor_memory}
    flags = {name: flag(name, value) for name, value in flags.items()}
    initial = _initial(c, (m, n), row)
    path = OperandPath(row, core, (a_major, b_major), swizzle, atom_order, smem_address, (a_layout, b_layout))
    if core.accumulators == "registers":
        options = (scale_kind, a_scales, b_scales, disable_output_lane, cluster, instruction_k)
        asked = any(flags.values()) or any(option is not None for option in options)
        if asked or not is_one_of(cta_group, (1,)):
            found = f"{consumer} with scales, masked lanes, .ws, .sp or cta_group {printed(cta_group)}"
            limit = "pairs of blocks, tensor memory and its scale factors belong to tcgen05"
            fix = 'Use consumer="tcgen05".'
            raise MMA_GROUP.error("consumer", found, limit, fix, cta_group=plain_int(cta_group))
        one, other = path.read([left], [right.T])[0]
        wide = np.float64 if row.is_float else np.int64
        with np.errstate(over="ignore", invalid="ignore"):
            d: Matrix = (one.astype(wide) @ other.astype(wide).T + initial).astype(initial.dtype)
        return d
    scaling = scaling_of(scale_kind, a_scales, b_scales, (m, n, k), sparse=flags["sparse"])
    pairs = (1, 1) if cluster is None else pairs_of(cluster, cta_group, (m, n))
    product = tcgen05_product(
        (m // pairs[0], n // pairs[1], k), row, None if scaling is None else scaling.format, cta_group=cta_group,
        instruction_k=instruction_k, exact=cluster is not None, **flags,
    )  # fmt: skip
    shares = () if cluster is None else pair_shares(cluster, product.m, product.n)
    path = path._replace(product=product, shares=shares)
    return _by_pairs(path, left, right.T, scaling, initial, disable_output_lane)


def _by_pairs(
    path: OperandPath, left: Matrix, right: Matrix, scaling: Scaling | None, initial: Matrix, disabled: Any
) -> Matrix:
    """D of tcgen05: what each block holds is brought and read, then each pair (or block) multiplies its part."""
    product = path.product
    assert product is not None
    stored, metadata = compressed(left, path.row) if product.sparse else (left, None)
    (m, n), blocks = initial.shape, range(product.cta_group)
    rows = [np.arange(*share.a_rows) for share in path.shares] or [product.rows_of(cta, m) for cta in blocks]
    columns = [np.arange(*share.b_columns) for share in path.shares] or [product.columns_of(cta, n) for cta in blocks]
    read = path.read([stored[row] for row in rows], [right[column] for column in columns])
    operands = [
        BlockOperands(a, b, None if metadata is None else metadata[held])
        for (a, b), held in zip(read, rows, strict=True)
    ]
    if not path.shares:
        return multiplied(product, operands, scaling, initial, disabled)
    d = np.empty_like(initial)
    for share in path.shares[::2]:
        part = slice(share.d_rows[0], share.d_rows[0] + product.m), slice(*share.d_columns)
        own = None if scaling is None else Scaling(scaling.format, scaling.a[part[0]], scaling.b[part[1]])
        d[part] = multiplied(product, operands[share.rank : share.rank + 2], own, initial[part], disabled)
    return d


def _initial(c: npt.ArrayLike | None, shape: tuple[int, int], row: DataType) -> Matrix:
    """What D held before: zeros, or C."""
    dtype = np.float32 if row.is_float else np.int32
    if c is None:
        return np.zeros(shape, dtype)
    before = as_array("c", c)
    if before.shape != shape or before.dtype.kind not in "iuf":
        found, limit = f"an array of shape {before.shape}, {before.dtype}", f"numbers, {by(shape)} as D"
        raise ARGUMENT_RANGE.error("c", found, limit, f"Use np.zeros({shape}).", shape=before.shape, d=shape)
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
