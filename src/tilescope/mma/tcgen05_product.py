"""How a product is cut into tcgen05.mma instructions, and which block of a pair or of a cluster holds what.

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import by, printed
from tilescope.mma.consumer import Tcgen05Loop, Tcgen05PairLoop, Tcgen05WsLoop
from tilescope.mma.scale_layout import ScaleFormat
from tilescope.mma.tcgen05_kind import MMA_GROUP, TCGEN05, WIDE_K, Documented, blackwell_rule, in_steps, tcgen05_for
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.reading import is_one_of, pair, plain_int
from tilescope.value import Value

_PRODUCT = 'ts.emulate_mma(np.eye({n}), np.eye({n}), data_type="{type}", consumer="tcgen05", {more})'
_CLUSTER = {"n": 256, "type": "bf16", "more": "cta_group=2, cluster={}"}
_SCALED = 'scale_kind="mxfp8", a_scales=np.ones((128, {}), np.uint8), b_scales=np.ones((128, 4), np.uint8)'
PAIR_CLUSTER = blackwell_rule(
    "pair-cluster", "A cluster of pairs has an even number of blocks in x, and at most 16.", "tcgen05: CTA Pair",
    _PRODUCT.format(**_CLUSTER).format("(2, 1)"), _PRODUCT.format(**_CLUSTER).format("(1, 2)"),
)  # fmt: skip
MMA_SCALES = blackwell_rule(
    "mma-scales", "A block-scaled product has a kind, and one scale byte for each block of both operands.", "tcgen05.mma: Block scaling",
    _PRODUCT.format(n=128, type="e4m3", more=_SCALED.format(4)), _PRODUCT.format(n=128, type="e4m3", more=_SCALED.format(3)),
)  # fmt: skip
_MAX_CLUSTER = 16  # bits of a multicast mask
_SPARSE_ROWS = 128  # of a block: for fewer no document says where the metadata lies


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
    # k = 96: PTX's table has a pair with m 256 alone; CUTLASS issues these shapes, with n in steps of 16.
    known_n = [extent for extent in forms[written].n if step != WIDE_K or extent % 16 == 0]
    known_m = [extent for extent in forms[written].m if not sparse or extent == _SPARSE_ROWS * cta_group]
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
    group, take = int(cta_group), int(step)
    return Tcgen05Product(data_type, fits_m[-1], fits_n[-1], group, take, ws, sparse, a_in_tensor_memory)


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
