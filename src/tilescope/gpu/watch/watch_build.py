"""The injection library of `tilescope watch`: its C source, built once with the user's compiler.

    watch_library/*.c ── cc, headers of CUPTI ──▶ ~/.cache/tilescope/watch-1f0c….so ── CUDA_INJECTION64_PATH ──▶ driver

The library opens CUPTI itself when the driver loads it: that of the program if there is one, else the one found here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilescope.errors import DeviceError

SOURCE = Path(__file__).parent / "watch_library"
FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fno-omit-frame-pointer")
HEADERS = ("cupti.h", "cuda.h")


@dataclass(frozen=True, slots=True)
class Cupti:
    """Where CUPTI is: folders with headers, and the shared library."""

    includes: tuple[Path, ...]
    library: Path


def find_cupti() -> Cupti:
    """The CUPTI of the CUDA toolkit, or of the nvidia-cuda-cupti and nvidia-cuda-runtime packages."""
    for folders in _installations():
        headers = [folder / "include" for folder in folders]
        includes = tuple(path for path in headers if path.is_dir())
        paths = [folder / name for folder in folders for name in ("lib64", "lib")]
        built = [min(path.glob("libcupti.so*"), key=lambda file: len(file.name), default=None) for path in paths]
        library = next(filter(None, built), None)
        present = {name for name in HEADERS for path in includes if (path / name).exists()}
        if library and present.issuperset(HEADERS):
            return Cupti(includes, library)
    raise DeviceError(
        "watch needs CUPTI: set CUDA_HOME to a CUDA toolkit that has it, "
        "or pip install nvidia-cuda-cupti nvidia-cuda-runtime nvidia-cuda-crt."
    )


def find_compiler() -> list[str]:
    """The C compiler: $CC, or the first of cc, gcc and clang."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    raise DeviceError("watch builds a small library on first use and found no C compiler: install gcc, or set CC.")


def build_library(cupti: Cupti) -> Path:
    """The library for this CUPTI: cached, or built in a temporary file and moved to the cache, as several ranks may build at once."""
    compiler = find_compiler()
    sources = sorted(SOURCE.glob("*.[ch]"))
    command = [*compiler, *FLAGS, *(f"-isystem{path}" for path in cupti.includes)]
    digest = hashlib.sha256("\0".join([*command, platform.machine(), *platform.libc_ver()]).encode())
    for path in (*sources, *(path / "cupti_version.h" for path in cupti.includes)):
        digest.update(path.read_bytes() if path.exists() else b"")
    library = cache_folder() / f"watch-{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as folder:
        temporary = Path(folder) / library.name
        command += [*(str(path) for path in sources if path.suffix == ".c"), "-o", str(temporary), "-ldl"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)  # noqa: S603
        if done.returncode:
            message = next((line for line in done.stderr.splitlines() if "error" in line), f"status {done.returncode}")
            raise DeviceError(f"watch could not build its library with {command[0]}: {message.strip()}.")
        return temporary.replace(library)


def cache_folder() -> Path:
    """The folder for files of this user that can be made again; a temporary one where there is no home to write to."""
    with suppress(OSError, RuntimeError):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilescope"
        if folder.is_absolute():
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="tilescope-"))


def _installations() -> Iterator[list[Path]]:
    """Folders that together may have CUPTI and its headers: toolkits, then NVIDIA's packages, one folder from CUDA 13 on."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parent.parent]
    for root in (Path(root) for root in (*roots, "/usr/local/cuda") if root):
        yield [root, root / "extras" / "CUPTI", *sorted(root.glob("targets/*"))]
    package = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (package and package.submodule_search_locations) or ()]
    from_13_on = sorted({path.name for place in places for path in place.glob("cu[0-9]*")}, reverse=True)
    for names in (*([name] for name in from_13_on), ["cuda_cupti", "cuda_runtime"]):
        yield [place / name for place in places for name in names]
