"""Pairs of kernels about global memory, scopes, residency and unwritten bytes: joined to the table of pairs."""

import numpy as np
from pair_arrays import MIRRORED, Case, Maker, first_half, one_sum, passed_on, same_words, words
from pair_findings import HANG, RACE, UNWRITTEN, Finding
from pair_kernels import Pairs

NONCOHERENT = Finding(frozenset({"run-noncoherent-load"}))
NONCOHERENT_IN_PLACE = Finding(frozenset({"run-noncoherent-load"}), "warning")


def through_memory(random: np.random.Generator) -> Case:
    """128 words that come out mirrored, by way of an array that the kernel writes."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, np.zeros(128, np.uint32), out], out, source[MIRRORED])


def numbered(random: np.random.Generator) -> Case:
    """128 words to which the numbers of their threads are added in place."""
    out = words(random, 128)
    return Case([out], out, out + np.arange(128, dtype=np.uint32))


def numbered_by_lane(random: np.random.Generator) -> Case:
    """32 words to which the numbers of the lanes are added in place, and 32 more words."""
    out = words(random, 64)
    return Case([out], out, np.concatenate([out[:32] + np.arange(32, dtype=np.uint32), out[32:]]))


def raised_by_half(random: np.random.Generator) -> Case:
    """64 words to which 1 is added, and zeros behind them."""
    source = words(random, 64)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, np.concatenate([source + np.uint32(1), np.zeros(64, np.uint32)]))


def sum_by_blocks(blocks: int) -> Maker:
    """The sum of 32 words a block, by way of a word for each block."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, blocks * 32)
        out = np.zeros(1, np.uint32)
        return Case([source, np.zeros(blocks, np.uint32), out], out, source.sum(0, dtype=np.uint32, keepdims=True))

    return make


def block_numbers(blocks: int) -> Maker:
    """A word that counts turns, and the numbers of the blocks."""

    def make(_: np.random.Generator) -> Case:
        out = np.zeros(blocks, np.uint32)
        return Case([np.zeros(1, np.uint32), out], out, np.arange(blocks, dtype=np.uint32))

    return make


PAIRS: tuple[Pairs, ...] = (
    Pairs(
        "noncoherent_loads",
        through_memory,
        {"after-write": NONCOHERENT, "unordered": NONCOHERENT, "ldu": NONCOHERENT},
    ),
    Pairs("noncoherent_in_place", numbered, {"by-cache": NONCOHERENT_IN_PLACE}),
    Pairs(
        "block_scope_atomics",
        one_sum(128),
        {"red-cta": RACE, "atom-cta": RACE, "atom-cluster": RACE, "mixed": RACE},
        grid=4,
        block=32,
    ),
    Pairs("block_scope_own_words", sum_by_blocks(4), {"one-word": RACE}, grid=4, block=32),
    Pairs(
        "scopes_of_fences",
        passed_on,
        {
            "writer-cta": RACE,
            "writer-cluster": RACE,
            "writer-membar-cta": RACE,
            "flag-cta": RACE,
            "reader-cta": RACE,
            "reader-cluster": RACE,
            "reader-membar-cta": RACE,
        },
        grid=2,
    ),
    Pairs("scopes_in_cluster", passed_on, {"release-cta": RACE, "acquire-cta": RACE}, grid=2, cluster=2),
    Pairs(
        "looks_once",
        passed_on,
        {"relaxed-look": RACE, "volatile-look": RACE, "look-of-block": RACE, "relaxed-wait": RACE},
        grid=2,
    ),
    Pairs("looks_once_or_not", passed_on, {"relaxed": RACE, "no-barrier": RACE}, grid=2),
    Pairs("peek_path", same_words, {"relaxed-peek": Finding(frozenset({"run-copy-wait"}))}),
    Pairs(
        "unwritten_edge",
        first_half,
        {"copied-out": UNWRITTEN, "smallest": UNWRITTEN, "guards-a-branch": UNWRITTEN},
    ),
    Pairs("resident_chain", block_numbers(140), {"waits-for-all": HANG, "in-reverse": HANG}, grid=140, block=32),
    Pairs(
        "plain_in_block",
        through_memory,
        {"no-barrier": RACE, "only-a-fence": RACE, "only-the-warp": RACE, "overwritten": RACE},
    ),
    Pairs(
        "plain_sum",
        one_sum(96),
        {"plain": RACE, "volatile": RACE, "one-of-a-block": RACE},
        grid=3,
        block=32,
    ),
    Pairs(
        "unused_loads",
        numbered_by_lane,
        {"stored-by-all": RACE, "stored-elsewhere": RACE, "taken-for-branch": RACE},
    ),
    Pairs("redundant_lanes", raised_by_half, {"used": RACE}),
)
