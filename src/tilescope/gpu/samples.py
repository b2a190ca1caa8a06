"""Bytes that a card and the emulator both start from: the same on every machine, with rare floats among them.

SplitMix64 gives the bytes; every eighth chunk of 16 is one of the special values (infinities, NaNs, denormals, zeros),
which random bits of wide types would hardly ever hit.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
POOL_BYTES = 1 << 20
CHUNK_BYTES = 16
_ONE_IN = 8  # chunks: one of them is special

# Patterns of one element, by its bytes; a chunk repeats them
_SPECIAL = {
    2: (0x7C00, 0xFC00, 0x7E01, 0x0001, 0x8000, 0x83FF, 0x7F80, 0xFF80, 0x7FC1, 0x0080),
    4: (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFA00000, 0x00000001, 0x807FFFFF, 0x80000000, 0x3F800FFF, 0x3F801000),
    8: (0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001, 0xFFF4000000000000, 1, 0x8000000000000000),
}


def splitmix_bytes(seed: int, count: int) -> Bytes:
    """`count` random bytes: those of 64-bit words 1, 2, …, each the SplitMix64 finaliser of its place.

    >>> splitmix_bytes(1, 8).tobytes().hex()
    '380182a31a5a2cc4'
    """
    with np.errstate(over="ignore"):
        place = np.arange(1, -(-count // 8) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = place + (np.uint64(seed) << np.uint64(32))
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.astype("<u8").view(np.uint8)[:count]


@cache
def pool() -> Bytes:
    """The megabyte from which copies read, and with which memory is filled before stores; read-only."""
    chunks = splitmix_bytes(1, POOL_BYTES).reshape(-1, CHUNK_BYTES).copy()
    specials = np.concatenate([_special_chunks(size, values) for size, values in _SPECIAL.items()])
    choice = splitmix_bytes(2, len(chunks) * 2).view("<u2")
    taken = choice % _ONE_IN == 0
    chunks[taken] = specials[choice[taken] // _ONE_IN % len(specials)]
    chunks.flags.writeable = False
    return chunks.reshape(-1)


def _special_chunks(element_bytes: int, values: tuple[int, ...]) -> Bytes:
    """One chunk for each value, followed in it by its neighbours."""
    elements = CHUNK_BYTES // element_bytes
    rows = [[values[(first + step) % len(values)] for step in range(elements)] for first in range(len(values))]
    return np.array(rows, f"<u{element_bytes}").view(np.uint8)
