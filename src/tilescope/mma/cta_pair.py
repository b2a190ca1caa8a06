"""Which block of a cluster holds what in products by pairs (cta_group::2), and to whom copies and commits are multicast.

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

from collections.abc import Iterable
from dataclasses import dataclass

from tilescope.errors import printed
from tilescope.mma.tcgen05_kind import TCGEN05, Documented, blackwell_rule
from tilescope.reading import entries, is_one_of, plain_int
from tilescope.value import Value

_CLUSTER = 'ts.emulate_mma(np.eye(256), np.eye(256), data_type="bf16", consumer="tcgen05", cta_group=2, cluster={})'
PAIR_CLUSTER = blackwell_rule(
    "pair-cluster", "A cluster of pairs has an even number of blocks in x, and at most 16.", "tcgen05: CTA Pair",
    _CLUSTER.format("(2, 1)"), _CLUSTER.format("(1, 2)"),
)  # fmt: skip
_MAX_CLUSTER = 16  # bits of a multicast mask


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
    """What each block of a cluster of (x, y) blocks holds, by rank; m and n are those of one pair's instruction."""
    shape: list[int] = [each for each in map(plain_int, entries(cluster, 3) or ()) if isinstance(each, int)]
    if len(shape) != 2 or min(shape) < 1 or shape[0] % 2 or shape[0] * shape[1] > _MAX_CLUSTER:
        limit = f"a cluster of pairs is an even number of blocks by some more, at most {_MAX_CLUSTER} together"
        raise PAIR_CLUSTER.error("cluster", printed(cluster), limit, "Use (2, 1) or (4, 2), for example.")
    if not is_one_of(m, (128, 256)) or not is_one_of(n, range(16, 257, 16)):
        found, limit = f"m {printed(m)}, n {printed(n)}", "a pair has m 128 or 256 and n 16 to 256 in steps of 16"
        raise TCGEN05["shape"].error("m, n", found, limit, "Use such a pair.")
    wide, high = shape

    def mask(blocks: Iterable[tuple[int, int]]) -> int:
        return sum(1 << (x + wide * y) for x, y in set(blocks))

    shares = []
    for y in range(high):
        for x in range(wide):
            pair, half = divmod(x, 2)
            rows = pair * m + half * m // 2, pair * m + (half + 1) * m // 2
            columns = y * n + half * n // 2, y * n + (half + 1) * n // 2
            same_rows = [(x, other) for other in range(high)]
            same_columns = [(other, y) for other in range(half, wide, 2)]
            both = [(2 * pair + peer, other) for peer in (0, 1) for other in range(high)]
            waiting = [*both, *((other, y) for other in range(wide))]
            shares.append(PairShare(
                x + wide * y, half == 0, rows, columns, rows, (y * n, (y + 1) * n), mask(same_rows), mask(same_columns), mask(waiting),
            ))  # fmt: skip
    return tuple(shares)
