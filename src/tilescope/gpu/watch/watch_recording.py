"""A launch that the injection library recorded: its file, made into an archive that `tilescope run` takes.

watch_library/recording.c ── launch-4711.bin ──▶ LaunchDescription and arrays ──▶ matmul.launch
"""

from __future__ import annotations

import re
from ctypes import Structure, c_char, c_int32, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import ARCH
from tilescope.cuda_error import CUDA_ERROR
from tilescope.errors import DeviceError
from tilescope.machine.launch.launch_archive import write_archive
from tilescope.machine.launch.launch_description import BytesArgument, LaunchDescription, MemoryDescription
from tilescope.sentence import by, counted, in_mb

KERNEL = "TILESCOPE_WATCH_RECORD"
NUMBER = "TILESCOPE_WATCH_RECORD_NUMBER"
FOLDER = "TILESCOPE_WATCH_RECORD_FOLDER"
MOST_BYTES = "TILESCOPE_WATCH_RECORD_BYTES"
DEFAULT_MOST_BYTES = 256_000_000
_FIRST_IN_MB = 1_000_000
_VERSION = 1
_NAMES_SHOWN = 8
Bytes = npt.NDArray[np.uint8]


class Header(Structure):
    """Struct launch_header."""

    _fields_ = (
        ("magic", c_char * 8),
        ("version", c_uint32),
        ("capability", c_uint32),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("cluster", c_uint32 * 3),
        ("smem_bytes", c_uint32),
        ("result", c_int32),
        ("parameters", c_uint32),
        ("parameter_bytes", c_uint32),
        ("regions", c_uint32),
        ("name_bytes", c_uint32),
        ("has_after", c_uint32),
        ("unused", c_uint32),
    )


class Parameter(Structure):
    """Struct parameter."""

    _fields_ = (("offset", c_uint32), ("bytes", c_uint32))


class Region(Structure):
    """Struct region: an allocation, and what is recorded of it."""

    _fields_ = (
        ("allocation", c_uint64),
        ("allocation_bytes", c_uint64),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("first", c_uint64),
    )


class RecordedLaunch(NamedTuple):
    """A launch, the arrays that it names, and what the driver answered."""

    launch: LaunchDescription
    arrays: dict[str, Bytes]
    result: int

    @property
    def sentence(self) -> str:
        """The recorded data, the omitted data, and whether the card's bytes after the launch are known."""
        launch = self.launch
        kept_bytes = sum(array.nbytes for name, array in self.arrays.items() if name.startswith("memory"))
        missing_bytes = sum(allocation.missing_bytes for allocation in launch.memory)
        shape = f"grid {by(launch.grid or ())}, block {by(launch.block or ())}"
        parts = [
            f"a launch of {launch.entry}: {shape}, {counted(len(launch.arguments), 'parameter')}",
            f"{counted(len(launch.memory), 'allocation')} of {_size(kept_bytes)}",
        ]
        if missing_bytes:
            parts.append(f"{_size(missing_bytes)} beyond the limit are left out")
        if self.result:
            error = CUDA_ERROR.get(self.result)
            parts.append(f"the card answered {error.name if error else f'error {self.result}'}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Recording:
    """Which launch is to be recorded, where it is written, and how many bytes of memory it may have."""

    kernel: str  # its name, or a part of it
    path: Path
    number: int = 1  # the first, the second … launch of such a kernel
    most_bytes: int = DEFAULT_MOST_BYTES

    def environment(self, folder: str) -> dict[str, str]:
        """What tells the library of it."""
        return {
            KERNEL: self.kernel,
            NUMBER: str(self.number),
            FOLDER: folder,
            MOST_BYTES: str(self.most_bytes),
        }

    def missed(self, kernels: list[str]) -> str:
        """Why there is no file: which kernels were launched instead."""
        which = f"launch {self.number} of a kernel" if self.number > 1 else "no kernel"
        message = f"{which} whose name has {self.kernel!r} was {'never seen' if self.number > 1 else 'launched'}"
        if not kernels:
            return f"{message}: nothing was launched through the driver."
        more = f" and {len(kernels) - _NAMES_SHOWN} more" if len(kernels) > _NAMES_SHOWN else ""
        return f"{message}; launched were {', '.join(kernels[:_NAMES_SHOWN])}{more}."


def default_path(kernel: str) -> Path:
    """Where a recording is written if the user names no file.

    >>> default_path("ns::matmul<float>").name
    'ns_matmul_float.launch'
    """
    return Path(f"{re.sub(r'[^A-Za-z0-9.-]+', '_', kernel).strip('_') or 'kernel'}.launch")


def _size(size_bytes: int) -> str:
    return in_mb(size_bytes) if size_bytes >= _FIRST_IN_MB else counted(size_bytes, "byte")


def parse_launch(content: bytes) -> RecordedLaunch:
    """Parse the file that the library wrote for a launch."""
    header = Header.from_buffer_copy(content)
    if header.magic != b"TSLAUNCH" or header.version != _VERSION:
        raise DeviceError("the file of the recorded launch is not one that this version of tilescope writes.")
    reader = _Reader(content, sizeof(Header))
    name = reader.take(header.name_bytes).decode("utf-8", errors="replace")
    parameters = [Parameter.from_buffer_copy(reader.take(sizeof(Parameter))) for _ in range(header.parameters)]
    values = reader.take(header.parameter_bytes)
    regions = [Region.from_buffer_copy(reader.take(sizeof(Region))) for _ in range(header.regions)]
    before = [reader.array(region.bytes) for region in regions]
    after: list[Bytes | None] = [None] * len(regions)
    if header.has_after:
        after = [reader.array(region.bytes) for region in regions]
    arrays: dict[str, Bytes] = {}
    memory = []
    for number, region in enumerate(regions):
        file = f"memory{number}.npy"
        arrays[file] = before[number]
        left = after[number]
        after_file = ""
        if left is not None:
            after_file = file if np.array_equal(left, before[number]) else f"after{number}.npy"
            arrays[after_file] = left
        missing_bytes = region.allocation_bytes - region.bytes
        memory.append(
            MemoryDescription(address=region.address, file=file, after=after_file, missing_bytes=missing_bytes)
        )
    arch = f"sm_{header.capability}"
    launch = LaunchDescription(
        entry=name,
        grid=tuple(header.grid),
        block=tuple(header.block),
        cluster=tuple(header.cluster) if header.cluster[0] else None,
        smem_bytes=header.smem_bytes,
        arch=arch if arch in ARCH else None,
        arguments=tuple(
            BytesArgument(content=values[parameter.offset : parameter.offset + parameter.bytes].hex())
            for parameter in parameters
        ),
        memory=tuple(memory),
    )
    return RecordedLaunch(launch, arrays, header.result)


class _Reader:
    """Takes a file's bytes in their order."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self._at = at

    def take(self, size_bytes: int) -> bytes:
        """The next bytes."""
        taken = self._content[self._at : self._at + size_bytes]
        if len(taken) != size_bytes:
            raise DeviceError("the file of the recorded launch is cut short.")
        self._at += size_bytes
        return taken

    def array(self, size_bytes: int) -> Bytes:
        """The next bytes as an array."""
        return np.frombuffer(self.take(size_bytes), np.uint8)


def write_recording(recorded: RecordedLaunch, path: Path) -> None:
    """Write the archive."""
    path.write_bytes(write_archive(recorded.launch, recorded.arrays))
