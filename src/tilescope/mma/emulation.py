"""A matrix product as the chip computes it: TMA, swizzled shared memory, tensor core, with every byte at its address.

    A (m, k)  ──┐  global memory ── TMA boxes ──▶ shared memory ─┬─ ldmatrix ──▶ fragments ──▶ mma      ─┐
    B (k, n)  ──┘  K-major or MN-major           canonical atoms └─ descriptors, K step by K step: wgmma, ├─▶ D (m, n)
                                                                    tcgen05                              ─┘

Sums are those of the chip, bit for bit, one instruction after the other along k (see accumulation.py). How the operands come to
shared memory and are read from it is in operand_path.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from tilescope.arch import ArchName, architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.accumulation import k_loop_sum, summed_once
from tilescope.mma.consumer import CONSUMER, ConsumerName
from tilescope.mma.element_matrix import element_matrix
from tilescope.mma.former_mma_arguments import FormerArguments, OperandArguments, replace_former
from tilescope.mma.mma_instruction import K_STEP_BYTES, SPARSE_INSTRUCTIONS, Instruction, wgmma_for
from tilescope.mma.operand_path import MMA_SHAPE, MMA_TYPE, Matrix, OperandPath, mma_with_k
from tilescope.mma.pair_shares import pair_shares, pairs_of
from tilescope.mma.product_scales import Scales, Scaling, read_scaling
from tilescope.mma.sparse_sum import sparse_sum
from tilescope.mma.sparsity import compress_rows, expand_rows, group_elements
from tilescope.mma.tcgen05_kind import MMA_GROUP, tcgen05_for
from tilescope.mma.tcgen05_product import Tcgen05Product, tcgen05_product
from tilescope.mma.tensor_core_arithmetic import Arithmetic, arithmetic_of
from tilescope.reading import as_array, flag, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_RANGE
from tilescope.sentence import by, format_value
from tilescope.swizzle import SwizzleName

Of = TypeVar("Of", SwizzleName, Major, Layout | None)
SPARSE_BLOCKS = MMA_SHAPE.worded(
    argument="a",
    found="a sparse A of {m} x {k}",
    limit="{instruction} takes {instruction_k} elements of k",
    fix="Pad k with zeros to {whole_k}.",
)
SPARSE_MMA_TYPE = MMA_TYPE.worded(limit="{instruction} multiplies {known:, }", fix="Use {sparse:=False}.")
TCGEN05_ALONE = MMA_GROUP.worded(
    argument="consumer",
    found="{consumer} with {options:, }",
    limit="only tcgen05 has that",
    fix='Use {consumer:="tcgen05"}.',
)


def emulate_mma(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    data_type: Any = None,
    consumer: ConsumerName = "wgmma",
    major: Major | tuple[Major, Major] = "K",
    swizzle: SwizzleName | tuple[SwizzleName, SwizzleName] = "128B",
    atom_order: AtomOrder = "column",
    smem_address: int = 0,
    layout: Layout | tuple[Layout | None, Layout | None] | None = None,
    c: npt.ArrayLike | None = None,
    cta_group: int = 1,
    cluster: tuple[int, int] | None = None,
    ws: bool = False,
    sparse: bool = False,
    a_in_tensor_memory: bool = False,
    instruction_k: int | None = None,
    scales: Scales | None = None,
    disable_output_lane: tuple[int, ...] | None = None,
    arch: ArchName | None = None,
    exact_sum: bool = False,
    **former: Unpack[FormerArguments],
) -> Matrix:
    """The product D = A B of an (m, k) and a (k, n) matrix, loaded by TMA and read by `consumer`.

    D is float32, or int32 for integers. `c` is its initial value. Without `data_type` the type is that of `a`. A path that the
    hardware does not have raises RuleError with the reasons: the type lacks that majorness, or the tile is not a whole number
    of atoms.

    Shared memory: both operands are stored from `smem_address` on, A first, in atoms of `swizzle` in `atom_order`; `major` is
    their contiguous dimension. A `layout` replaces these four: a `Layout` of the (mn, k) elements that one block holds. If it
    is not made of a tensor core's atoms, threads store the tile instead of TMA. `major`, `swizzle` and `layout` are one value
    for both operands, or a pair; in a pair, a layout of None keeps the atoms.

    tcgen05 only: D is accumulated in tensor memory and loaded from there; lanes masked by `disable_output_lane` keep `c`. With
    `cta_group=2`, A and B are the tiles of a CTA pair: each block loads half of A's rows and half of B's columns. In a `cluster`
    of (x, y) blocks, shared parts are multicast (see pair_shares.py). `ws` selects the .ws instructions, `instruction_k=96` the
    4-bit instructions of sm_103a. `scales` is a triple: the format (mxfp8, mxfp4 or nvfp4), the scale factors of A (m, blocks)
    and those of B (n, blocks), one byte each.

    `sparse` selects mma.sp, wgmma.sp or tcgen05.mma.sp. Pass `a` with its zeros; it is compressed here (see compression.py). A
    layout of A is then that of the compressed half.

    Sums are those of `arch`, bit for bit: measured for sm_90, taken from papers for the others. Ask
    `tilescope.mma.tensor_core_arithmetic.arithmetic_of(arch, "wgmma", "bf16").basis` for one instruction. The default is sm_90,
    sm_100 for tcgen05, and sm_120 for the narrow types that only its mma multiplies. With `exact_sum`, all of k is added in
    double precision instead (integers in 64 bits), and rounded once.

    >>> a = np.arange(64 * 64).reshape(64, 64) % 7 - 3.0
    >>> b = np.arange(64 * 32).reshape(64, 32) % 5 - 2.0
    >>> d = emulate_mma(a, b, data_type="bf16", major=("K", "MN"), swizzle="64B", smem_address=0x480)
    >>> bool((d == a @ b).all())
    True
    >>> tile = Layout((64, 64), 16, swizzle="128B", start=0x400)
    >>> bool((emulate_mma(a, b, data_type="bf16", layout=(tile, None)) == d).all())
    True
    >>> sparse = np.where(np.arange(64) % 4 < 2, a, 0)
    >>> bool((emulate_mma(sparse, b, data_type="bf16", sparse=True, swizzle="64B") == sparse @ b).all())
    True
    >>> ones = np.full((128, 4), 127, np.uint8)  # 2 ** 0 in ue8m0
    >>> a, b = np.eye(128), np.arange(128 * 64).reshape(128, 64) % 5
    >>> d = emulate_mma(a, b, data_type="e4m3", consumer="tcgen05", scales=("mxfp8", ones + 1, ones[:64]))
    >>> bool((d == 2 * b).all())
    True
    """
    core = CONSUMER[known_name("consumer", consumer, CONSUMER)]
    if former:
        major, layout, scales = replace_former(OperandArguments(major, layout, scales), former)
    exact_sum = flag("exact_sum", exact_sum)
    row = DataType.named(as_array("a", a).dtype if data_type is None else data_type)
    left = element_matrix("a", a, row)
    right = element_matrix("b", b, row).T
    m, k = left.shape
    n, b_rows = right.shape
    if k != b_rows:
        raise MMA_SHAPE.error(a=(m, k), b=(b_rows, n), k=k)
    ws = flag("ws", ws)
    sparse = flag("sparse", sparse)
    a_in_tensor_memory = flag("a_in_tensor_memory", a_in_tensor_memory)
    initial = _initial(c, (m, n), row)
    path = OperandPath(
        row=row,
        consumer=core,
        majors=_of_both(major),
        swizzles=_of_both(swizzle),
        atom_order=atom_order,
        smem_address=smem_address,
        layouts=_of_both(layout),
    )
    if core.accumulators == "registers":
        requested = {
            "ws": ws,
            "a_in_tensor_memory": a_in_tensor_memory,
            "scales": scales is not None,
            "disable_output_lane": disable_output_lane is not None,
            "cluster": cluster is not None,
            "instruction_k": instruction_k is not None,
            f"cta_group = {format_value(cta_group)}": not is_one_of(cta_group, (1,)),
        }
        options = tuple(name for name, is_asked in requested.items() if is_asked)
        if options:
            raise TCGEN05_ALONE.error(consumer=consumer, options=options, cta_group=plain_int(cta_group))
        if sparse:
            return _sparse_in_registers(path, (left, right), initial, arch, exact_sum=exact_sum)
        a_read, b_read = path.read([left], [right])[0]
        if exact_sum:
            return summed_once(a_read, b_read, initial, row)
        return _summed_in_registers(path, (a_read, b_read), initial, arch)
    scaling = read_scaling(scales, (m, n, k), sparse=sparse)
    parts_m, parts_n = (1, 1) if cluster is None else pairs_of(cluster, cta_group, (m, n))
    product = tcgen05_product(
        (m // parts_m, n // parts_n, k),
        row,
        None if scaling is None else scaling.format,
        cta_group=cta_group,
        ws=ws,
        sparse=sparse,
        a_in_tensor_memory=a_in_tensor_memory,
        instruction_k=instruction_k,
        exact=cluster is not None,
    )
    if not exact_sum:
        product = replace(product, arithmetic=_tcgen05_arithmetic(arch, row, scaling))
    shares = () if cluster is None else pair_shares(cluster, product.m, product.n)
    path = path._replace(product=product, shares=shares)
    operands = _of_every_block(path, product, left, right)
    if not shares:
        return product.multiplied(operands, scaling, initial, disable_output_lane)
    d = np.empty_like(initial)
    leaders = [share for share in shares if share.is_leader]
    for leader in leaders:  # each pair multiplies its part of D
        rows = slice(leader.d_rows[0], leader.d_rows[0] + product.m)
        columns = slice(*leader.d_columns)
        own_scaling = None if scaling is None else scaling.part(rows, columns)
        own_operands = operands[leader.rank : leader.rank + 2]
        d[rows, columns] = product.multiplied(own_operands, own_scaling, initial[rows, columns], disable_output_lane)
    return d


def _of_both(value: Of | tuple[Of, Of]) -> tuple[Of, Of]:
    """The values of A and of B: a pair, or one for both."""
    if isinstance(value, tuple) and len(value) == 2:
        return value
    return value, value


def _summed_in_registers(
    path: OperandPath, operands: tuple[Matrix, Matrix], initial: Matrix, arch: ArchName | None
) -> Matrix:
    """D of mma or wgmma, of A (m, k) and B (n, k) as they were read: 32 bytes of k an instruction."""
    row = path.row
    instruction_k = K_STEP_BYTES * 8 // row.smem_bits
    if path.consumer.name == "wgmma":
        instruction = wgmma_for(row).name
        feature = path.consumer.feature
    else:
        mma = mma_with_k(row, instruction_k)[0]
        instruction = mma.name
        feature = mma.feature
    arithmetic = arithmetic_of(_own_arch(feature) if arch is None else arch, instruction, row)
    a_read, b_read = operands
    return k_loop_sum(a_read, b_read, initial, instruction_k, arithmetic=arithmetic, data_type=row)


def _sparse_in_registers(
    path: OperandPath, operands: tuple[Matrix, Matrix], initial: Matrix, arch: ArchName | None, *, exact_sum: bool
) -> Matrix:
    """D of mma.sp or wgmma.sp: half of A (m, k) is loaded and read, and an instruction takes 64 bytes of B (n, k)."""
    row = path.row
    left, right = operands
    m, k = left.shape
    instruction = _sparse_row(path)
    instruction_k = instruction.k
    if k % instruction_k:
        whole_k = rounded_up(k, instruction_k)
        raise SPARSE_BLOCKS.error(m=m, k=k, instruction=instruction.name, instruction_k=instruction_k, whole_k=whole_k)
    stored, nibbles = compress_rows(left, row)
    a_read, b_read = path.read([stored], [right])[0]
    if exact_sum:
        return summed_once(expand_rows(a_read, nibbles, row), b_read, initial, row)
    own_arch = _own_arch(instruction.feature) if arch is None else arch
    arithmetic = arithmetic_of(own_arch, instruction.name, row)
    d = initial
    for step in range(k // instruction_k):
        d = sparse_sum(
            _k_step(a_read, step, instruction.a_k),
            _k_step(b_read, step, instruction_k),
            d,
            _k_step(nibbles, step, instruction_k // group_elements(row)),
            arithmetic=arithmetic,
            a_type=row,
        )
    return d


def _k_step(matrix: Matrix, step: int, extent: int) -> Matrix:
    """What one of several instructions takes along k."""
    return matrix[:, step * extent : (step + 1) * extent]


def _sparse_row(path: OperandPath) -> Instruction:
    """The mma.sp or wgmma.sp of the type that takes 64 bytes of B along k."""
    family = "wgmma.sp" if path.consumer.name == "wgmma" else "mma.sp"
    rows = [row for row in SPARSE_INSTRUCTIONS if row.family == family]
    fitting = [row for row in rows if path.row.name in row.types]
    if fitting:
        return max(fitting, key=lambda row: row.k)
    type_names = tuple(dict.fromkeys(name for row in rows for name in row.types))
    raise SPARSE_MMA_TYPE.error(data_type=path.row.name, major=path.majors[0], instruction=family, known=type_names)


def _own_arch(feature: str) -> str:
    """The architecture whose sums are meant where none is named: sm_90, which was measured, or the first that can."""
    architectures = architectures_with(feature)
    return "sm_90" if "sm_90" in architectures else architectures[0]


def _tcgen05_arithmetic(arch: ArchName | None, row: DataType, scaling: Scaling | None) -> Arithmetic:
    """How tcgen05.mma accumulates products of the type, in the kind that its scale factors need."""
    kind = tcgen05_for(row) if scaling is None else scaling.format.kind_row
    return arithmetic_of(_own_arch("tcgen05") if arch is None else arch, f"tcgen05.{kind.name}", row)


def _of_every_block(
    path: OperandPath, product: Tcgen05Product, left: Matrix, right: Matrix
) -> list[tuple[Matrix, Matrix, Matrix]]:
    """The operands of tcgen05 from each block: A and B as loaded and read, and the metadata of a sparse A."""
    stored, metadata = compress_rows(left, path.row) if product.sparse else (left, left[:, :0])
    if path.shares:
        rows = [np.arange(*share.a_rows) for share in path.shares]
        columns = [np.arange(*share.b_columns) for share in path.shares]
    else:
        blocks = range(product.cta_group)
        rows = [product.share(cta, len(left), product.m) for cta in blocks]
        columns = [product.share(cta, len(right), product.n) for cta in blocks]
    read = path.read([stored[row] for row in rows], [right[column] for column in columns])
    return [(a, b, metadata[row]) for (a, b), row in zip(read, rows, strict=True)]


def _initial(c: npt.ArrayLike | None, shape: tuple[int, int], row: DataType) -> Matrix:
    """What D held before: zeros, or C."""
    dtype = np.float32 if row.is_float else np.int32
    if c is None:
        return np.zeros(shape, dtype)
    before = as_array("c", c)
    if before.shape != shape or before.dtype.kind not in "iuf":
        raise ARGUMENT_RANGE.error(
            argument="c",
            found=f"an array of shape {before.shape}, {before.dtype}",
            limit=f"numbers, {by(shape)} as D",
            fix=f"Use np.zeros({shape}).",
            shape=before.shape,
            d=shape,
        )
    return before.astype(dtype)
