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


def product(scale: float, start: float, rows: int = 64, tiles: int = 1) -> Callable[[np.random.Generator, ts.Memory], Case]:
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
    Pairs("expect_later", same_words, {"forgotten": EXPECTED_BYTES | COPY_WAIT}),
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
    Pairs(
        "stmatrix_store", stored_matrices, {"no-fence": PROXY_FENCE, "no-syncwarp": RACE | PROXY_FENCE}, block=32
    ),
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
    Pairs(
        "wgmma_fence_after_barrier", product(1, 1), {"no-fence": PROXY_FENCE, "fence-of-warp-0": PROXY_FENCE}
    ),
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
)
