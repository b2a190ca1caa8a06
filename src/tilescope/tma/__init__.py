"""The TMA emulator: the exact bytes that a copy leaves in shared or global memory."""

from tilescope.tma.transfer import gather4, load, load_multicast, scatter4, store

__all__ = ["gather4", "load", "load_multicast", "scatter4", "store"]
