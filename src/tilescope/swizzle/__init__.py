"""Where a swizzle puts the 16-byte chunks of a 128-byte line of shared memory.

`mode` has the table of modes and the address map, `spelling` how CuTe and PTX write a mode; `permutation` copies
whole buffers, and `streaming` is the compiled loop for large ones.
"""

from tilescope.swizzle.mode import (
    CHUNK_BYTES,
    CHUNKS_PER_LINE,
    SMEM_ALIGNMENT,
    SMEM_LINE_BYTES,
    SWIZZLE,
    Addresses,
    Swizzle,
    SwizzleName,
)

__all__ = [
    "CHUNKS_PER_LINE",
    "CHUNK_BYTES",
    "SMEM_ALIGNMENT",
    "SMEM_LINE_BYTES",
    "SWIZZLE",
    "Addresses",
    "Swizzle",
    "SwizzleName",
]
