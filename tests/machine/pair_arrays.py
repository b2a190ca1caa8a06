"""What the kernels of pairs/ read, and what they must leave: arrays from a random generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import tilescope as ts


class Case(NamedTuple):
    """The arguments of a launch, and the array that holds the result, with what it must hold.

    An argument that has addresses in it, as a tensor map does, is a function of the memory that arrays are placed in.
    """

    args: list
    out: np.ndarray
    expected: np.ndarray


Maker = Callable[[np.random.Generator], Case]

IN_ORDER = np.arange(128)  # words by the thread that stores them
MIRRORED = IN_ORDER[::-1]
SHIFTED = np.roll(IN_ORDER, -1)


def mapped(array: np.ndarray) -> Callable[[ts.Memory], ts.TensorMap]:
    """A map over rows of 32 words, with boxes of 4 rows."""
    return lambda memory: memory.map(array, (32, 4))


def held_map(array: np.ndarray) -> Callable[[ts.Memory], np.ndarray]:
    """The 128 bytes of such a map as an array, which a kernel can edit."""
    return lambda memory: np.frombuffer(mapped(array)(memory).encode(), np.uint8).copy()


def words(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Random 32-bit words."""
    return random.integers(0, 2**32, shape, np.uint32)


def mapped_words(rows: int) -> Maker:
    """A map over rows of 32 words with boxes of 4 rows; the result is the sum of all boxes, one word a thread."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, rows, 32)
        out = np.zeros(128, np.uint32)
        return Case([mapped(source), out], out, source.reshape(-1, 128).sum(0, dtype=np.uint32))

    return make


def same_words(random: np.random.Generator) -> Case:
    """128 words that come out as they went in."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source)


def sum_of_two(random: np.random.Generator) -> Case:
    """Two arrays of 128 words and their sums."""
    a, b = words(random, 2, 128)
    out = np.zeros(128, np.uint32)
    return Case([a, b, out], out, a + b)


def thread_numbers(random: np.random.Generator) -> Case:
    out = np.zeros(128, np.uint32)
    return Case([words(random, 128), out], out, np.arange(128, dtype=np.uint32))


def image_column(random: np.random.Generator) -> Case:
    """16 pixels of an image of 6 x 8 pixels with 8 channels: its first two rows."""
    image = words(random, 1, 6, 8, 8)

    def column(memory: ts.Memory) -> ts.Im2colMap:
        return ts.Im2colMap(
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


def first_half(random: np.random.Generator) -> Case:
    """64 words, and zeros behind them."""
    source = words(random, 64)
    out = np.ones(128, np.uint32)
    return Case([source, out], out, np.concatenate([source, np.zeros(64, np.uint32)]))


def stored_box(random: np.random.Generator) -> Case:
    """A map over 4 x 32 words that receive the array behind it."""
    source = words(random, 128)
    out = np.zeros((4, 32), np.uint32)
    return Case([mapped(out), source], out, source.reshape(4, 32))


def stored_rows(random: np.random.Generator) -> Case:
    """A map over 4 x 32 words with a box of 36 columns, four of them behind the tensor."""
    source = words(random, 128)
    out = np.zeros((4, 32), np.uint32)
    return Case([lambda memory: memory.map(out, (36, 4)), source], out, source.reshape(4, 32))


def same_tiles(count: int, width: int = 128) -> Maker:
    """Tiles of words that come out as they went in."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, count, width)
        out = np.zeros((count, width), np.uint32)
        return Case([source, out], out, source)

    return make


def added_twice(random: np.random.Generator) -> Case:
    """128 words to which 128 others and the numbers of the threads are added."""
    source = words(random, 128)
    out = words(random, 128)
    return Case([source, out], out, out + source + np.arange(128, dtype=np.uint32))


def passed_on(random: np.random.Generator) -> Case:
    """128 words that go from one block to another through an array, with a flag."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, np.zeros(128, np.uint32), np.zeros(1, np.uint32), out], out, source)


def stored_matrices(random: np.random.Generator) -> Case:
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


def product(scale: float, start: float, rows: int = 64, tiles: int = 1) -> Maker:
    """start + scale * A B for an A of rows x 16; B is the sum of tiles of 16 x 8."""

    def make(random: np.random.Generator) -> Case:
        a = small_halves(random, rows, 16)
        b = small_halves(random, tiles, 8, 16)
        out = np.zeros((rows, 8), np.float32)
        expected = start + scale * (a.astype(np.float32) @ b.astype(np.float32).sum(0).T)
        return Case([core_matrices(a), core_matrices(b), out], out, expected)

    return make


def product_of_registers(random: np.random.Generator) -> Case:
    """(A1 + A2) B; both A lie row by row."""
    a = small_halves(random, 2, 64, 16)
    b = small_halves(random, 8, 16)
    out = np.zeros((64, 8), np.float32)
    return Case([a, core_matrices(b), out], out, a.astype(np.float32).sum(0) @ b.astype(np.float32).T)


def chained(random: np.random.Generator) -> Case:
    """2 A B - A B; the first of every thread's four numbers is doubled in between: 4 A B - A B."""
    case = product(1, 0)(random)
    expected = case.expected.copy()
    expected[np.arange(64)[:, None], [0, 2, 4, 6]] *= np.where(np.arange(64)[:, None] % 16 < 8, 3, 1)
    return case._replace(expected=expected)


def moved_words(order: np.ndarray, width: int = 1) -> Maker:
    """Words, `width` a thread, that come out in another order of the threads."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, len(order), width)
        out = np.zeros_like(source)
        return Case([source, out], out, source[order])

    return make


def summed_tiles(tiles: int, order: np.ndarray) -> Maker:
    """The sum of tiles of one word a thread, in another order of the threads."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, tiles, len(order))
        out = np.zeros(len(order), np.uint32)
        return Case([source, out], out, source.sum(0, dtype=np.uint32)[order])

    return make


def product_over_k(tiles: int) -> Maker:
    """A B for 64 x 16 * tiles and 16 * tiles x 8, tile after tile in memory."""

    def make(random: np.random.Generator) -> Case:
        a = small_halves(random, tiles, 64, 16)
        b = small_halves(random, tiles, 8, 16)
        out = np.zeros((64, 8), np.float32)
        expected = np.einsum("tmk,tnk->mn", a.astype(np.float32), b.astype(np.float32))
        return Case([core_matrices(a), core_matrices(b), out], out, expected)

    return make


def for_both_blocks(tiles: int) -> Maker:
    """The sum of tiles of 128 words, in both blocks of a cluster."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, tiles, 128)
        out = np.zeros((2, 128), np.uint32)
        return Case([source, out], out, np.tile(source.sum(0, dtype=np.uint32), (2, 1)))

    return make


def exchanged(random: np.random.Generator) -> Case:
    """What two blocks hold, the other way round."""
    source = words(random, 2, 128)
    out = np.zeros((2, 128), np.uint32)
    return Case([source, out], out, source[::-1])


def exchanged_mirrored(random: np.random.Generator) -> Case:
    """What two blocks hold, the other way round, and so are the words of each."""
    case = exchanged(random)
    return case._replace(expected=case.expected[:, ::-1])


def map_in_memory(random: np.random.Generator) -> Case:
    """A map in global memory, made for one array; the kernel makes it point at another."""
    one, other = words(random, 2, 4, 32)
    out = np.zeros(128, np.uint32)
    return Case([held_map(one), other, out], out, other.reshape(-1))


def map_used_twice(random: np.random.Generator) -> Case:
    """A map in global memory, used for one array and then for another; their sums."""
    one, other = words(random, 2, 4, 32)
    out = np.zeros(128, np.uint32)
    return Case([held_map(one), other, out], out, (one + other).reshape(-1))


def map_to_copy(random: np.random.Generator) -> Case:
    """A map as a parameter, room for its copy, and the array that the copy is to point at."""
    one, other = words(random, 2, 4, 32)
    out = np.zeros(128, np.uint32)
    return Case([mapped(one), np.zeros(128, np.uint8), other, out], out, other.reshape(-1))


def mirrored_sums(random: np.random.Generator) -> Case:
    """Words changed with their mirror, added, changed again."""
    source = words(random, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source + source[::-1])


def taken_turns(random: np.random.Generator) -> Case:
    """Three rounds of two groups of 128 words, each mirrored."""
    source = words(random, 3, 2, 128)
    out = np.zeros_like(source)
    return Case([source, out], out, source[..., ::-1])


def one_sum(count: int, copies: int = 1) -> Maker:
    """The sum of all words, as often as threads store it."""

    def make(random: np.random.Generator) -> Case:
        source = words(random, count)
        out = np.zeros(copies, np.uint32)
        return Case([source, out], out, np.full(copies, source.sum(dtype=np.uint32)))

    return make


def counted_bins(random: np.random.Generator) -> Case:
    """How often each of 16 numbers occurs in the lower bits of 256 words."""
    source = words(random, 256)
    out = np.zeros(16, np.uint32)
    return Case([source, out], out, np.bincount(source & 15, minlength=16).astype(np.uint32))


def added_by_all(random: np.random.Generator) -> Case:
    """Four blocks of 32 words; each adds up those of all, through an array and a counter."""
    source = words(random, 4, 32)
    out = np.zeros((4, 32), np.uint32)
    return Case(
        [source, np.zeros((4, 32), np.uint32), np.zeros(1, np.uint32), out],
        out,
        np.tile(source.sum(0, dtype=np.uint32), (4, 1)),
    )


def added_in_turns(random: np.random.Generator) -> Case:
    """Four tiles of 64 words, added up behind a semaphore."""
    source = words(random, 4, 64)
    out = np.zeros(64, np.uint32)
    return Case([source, np.zeros(1, np.uint32), out], out, source.sum(0, dtype=np.uint32))


def added_by_the_last(random: np.random.Generator) -> Case:
    """Four tiles of 32 words, added up from an array of partial results, with a counter."""
    source = words(random, 4, 32)
    out = np.zeros(32, np.uint32)
    args = [source, np.zeros((4, 32), np.uint32), np.zeros(1, np.uint32), out]
    return Case(args, out, source.sum(0, dtype=np.uint32))


def running_sums(random: np.random.Generator) -> Case:
    """One small number of each of five blocks, with all before it, and a word in which blocks tell of their sums."""
    source = random.integers(0, 1000, 5, np.uint32)
    out = np.zeros(5, np.uint32)
    return Case([source, np.zeros(5, np.uint32), out], out, np.cumsum(source, dtype=np.uint32))


def sum_under_lock(random: np.random.Generator) -> Case:
    """One word of each of four blocks."""
    source = words(random, 4)
    out = np.zeros(1, np.uint32)
    return Case([source, np.zeros(1, np.uint32), out], out, source.sum(keepdims=True, dtype=np.uint32))


def handed_on(random: np.random.Generator) -> Case:
    """32 words, an array between, two flags."""
    source = words(random, 32)
    out = np.zeros(32, np.uint32)
    return Case([source, np.zeros(32, np.uint32), np.zeros(2, np.uint32), out], out, source)


def plus(number: int, order: np.ndarray) -> Maker:
    """Words in another order, and a number added."""

    def make(random: np.random.Generator) -> Case:
        case = moved_words(order)(random)
        return case._replace(expected=case.expected + np.uint32(number))

    return make


def one_word(random: np.random.Generator) -> Case:
    source = words(random, 1)
    out = np.zeros(1, np.uint32)
    return Case([source, out], out, source)


def padded_mirror(random: np.random.Generator) -> Case:
    """100 times 16 bytes and 28 times zeros, the other way round."""
    source = words(random, 100, 4)
    out = np.ones((128, 4), np.uint32)
    return Case([source, out], out, np.concatenate([source, np.zeros((28, 4), np.uint32)])[::-1])


def own_slices(random: np.random.Generator) -> Case:
    """The two halves of 16 bytes change places."""
    source = words(random, 128, 4)
    out = np.zeros_like(source)
    return Case([source, out], out, source[:, [2, 3, 0, 1]])


def drawn_tiles(random: np.random.Generator) -> Case:
    """Six tiles of 64 words with their lowest bit changed, and the counter they are drawn from."""
    source = words(random, 6, 64)
    out = np.zeros_like(source)
    return Case([source, np.zeros(1, np.uint32), out], out, source ^ np.uint32(1))


def summed_blocks(random: np.random.Generator) -> Case:
    """What two blocks hold, added up."""
    source = words(random, 2, 128)
    out = np.zeros(128, np.uint32)
    return Case([source, out], out, source.sum(0, dtype=np.uint32))


def matrices(random: np.random.Generator) -> Case:
    """Four matrices of 8 x 8 halves, row by row; lane i gets two neighbours of row i / 4 of each of them."""
    source = words(random, 4, 8, 4)
    out = np.zeros((32, 4), np.uint32)
    return Case([source, out], out, source.reshape(4, 32).T)


def numbered_in_place(random: np.random.Generator) -> Case:
    """A map over 128 words to which the numbers of the threads are added."""
    out = words(random, 4, 32)
    return Case([mapped(out)], out, out + np.arange(128, dtype=np.uint32).reshape(4, 32))


def product_of_two_groups(random: np.random.Generator) -> Case:
    """A B for an A of 128 x 16, row by row, and the sum of six B."""
    a = small_halves(random, 128, 16)
    b = small_halves(random, 6, 8, 16)
    out = np.zeros((128, 8), np.float32)
    return Case([a, core_matrices(b), out], out, a.astype(np.float32) @ b.astype(np.float32).sum(0).T)


def compared(random: np.random.Generator) -> Case:
    """The words of two blocks, each xor that of the other."""
    case = exchanged(random)
    return case._replace(expected=case.expected ^ case.expected[::-1])


def mirrored_half(random: np.random.Generator) -> Case:
    """The first 32 of 64 words that are mirrored."""
    source = words(random, 64)
    out = np.zeros(32, np.uint32)
    return Case([source, out], out, source[::-1][:32])


def swizzled(array: np.ndarray) -> Callable[[ts.Memory], ts.TensorMap]:
    """A map over an array of words with boxes of 16 rows of 128 bytes, under swizzle 128B."""
    return lambda memory: memory.map(array, (32, 16), swizzle="128B")


def product_of_rows(random: np.random.Generator) -> Case:
    """A B for an A of 64 x 64 and a B of 64 x 8, both row by row along k."""
    a = small_halves(random, 64, 64)
    b = small_halves(random, 8, 64)
    out = np.zeros((64, 8), np.float32)
    return Case([a, b, out], out, a.astype(np.float32) @ b.astype(np.float32).T)


def dealt_in_fragments(rows: np.ndarray) -> np.ndarray:
    """16 rows of 32 words as ldmatrix.x4 deals them in four steps of 32 bytes: (step, lane, matrix)."""
    by_matrix = rows.reshape(2, 8, 4, 2, 4)  # upper or lower rows, row, step, chunk, word
    return np.ascontiguousarray(by_matrix.transpose(2, 1, 4, 3, 0)).reshape(4, 32, 4)


def loaded_fragments(random: np.random.Generator) -> Case:
    """The left half of 16 rows of 64 words, in fragments."""
    source = words(random, 16, 64)
    out = np.zeros((4, 32, 4), np.uint32)
    return Case([swizzled(source), out], out, dealt_in_fragments(source[:, :32]))


def stored_fragments(random: np.random.Generator) -> Case:
    """Fragments that become the left half of 16 rows of 64 words."""
    rows = words(random, 16, 32)
    out = words(random, 16, 64)
    expected = out.copy()
    expected[:, :32] = rows
    return Case([swizzled(out), dealt_in_fragments(rows)], out, expected)


def mirrored_box(random: np.random.Generator) -> Case:
    """The left half of 16 rows of 64 words, the last row first."""
    source = words(random, 16, 64)
    out = words(random, 16, 64)
    expected = out.copy()
    expected[:, :32] = source[::-1, :32]
    return Case([swizzled(source), swizzled(out)], out, expected)
