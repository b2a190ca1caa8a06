"""Clusters of pairs: shares cover the product, multicast brings every block its part, commits reach every writer."""

import numpy as np
import pytest

from tilescope.errors import RuleError
from tilescope.mma.emulation import emulate_mma
from tilescope.mma.pair_shares import pair_shares

CLUSTERS = [(2, 1), (2, 2), (4, 1), (4, 2), (2, 4), (4, 4), (8, 2)]


def members(mask):
    return [rank for rank in range(16) if mask >> rank & 1]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(("m", "n"), [(128, 64), (256, 128)])
def test_a_cluster_multiplies_with_what_multicast_brings(cluster, m, n):
    """Each block brings a slice of its part and sends it to all that hold the same; the pair multiplies what arrived."""
    shares = pair_shares(cluster, m, n)
    rows, columns, k = cluster[0] // 2 * m, cluster[1] * n, 16
    random = np.random.default_rng(0)
    a, b = random.integers(-4, 5, (rows, k)), random.integers(-4, 5, (columns, k))
    held = [{"a": np.full((m // 2, k), 99), "b": np.full((n // 2, k), 99)} for _ in shares]
    for share in shares:
        for name, whole, (first, end), mask in (
            ("a", a, share.a_rows, share.a_multicast),
            ("b", b, share.b_columns, share.b_multicast),
        ):
            group = members(mask)
            assert share.rank in group
            pieces = np.array_split(np.arange(end - first), len(group))
            piece = pieces[group.index(share.rank)]
            for other in group:
                held[other][name][piece] = whole[first:end][piece]
    d = np.full((rows, columns), 99)
    for share in shares:
        leader = share.rank - share.rank % 2
        both = np.concatenate([held[leader]["b"], held[leader + 1]["b"]])
        d[slice(*share.d_rows), slice(*share.d_columns)] = held[share.rank]["a"] @ both.T
    assert (d == a @ b.T).all()


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_commit_reaches_everybody_who_writes_into_the_pair(cluster):
    shares = pair_shares(cluster, 256, 128)
    for share in shares:
        pair = {share.rank - share.rank % 2, share.rank - share.rank % 2 + 1}
        writers = {other.rank for other in shares if pair & {*members(other.a_multicast), *members(other.b_multicast)}}
        assert set(members(share.commit)) >= writers
    assert [share.is_leader for share in shares] == [rank % 2 == 0 for rank in range(len(shares))]


@pytest.mark.parametrize(
    ("cluster", "cta_group"), [((3, 1), 2), ((1, 2), 2), ((8, 4), 2), ((2, 3), 2), (2, 2), ((), 2), ((2, 1), 1)]
)
def test_what_is_no_cluster_of_pairs_is_refused(cluster, cta_group):
    """Three shares of n = 128 are not equal, 8 x 4 blocks have no multicast mask, and one block is no pair."""
    with pytest.raises(RuleError):
        emulate_mma(
            np.zeros((128, 32)),
            np.zeros((32, 128)),
            data_type="bf16",
            consumer="tcgen05",
            cta_group=cta_group,
            cluster=cluster,
        )


@pytest.mark.parametrize(("rank", "pair"), [(0, {0, 1}), (1, {0, 1}), (2, {2, 3}), (3, {2, 3})])
def test_a_commit_reaches_the_blocks_of_its_pair_and_of_its_row(rank, pair):
    """A pair's reads free slots of its own two blocks, in every row of the cluster, and of those that share its B."""
    share = pair_shares((4, 2), 256, 128)[rank]
    waiting = {block for block in range(8) if share.commit >> block & 1}
    assert waiting == {0, 1, 2, 3} | {4 + block for block in pair}
