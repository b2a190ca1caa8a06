"""How many blocks a card holds at once: blocks start in the order of their numbers, as room becomes free.

    H200, blocks of 1024 threads     2 on each of 132 SMs: 264 at once
    a barrier over 300 blocks        264 of them wait, and the other 36 cannot start: the kernel hangs

Registers count where the text fixes them: a kernel with setmaxnreg begins with those of .maxnreg, or with its share of the SM. In
other kernels ptxas decides, with .maxnreg as its limit: they are not counted there, and the true number of blocks may be smaller.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.arch import WARP_LANES, Arch
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.ptx.syntax import Function

# Resident threads per SM: CUDA C++ Programming Guide, technical specifications per compute capability.
_THREADS_PER_SM = {"sm_80": 2048, "sm_90": 2048, "sm_100": 2048, "sm_103": 2048}
_THREADS_OF_OTHERS = 1536
FEWEST_SMS = 100  # no card of the table has fewer: smaller grids always fit
_REGISTERS_PER_SM = 65536  # of every architecture here
_REGISTER_STEP = 8  # of a thread: its registers are a multiple


class Residency(NamedTuple):
    """The room of a card: its SMs, and how many blocks of a kernel fit on one."""

    sms: int
    blocks_per_sm: int
    registers: int | None = None  # of a thread; None: not known, and not counted

    @property
    def blocks(self) -> int:
        """Blocks that the card holds at once."""
        return self.sms * self.blocks_per_sm


def find_registers(entry: Function, block_lanes: int) -> int | None:
    """The registers of a thread at the start of a kernel that uses setmaxnreg; None where ptxas decides."""
    if not any(instruction.name == "setmaxnreg" for instruction in entry.instructions or ()):
        return None
    if entry.max_registers is not None:
        return rounded_up(entry.max_registers, _REGISTER_STEP)
    share = _REGISTERS_PER_SM // (block_lanes * (entry.min_blocks or 1))
    return min(share // _REGISTER_STEP * _REGISTER_STEP, 255)


def find_residency(
    arch: str, block_lanes: int, shared_bytes: int, blocks: int, registers: int | None = None
) -> Residency | None:
    """The room for a grid of that many blocks; None if all of them fit, or no card of the architecture is known.

    Of several cards the one with the most SMs counts. `shared_bytes` include what the system reserves.

    >>> find_residency("sm_90", 1024, 1024, 300), find_residency("sm_90", 128, 1024, 300)
    (Residency(sms=132, blocks_per_sm=2, registers=None), None)
    >>> find_residency("sm_90", 384, 1024, 300, registers=168)
    Residency(sms=132, blocks_per_sm=1, registers=168)
    """
    from tilescope.card import CARD

    row = Arch.named(arch)
    sms = max((card.sms for card in CARD.values() if card.arch.name == row.name), default=None)
    if sms is None:
        return None
    threads = _THREADS_PER_SM.get(row.name, _THREADS_OF_OTHERS)
    fitting = min(row.blocks_per_sm, threads // block_lanes, row.smem_per_sm_bytes // max(shared_bytes, 1))
    if registers is not None:
        warp_registers = rounded_up(registers, _REGISTER_STEP) * WARP_LANES
        fitting = min(fitting, _REGISTERS_PER_SM // (warp_registers * ceil_div(block_lanes, WARP_LANES)))
    residency = Residency(sms, max(fitting, 1), registers)
    return residency if blocks > residency.blocks else None
