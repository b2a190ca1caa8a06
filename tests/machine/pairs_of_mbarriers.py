"""Pairs of kernels about mbarriers as bytes of shared memory, their phases and scopes: joined to the table of pairs."""

import numpy as np
from pair_arrays import MIRRORED, Case, exchanged_mirrored, moved_words, same_words, summed_tiles, words
from pair_findings import (
    ARRIVALS,
    BARRIER_INIT,
    BLOCK_END,
    COPY_WAIT,
    CP_ASYNC,
    HANG,
    RACE,
    STORE_SOURCE,
    Finding,
)
from pair_kernels import Pairs

BARRIER_LIFETIME = Finding(frozenset({"run-barrier-lifetime"}))
BARRIER_OVERWRITTEN = Finding(frozenset({"run-barrier-overwritten"}), "warning")
DEFAULT_SCOPE = Finding(frozenset({"run-default-scope"}), "warning")


def first_of_many(random: np.random.Generator) -> Case:
    """256 words, of which the first 128 come out."""
    source = words(random, 256)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source[:128])


def in_both_blocks(random: np.random.Generator) -> Case:
    """256 words that come out as they went in."""
    source = words(random, 256)
    out = np.zeros(256, np.uint32)
    return Case([source, out], out, source)


PAIRS: tuple[Pairs, ...] = (
    Pairs(
        "mbarrier_lifetime",
        moved_words(MIRRORED),
        {
            "init-by-all": BARRIER_LIFETIME,
            "no-inval": BARRIER_LIFETIME,
            "inval-too-early": RACE | BARRIER_INIT,
            "inval-twice": BARRIER_INIT,
            "test-after-inval": BARRIER_INIT,
            "no-second-init": BARRIER_INIT,
            "store-over": BARRIER_LIFETIME,
            "wide-store-over": BARRIER_LIFETIME,
            "atomic-over": BARRIER_LIFETIME,
            "store-at-the-end": BARRIER_OVERWRITTEN,
        },
    ),
    Pairs(
        "mbarrier_not_made",
        same_words,
        {
            "arrival": BARRIER_INIT,
            "bytes": BARRIER_INIT,
            "copy": BARRIER_INIT,
            "arrival-of-copies": BARRIER_INIT,
            "drop": BARRIER_INIT,
        },
    ),
    Pairs(
        "mbarrier_copied_over",
        first_of_many,
        {
            "bulk-over": BARRIER_LIFETIME,
            "too-long": BARRIER_LIFETIME,
            "cp-async-over": BARRIER_LIFETIME,
            "st-async-over": BARRIER_LIFETIME,
            "inval-unordered": RACE,
            "init-in-copy": COPY_WAIT,
            "init-in-cp-async": CP_ASYNC,
        },
    ),
    Pairs(
        "mbarrier_inval_pending",
        same_words,
        {
            "copy-pending": BARRIER_LIFETIME,
            "arrivals-of-copies-pending": BARRIER_LIFETIME,
            "others-arrive": RACE | BARRIER_INIT,
        },
    ),
    Pairs(
        "equal_values",
        same_words,
        {
            "store-into-bulk-copy": COPY_WAIT,
            "store-into-cp-async": CP_ASYNC,
            "store-into-source": STORE_SOURCE,
        },
    ),
    Pairs(
        "remote_scope",
        exchanged_mirrored,
        {
            "arrival-default": DEFAULT_SCOPE,
            "arrival-of-block": RACE,
            "wait-default": DEFAULT_SCOPE,
            "wait-of-block": RACE,
            "empty-default": DEFAULT_SCOPE,
            "empty-of-block": RACE,
        },
        grid=2,
        cluster=2,
    ),
    Pairs(
        "remote_arrivals_seen",
        in_both_blocks,
        {"ends-too-early": BLOCK_END, "ends-without-back": BLOCK_END | HANG},
        grid=2,
        cluster=2,
    ),
    Pairs("arrivals_seen_by_name", summed_tiles(4, np.arange(64)), {"not-seen": RACE}),
    Pairs(
        "noinc_beyond_count",
        moved_words(MIRRORED),
        {"bytes-missing": ARRIVALS, "no-wait-all": CP_ASYNC},
    ),
)
