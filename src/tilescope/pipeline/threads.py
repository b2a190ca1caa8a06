"""Threads of a warp, a block and a cluster: how many there are of what."""

from __future__ import annotations

from tilescope.arch import WARP_LANES
from tilescope.tma.transfer import MAX_CLUSTER_BLOCKS

WARP_THREADS = WARP_LANES
WARPGROUP_THREADS = 4 * WARP_THREADS
BLOCK_THREADS = 1024  # at most
MAX_BLOCKS = MAX_CLUSTER_BLOCKS
BARS = 16  # barriers of threads that a block has
LEAST_REGISTERS = 24  # of a thread, that setmaxnreg takes
MOST_REGISTERS = 256
REGISTER_STEP = 8  # setmaxnreg takes multiples of it
