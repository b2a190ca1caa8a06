"""What is made from files and takes long, kept as JSON in the user's cache folder.

    tables-3f2a9c01b7d4.json    the digest is that of the files from which it was made: another text, another file

Where the folder cannot be read or written, everything is made anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias
from zlib import adler32, crc32

from tilescope.user_cache import find_cache_folder, write_atomically

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"


def cached_json(name: str, sources: Iterable[bytes], make: Callable[[], Json]) -> Json:
    """What `make` returns for these sources; made once, and read from the cache folder from then on.

    >>> cached_json("example", [b"text"], lambda: ["made"])
    ['made']
    """
    text = b"\0".join(sources)
    # Against a stale file; hashlib takes longer to import than to read it.
    digest = f"{crc32(text):08x}{adler32(text):08x}"
    with suppress(OSError, ValueError, ImportError):  # there is none yet, or somebody else wrote something into it
        cached: Json = json.loads((find_cache_folder() / f"{name}-{digest}.json").read_bytes())
        return cached
    value = make()
    with suppress(OSError, ImportError):
        _keep(name, digest, value)
    return value


def _keep(name: str, digest: str, made: Json) -> None:
    """Write a file whole or not at all, and remove what was made from other sources."""
    folder = find_cache_folder()
    write_atomically(folder / f"{name}-{digest}.json", json.dumps(made).encode())
    for older in folder.glob(f"{name}-*.json"):
        if older.name != f"{name}-{digest}.json":
            older.unlink(missing_ok=True)
