"""Compile CUDA C++ to PTX with the installed compiler: nvcc and g++, otherwise NVRTC. No card is needed.

nvcc     from $CUDA_HOME, PATH or the nvidia-cuda-nvcc package; needs g++ for host code
NVRTC    from the packages cuda-bindings and nvidia-cuda-nvrtc; device code only, headers only from -I

The PTX of nvcc is cached (`ptx_cache`). That of NVRTC is not: it does not list the headers that it read.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilescope.arch import Arch, target_of
from tilescope.errors import DeviceError
from tilescope.machine.launch.ptx_cache import Compilation, cache_ptx, find_cached_ptx, read_dependencies
from tilescope.rule import rule
from tilescope.sentence import shorten

DEFAULT_TARGET = "sm_90a"
_STANDARD = "-std=c++17"
_ERRORS_SHOWN = 12
_LONGEST_LINE = 300
_FIRST_WITH_OWN_FEATURES = (9, 0)  # compute capability; its features need the suffix "a"

CUDA_COMPILE = rule(
    "cuda-compile",
    "The installed CUDA compiler compiles the file.",
    argument="file",
    found="{file}: {errors}",
    limit="{compiler} refuses it",
    fix="Change the source, or pass what it needs: --option=-Iinclude, --option=-DNAME, --arch sm_80.",
    source="nvcc; NVRTC",
)
NO_CUDA_FILE = CUDA_COMPILE.worded(
    found="no such file: {given}",
    limit="the path of a CUDA C++ file",
    fix="Check the path. Write source text to a file first; ts.Kernel takes the text of PTX.",
)


class CompiledCuda(NamedTuple):
    """The PTX of a file, the compiler that produced it, and its target."""

    ptx: str
    compiler: str  # "nvcc V13.4.92"
    target: str
    is_cached: bool = False  # by an earlier compilation of the same files


def compile_cuda(path: Path, *, arch: str | None = None, options: Sequence[str] = ()) -> CompiledCuda:
    """Compile a file with line information.

    A RuleError holds the compiler's errors, a DeviceError reports that no compiler is installed.
    """
    if not _is_file(path):
        raise NO_CUDA_FILE.error(given=shorten(str(path)))
    target = DEFAULT_TARGET if arch is None else choose_target(arch)
    nvcc = find_nvcc()
    if nvcc is not None and shutil.which("g++") is not None:
        return _compile_with_nvcc(nvcc, path, target, options)
    if importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None:
        return compile_with_nvrtc(path.read_bytes(), path.name, target, options)
    if nvcc is not None:
        raise DeviceError(f"{nvcc} needs a C++ compiler beside it, and there is no g++: apt-get install g++.")
    raise DeviceError(
        "CUDA C++ is compiled by nvcc or NVRTC, and neither is installed: set CUDA_HOME to a CUDA toolkit, "
        "or pip install cuda-bindings nvidia-cuda-nvrtc."
    )


def _is_file(path: Path) -> bool:
    """Whether there is a file or a pipe of this name; source text may be too long for a name."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:
        return False


def choose_target(arch: str) -> str:
    """The target for an architecture: from sm_90 on with architecture-specific features (sm_90a), unless the name has a suffix.

    >>> choose_target("sm_80"), choose_target("sm_90"), choose_target("H200"), choose_target("sm_100f")
    ('sm_80', 'sm_90a', 'sm_90a', 'sm_100f')
    """
    if arch.strip().casefold()[-1:] in ("a", "f") and target_of(arch):
        return arch.strip().casefold()
    row = Arch.named(arch)
    name = target_of(arch) or row.name
    return f"{name}a" if row.compute_capability >= _FIRST_WITH_OWN_FEATURES else name


def find_nvcc() -> Path | None:
    """The nvcc of a toolkit or of NVIDIA's Python package; None if there is none."""
    for path in _nvcc_candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _nvcc_candidates() -> Iterator[Path]:
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if root:
            yield Path(root) / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")
    for folder in _package_folders():
        yield from sorted(folder.glob("*/bin/nvcc"), reverse=True)


def _package_folders() -> list[Path]:
    """The folders of NVIDIA's Python packages."""
    package = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in (package and package.submodule_search_locations) or ()]


def _compile_with_nvcc(nvcc: Path, path: Path, target: str, options: Sequence[str]) -> CompiledCuda:
    number = target.removeprefix("sm_")
    # The nvcc of NVIDIA's package does not search its own CCCL folder.
    cccl = nvcc.parent.parent / "include" / "cccl"
    includes = [f"-I{cccl}"] if cccl.is_dir() else []
    command = [str(nvcc), "-ptx", "-lineinfo", _STANDARD, f"-gencode=arch=compute_{number},code=compute_{number}"]
    command += [*includes, *options]
    name = _nvcc_name(nvcc)
    compilation = Compilation(
        source=path.absolute(), compiler=name, command=(*command, str(path)), options=tuple(options)
    )
    cached = find_cached_ptx(compilation)
    if cached is not None:
        return CompiledCuda(cached, name, target, is_cached=True)
    with tempfile.TemporaryDirectory(prefix="tilescope-nvcc-") as folder:
        output = Path(folder) / "kernel.ptx"
        dependencies = Path(folder) / "kernel.d"
        if compilation.is_cacheable:  # otherwise the user's options may ask for dependencies
            command += ["-MD", "-MF", str(dependencies)]
        command += ["-o", str(output), str(path)]
        started_ns = time.time_ns()
        environment = os.environ | {"PATH": f"{nvcc.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        process = subprocess.run(  # noqa: S603
            command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
        )
        if process.returncode:
            raise CUDA_COMPILE.error(
                file=path.name, errors=_select_errors(f"{process.stdout}\n{process.stderr}"), compiler=name
            )
        ptx = output.read_text("utf-8", errors="replace")
        if dependencies.is_file():
            headers = read_dependencies(dependencies.read_text("utf-8", errors="surrogateescape"))
            cache_ptx(compilation, ptx, [header.absolute() for header in headers], started_ns)
        return CompiledCuda(ptx, name, target)


def read_nvcc_version(nvcc: Path) -> str | None:
    """The version that nvcc prints, such as V13.4.92; None if it prints none."""
    try:
        process = subprocess.run(  # noqa: S603
            [str(nvcc), "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError:  # not an executable for this machine
        return None
    versions = [word for word in process.stdout.split() if word.startswith("V") and word[1:2].isdigit()]
    return versions[0] if versions else None


def _nvcc_name(nvcc: Path) -> str:
    version = read_nvcc_version(nvcc)
    return "nvcc" if version is None else f"nvcc {version}"


def compile_with_nvrtc(source: bytes, name: str, target: str, options: Sequence[str] = ()) -> CompiledCuda:
    """Compile a source text with NVRTC; `name` is the file name in error messages."""
    try:
        from cuda.bindings import nvrtc
    except (ImportError, RuntimeError) as error:
        raise DeviceError("NVRTC cannot be loaded: pip install nvidia-cuda-nvrtc.") from error
    _, major, minor = nvrtc.nvrtcVersion()
    compiler = f"NVRTC {major}.{minor}"
    status, program = nvrtc.nvrtcCreateProgram(source, name.encode(), 0, [], [])
    flags = [f"--gpu-architecture=compute_{target.removeprefix('sm_')}", _STANDARD, "-lineinfo"]
    flags += [f"-I{folder}" for folder in _header_folders()]
    encoded = [flag.encode() for flag in (*flags, *options)]
    status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
    if int(status):
        raise CUDA_COMPILE.error(
            file=name, errors=_select_errors(_read_nvrtc_text(nvrtc, program, "Log")), compiler=compiler
        )
    return CompiledCuda(_read_nvrtc_text(nvrtc, program, "PTX"), compiler, target)


def _header_folders() -> Iterator[Path]:
    """Folders of NVIDIA's Python packages with the headers of CUDA and CCCL."""
    for package in _package_folders():
        for folder in sorted(package.glob("*/include")):
            yield folder
            if (folder / "cccl").is_dir():
                yield folder / "cccl"


def _read_nvrtc_text(nvrtc: Any, program: object, what: str) -> str:
    """The log or the PTX of an NVRTC program."""
    sizes = {"Log": nvrtc.nvrtcGetProgramLogSize, "PTX": nvrtc.nvrtcGetPTXSize}
    texts = {"Log": nvrtc.nvrtcGetProgramLog, "PTX": nvrtc.nvrtcGetPTX}
    _, size_bytes = sizes[what](program)
    text = bytes(int(size_bytes))
    texts[what](program, text)
    return text.rstrip(b"\0").decode("utf-8", errors="replace")


def _select_errors(output: str) -> str:
    """The lines of a compiler's output that report errors; all lines if none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line] or lines
    shown = [shorten(line, _LONGEST_LINE) for line in errors[:_ERRORS_SHOWN]]
    if len(errors) > _ERRORS_SHOWN:
        shown.append(f"… {len(errors) - _ERRORS_SHOWN} more lines")
    return "\n".join(shown) or "the compiler gave no reason"
