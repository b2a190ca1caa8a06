"""A launch and the arrays that it names, in one file: what `tilescope watch --record` writes and `tilescope run` takes.

    matmul.launch           a ZIP archive
      launch.toml           a launch file, which names the others
      memory0.npy           bytes before the launch
      after0.npy            bytes that the card left

An archive unpacked into a folder is an ordinary launch file with its arrays.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.launch.launch_description import LaunchDescription
from tilescope.machine.launch.launch_file import LAUNCH_FILE, format_launch, read_launch
from tilescope.sentence import shorten
from tilescope.tma.array_file import as_npy

Array = npt.NDArray[Any]

LAUNCH_NAME = "launch.toml"
LARGEST_MEMBER_BYTES = 1 << 32
_MAGIC = b"PK\x03\x04"


class LaunchArchive(NamedTuple):
    """A launch, and the contents of the files that it names."""

    launch: LaunchDescription
    files: Mapping[str, bytes]

    def read_array(self, name: str) -> Array:
        """Read the array of a file; an OSError if the archive does not include the file."""
        if name not in self.files:
            raise FileNotFoundError(2, "not in the archive", name)
        array: Array = np.load(BytesIO(self.files[name]), allow_pickle=False)
        return array


def is_archive(content: bytes) -> bool:
    """Whether the bytes of a file are an archive."""
    return content.startswith(_MAGIC)


def read_archive(content: bytes, name: str) -> LaunchArchive:
    """Read the launch in an archive; `name` is the file name in error messages.

    >>> content = write_archive(LaunchDescription(grid=(4,)), {"memory0.npy": np.arange(3)})
    >>> read_archive(content, "k.launch").launch.grid, read_archive(content, "k.launch").read_array("memory0.npy").tolist()
    ((4,), [0, 1, 2])
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            large = [member.filename for member in archive.infolist() if member.file_size > LARGEST_MEMBER_BYTES]
            if large:
                raise LAUNCH_FILE.error(name=name, error=f"{large[0]} has more than {LARGEST_MEMBER_BYTES} bytes")
            files = {member: archive.read(member) for member in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise LAUNCH_FILE.error(name=name, error=shorten(str(error))) from None
    if LAUNCH_NAME not in files:
        raise LAUNCH_FILE.error(name=name, error=f"an archive without {LAUNCH_NAME}")
    return LaunchArchive(read_launch(files[LAUNCH_NAME], f"{name}, {LAUNCH_NAME}"), files)


def write_archive(launch: LaunchDescription, arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an archive with a launch and its arrays; equal launches give equal bytes."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add_file(archive, LAUNCH_NAME, f"{format_launch(launch)}\n".encode())
        for name, array in arrays.items():
            _add_file(archive, name, as_npy(array))
    return buffer.getvalue()


def _add_file(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
