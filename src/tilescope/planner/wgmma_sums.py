"""How warpgroups hold the sums of a tile of wgmma: in blocks of 64 rows, of which one instruction takes all columns.

    rows    warpgroups    blocks of each    registers of a thread for sums
      64             1                 1    128, so 256 columns
     128             2                 1    128
     192             3                 1    96, so 192 columns: of 512 threads each has 128 registers, of 384 168
     256             2                 2    128, so 128 columns; 160 with registers of the producer and a stage for each of its warps

Sums of 8-bit floats are held twice: those of a K step, and those to which they are added. Small tiles hold them three times:
while the sums of one K step are added, the products of the next one run.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.planner.product import Product

WGMMA_ROWS = 64  # of a block
PRODUCER_WARPS = 4  # where setmaxnreg distributes registers: among whole warpgroups
_MOST = {1: 128, 2: 160, 3: 96}  # registers of a thread for its sums, by the warpgroups of a block …
MOST_EVENLY = 128  # … of two that have no more registers than the producer
_MOST_TWICE = 72  # … of sums that are held twice
_MOST_THRICE = {1: 64, 2: 64, 3: 36}  # … of sums that are held three times, by the warpgroups of a block
_MOST_THRICE_EVENLY = 48  # … by two that have no more registers than the producer
_MOST_SCALED = 64  # … in addition to the scales of a K step


class Warpgroups(NamedTuple):
    """Warpgroups that share the rows of a tile, and the blocks of 64 rows that each of them has."""

    groups: int
    blocks: int


def share_rows(rows: int, *, ping_pong: bool = False) -> Warpgroups:
    """Which warpgroups accumulate the rows: two; three for 192 rows; one for 64 rows, or if each computes a separate tile.

    >>> share_rows(192), share_rows(256), share_rows(128, ping_pong=True)
    (Warpgroups(groups=3, blocks=1), Warpgroups(groups=2, blocks=2), Warpgroups(groups=1, blocks=2))
    """
    blocks = max(1, rows // WGMMA_ROWS)
    count = 1 if ping_pong else next((number for number in (2, 3) if blocks % number == 0), 1)
    return Warpgroups(count, blocks // count)


def most_sums(product: Product, warpgroups: int) -> int:
    """Sums that a thread of that many warpgroups holds at most; promoted ones as often again."""
    if product.is_promoted:
        most = _MOST_SCALED if product.block_scales else _MOST_TWICE
        return most if warpgroups < 3 else most // 2
    return _MOST[warpgroups]


def count_step_sums(product: Product, rows: int, columns: int, *, ping_pong: bool) -> int:
    """How many accumulators take turns in holding the sums of a K step, before they are promoted; 0: they are not.

    With two, a warpgroup issues the products of a step before it adds the sums of the step before.
    """
    if not product.is_promoted:
        return 0
    groups, blocks = share_rows(rows, ping_pong=ping_pong)
    most = _MOST_THRICE_EVENLY if ping_pong else _MOST_THRICE[groups]
    return 2 if not product.block_scales and blocks * columns // 2 <= most else 1


def needs_more_registers(product: Product, rows: int, columns: int, *, ping_pong: bool) -> bool:
    """Whether two warpgroups need registers that the producer gives up: for many sums, or for sums that they hold three times."""
    groups, blocks = share_rows(rows, ping_pong=ping_pong)
    if groups != 2 or product.consumer != "wgmma":
        return False
    if not product.is_promoted:
        return MOST_EVENLY < blocks * columns // 2 <= _MOST[groups]
    has_three = count_step_sums(product, rows, columns, ping_pong=ping_pong) == 2
    return has_three and blocks * columns // 2 > _MOST_THRICE_EVENLY
