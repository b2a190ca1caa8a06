"""One-dimensional bulk copies, cp.async.bulk: bytes from one address to another, 16 at a time.

    bulk_load(memory, 0x100, 24)      24 bytes asked ── cut ──▶ 16 moved, 16 counted by the mbarrier

Both addresses are multiples of 16, or the chip answers "misaligned address". A size that is no multiple of 16 is
cut down to one without a word, so a barrier that expects the full size never ends. Measured on an H200.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.errors import MisalignedAddressError, RuleError, Violation
from tilescope.reading import integer, readable, writeable
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.transfer import MEMORY_EXTENT, require_smem

ADDRESS = rule(
    "bulk-address",
    "The shared and the global address of a 1-D bulk copy are multiples of 16 bytes.",
    argument="{name}",
    found="{name} = {number:#x}",
    limit="the addresses of a bulk copy are multiples of 16 bytes",
    fix="Use {below:#x} or {above:#x}.",
    source="an H200, driver 580.159.04, CUDA 13.0",
    basis="measured",
    code=716,
    passing="ts.bulk_load(bytes(64), 16, 16)",
    failing="ts.bulk_load(bytes(64), 8, 16)",
)
RANGE = rule(
    "bulk-range",
    "Addresses and size of a 1-D bulk copy are unsigned numbers that fit into their registers.",
    argument="{name}",
    found="{name} = {number}",
    limit="an address is 0 to {last:#x}",
    fix="Use {name} = {nearest}.",
    source="PTX ISA, cp.async.bulk",
    passing="ts.bulk_load(bytes(64), 0, 16)",
    failing="ts.bulk_load(bytes(64), 0, -16)",
)
_SIZE_RANGE = RANGE.worded(limit="a size is 0 to {last} bytes")
_MEMORY_EXTENT = MEMORY_EXTENT.worded(
    found="global bytes {address:#x} to {last:#x}",
    limit="the array holds {memory_address:#x} to {memory_last:#x}",
    fix="Pass an array of {needed_bytes} bytes or more from {address:#x} on.",
)
_EMPTY_MEMORY = _MEMORY_EXTENT.worded(limit="the array is empty")
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
    """Shared memory after cp.async.bulk from global `address`; the size is rounded down to a multiple of 16.

    `memory[0]` is at global address `memory_address`. `smem`, whose first byte is at `smem_address`, is written
    in place and returned; without it the result is as long as the bytes that moved, which is what the mbarrier counts.

    >>> import numpy as np
    >>> memory = np.arange(64, dtype=np.uint8)
    >>> bulk_load(memory, 16, 24).tolist()  # 24 bytes asked, 16 moved: a barrier that expects 24 never ends
    [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
    """
    source = readable("memory", memory)
    request = _Request.read(address, size_bytes, memory_address=memory_address, smem_address=smem_address)
    begin = request.first_byte(len(source))
    moved = source[begin : begin + request.moved_bytes]
    if smem is None:
        return moved.copy()
    target = writeable("smem", smem)
    require_smem("smem", target, len(moved))
    target[: len(moved)] = moved
    return smem


def bulk_store(
    smem: Any, memory: Any, address: int, size_bytes: int, *, memory_address: int = 0, smem_address: int = 0
) -> Any:
    """Global memory after cp.async.bulk from shared memory; the size is rounded down to a multiple of 16. Returns `memory`.

    `smem[0]` is at shared address `smem_address`, `memory[0]` at global address `memory_address`.

    >>> import numpy as np
    >>> bulk_store(np.full(32, 7, np.uint8), np.zeros(48, np.uint8), 16, 24)[12:36:4].tolist()
    [0, 7, 7, 7, 7, 0]
    """
    source = readable("smem", smem)
    target = writeable("memory", memory)
    request = _Request.read(address, size_bytes, memory_address=memory_address, smem_address=smem_address)
    begin = request.first_byte(len(target))
    require_smem("smem", source, request.moved_bytes)
    target[begin : begin + request.moved_bytes] = source[: request.moved_bytes]
    return memory


class _Request(NamedTuple):
    """A copy that the chip executes."""

    address: int
    size_bytes: int
    memory_address: int
    smem_address: int

    @classmethod
    def read(cls, address: object, size_bytes: object, *, memory_address: object, smem_address: object) -> _Request:
        """The arguments as integers that fit their widths; addresses aligned."""
        request = cls(
            address=integer("address", address),
            size_bytes=integer("size_bytes", size_bytes),
            memory_address=integer("memory_address", memory_address),
            smem_address=integer("smem_address", smem_address),
        )
        too_wide = request._too_wide()
        if too_wide:
            raise RuleError(too_wide)
        require_aligned(address=request.address, smem_address=request.smem_address)
        return request

    @property
    def moved_bytes(self) -> int:
        """What is left of the size."""
        return bulk_bytes(self.size_bytes)

    def first_byte(self, memory_bytes: int) -> int:
        """Where the copy starts in an array of global memory of that length."""
        offset = self.address - self.memory_address
        moved = self.moved_bytes
        if moved and (offset < 0 or offset + moved > memory_bytes):
            wording = _MEMORY_EXTENT if memory_bytes else _EMPTY_MEMORY
            raise wording.error(
                address=self.address,
                last=self.address + moved - 1,
                needed_bytes=moved,
                memory_address=self.memory_address,
                memory_last=self.memory_address + memory_bytes - 1,
                bytes=memory_bytes,
            )
        return offset

    def _too_wide(self) -> list[Violation]:
        problems = []
        for name, number, end in (
            ("address", self.address, _GMEM_ADDRESS_END),
            ("size_bytes", self.size_bytes, _SIZE_END),
            ("memory_address", self.memory_address, _GMEM_ADDRESS_END),
            ("smem_address", self.smem_address, _SMEM_ADDRESS_END),
        ):
            if not 0 <= number < end:
                wording = _SIZE_RANGE if name == "size_bytes" else RANGE.wording
                nearest = CHUNK_BYTES if number < 0 else bulk_bytes(end - 1)
                value: dict[str, Any] = {name: number}
                problems.append(wording.violation(name=name, number=number, last=end - 1, nearest=nearest, **value))
        return problems


def require_aligned(**addresses: int) -> None:
    """Refuse addresses of a bulk copy that are no multiples of 16 bytes, by their names.

    >>> require_aligned(address=0x7F00_0000_0010, smem_address=0x400)
    """
    misaligned = []
    for name, number in addresses.items():
        if number % CHUNK_BYTES:
            below = number // CHUNK_BYTES * CHUNK_BYTES
            above = rounded_up(number, CHUNK_BYTES)
            value: dict[str, Any] = {name: number}
            misaligned.append(
                ADDRESS.violation(change={name: below}, name=name, number=number, below=below, above=above, **value)
            )
    if misaligned:
        raise MisalignedAddressError(misaligned)
