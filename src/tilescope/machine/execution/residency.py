"""How many blocks a card holds at once: blocks start in the order of their numbers, as room becomes free.

    H200, blocks of 1024 threads     2 on each of 132 SMs: 264 at once
    a barrier over 300 blocks        264 of them wait, and the other 36 cannot start: the kernel hangs

Registers are left out, since the PTX text does not say how many a thread gets: the true number may be smaller.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.arch import Arch

# Resident threads per SM: CUDA C++ Programming Guide, technical specifications per compute capability.
_THREADS_PER_SM = {"sm_80": 2048, "sm_90": 2048, "sm_100": 2048, "sm_103": 2048}
_THREADS_OF_OTHERS = 1536
FEWEST_SMS = 100  # no card of the table has fewer: smaller grids always fit


class Residency(NamedTuple):
    """The room of a card: its SMs, and how many blocks of a kernel fit on one."""

    sms: int
    blocks_per_sm: int

    @property
    def blocks(self) -> int:
        """Blocks that the card holds at once."""
        return self.sms * self.blocks_per_sm


def find_residency(arch: str, block_lanes: int, shared_bytes: int, blocks: int) -> Residency | None:
    """The room for a grid of that many blocks; None if all of them fit, or no card of the architecture is known.

    Of several cards the one with the most SMs counts. `shared_bytes` include what the system reserves.

    >>> find_residency("sm_90", 1024, 1024, 300), find_residency("sm_90", 128, 1024, 300)
    (Residency(sms=132, blocks_per_sm=2), None)
    """
    from tilescope.card import CARD

    row = Arch.named(arch)
    sms = max((card.sms for card in CARD.values() if card.arch.name == row.name), default=None)
    if sms is None:
        return None
    threads = _THREADS_PER_SM.get(row.name, _THREADS_OF_OTHERS)
    fitting = min(row.blocks_per_sm, threads // block_lanes, row.smem_per_sm_bytes // max(shared_bytes, 1))
    residency = Residency(sms, max(fitting, 1))
    return residency if blocks > residency.blocks else None
