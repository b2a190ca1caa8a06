"""The user's cache folder, and how files come into it: whole or not at all, whoever else writes there.

Nothing depends on what it holds. Where the folder cannot be read or written, everything is made anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def find_cache_folder() -> Path:
    """The folder for tilescope's files that can be created again.

    ImportError without platformdirs, which determines it; OSError for a user without a home directory, as in some containers.
    """
    from platformdirs import user_cache_path  # only if something is cached

    try:
        return user_cache_path("tilescope", appauthor=False)
    except RuntimeError as error:
        raise OSError(str(error)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that no process reads a part of it; make its folder if need be.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "cache", "entry.json")
    ...     write_atomically(path, b"{}")
    ...     path.read_bytes(), len(list(path.parent.iterdir()))
    (b'{}', 1)
    """
    import tempfile  # only where something is written: it loads hashlib

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".unfinished")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def remove_least_recently_used(folder: Path, limit_bytes: int) -> None:
    """Remove files, unfinished ones too, until the rest is within the limit."""
    files: list[tuple[int, int, Path]] = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process removed it
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    total_bytes = sum(size_bytes for _, size_bytes, _ in files)
    for _, size_bytes, path in sorted(files):
        if total_bytes <= limit_bytes:
            return
        path.unlink(missing_ok=True)
        total_bytes -= size_bytes
