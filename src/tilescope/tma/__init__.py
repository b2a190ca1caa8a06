"""The TMA emulator: the exact bytes that a copy leaves in shared or global memory, and the origin of each byte."""

from tilescope.tma.bulk_copy import bulk_load, bulk_store
from tilescope.tma.identification import Identification, identify
from tilescope.tma.tiles import load_tiles
from tilescope.tma.tracing import Origin, Run, Trace, trace
from tilescope.tma.transfer import gather4, load, load_multicast, scatter4, store

__all__ = [
    "Identification",
    "Origin",
    "Run",
    "Trace",
    "bulk_load",
    "bulk_store",
    "gather4",
    "identify",
    "load",
    "load_multicast",
    "load_tiles",
    "scatter4",
    "store",
    "trace",
]
