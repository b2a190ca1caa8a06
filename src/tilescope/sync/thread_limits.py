"""Limits of a block: its threads, its named barriers, and the registers that setmaxnreg takes."""

from __future__ import annotations

from tilescope.arch import WARP_LANES
from tilescope.tma.transfer import MAX_CLUSTER_BLOCKS

WARP_THREADS = WARP_LANES
WARPGROUP_THREADS = 4 * WARP_THREADS
BLOCK_THREADS = 1024  # the most that a block may have
BLOCK_THREADS_Z = 64  # … and along z
MAX_BLOCKS = MAX_CLUSTER_BLOCKS
BARS = 16  # named barriers (bar.sync 0 to 15) of a block
LEAST_REGISTERS = 24  # setmaxnreg takes 24 to 256 registers per thread …
MOST_REGISTERS = 256
REGISTER_STEP = 8  # … in multiples of 8
