"""One-dimensional bulk copies, cp.async.bulk: bytes from one address to another, 16 at a time.

    bulk_load(memory, 0x100, 24)      24 bytes asked ── cut ──▶ 16 moved, 16 counted by the mbarrier

Both addresses are multiples of 16, or the chip answers "misaligned address". A size that is no multiple of 16 is
cut down to one without a word, so a barrier that expects the full size never ends. Measured on an H200.
"""

from __future__ import annotations

from typing import Any

from tilescope.arithmetic import rounded_up
from tilescope.errors import MisalignedAddressError, RuleError
from tilescope.reading import integer, readable, writeable
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.transfer import MEMORY_EXTENT, require_smem

ADDRESS = rule(
    "bulk-address",
    "The shared and the global address of a 1-D bulk copy are multiples of 16 bytes.",
    source="an H200, driver 580.159.04, CUDA 13.0",
    basis="measured",
    code=716,
    passing="ts.bulk_load(bytes(64), 16, 16)",
    failing="ts.bulk_load(bytes(64), 8, 16)",
)
RANGE = rule(
    "bulk-range",
    "Addresses and size of a 1-D bulk copy are unsigned numbers of their widths.",
    source="PTX ISA, cp.async.bulk",
    passing="ts.bulk_load(bytes(64), 0, 16)",
    failing="ts.bulk_load(bytes(64), 0, -16)",
)
_SIZE_END = 1 << 32  # the size is an unsigned 32-bit number
_SMEM_ADDRESS_END = 1 << 32
_GMEM_ADDRESS_END = 1 << 64


def bulk_bytes(size_bytes: int) -> int:
    """The bytes that a bulk copy of `size_bytes` moves, and that its mbarrier counts.

    >>> [bulk_bytes(size) for size in (8, 16, 24, 4096)]
    [0, 16, 16, 4096]
    """
    return size_bytes // CHUNK_BYTES * CHUNK_BYTES


def bulk_load(
    memory: Any, address: int, size_bytes: int, *, memory_address: int = 0, smem: Any = None, smem_address: int = 0
) -> Any:
    """Shared memory after cp.async.bulk from global `address`: the size cut down to a multiple of 16.

    `memory[0]` lies at global address `memory_address`. `smem`, whose first byte lies at `smem_address`, is written
    in place and returned; without it the result is as long as the bytes that moved, which is what the mbarrier counts.

    >>> import numpy as np
    >>> memory = np.arange(64, dtype=np.uint8)
    >>> bulk_load(memory, 16, 24).tolist()  # 24 bytes asked, 16 moved: a barrier that expects 24 never ends
    [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
    """
    source = readable("memory", memory)
    offset, size = _request(address, size_bytes, memory_address, smem_address, len(source))
    if smem is None:
        return source[offset : offset + size].copy()
    target = writeable("smem", smem)
    require_smem("smem", target, size)
    target[:size] = source[offset : offset + size]
    return smem


def bulk_store(
    smem: Any, memory: Any, address: int, size_bytes: int, *, memory_address: int = 0, smem_address: int = 0
) -> Any:
    """Global memory after cp.async.bulk from shared memory: the size cut down to a multiple of 16. Returns `memory`.

    `smem[0]` lies at shared address `smem_address`, `memory[0]` at global address `memory_address`.

    >>> import numpy as np
    >>> bulk_store(np.full(32, 7, np.uint8), np.zeros(48, np.uint8), 16, 24)[12:36:4].tolist()
    [0, 7, 7, 7, 7, 0]
    """
    source, target = readable("smem", smem), writeable("memory", memory)
    offset, size = _request(address, size_bytes, memory_address, smem_address, len(target))
    require_smem("smem", source, size)
    target[offset : offset + size] = source[:size]
    return memory


def _request(
    address: Any, size_bytes: Any, memory_address: Any, smem_address: Any, memory_bytes: int
) -> tuple[int, int]:
    """Where the copy starts in the array of global memory, and how many bytes it moves."""
    start, size = integer("address", address), integer("size_bytes", size_bytes)
    first, shared = integer("memory_address", memory_address), integer("smem_address", smem_address)
    limits = (
        ("address", start, _GMEM_ADDRESS_END),
        ("size_bytes", size, _SIZE_END),
        ("memory_address", first, _GMEM_ADDRESS_END),
        ("smem_address", shared, _SMEM_ADDRESS_END),
    )
    if outside := [limit for limit in limits if not 0 <= limit[1] < limit[2]]:
        raise RuleError(
            RANGE.violation(
                name,
                f"{name} = {found}",
                f"a size is 0 to {end - 1} bytes" if name == "size_bytes" else f"an address is 0 to {end - 1:#x}",
                f"Use {name} = {CHUNK_BYTES if found < 0 else (end - 1) // CHUNK_BYTES * CHUNK_BYTES}.",
                **{name: found},
            )
            for name, found, end in outside
        )
    if misaligned := [
        (name, found) for name, found in (("address", start), ("smem_address", shared)) if found % CHUNK_BYTES
    ]:
        raise MisalignedAddressError(
            ADDRESS.violation(
                name, f"{name} = {found:#x}",
                "the addresses of a bulk copy are multiples of 16 bytes",
                f"Use {found // CHUNK_BYTES * CHUNK_BYTES:#x} or {rounded_up(found, CHUNK_BYTES):#x}.",
                {name: found // CHUNK_BYTES * CHUNK_BYTES}, **{name: found},
            )
            for name, found in misaligned
        )  # fmt: skip
    moved, offset = bulk_bytes(size), start - first
    if moved and (offset < 0 or offset + moved > memory_bytes):
        raise MEMORY_EXTENT.error(
            "memory", f"global bytes {start:#x} to {start + moved - 1:#x}",
            f"the array holds {first:#x} to {first + memory_bytes - 1:#x}" if memory_bytes else "the array is empty",
            f"Pass an array of {moved} bytes or more from {start:#x} on.",
            address=start, needed_bytes=moved, memory_address=first, bytes=memory_bytes,
        )  # fmt: skip
    return offset, moved
