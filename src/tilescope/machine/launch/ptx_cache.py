"""A cache of compiled PTX in the user's cache folder, by what determines it.

    cuda/KEY-HEADERS.json     KEY      compiler, its options, the source file, environment variables that compilers read
                              HEADERS  every header that the compilation read, the toolkit's too

An entry has the headers with their digests. It is valid while each header has the same content, and while no file has
appeared or disappeared that an `#include` could find first. A file whose absence `__has_include` tested is not tracked.

Least recently used entries are removed once the folder exceeds its limit: 256 MiB, or TILESCOPE_CUDA_CACHE_MIB; 0 switches the cache off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tilescope.errors import RuleError, argument_type
from tilescope.user_cache import find_cache_folder, remove_least_recently_used, write_atomically

LIMIT_VARIABLE = "TILESCOPE_CUDA_CACHE_MIB"
_DEFAULT_LIMIT_MIB = 256
_FORMAT = 1  # of an entry
_DIGEST_CHARACTERS = 32
_FOLDER_LISTS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")  # of include folders, read by g++
_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", *_FOLDER_LISTS)
_WRITING_OPTIONS = ("keep", "save-temps", "M", "generate-dep", "dependency", "time", "fdevice-time-trace")
_DEPENDENCY = re.compile(r"(?:\\.|[^\s\\])+")
_ESCAPED = re.compile(r"\\(.)|\$\$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What determines the PTX of a source file, but for its headers."""

    source: Path
    compiler: str  # with its version
    command: tuple[str, ...]  # without the file that it writes
    options: tuple[str, ...] = ()  # of the user; they may name files and folders

    @property
    def key(self) -> str:
        """The digest of everything that is known before the compilation."""
        digest = sha256()
        settings = [os.environ.get(name) for name in _ENVIRONMENT]
        words = [_FORMAT, self.compiler, _identify_host_compiler(), *self.command, str(Path.cwd()), *settings]
        digest.update(json.dumps(words).encode())
        for path in (self.source, *_list_named_files(self.options)):
            digest.update(b"\0%b\0" % os.fsencode(path))
            digest.update(path.read_bytes())
        return digest.hexdigest()[:_DIGEST_CHARACTERS]

    @property
    def is_cacheable(self) -> bool:
        """Whether PTX is all that the compilation writes."""
        named = [option.lstrip("-") for option in self.options if option.startswith("-")]
        return not any(option.startswith(_WRITING_OPTIONS) for option in named)

    def list_search_folders(self) -> list[Path]:
        """The folders in which the compiler looks for headers, but for its own."""
        environment_folders = [
            folder for name in _FOLDER_LISTS for folder in os.environ.get(name, "").split(os.pathsep) if folder
        ]
        named = [path for path in map(Path, (*_list_named_parts(self.options), *environment_folders)) if path.is_dir()]
        return [self.source.parent, *named]


def find_cached_ptx(compilation: Compilation) -> str | None:
    """The PTX of an earlier compilation that read the same files; None if there is none."""
    if not read_limit_bytes() or not compilation.is_cacheable:
        return None
    with suppress(OSError, ImportError):  # no folder, or another process removed the entry
        for path in _find_cuda_folder().glob(f"{compilation.key}-*.json"):
            entry = _read_entry(path)
            if entry is not None and _is_valid(entry, compilation):
                os.utime(path)  # used last
                return str(entry["ptx"])
    return None


def cache_ptx(compilation: Compilation, ptx: str, headers: Iterable[Path], started_ns: int) -> None:
    """Keep PTX for the next time, unless a header was written after `started_ns`, when the compilation began."""
    limit_bytes = read_limit_bytes()
    if not limit_bytes or not compilation.is_cacheable:
        return
    with suppress(OSError, ImportError):
        paths = sorted({*headers, compilation.source})
        if any(path.stat().st_mtime_ns >= started_ns for path in paths):
            return
        digests = {str(path): _digest_file(path) for path in paths}
        candidate_digest = _digest_candidates(compilation, digests)
        entry = {"headers": digests, "found": candidate_digest, "ptx": ptx}
        content = json.dumps(entry).encode()
        if len(content) <= limit_bytes:
            folder = _find_cuda_folder()
            header_key = sha256(json.dumps([digests, candidate_digest]).encode()).hexdigest()[:_DIGEST_CHARACTERS]
            write_atomically(folder / f"{compilation.key}-{header_key}.json", content)
            remove_least_recently_used(folder, limit_bytes)


def read_dependencies(text: str) -> list[Path]:
    r"""The files that a rule of make depends on, as nvcc -MD writes it.

    >>> [path.name for path in read_dependencies("k.ptx : /a/k.cu \\\n    /a/my\\ header.h")]
    ['k.cu', 'my header.h']
    """
    files = text.partition(" : ")[2].replace("\\\n", " ")
    return [Path(_ESCAPED.sub(lambda match: match[1] or "$", word)) for word in _DEPENDENCY.findall(files)]


def read_limit_bytes() -> int:
    """The most bytes that the cache holds; 0 if it is switched off."""
    text = os.environ.get(LIMIT_VARIABLE, str(_DEFAULT_LIMIT_MIB)).strip()
    if not text.isdecimal():
        fix = f"Use {_DEFAULT_LIMIT_MIB}, or 0 to switch the cache off."
        raise RuleError([argument_type(LIMIT_VARIABLE, text, "a number of MiB", fix)])
    return int(text) << 20


def _find_cuda_folder() -> Path:
    return find_cache_folder() / "cuda"


def _identify_host_compiler() -> list[str | int]:
    """The g++ that nvcc preprocesses with: its file, by place, size and time. Its headers are hashed with all others."""
    executable = shutil.which("g++")
    if executable is None:
        return []
    path = Path(executable).resolve()
    return [str(path), path.stat().st_size, path.stat().st_mtime_ns]


def _list_named_parts(options: Iterable[str]) -> Iterator[str]:
    """The parts of options that may be the name of a file or a folder.

    >>> [*_list_named_parts(["-Iinclude", "--include-path=a,b", "-include", "x.h"])]
    ['-Iinclude', 'include', '--include-path=a', 'b', 'a', '-include', 'x.h']
    """
    for option in options:
        pieces = option.split(",")
        yield from pieces
        for piece in pieces:
            if piece.startswith("-I") and len(piece) > len("-I"):
                yield piece.removeprefix("-I")
            elif "=" in piece:
                yield piece.partition("=")[2]


def _list_named_files(options: Iterable[str]) -> list[Path]:
    """Files that options name, such as a file of further options."""
    return [path for path in map(Path, _list_named_parts(options)) if path.is_file()]


def _read_entry(path: Path) -> Mapping[str, object] | None:
    """An entry of the cache; None if its content is not one."""
    try:
        entry: object = json.loads(path.read_bytes())
    except ValueError:
        return None
    is_entry = isinstance(entry, dict) and isinstance(entry.get("headers"), dict) and isinstance(entry.get("ptx"), str)
    return entry if is_entry and isinstance(entry, dict) else None


def _is_valid(entry: Mapping[str, object], compilation: Compilation) -> bool:
    headers = entry["headers"]
    assert isinstance(headers, dict)
    try:
        is_unchanged = all(_digest_file(Path(path)) == digest for path, digest in headers.items())
    except OSError:  # a header was removed
        return False
    return is_unchanged and _digest_candidates(compilation, headers) == entry.get("found")


def _digest_file(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:_DIGEST_CHARACTERS]


def _digest_candidates(compilation: Compilation, headers: Iterable[str]) -> str:
    """The digest of the files that an `#include` of one of these headers could find.

    An `#include` has the end of a header's path. `#include "cute/config.hpp"` is searched in every include folder, and
    in the folder of the including file.
    """
    folders = {folder.absolute() for folder in compilation.list_search_folders()}
    roots = tuple(f"{folder}{os.sep}" for folder in folders)
    endings: dict[str, set[str]] = {}  # by their first part
    for header in headers:
        _, *parts = Path(header).parts
        for start, part in enumerate(parts):
            endings.setdefault(part, set()).add("/".join(parts[start:]))
        if header.startswith(roots):
            folders.add(Path(header).parent)
    existing = []
    for folder in folders:
        with suppress(OSError):  # a folder that cannot be read
            names = endings.keys() & {path.name for path in folder.iterdir()}
            candidates = (folder / ending for name in names for ending in endings[name])
            existing += [str(path) for path in candidates if path.is_file()]
    return sha256(os.fsencode("\0".join(sorted(existing)))).hexdigest()[:_DIGEST_CHARACTERS]
