"""Kernels of CUDA C++ that people write every day, right and with one mistake: each mistake is found, at its line, with every seed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from pair_findings import (
    BARRIER_INIT,
    BLOCK_END,
    COPY_OF_OTHERS,
    CP_ASYNC,
    EITHER_ORDER,
    EXPECTED_BYTES,
    HANG,
    PROXY_FENCE,
    RACE,
    STORE_SOURCE,
    UNWRITTEN,
    Finding,
)
from pairs_of_convergence import CONVERGENCE, MASK, SKIPPED, UNDEFINED
from pairs_of_memory import NONCOHERENT

import tilescope as ts
from tilescope.machine.report.run import KernelRun

SOURCE = Path(__file__).parent / "cuda_pairs.cu"
SEEDS = (None, 1, 2)
MAX_STEPS = 200_000
DEFAULT_SCOPE = Finding(frozenset({"run-default-scope"}), "warning")
IGNORED = {"run-bank-conflict"}  # a matter of time, not of results

Expected = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class CudaPairs:
    """A kernel of cuda_pairs.cu: how it is launched, what it must leave in its first array, and the finding for each mistake."""

    entry: str
    block: int
    words: int  # of the input
    expected: Expected
    mistakes: Mapping[int, Finding]
    grid: int = 1
    cluster: int | None = None
    scratch: tuple[int, ...] = ()  # words of the arrays behind the input
    numbers: tuple[int, ...] = ()  # arguments behind the arrays
    smem_bytes: int = 0
    has_input: bool = True
    helper: str = ""  # a function before the kernel, whose lines may be named too

    def __str__(self) -> str:
        return self.entry


def block_sums(words: np.ndarray, width: int) -> np.ndarray:
    return words.reshape(-1, width).sum(1, dtype=np.uint32)


def ring_sums(words: np.ndarray) -> np.ndarray:
    """Both blocks of a pair add the four quarters of each tile."""
    return np.tile(words.reshape(6, 4, 32).sum(1, dtype=np.uint32).ravel(), 2)


def mirrored_sum(width: int) -> Expected:
    """The sum of tiles, each from its end."""
    return lambda words: words.reshape(-1, width)[:, ::-1].sum(0, dtype=np.uint32)


def mirrored(width: int) -> Expected:
    """Each row from its end."""
    return lambda words: words.reshape(-1, width)[:, ::-1].ravel()


def of_other_block(width: int) -> Expected:
    """The words of the other block of a pair, from their end."""
    return lambda words: words.reshape(2, width)[::-1, ::-1].ravel()


def shuffled(words: np.ndarray) -> np.ndarray:
    result = words * np.uint32(3)
    result[:20] = words[:20] + words[:20][::-1]
    return result


def two_halves(words: np.ndarray) -> np.ndarray:
    """The halves of mirrored words, the last of them first, cut to 64."""
    turned = words[::-1]
    return np.concatenate([turned & 0xFFFF, turned >> 16])[:63:-1].astype(np.uint32)


PAIRS = (
    CudaPairs("registers_moved", 256, 128, mirrored(128), {1: CONVERGENCE, 2: RACE}),
    CudaPairs("copy_groups", 64, 512, mirrored_sum(64), {1: CP_ASYNC, 2: COPY_OF_OTHERS, 3: COPY_OF_OTHERS}),
    CudaPairs("library_pipeline", 64, 384, mirrored_sum(64), {1: COPY_OF_OTHERS, 2: COPY_OF_OTHERS}),
    CudaPairs(
        "sums_before",
        32,
        256,
        lambda words: np.cumsum(block_sums(words, 32), dtype=np.uint32) - block_sums(words, 32),
        {1: RACE, 2: RACE, 3: RACE, 4: RACE},
        grid=8,
        scratch=(8, 8),
    ),
    CudaPairs("library_barriers", 64, 256, mirrored_sum(32), {1: RACE, 2: RACE, 3: HANG}),
    CudaPairs(
        "tiles_of_threads",
        128,
        128,
        lambda words: block_sums(words, 16)[::-1],
        {1: RACE, 2: RACE, 3: MASK | UNDEFINED},
    ),
    CudaPairs("counted_barrier", 192, 64, mirrored(64), {1: HANG, 2: RACE, 3: RACE}),
    CudaPairs("masked_shuffle", 32, 32, shuffled, {1: UNDEFINED, 2: UNDEFINED, 3: MASK}, numbers=(20,)),
    CudaPairs(
        "exchanged",
        64,
        128,
        of_other_block(64),
        {1: EITHER_ORDER, 2: EXPECTED_BYTES, 3: EXPECTED_BYTES, 4: BARRIER_INIT},
        grid=2,
        cluster=2,
    ),
    CudaPairs("read_again", 64, 64, lambda words: words[::-1] * np.uint32(3), {1: NONCOHERENT, 2: RACE}, scratch=(64,)),
    CudaPairs("added_by_blocks", 32, 128, lambda words: block_sums(words, 128), {1: RACE, 2: RACE, 3: RACE}, grid=4),
    CudaPairs(
        "polled_flag",
        64,
        64,
        lambda words: words[::-1] + np.uint32(5),
        {1: RACE, 2: RACE, 3: RACE, 4: RACE, 5: RACE},
        grid=2,
        scratch=(64, 1),
    ),
    CudaPairs("two_slots", 64, 384, mirrored_sum(64), {1: RACE, 2: RACE}),
    CudaPairs(
        "histogram",
        128,
        512,
        lambda words: np.bincount(words % 32, minlength=32).astype(np.uint32),
        {1: UNWRITTEN, 2: RACE, 3: RACE, 4: RACE, 5: UNWRITTEN},
    ),
    CudaPairs(
        "stored_tiles",
        128,
        512,
        lambda words: words * np.uint32(2),
        {1: STORE_SOURCE, 2: PROXY_FENCE, 3: RACE, 4: STORE_SOURCE},
    ),
    CudaPairs("mirrored", 96, 96, mirrored(96), {1: CONVERGENCE, 2: CONVERGENCE, 3: SKIPPED}, numbers=(70,)),
    CudaPairs(
        "reduced_twice",
        128,
        128,
        lambda words: np.full(128, (words.max() - words).sum(dtype=np.uint32)),
        {1: RACE, 2: RACE},
        helper="reduce",
    ),
    CudaPairs(
        "last_block",
        64,
        256,
        lambda words: words.reshape(4, 64)[:, :32].sum(dtype=np.uint32, keepdims=True).ravel(),
        {1: RACE, 2: RACE, 3: RACE},
        grid=4,
        scratch=(4, 1),
    ),
    CudaPairs("neighbours", 64, 256, lambda words: words + np.append(words[1:], np.uint32(0)), {1: RACE}, grid=4),
    CudaPairs(
        "locked",
        32,
        0,
        lambda _: np.array([10], np.uint32),
        {1: RACE, 2: RACE, 3: RACE},
        grid=4,
        scratch=(1,),
        has_input=False,
    ),
    CudaPairs("read_from_pair", 64, 128, of_other_block(64), {1: BLOCK_END, 2: RACE, 3: RACE}, grid=2, cluster=2),
    CudaPairs(
        "two_loads",
        64,
        128,
        mirrored(64),
        {1: EXPECTED_BYTES, 2: HANG, 3: EXPECTED_BYTES, 4: EXPECTED_BYTES},
    ),
    CudaPairs(
        "drawn_tiles", 64, 512, lambda words: words + np.uint32(1), {1: RACE, 2: RACE | UNWRITTEN}, grid=3, scratch=(1,)
    ),
    CudaPairs(
        "library_flag",
        32,
        32,
        lambda words: words[::-1] ^ np.uint32(7),
        {1: RACE, 2: RACE, 3: RACE},
        grid=2,
        scratch=(32, 1),
    ),
    CudaPairs(
        "grid_counter",
        32,
        128,
        lambda words: words[::-1] + np.uint32(9),
        {1: RACE, 2: RACE, 3: RACE},
        grid=4,
        scratch=(128, 1),
    ),
    CudaPairs("two_views", 64, 64, two_halves, {1: RACE, 2: RACE}),
    CudaPairs("remote_words", 32, 64, of_other_block(32), {1: RACE, 2: DEFAULT_SCOPE, 3: RACE}, grid=2, cluster=2),
    CudaPairs(
        "in_turns",
        32,
        0,
        lambda _: np.arange(140, dtype=np.uint32),
        {1: HANG},
        grid=140,
        scratch=(140,),
        smem_bytes=200_000,
        has_input=False,
    ),
    CudaPairs(
        "multicast_ring",
        64,
        768,
        ring_sums,
        {1: EITHER_ORDER, 2: EITHER_ORDER, 3: EXPECTED_BYTES, 4: BLOCK_END},
        grid=2,
        cluster=2,
    ),
)
MISTAKES = [(pairs, number) for pairs in PAIRS for number in pairs.mistakes]
SEVERAL_FINDINGS = {  # a mistake with several findings, each of which is true by itself
    ("polled_flag", 5),  # the flag is loaded without order, and so are the words behind it
    ("multicast_ring", 1),  # a refill that comes early is read, and its bytes end the phase of another one
    ("multicast_ring", 2),  # the slot is freed early, and so is the phase that the next wait asks for
    ("multicast_ring", 3),
    ("mirrored", 1),  # one more barrier would order the words; the divergent ones stay
    ("reduced_twice", 2),  # the compiler inlines the function at two places
}


@cache
def compiled(entry: str, mistake: int) -> ts.Kernel:
    """A kernel with its mistake of a number, or without one."""
    return ts.Kernel(compiled_text(mistake), entry)


@cache
def compiled_text(mistake: int) -> str:
    """The PTX of cuda_pairs.cu."""
    return ts.Kernel.from_cuda(SOURCE, "multicast_ring", options=[f"-DMISTAKE={mistake}"]).ptx


def run(pairs: CudaPairs, mistake: int, seed: int | None) -> tuple[KernelRun, np.ndarray, np.ndarray]:
    """A run, what it left, and what a right one must leave."""
    words = np.random.default_rng(5).integers(0, 2**32, pairs.words, np.uint32)
    expected = pairs.expected(words)
    out = np.zeros(len(expected), np.uint32)
    arrays = [out, words] if pairs.has_input else [out]
    arrays += [np.zeros(count, np.uint32) for count in pairs.scratch]
    result = compiled(pairs.entry, mistake).run(
        pairs.grid,
        pairs.block,
        [*arrays, *pairs.numbers],
        cluster=pairs.cluster,
        smem_bytes=pairs.smem_bytes,
        seed=seed,
        max_steps=MAX_STEPS,
    )
    return result, out, expected


def found_lines(pairs: CudaPairs, mistake: int) -> set[str]:
    """The lines of a kernel that a finding about a mistake may name."""
    lines = SOURCE.read_text().splitlines()
    found = set()
    for name in filter(None, (pairs.helper, pairs.entry)):
        (start,) = [number for number, line in enumerate(lines) if re.match(rf"\S.* {name}\(", line)]
        end = lines.index("}", start)
        marks = {number + 1: re.search(r"// found in ([\d, ]+)", lines[number]) for number in range(start, end)}
        found |= {number for number, mark in marks.items() if mark is not None and str(mistake) in mark[1].split(", ")}
    return {f"{SOURCE.name}:{number}" for number in found}


@pytest.mark.thinned(24)
@pytest.mark.parametrize("pairs", PAIRS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_kernel_has_its_result_and_neither_error_nor_warning(require, pairs, seed):
    require("nvcc")
    result, out, expected = run(pairs, 0, seed)
    assert result.outcome == "finished", result.findings
    assert [one for one in result.findings if one.severity != "note" and one.rule not in IGNORED] == []
    np.testing.assert_array_equal(out, expected)


@pytest.mark.thinned(48)
@pytest.mark.parametrize(("pairs", "mistake"), MISTAKES, ids=str)
def test_a_mistake_is_found_at_its_line_with_every_seed(require, pairs, mistake):
    require("nvcc")
    expected = pairs.mistakes[mistake]
    lines = found_lines(pairs, mistake)
    assert lines
    for seed in SEEDS:
        result, _, _ = run(pairs, mistake, seed)
        assert result.outcome != "stopped", (seed, result.findings)
        found = [one for one in result.findings if one.severity == expected.severity and one.rule in expected.rules]
        assert found, (seed, result.findings)
        named = {
            name for one in found for line in one.values["source_lines"] for name in re.findall(r"[\w.]+:\d+", line)
        }
        assert named & lines, (seed, named, lines)
        if (pairs.entry, mistake) not in SEVERAL_FINDINGS:
            errors = [one for one in result.findings if one.severity == "error"]
            assert len(errors) <= 1, (seed, errors)
