"""Pairs of kernels about divergent barriers, warps and shuffles: joined to the table of pairs."""

import numpy as np
from pair_arrays import MIRRORED, Case, moved_words, one_sum, words
from pair_findings import RACE, Finding
from pair_kernels import Pairs

CONVERGENCE = Finding(frozenset({"run-convergence"}))
SKIPPED = Finding(frozenset({"run-skipped-barrier"}), "warning")
MASK = Finding(frozenset({"run-warp-mask"}))
UNDEFINED = Finding(frozenset({"run-undefined-lane"}))


def early_returned(random: np.random.Generator) -> Case:
    """128 words, mirrored by the first 100 threads; the others store 7."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, np.where(np.arange(128) < 100, source[::-1], 7).astype(np.uint32))


def first_word(random: np.random.Generator) -> Case:
    """32 words, of which everybody gets the first."""
    source = words(random, 32)
    out = np.zeros(32, np.uint32)
    return Case([source, out], out, np.full(32, source[0]))


def sum_of_half(random: np.random.Generator) -> Case:
    """32 words; the sum of the first 16 is stored by the first thread."""
    source = words(random, 32)
    out = np.zeros(32, np.uint32)
    expected = np.zeros(32, np.uint32)
    expected[0] = source[:16].sum(dtype=np.uint32)
    return Case([source, out], out, expected)


def upper_half_added(random: np.random.Generator) -> Case:
    """48 words; the upper half of the first warp is added to its lower half."""
    source = words(random, 48)
    out = np.zeros(48, np.uint32)
    expected = source.copy()
    expected[:16] += source[16:32]
    return Case([source, out], out, expected)


PAIRS: tuple[Pairs, ...] = (
    Pairs(
        "barrier_in_branch",
        moved_words(MIRRORED),
        {
            "odd-threads": CONVERGENCE,
            "half-warp": CONVERGENCE,
            "red": CONVERGENCE,
            "aligned": CONVERGENCE,
            "both-sides": CONVERGENCE,
            "predicated": CONVERGENCE,
        },
    ),
    Pairs("barrier_in_loop", moved_words(MIRRORED), {"own-trips": CONVERGENCE, "leaves": CONVERGENCE}),
    Pairs("barrier_rounds", moved_words(MIRRORED), {"own-round": CONVERGENCE}),
    Pairs("early_return", early_returned, {"goes-round": CONVERGENCE, "returned-lanes": CONVERGENCE}),
    Pairs(
        "part_of_warp_multiplies",
        moved_words(MIRRORED),
        {"load": CONVERGENCE, "product": CONVERGENCE, "registers": CONVERGENCE},
    ),
    Pairs(
        "warps_skip_barrier",
        moved_words(MIRRORED),
        {"no-count": SKIPPED, "no-count-and-more": SKIPPED, "twice": SKIPPED},
    ),
    Pairs("warp_roles", moved_words(MIRRORED), {}),
    Pairs("unaligned_barrier", moved_words(MIRRORED), {"aligned": CONVERGENCE}),
    Pairs("cluster_barrier_in_branch", moved_words(MIRRORED), {"aligned": CONVERGENCE}),
    Pairs(
        "warp_tree",
        one_sum(32, 32),
        {"never": RACE, "one-missing": RACE, "vote-between": RACE, "after-load": RACE},
        block=32,
    ),
    Pairs("lane_flag", first_word, {"once": RACE, "no-fence": RACE}, block=32),
    Pairs(
        "shuffle_tree",
        sum_of_half,
        {
            "too-far": UNDEFINED,
            "all-store": UNDEFINED,
            "in-address": UNDEFINED,
            "in-branch": UNDEFINED,
            "all-lanes": MASK,
        },
        block=32,
    ),
    Pairs("shuffle_short_warp", upper_half_added, {"unguarded": UNDEFINED, "guard-of-branch": UNDEFINED}, block=48),
    Pairs(
        "votes_of_masks",
        moved_words(np.arange(128)),
        {"vote": MASK, "match": MASK, "redux": MASK, "shuffle": MASK, "names-all": MASK, "shuffle-names-all": MASK},
    ),
)
