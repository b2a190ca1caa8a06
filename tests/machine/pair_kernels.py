"""Right kernels, and the same with one mistake: what the findings of a run must tell apart.

A file of pairs/ is a kernel and its mistakes. A line belongs to the right kernel and to every wrong one, unless it says otherwise:

    bar.sync 0;              // not in no-barrier          the mistake no-barrier leaves this line out
    mov.u32 parity, 0;       // only in parity-stuck       the mistake parity-stuck has this line

A reason may follow behind a colon. Lines left out stay as empty lines, so that a finding's PTX line is the line of the file.

The table below says how each kernel is launched, what it must leave in memory, and which rules a mistake may be told as:
one of them, where several are fair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tilescope as ts

FOLDER = Path(__file__).parent / "pairs"
SEEDS = (None, 0, 1, 2)

_MARK = re.compile(r"//\s*(?P<kind>not|only) in (?P<mistakes>[a-z0-9-]+(?:, [a-z0-9-]+)*)(?::|\s*$)")


class Case(NamedTuple):
    """The arguments of a launch, and the array that holds the result, with what it must hold."""

    args: list
    out: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True, slots=True)
class Pairs:
    """A right kernel with its mistakes: each breaks one of the named rules."""

    name: str
    make: Callable[[np.random.Generator, ts.Memory], Case]
    mistakes: Mapping[str, frozenset[str]]
    block: int = 128
    grid: int = 1
    cluster: int | None = None

    @property
    def text(self) -> str:
        """The file: the right kernel and all that is wrong."""
        return (FOLDER / f"{self.name}.ptx").read_text()


def mistakes_of(text: str) -> set[str]:
    """The mistakes that a file marks."""
    return {name for line in text.splitlines() if (mark := _MARK.search(line)) for name in mark["mistakes"].split(", ")}


def variant(text: str, mistake: str | None = None) -> str:
    """The right kernel of a file, or the one with a mistake."""
    return "\n".join(line if _belongs(line, mistake) else "" for line in text.splitlines()) + "\n"


def _belongs(line: str, mistake: str | None) -> bool:
    mark = _MARK.search(line)
    if mark is None:
        return True
    is_named = mistake in mark["mistakes"].split(", ")
    return is_named if mark["kind"] == "only" else not is_named


def run(pairs: Pairs, kernel: ts.Kernel, seed: int | None) -> tuple[ts.KernelRun, Case]:
    """Run a kernel of the table with numbers from a seed."""
    memory = ts.Memory()
    case = pairs.make(np.random.default_rng(17 if seed is None else seed), memory)
    result = kernel.run(
        pairs.grid, pairs.block, case.args, memory=memory, cluster=pairs.cluster, seed=seed, max_steps=200_000
    )
    return result, case


# Rules -----------------------------------------------------------------------------------------------------------------

RACE = frozenset({"run-race"})
PROXY_FENCE = frozenset({"run-proxy-fence"})
COPY_WAIT = frozenset({"run-copy-wait"})
REFILL = frozenset({"run-refill"})
ACCUMULATORS = frozenset({"run-accumulators"})
STORE_SOURCE = frozenset({"run-store-source"})
CP_ASYNC = frozenset({"run-cp-async"})
BARRIER_INIT = frozenset({"run-barrier-init"})
MAP_FENCE = frozenset({"run-map-fence"})
BLOCK_END = frozenset({"run-block-end"})
EXPECTED_BYTES = frozenset({"run-expected-bytes"})
HANG = frozenset({"run-hang"})
ARRIVALS = frozenset({"run-launch-failure"})  # more than an mbarrier has room for
UNWRITTEN = frozenset({"run-unwritten"})

# Arrays ----------------------------------------------------------------------------------------------------------------


def words(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Random 32-bit words."""
    return random.integers(0, 2**32, shape, np.uint32)


def mapped_words(rows: int) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """A map over rows of 32 words with boxes of 4 rows; the result is the sum of all boxes, one word a thread."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, rows, 32)
        out = np.zeros(128, np.uint32)
        return Case([memory.map(source, (32, 4)), out], out, source.reshape(-1, 128).sum(0, dtype=np.uint32))

    return make


def same_words(random: np.random.Generator, memory: ts.Memory) -> Case:
    """128 words that come out as they went in."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source)


def sum_of_two(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Two arrays of 128 words and their sums."""
    a, b = words(random, 2, 128)
    out = np.zeros(128, np.uint32)
    return Case([a, b, out], out, a + b)


def thread_numbers(random: np.random.Generator, memory: ts.Memory) -> Case:
    out = np.zeros(128, np.uint32)
    return Case([words(random, 128), out], out, np.arange(128, dtype=np.uint32))


def image_column(random: np.random.Generator, memory: ts.Memory) -> Case:
    """16 pixels of an image of 6 x 8 pixels with 8 channels: its first two rows."""
    image = words(random, 1, 6, 8, 8)
    column = ts.Im2colMap(
        data_type="u32",
        dims=(8, 8, 6, 1),
        strides_bytes=(32, 256, 1536),
        lower_corner=(0, 0),
        upper_corner=(0, 0),
        channels_per_pixel=8,
        pixels_per_column=16,
        address=memory.place(image),
    )
    out = np.zeros(128, np.uint32)
    return Case([column, out], out, image.reshape(-1)[:128])


def first_half(random: np.random.Generator, memory: ts.Memory) -> Case:
    """64 words, and zeros behind them."""
    source = words(random, 64)
    out = np.ones(128, np.uint32)
    return Case([source, out], out, np.concatenate([source, np.zeros(64, np.uint32)]))


def stored_box(random: np.random.Generator, memory: ts.Memory) -> Case:
    """A map over 4 x 32 words that receive the array behind it."""
    source = words(random, 128)
    out = np.zeros((4, 32), np.uint32)
    return Case([memory.map(out, (32, 4)), source], out, source.reshape(4, 32))


def same_tiles(count: int) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """Tiles of 128 words that come out as they went in."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, count, 128)
        out = np.zeros((count, 128), np.uint32)
        return Case([source, out], out, source)

    return make


def added_twice(random: np.random.Generator, memory: ts.Memory) -> Case:
    """128 words to which 128 others and the numbers of the threads are added."""
    source = words(random, 128)
    out = words(random, 128)
    return Case([source, out], out, out + source + np.arange(128, dtype=np.uint32))


def passed_on(random: np.random.Generator, memory: ts.Memory) -> Case:
    """128 words that go from one block to another through an array, with a flag."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, np.zeros(128, np.uint32), np.zeros(1, np.uint32), out], out, source)


def stored_matrices(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Four matrices of 8 x 8 halves: lane i holds two neighbours of row i / 4 of each of them; rows are stored one by one."""
    held = words(random, 32, 4)
    out = np.zeros(128, np.uint32)
    return Case([held, out], out, held.T.reshape(4, 8, 4).reshape(128))


def small_halves(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Small integers, whose products and sums are exact."""
    return random.integers(-4, 5, shape).astype(np.float16)


def core_matrices(matrix: np.ndarray) -> np.ndarray:
    """Rows of 16 halves as wgmma reads them without a swizzle: 8 x 8 matrices, the two of 8 rows side by side."""
    return np.ascontiguousarray(matrix.reshape(-1, 8, 2, 8).swapaxes(1, 2)).reshape(-1)


def product(
    scale: float, start: float, rows: int = 64, tiles: int = 1
) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """start + scale * A B for an A of rows x 16; B is the sum of tiles of 16 x 8."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        a = small_halves(random, rows, 16)
        b = small_halves(random, tiles, 8, 16)
        out = np.zeros((rows, 8), np.float32)
        expected = start + scale * (a.astype(np.float32) @ b.astype(np.float32).sum(0).T)
        return Case([core_matrices(a), core_matrices(b), out], out, expected)

    return make


def product_of_registers(random: np.random.Generator, memory: ts.Memory) -> Case:
    """(A1 + A2) B; both A lie row by row."""
    a = small_halves(random, 2, 64, 16)
    b = small_halves(random, 8, 16)
    out = np.zeros((64, 8), np.float32)
    return Case([a, core_matrices(b), out], out, a.astype(np.float32).sum(0) @ b.astype(np.float32).T)


def chained(random: np.random.Generator, memory: ts.Memory) -> Case:
    """2 A B - A B; the first of every thread's four numbers is doubled in between: 4 A B - A B."""
    case = product(1, 0)(random, memory)
    expected = case.expected.copy()
    expected[np.arange(64)[:, None], [0, 2, 4, 6]] *= np.where(np.arange(64)[:, None] % 16 < 8, 3, 1)
    return case._replace(expected=expected)


def moved_words(order: np.ndarray, width: int = 1) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """Words, `width` a thread, that come out in another order of the threads."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, len(order), width)
        out = np.zeros_like(source)
        return Case([source, out], out, source[order])

    return make


def summed_tiles(tiles: int, order: np.ndarray) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """The sum of tiles of one word a thread, in another order of the threads."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, tiles, len(order))
        out = np.zeros(len(order), np.uint32)
        return Case([source, out], out, source.sum(0, dtype=np.uint32)[order])

    return make


def product_over_k(tiles: int) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """A B for 64 x 16 * tiles and 16 * tiles x 8, tile after tile in memory."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        a = small_halves(random, tiles, 64, 16)
        b = small_halves(random, tiles, 8, 16)
        out = np.zeros((64, 8), np.float32)
        expected = np.einsum("tmk,tnk->mn", a.astype(np.float32), b.astype(np.float32))
        return Case([core_matrices(a), core_matrices(b), out], out, expected)

    return make


IN_ORDER = np.arange(128)
MIRRORED = IN_ORDER[::-1]
SHIFTED = np.roll(IN_ORDER, -1)


def for_both_blocks(tiles: int) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """The sum of tiles of 128 words, in both blocks of a cluster."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, tiles, 128)
        out = np.zeros((2, 128), np.uint32)
        return Case([source, out], out, np.tile(source.sum(0, dtype=np.uint32), (2, 1)))

    return make


def exchanged(random: np.random.Generator, memory: ts.Memory) -> Case:
    """What two blocks hold, the other way round."""
    source = words(random, 2, 128)
    out = np.zeros((2, 128), np.uint32)
    return Case([source, out], out, source[::-1])


def exchanged_mirrored(random: np.random.Generator, memory: ts.Memory) -> Case:
    """What two blocks hold, the other way round, and so are the words of each."""
    case = exchanged(random, memory)
    return case._replace(expected=case.expected[:, ::-1])


def map_in_memory(random: np.random.Generator, memory: ts.Memory) -> Case:
    """A map in global memory, made for one array; the kernel makes it point at another."""
    one, other = words(random, 2, 4, 32)
    held = np.frombuffer(memory.map(one, (32, 4)).encode(), np.uint8).copy()
    out = np.zeros(128, np.uint32)
    return Case([held, other, out], out, other.reshape(-1))


def map_to_copy(random: np.random.Generator, memory: ts.Memory) -> Case:
    """A map as a parameter, room for its copy, and the array that the copy is to point at."""
    one, other = words(random, 2, 4, 32)
    out = np.zeros(128, np.uint32)
    return Case([memory.map(one, (32, 4)), np.zeros(128, np.uint8), other, out], out, other.reshape(-1))


def mirrored_sums(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Words changed with their mirror, added, changed again."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source + source[::-1])


def taken_turns(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Three rounds of two groups of 128 words, each mirrored."""
    source = words(random, 3, 2, 128)
    out = np.zeros_like(source)
    return Case([source, out], out, source[..., ::-1])


def one_sum(count: int, copies: int = 1) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """The sum of all words, as often as threads store it."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        source = words(random, count)
        out = np.zeros(copies, np.uint32)
        return Case([source, out], out, np.full(copies, source.sum(dtype=np.uint32)))

    return make


def counted_bins(random: np.random.Generator, memory: ts.Memory) -> Case:
    """How often each of 16 numbers occurs in the lower bits of 256 words."""
    source = words(random, 256)
    out = np.zeros(16, np.uint32)
    return Case([source, out], out, np.bincount(source & 15, minlength=16).astype(np.uint32))


def next_blocks_words(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Four blocks of 32 words; each gets those of the next one, through an array and a counter."""
    source = words(random, 4, 32)
    out = np.zeros((4, 32), np.uint32)
    return Case([source, np.zeros((4, 32), np.uint32), np.zeros(1, np.uint32), out], out, np.roll(source, -1, 0))


def added_in_turns(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Four tiles of 64 words, added up behind a semaphore."""
    source = words(random, 4, 64)
    out = np.zeros(64, np.uint32)
    return Case([source, np.zeros(1, np.uint32), out], out, source.sum(0, dtype=np.uint32))


def added_by_the_last(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Four tiles of 32 words, added up from an array of partial results, with a counter."""
    source = words(random, 4, 32)
    out = np.zeros(32, np.uint32)
    args = [source, np.zeros((4, 32), np.uint32), np.zeros(1, np.uint32), out]
    return Case(args, out, source.sum(0, dtype=np.uint32))


def sum_under_lock(random: np.random.Generator, memory: ts.Memory) -> Case:
    """One word of each of four blocks."""
    source = words(random, 4)
    out = np.zeros(1, np.uint32)
    return Case([source, np.zeros(1, np.uint32), out], out, source.sum(keepdims=True, dtype=np.uint32))


def handed_on(random: np.random.Generator, memory: ts.Memory) -> Case:
    """32 words, an array between, two flags."""
    source = words(random, 32)
    out = np.zeros(32, np.uint32)
    return Case([source, np.zeros(32, np.uint32), np.zeros(2, np.uint32), out], out, source)


def plus(number: int, order: np.ndarray) -> Callable[[np.random.Generator, ts.Memory], Case]:
    """Words in another order, and a number added."""

    def make(random: np.random.Generator, memory: ts.Memory) -> Case:
        case = moved_words(order)(random, memory)
        return case._replace(expected=case.expected + np.uint32(number))

    return make


def one_word(random: np.random.Generator, memory: ts.Memory) -> Case:
    source = words(random, 1)
    out = np.zeros(1, np.uint32)
    return Case([source, out], out, source)


def padded_mirror(random: np.random.Generator, memory: ts.Memory) -> Case:
    """100 times 16 bytes and 28 times zeros, the other way round."""
    source = words(random, 100, 4)
    out = np.ones((128, 4), np.uint32)
    return Case([source, out], out, np.concatenate([source, np.zeros((28, 4), np.uint32)])[::-1])


def own_slices(random: np.random.Generator, memory: ts.Memory) -> Case:
    """The two halves of 16 bytes change places."""
    source = words(random, 128, 4)
    out = np.zeros_like(source)
    return Case([source, out], out, source[:, [2, 3, 0, 1]])


def drawn_tiles(random: np.random.Generator, memory: ts.Memory) -> Case:
    """Six tiles of 64 words with their lowest bit changed, and the counter they are drawn from."""
    source = words(random, 6, 64)
    out = np.zeros_like(source)
    return Case([source, np.zeros(1, np.uint32), out], out, source ^ np.uint32(1))


# The table -------------------------------------------------------------------------------------------------------------

TABLE = (
    Pairs(
        "tma_load",
        mapped_words(4),
        {
            "no-wait": COPY_WAIT,
            "wait-once": COPY_WAIT,
            "one-waits": COPY_WAIT,
            "wrong-parity": COPY_WAIT | HANG,
            "wrong-barrier": COPY_WAIT,
            "no-expect": COPY_WAIT | EXPECTED_BYTES,
            "bytes-less": EXPECTED_BYTES | HANG,
            "bytes-more": EXPECTED_BYTES | HANG,
            "init-unseen": BARRIER_INIT,
        },
    ),
    Pairs("tma_one_waits", mapped_words(4), {"no-barrier": COPY_WAIT}),
    Pairs(
        "tma_reload",
        mapped_words(16),
        {"no-barrier": REFILL, "barrier-too-early": REFILL, "parity-stuck": COPY_WAIT},
    ),
    Pairs(
        "bulk_two_copies",
        sum_of_two,
        {"one-counted": EXPECTED_BYTES | COPY_WAIT | HANG, "no-wait": COPY_WAIT, "wait-once": COPY_WAIT},
    ),
    Pairs("expect_later", same_words, {"forgotten": EXPECTED_BYTES | COPY_WAIT | HANG}),
    Pairs("peek_then_wait", same_words, {"peek-only": COPY_WAIT}),
    Pairs("loads_beyond", mapped_words(20), {"beyond-k": BLOCK_END, "no-barrier": REFILL}),
    Pairs("nobody_waits", thread_numbers, {"no-wait": BLOCK_END}),
    Pairs("im2col_load", image_column, {"no-wait": COPY_WAIT, "bytes-more": EXPECTED_BYTES | HANG}),
    Pairs("zero_then_load", first_half, {"no-fence": PROXY_FENCE}),
    Pairs(
        "tma_store",
        stored_box,
        {
            "no-fence": PROXY_FENCE,
            "fence-of-one": PROXY_FENCE,
            "fence-too-late": PROXY_FENCE,
            "no-barrier": RACE | PROXY_FENCE,
            "no-commit": BLOCK_END,
            "no-wait": BLOCK_END,
            "wait-for-all-but-one": BLOCK_END,
        },
    ),
    Pairs("store_fence_by_issuer", stored_box, {"before-the-barrier": PROXY_FENCE}),
    Pairs(
        "store_source_reused",
        same_tiles(2),
        {
            "no-wait": STORE_SOURCE,
            "all-but-one": STORE_SOURCE,
            "wait-of-another": STORE_SOURCE,
            "no-commit": STORE_SOURCE,
            "no-barrier": STORE_SOURCE,
        },
    ),
    Pairs(
        "store_two_buffers",
        same_tiles(6),
        {
            "one-slot": STORE_SOURCE,
            "all-but-two": STORE_SOURCE,
            "no-barrier": STORE_SOURCE,
            "no-fence": PROXY_FENCE,
            "end-too-soon": BLOCK_END,
        },
    ),
    Pairs("store_reduced", added_twice, {"no-fence": PROXY_FENCE, "no-wait": STORE_SOURCE}),
    Pairs("store_then_flag", passed_on, {"source-only": COPY_WAIT | RACE, "no-wait": COPY_WAIT | RACE}, grid=2),
    Pairs("stmatrix_store", stored_matrices, {"no-fence": PROXY_FENCE, "no-syncwarp": RACE | PROXY_FENCE}, block=32),
    Pairs(
        "wgmma_stores",
        product(1, 1),
        {
            "no-fence": PROXY_FENCE,
            "no-barrier": RACE | PROXY_FENCE,
            "no-wgmma-fence": ACCUMULATORS,
            "no-commit": ACCUMULATORS,
            "no-wait": ACCUMULATORS,
            "all-but-one": ACCUMULATORS,
            "wait-too-late": ACCUMULATORS,
        },
    ),
    Pairs("wgmma_fence_after_barrier", product(1, 1), {"no-fence": PROXY_FENCE, "fence-of-warp-0": PROXY_FENCE}),
    Pairs(
        "wgmma_registers",
        product_of_registers,
        {
            "no-fence": ACCUMULATORS,
            "fence-too-early": ACCUMULATORS,
            "overwritten": ACCUMULATORS,
            "no-second-fence": ACCUMULATORS,
        },
    ),
    Pairs(
        "wgmma_rescaled",
        product(3, 0),
        {
            "no-wait": COPY_WAIT,
            "one-warp-waits": COPY_WAIT,
            "scaled-too-early": ACCUMULATORS,
            "no-fence-after-scaling": ACCUMULATORS,
        },
    ),
    Pairs("wgmma_chain", chained, {"wrong-accumulator": ACCUMULATORS}),
    Pairs(
        "wgmma_two_groups",
        product(1, 0, rows=128, tiles=3),
        {
            "no-wait": REFILL | RACE,
            "all-but-one": REFILL | RACE,
            "no-barrier": REFILL | RACE,
            "own-group-only": REFILL | RACE,
        },
        block=256,
    ),
    Pairs(
        "cp_async",
        moved_words(SHIFTED, 4),
        {
            "no-wait": CP_ASYNC,
            "all-but-one": CP_ASYNC,
            "no-commit": CP_ASYNC,
            "no-barrier": CP_ASYNC,
            "only-own-warp": CP_ASYNC,
            "wait-after-barrier": CP_ASYNC,
        },
    ),
    Pairs("cp_async_own", moved_words(IN_ORDER, 4), {"no-wait": CP_ASYNC}),
    Pairs(
        "cp_async_stages",
        summed_tiles(5, MIRRORED),
        {"all-but-two": CP_ASYNC, "no-barrier": CP_ASYNC, "no-second-barrier": CP_ASYNC | REFILL | RACE},
    ),
    Pairs(
        "cp_async_mbarrier",
        moved_words(MIRRORED),
        {
            "plain-arrival": CP_ASYNC,
            "no-arrival": HANG,
            "counted-twice": HANG,
            "init-unseen": BARRIER_INIT,
        },
    ),
    Pairs("cp_async_inc", moved_words(MIRRORED), {"no-arrival": CP_ASYNC, "no-own-arrival": HANG}),
    Pairs("cp_async_wgmma", product(1, 0), {"no-wait": CP_ASYNC, "no-barrier": CP_ASYNC}),
    Pairs(
        "ring_wgmma",
        product_over_k(6),
        {
            "init-unseen": BARRIER_INIT,
            "full-count-two": HANG,
            "empty-count-two": HANG,
            "empty-parity": HANG,
            "no-empty-wait": REFILL | ARRIVALS,
            "empty-wait-once": REFILL | ARRIVALS,
            "one-slot-for-b": REFILL | RACE | COPY_WAIT,
            "only-a-counted": EXPECTED_BYTES | COPY_WAIT | HANG,
            "bytes-more": EXPECTED_BYTES | HANG,
            "full-parity": COPY_WAIT | HANG,
            "wrong-slot": COPY_WAIT | HANG,
            "no-full-wait": COPY_WAIT,
            "full-wait-once": COPY_WAIT,
            "release-too-early": REFILL,
            "all-but-one": REFILL,
            "no-release": HANG,
        },
        block=160,
    ),
    Pairs(
        "ring_late_release",
        product_over_k(9),
        {
            "all-but-two": REFILL,
            "newest-slot": REFILL,
            "phase-kept": COPY_WAIT | HANG,
            "phase-kept-by-loader": REFILL | HANG | ARRIVALS,
            "last-wait-missing": ACCUMULATORS,
        },
        block=160,
    ),
    Pairs(
        "ring_readers",
        summed_tiles(6, np.arange(64)),
        {
            "count-one": REFILL | HANG,
            "count-three": HANG,
            "leader-waits": COPY_WAIT,
            "no-syncwarp": REFILL,
            "release-before-read": REFILL,
        },
        block=96,
    ),
    Pairs(
        "ring_writers",
        summed_tiles(6, np.arange(32)[::-1]),
        {
            "init-unseen": BARRIER_INIT,
            "no-empty-wait": RACE | REFILL | HANG,
            "no-full-wait": RACE | HANG,
            "arrive-before-write": RACE,
            "relaxed": RACE,
            "release-before-read": RACE | REFILL,
            "no-release": HANG,
        },
        block=64,
    ),
    Pairs("mbarrier_token", moved_words(MIRRORED), {"no-wait": RACE, "wait-once": RACE, "count-half": RACE | HANG}),
    Pairs(
        "multicast",
        for_both_blocks(1),
        {
            "no-init-fence": BARRIER_INIT,
            "init-unseen": BARRIER_INIT,
            "receiver-expects-none": EXPECTED_BYTES | COPY_WAIT | HANG,
            "receiver-silent": EXPECTED_BYTES | HANG,
            "mask-of-one": EXPECTED_BYTES | HANG,
            "receiver-leaves": BLOCK_END,
            "receiver-reads-at-once": COPY_WAIT,
        },
        grid=2,
        cluster=2,
    ),
    Pairs(
        "multicast_ring",
        for_both_blocks(4),
        {
            "no-init-fence": BARRIER_INIT,
            "own-release-only": REFILL | HANG,
            "no-empty-wait": REFILL | HANG,
            "no-barrier": REFILL,
            "peer-gone": BLOCK_END,
        },
        grid=2,
        cluster=2,
    ),
    Pairs(
        "remote_reads",
        exchanged,
        {
            "no-cluster-barrier": RACE,
            "block-barrier": RACE,
            "relaxed": RACE,
            "leaves-too-soon": BLOCK_END,
        },
        grid=2,
        cluster=2,
    ),
    Pairs("remote_relaxed_fenced", exchanged, {"no-fence": RACE}, grid=2, cluster=2),
    Pairs(
        "remote_push",
        exchanged,
        {
            "bytes-less": EXPECTED_BYTES | HANG,
            "bytes-more": EXPECTED_BYTES | HANG,
            "expects-none": EXPECTED_BYTES | COPY_WAIT,
            "init-unseen": BARRIER_INIT,
            "no-wait": COPY_WAIT,
            "wait-once": COPY_WAIT,
        },
        grid=2,
        cluster=2,
    ),
    Pairs(
        "remote_stores",
        exchanged_mirrored,
        {
            "arrive-before-store": RACE,
            "relaxed": RACE,
            "own-barrier": RACE,
            "no-wait": RACE,
            "waits-relaxed": RACE,
        },
        grid=2,
        cluster=2,
    ),
    Pairs(
        "remote_bulk",
        exchanged,
        {"no-fence": PROXY_FENCE, "no-wait": COPY_WAIT, "leaves-too-soon": BLOCK_END},
        grid=2,
        cluster=2,
    ),
    Pairs("map_edited", map_in_memory, {"no-release": MAP_FENCE, "no-acquire": MAP_FENCE, "no-fences": MAP_FENCE}),
    Pairs(
        "map_copied",
        map_to_copy,
        {"no-acquire": MAP_FENCE, "plain-copy": MAP_FENCE, "no-syncwarp": RACE},
        block=32,
    ),
    Pairs(
        "sync_mirror",
        mirrored_sums,
        {"no-first-barrier": RACE, "no-second-barrier": RACE, "no-third-barrier": RACE},
    ),
    Pairs(
        "shuffle_is_no_barrier",
        moved_words(np.arange(32)[::-1]),
        {"nothing": RACE, "shuffle": RACE, "half-mask": RACE},
        block=32,
    ),
    Pairs(
        "named_barriers",
        moved_words(np.arange(128) ^ 63),
        {"by-parity": RACE, "count-32": RACE, "count-128": HANG},
    ),
    Pairs(
        "arrive_and_sync",
        summed_tiles(4, np.arange(32)[::-1]),
        {
            "writer-does-not-wait": RACE | HANG,
            "both-one-number": RACE | HANG,
            "arrive-before-write": RACE,
            "reader-only-arrives": RACE | HANG,
            "never-read": HANG,
        },
        block=64,
    ),
    Pairs(
        "ping_pong",
        taken_turns,
        {
            "nobody-begins": HANG,
            "no-turns": RACE | HANG,
            "own-again": HANG | RACE,
            "group-does-not-meet": RACE,
            "let-go-too-early": RACE,
        },
        block=256,
    ),
    Pairs(
        "tree_sum",
        one_sum(128),
        {"no-first-barrier": RACE, "no-barrier-in-loop": RACE, "last-warp-alone": RACE},
    ),
    Pairs("warp_sums", one_sum(128, 128), {"no-first-barrier": RACE, "no-second-barrier": RACE}),
    Pairs(
        "shared_counts",
        counted_bins,
        {
            "bins-not-cleared": UNWRITTEN,
            "no-barrier-after-zeros": RACE,
            "plain-in-shared": RACE,
            "no-barrier-before-sum": RACE,
            "plain-in-global": RACE,
        },
        grid=2,
    ),
    Pairs("tail_not_cleared", one_sum(100), {"tail-left": UNWRITTEN}),
    Pairs(
        "flag_release",
        passed_on,
        {
            "no-barrier": RACE,
            "relaxed-store": RACE,
            "weak-store": RACE,
            "block-scope": RACE,
            "red-relaxed": RACE,
            "relaxed-load": RACE,
            "volatile-load": RACE,
            "reader-block-scope": RACE,
            "no-wait": RACE,
        },
        grid=2,
    ),
    Pairs(
        "flag_fences",
        passed_on,
        {"no-writer-fence": RACE, "writer-block-scope": RACE, "no-reader-fence": RACE},
        grid=2,
    ),
    Pairs(
        "flag_membar",
        passed_on,
        {
            "no-writer-membar": RACE,
            "membar-cta": RACE,
            "no-writer-barrier": RACE,
            "no-reader-membar": RACE,
            "no-reader-barrier": RACE,
        },
        grid=2,
    ),
    Pairs("flag_counted", passed_on, {"relaxed": RACE, "red-acquires-nothing": RACE}, grid=2),
    Pairs(
        "shared_flag",
        moved_words(np.arange(32)),
        {"no-syncwarp": RACE, "relaxed-store": RACE, "relaxed-load": RACE},
        block=64,
    ),
    Pairs(
        "grid_barrier",
        next_blocks_words,
        {
            "no-barrier-before": RACE,
            "relaxed-arrival": RACE,
            "relaxed-spin": RACE,
            "three-of-four": RACE,
            "no-spin": RACE,
            "no-barrier-after": RACE,
        },
        grid=4,
        block=32,
    ),
    Pairs(
        "split_k_turns",
        added_in_turns,
        {
            "relaxed-wait": RACE,
            "no-wait": RACE,
            "no-barrier-before": RACE,
            "no-barrier-after": RACE,
            "relaxed-pass": RACE,
        },
        grid=4,
        block=64,
    ),
    Pairs(
        "last_block_sums",
        added_by_the_last,
        {
            "no-fence-before": RACE,
            "fence-after-only": RACE,
            "no-barrier-before": RACE,
            "no-fence-after": RACE,
            "no-barrier-after": RACE,
        },
        grid=4,
        block=32,
    ),
    Pairs(
        "spin_lock",
        sum_under_lock,
        {"relaxed-take": RACE, "relaxed-give": RACE, "plain-give": RACE, "given-back-too-early": RACE},
        grid=4,
        block=32,
    ),
    Pairs("passed_along", handed_on, {"relaxed-hand-on": RACE}, grid=3, block=32),
    Pairs("barrier_reused_as_data", plus(7, IN_ORDER), {"others-still-wait": RACE | BARRIER_INIT}),
    Pairs("store_of_loaded", same_words, {"no-wait": COPY_WAIT}),
    Pairs("drawn_tickets", drawn_tiles, {"no-barrier": RACE, "no-second-barrier": RACE}, grid=2, block=64),
    Pairs("leaves_early", moved_words(np.arange(64)[::-1]), {"no-barrier": RACE, "count-of-all": HANG}, block=96),
    # Kernels that look wrong, and are right.
    Pairs("same_value", one_word, {}),
    Pairs("redundant_barriers", moved_words(MIRRORED), {}),
    Pairs("relaxed_counter", one_sum(384), {}, grid=3),
    Pairs("warp_synchronous", one_sum(32, 32), {}, block=32),
    Pairs("neighbouring_bytes", moved_words(np.arange(32)), {}),
    Pairs("own_slices", own_slices, {}),
    Pairs("vote_as_barrier", plus(64, MIRRORED), {}),
    Pairs("elected_thread", same_words, {}),
    Pairs("waits_twice", same_words, {}),
    Pairs("two_stores_one_group", same_words, {}),
    Pairs("filled_with_zeros", padded_mirror, {}),
    Pairs("prefetched", same_words, {}),
)
