"""Global memory of a recorded launch, at the addresses it had on the card.

    [[memory]]
    address = "0x7f0000000000"     where the bytes were on the card, and are placed here: pointers in them stay valid
    file = "memory0.npy"           the bytes before the launch
    after = "after0.npy"           the bytes the card left, which the run is compared with

`tilescope watch --record` records such launches; `described_launch` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.machine.launch.argument_builder import ReadArray
from tilescope.machine.launch.launch_description import MemoryDescription
from tilescope.machine.memory import Memory, contents_of
from tilescope.rule import rule
from tilescope.sync.address import WINDOW_BYTES, WINDOWS
from tilescope.value import Value, hex_field

_PLACE = "ts.machine.launch.recorded_memory.place_recorded_memory"
_DESCRIPTION = "ts.machine.launch.launch_description.MemoryDescription"
_ZEROS = "lambda file: np.zeros(64, 'u1')"

LAUNCH_MEMORY = rule(
    "launch-memory",
    "Allocations of a recorded launch, at their addresses on the card, do not overlap each other or shared or local "
    "memory.",
    argument="memory",
    found="{size_bytes} bytes at {address:#x}",
    limit="{other} is stored there",
    fix="Record the launch again: addresses differ from run to run.",
    source="the machine: where shared, local and parameter memory are among generic addresses",
    passing=f"{_PLACE}({_DESCRIPTION}(address=0x7F0000000000, file='a'), ts.Memory(), {_ZEROS})",
    failing=f"{_PLACE}({_DESCRIPTION}(address=0x7E0000000000, file='a'), ts.Memory(), {_ZEROS})",
)
UNREADABLE_RECORDING = LAUNCH_MEMORY.worded(
    found="{file}: {reason}",
    limit="the bytes of the memory are read from there",
    fix="Name a file of the archive, or one beside the launch file.",
)
OTHER_SIZE_AFTER = LAUNCH_MEMORY.worded(
    found="{file} has {after_bytes:byte}",
    limit="the memory at {address:#x} has {size_bytes:byte}, before the launch and after it",
    fix="Name the file that was recorded for this memory, or leave out `after`.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome(Value):
    """Memory of a recorded launch after the run here: the bytes that changed, and those that differ from the card's."""

    address: int = hex_field()
    size_bytes: int
    changed_bytes: int
    differing_bytes: int | None  # None: the recording does not include the bytes after the launch
    first_difference: int | None = hex_field(default=None)
    missing_bytes: int = 0


class PlacedMemory(NamedTuple):
    """Recorded bytes in the memory of a run, and a copy of them from before the run."""

    description: MemoryDescription
    content: npt.NDArray[np.uint8]
    before: npt.NDArray[np.uint8]


def place_recorded_memory(description: MemoryDescription, memory: Memory, read: ReadArray) -> PlacedMemory:
    """Place recorded bytes at the address they had on the card; `read` returns the array of a file."""
    content = _read_bytes(description.file, read).copy()
    start = description.address
    end = start + len(content)
    for space, window_start in WINDOWS.items():
        if start < window_start + WINDOW_BYTES and window_start < end:
            raise LAUNCH_MEMORY.error(address=start, size_bytes=len(content), other=f"{space} memory")
    if not contents_of(memory).place_at(start, content):
        raise LAUNCH_MEMORY.error(address=start, size_bytes=len(content), other="other memory of the launch")
    return PlacedMemory(description, content, content.copy())


def compare_recorded_memory(placed: PlacedMemory, read: ReadArray) -> MemoryOutcome:
    """Compare memory after a run with its bytes before the run, and with those that the card left."""
    description, content, before = placed
    differing_bytes: int | None = None
    first_difference: int | None = None
    if description.after:
        after = _read_bytes(description.after, read)
        if len(after) != len(content):
            raise OTHER_SIZE_AFTER.error(
                file=description.after, after_bytes=len(after), address=description.address, size_bytes=len(content)
            )
        offsets = np.flatnonzero(content != after)
        differing_bytes = len(offsets)
        first_difference = description.address + int(offsets[0]) if differing_bytes else None
    return MemoryOutcome(
        address=description.address,
        size_bytes=len(content),
        changed_bytes=int((content != before).sum()),
        differing_bytes=differing_bytes,
        first_difference=first_difference,
        missing_bytes=description.missing_bytes,
    )


def _read_bytes(file: str, read: ReadArray) -> npt.NDArray[np.uint8]:
    try:
        return np.ascontiguousarray(read(file)).reshape(-1).view(np.uint8)
    except (OSError, ValueError) as error:
        if isinstance(error, RuleError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UNREADABLE_RECORDING.error(file=file, reason=reason) from None
