"""Which block of a cluster of pairs holds which rows and columns of a product by tcgen05.mma, and whom copies and commits reach.

In a cluster of pairs (cta_group::2) copies and commits are multicast:

    cluster of 4 x 2 blocks, rank = x + 4 y                pair: ranks that differ in bit 0

              x = 0        1       │  2        3
    y = 0   ┌──────────────────────┼─────────────────┐     A: rows by x, the same for every y
            │ pair 0, n 0 .. N     │ pair 1          │     B: half x mod 2 of the columns of y, the same for every pair
    y = 1   │ pair 2, n N .. 2 N   │ pair 3          │     D: rows by x, all columns of y
            └──────────────────────┴─────────────────┘

Blocks that need the same part can share the work: each loads a piece of it and multicasts it to all. A stage may be
overwritten once every pair that its blocks write to has read theirs, so tcgen05.commit signals all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.mma.tcgen05_kind import BLACKWELL, Documented
from tilescope.reading import is_one_of, pair
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.tma.transfer import MAX_CLUSTER_BLOCKS
from tilescope.value import Value

PAIR_CLUSTER = rule(
    "pair-cluster",
    "A cluster of pairs has an even number of blocks in x, and at most 16.",
    argument="cluster",
    found="cluster {asked} with cta_group {asked_group} for {m} x {n} (m x n)",
    limit="a cluster has pairs (cta_group=2) along x, at most {most} blocks, and shares m and n evenly",
    fix="Use {cluster:=(2, 1)} with {cta_group:=2}.",
    source="PTX ISA, tcgen05: CTA Pair",
    architectures=BLACKWELL,
    passing=(
        'ts.emulate_mma(np.eye(256), np.eye(256), data_type="bf16", consumer="tcgen05", cta_group=2, cluster=(2, 1))'
    ),
    failing=(
        'ts.emulate_mma(np.eye(256), np.eye(256), data_type="bf16", consumer="tcgen05", cta_group=2, cluster=(1, 2))'
    ),
)


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
    shares = []
    for rank in range(wide * high):
        y, x = divmod(rank, wide)
        half = x % 2  # of the pair
        rows = (x * m // 2, (x + 1) * m // 2)
        first_column = y * n
        own_pair = ranks[:, x - half : x - half + 2]
        share = PairShare(
            rank=rank,
            is_leader=half == 0,
            a_rows=rows,
            b_columns=(first_column + half * n // 2, first_column + (half + 1) * n // 2),
            d_rows=rows,
            d_columns=(first_column, first_column + n),
            a_multicast=_mask(ranks[:, x]),
            b_multicast=_mask(ranks[y, half::2]),
            commit=_mask(own_pair) | _mask(ranks[y]),
        )
        shares.append(share)
    return tuple(shares)


def _mask(ranks: npt.NDArray[np.int64]) -> int:
    return int(np.bitwise_or.reduce(1 << ranks.ravel()))


def pairs_of(cluster: tuple[int, int], cta_group: int, shape: tuple[int, int]) -> tuple[int, int]:
    """How many parts of m and of n the pairs of a cluster multiply; m and n are whole multiples of them.

    >>> pairs_of((4, 2), 2, (512, 256))
    (2, 2)
    """
    wide, high = pair("cluster", cluster, 1)
    m, n = shape
    is_uneven = wide % 2 or m % (wide // 2) or n % high
    if is_uneven or wide * high > MAX_CLUSTER_BLOCKS or not is_one_of(cta_group, (2,)):
        raise PAIR_CLUSTER.error(
            cluster=(wide, high),
            m=m,
            n=n,
            asked=format_value(cluster),
            asked_group=format_value(cta_group),
            most=MAX_CLUSTER_BLOCKS,
        )
    return wide // 2, high
