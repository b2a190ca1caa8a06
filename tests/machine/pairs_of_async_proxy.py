"""Pairs of kernels about asynchronous copies and proxies: joined to the table of pairs."""

import numpy as np
from pair_arrays import Case, map_to_copy, passed_on, product_of_rows, same_words, stored_box, thread_numbers
from pair_findings import COPY_WAIT, CP_ASYNC, MAP_FENCE, PROXY_FENCE, RACE, UNWRITTEN, Finding
from pair_kernels import Pairs

ARRAY_END = Finding(frozenset({"run-array-end"}), "note")
PEER = Finding(frozenset({"run-tmem-peer"}), "warning")


def product_of_tiles(random: np.random.Generator) -> Case:
    """The same product, of operands that tensor copies bring under swizzle 128B."""
    case = product_of_rows(random)
    a, b, out = case.args
    return case._replace(
        args=[
            lambda memory: memory.map(a, (64, 64), swizzle="128B"),
            lambda memory: memory.map(b, (64, 8), swizzle="128B"),
            out,
        ]
    )


def sums_of_rows(random: np.random.Generator) -> Case:
    """128 rows of four words, and the sum of each."""
    source = random.integers(0, 2**32, (128, 4), np.uint32)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source.sum(1, dtype=np.uint32))


PAIRS: tuple[Pairs, ...] = (
    Pairs(
        "fenced_by_reader",
        passed_on,
        {
            "no-fence": PROXY_FENCE,
            "before-the-flag": PROXY_FENCE,
            "other-thread": PROXY_FENCE,
            "shared-only": PROXY_FENCE,
            "no-flag": RACE | PROXY_FENCE,
            "relaxed-flag": RACE,
        },
        grid=2,
    ),
    Pairs(
        "stored_then_loaded",
        passed_on,
        {"source-only": RACE | COPY_WAIT, "all-but-one": RACE | COPY_WAIT, "no-flag": RACE | COPY_WAIT},
        grid=2,
    ),
    Pairs(
        "stored_and_reloaded",
        stored_box,
        {"source-only": RACE | COPY_WAIT, "no-wait": RACE | COPY_WAIT, "other-thread": RACE | COPY_WAIT},
    ),
    Pairs(
        "map_copied_at_once",
        map_to_copy,
        {"no-acquire": MAP_FENCE, "plain-copy": RACE, "no-syncwarp": RACE, "plain-store": RACE},
        block=32,
    ),
    Pairs(
        "store_by_warp",
        stored_box,
        {
            "two-sources": RACE,
            "two-places": RACE,
            "no-fence": PROXY_FENCE,
            "no-barrier": RACE | PROXY_FENCE,
            "refilled": RACE,
        },
    ),
    Pairs(
        "alloc_of_pair",
        thread_numbers,
        {"no-barrier": PEER, "bar-sync": PEER, "wait-too-late": PEER},
        grid=2,
        cluster=2,
    ),
    Pairs("alloc_after_arrival", thread_numbers, {"between": PEER}, grid=2, cluster=2),
    Pairs(
        "copied_then_stored",
        same_words,
        {
            "no-fence": PROXY_FENCE,
            "before-the-wait": PROXY_FENCE,
            "global-only": PROXY_FENCE,
            "no-wait": CP_ASYNC,
            "no-barrier": CP_ASYNC | PROXY_FENCE | RACE,
        },
    ),
    Pairs("box_half_written", stored_box, {"half": UNWRITTEN, "one-word": UNWRITTEN, "halves-of-words": UNWRITTEN}),
    Pairs("wgmma_past_array", product_of_rows, {"step-too-many": ARRAY_END, "wrong-start": ARRAY_END}),
    Pairs("wgmma_past_tile", product_of_tiles, {"step-too-many": ARRAY_END}),
    Pairs(
        "loads_past_array",
        sums_of_rows,
        {"too-many": ARRAY_END, "matrices-past": ARRAY_END, "before-the-start": ARRAY_END},
    ),
)
