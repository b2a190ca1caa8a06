"""Which tile of C a block should compute: what each shape costs at least, and which comes first.

    floor         the larger of two times, neither of which a kernel with these tiles undercuts:
                  arithmetic   whole rounds of the card, each SM a tile a round, at 790 TFLOP/s for 16-bit types
                  memory       A, B and C moved once, at 4.55 TB/s
    bytes         operand bytes that the SM with the most tiles fetches
    instructions  of the tensor core, for one K step of the tile

Both rates were measured on one card, an H200 (cuBLAS; TMA boxes of 128-byte rows), and stand for every architecture: they
weigh shapes against each other and promise nothing. Shapes whose floor is within a tenth of the lowest are compared by
bytes, then by instructions; then the one with fewer rows comes first. So large matrices get large tiles, and where there
is little work all SMs get some.

4096 x 4096 x 4096 bf16, 132 SMs:
    tile           tiles   rounds   floor      busiest SM
    128 x 256        512        4   179.4 us   4 x (128 + 256) x 4096 x 2 bytes = 12.6 MB    2 wgmma a K step
    256 x 128        512        4   179.4 us   the same                                      4 wgmma
    128 x 128       1024        8   179.4 us   16.8 MB
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.errors import Violation
from tilescope.mma.tcgen05_loop import Tcgen05Loop
from tilescope.mma.wgmma_loop import WgmmaLoop
from tilescope.planner.problem import Operand
from tilescope.planner.product import Product, Tile, mma_rows
from tilescope.value import Value

TILE_M = (64, 128, 256)
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
# elements: half the registers of an SM, so that two warpgroups keep as many for everything else; or half of
# tensor memory, so that the next tile starts while this one is stored
LARGEST_ACCUMULATOR = 128 * 256
K_TILE_BYTES = 128  # of an element in shared memory, so that a K-major row is one span of the widest swizzle
H200_SMS = 132
FLOPS_16_BIT = 790e12  # bf16 through cuBLAS on an H200
BYTES_PER_S = 4.55e12
_NEAR = 1.1  # floors this close count as equal


class TileCosts(NamedTuple):
    """What shapes are compared by; smaller is better."""

    floor_us: float
    busiest_bytes: int
    instructions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTile(Value):
    """A tile shape that can be computed, what it costs, and why it does not come first."""

    tile: Tile
    stages: int
    tiles: int  # of C
    rounds: int
    floor_us: float
    busiest_bytes: int
    instructions: int
    behind_in: str  # the first term in which it is behind: floor, bytes, instructions, order; "" for the first
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTile(Value):
    """A tile shape that cannot be, why, and whether it would have come first."""

    tile: Tile
    violations: tuple[Violation, ...]
    would_lead: bool  # ranks before the tile that was chosen


def tile_shapes(product: Product, is_readable: Callable[[Operand, tuple[int, int]], bool]) -> Iterator[Tile]:
    """The shapes worth trying: no accumulators beyond half the room, and no extent twice as large as its matrix.

    The smallest extent that the consumer reads is never too large: mxf4 has 128 rows at least, however few A has.
    """
    tile_k = K_TILE_BYTES * 8 // product.data_type.smem_bits
    m, n, _ = product.shape

    def worth_trying(matrix: Operand, known: tuple[int, ...], extent: int) -> list[int]:
        smallest = next((each for each in known if is_readable(matrix, (each, tile_k))), known[0])
        return [each for each in known if each <= smallest or each < 2 * extent]

    for tile_m in worth_trying("A", TILE_M, m):
        for tile_n in worth_trying("B", TILE_N, n):
            if tile_m * tile_n <= LARGEST_ACCUMULATOR:
                yield tile_m, tile_n, tile_k


def tile_grid(shape: tuple[int, int, int], tile: Tile) -> tuple[int, int]:
    """Tiles of C along m and along n."""
    return -(-shape[0] // tile[0]), -(-shape[1] // tile[1])


def tile_rounds(shape: tuple[int, int, int], tile: Tile, sms: int) -> int:
    """How often every SM takes a tile, the last time perhaps not all of them."""
    down, across = tile_grid(shape, tile)
    return -(-down * across // sms)


def tile_costs(product: Product, tile: Tile) -> TileCosts:
    """The terms of the ranking for one shape."""
    m, n, k = product.shape
    rounds = tile_rounds(product.shape, tile, product.sms)
    fetched = min(m, tile[0]) + min(n, tile[1])  # rows beyond the matrix are filled, not fetched
    busiest = rounds * fetched * k * product.data_type.bits // 8
    return TileCosts(
        max(arithmetic_us(product, tile), memory_us(product)), busiest, instructions_per_step(product, tile)
    )


def arithmetic_us(product: Product, tile: Tile) -> float:
    """Microseconds of whole rounds of multiplications."""
    rounds = tile_rounds(product.shape, tile, product.sms)
    per_sm = flops_per_s(product) / H200_SMS
    return rounds * 2 * tile[0] * tile[1] * product.shape[2] / per_sm * 1e6


def flops_per_s(product: Product) -> float:
    """The H200's rate for the type: measured with 16 bits, in proportion to the width down to 8 bits."""
    return FLOPS_16_BIT * 16 / max(product.data_type.smem_bits, 8)


def memory_us(product: Product) -> float:
    """Microseconds in which every byte of A, B and C moves once."""
    m, n, k = product.shape
    moved = (m + n) * k * product.data_type.bits / 8 + m * n * product.output_type.bits / 8
    return moved / BYTES_PER_S * 1e6


def instructions_per_step(product: Product, tile: Tile) -> int:
    """Tensor-core instructions that one K step of the tile takes."""
    if product.consumer == "ldmatrix":
        return min(-(-tile[0] // row.m) * -(-tile[1] // row.n[0]) for row in mma_rows(product.arch, product.data_type))
    loop = WgmmaLoop if product.consumer == "wgmma" else Tcgen05Loop
    extents = loop.extents(product.data_type)
    return _blocks(tile[0], extents.m) * _blocks(tile[1], extents.n)


def _blocks(extent: int, known: tuple[int, ...]) -> int:
    """Instructions along one extent, as large as divide it."""
    return -(-extent // max((each for each in known if extent % each == 0), default=known[0]))


def rank(costs: TileCosts, lowest_us: float) -> TileCosts:
    """What shapes are sorted by, where `lowest_us` is the lowest floor of all: near floors count as equal."""
    return costs._replace(floor_us=max(costs.floor_us, _NEAR * lowest_us))


def behind(costs: TileCosts, best: TileCosts, lowest_us: float) -> tuple[str, str]:
    """The first term in which a shape is behind the best, by name and in words."""
    ours, first = rank(costs, lowest_us), rank(best, lowest_us)
    if ours.floor_us > first.floor_us:
        return "floor", f"floor {in_us(costs.floor_us)}, more than a tenth above the lowest, {in_us(lowest_us)}"
    if ours.busiest_bytes > first.busiest_bytes:
        here, there = in_mb(ours.busiest_bytes), in_mb(first.busiest_bytes)
        if here == there:
            here, there = f"{ours.busiest_bytes} bytes", str(first.busiest_bytes)
        return "bytes", f"its busiest SM fetches {here}, not {there}"
    if ours.instructions > first.instructions:
        return "instructions", f"{ours.instructions} instructions a K step, not {first.instructions}"
    return "order", "equal in every term; fewer rows come first"


def in_us(microseconds: float) -> str:
    """A time with three digits or more.

    >>> in_us(179.41), in_us(7.372), in_us(0.01234)
    ('179.4 us', '7.37 us', '0.0123 us')
    """
    return f"{microseconds:.1f} us" if microseconds >= 100 else f"{microseconds:#.3g} us"


def in_mb(count_bytes: float) -> str:
    """Megabytes with three digits or more."""
    megabytes = count_bytes / 1e6
    return f"{megabytes:.1f} MB" if megabytes >= 100 else f"{megabytes:#.3g} MB"


def in_words(tile: Tile) -> str:
    """The shape as people write it.

    >>> in_words((128, 256, 64))
    '128 x 256 x 64'
    """
    return " x ".join(map(str, tile))
