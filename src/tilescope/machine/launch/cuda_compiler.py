"""CUDA C++ as PTX, compiled by what is installed here: nvcc and a C++ compiler, else NVRTC. No card is needed.

nvcc     of $CUDA_HOME, of PATH, or of the nvidia-cuda-nvcc package; needs g++ for the host's half
NVRTC    of the packages cuda-bindings and nvidia-cuda-nvrtc; device code alone, and headers only where -I says
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilescope.arch import Arch, target_of
from tilescope.errors import DeviceError
from tilescope.rule import rule
from tilescope.sentence import shortened

DEFAULT_TARGET = "sm_90a"
_STANDARD = "-std=c++17"
_ERRORS_SHOWN = 12
_LONGEST_LINE = 300
_FIRST_WITH_OWN_FEATURES = (9, 0)  # compute capabilities whose features need the suffix "a"

CUDA_COMPILE = rule(
    "cuda-compile",
    "The CUDA compiler that is installed here compiles the file.",
    argument="file",
    found="{file}: {errors}",
    limit="{compiler} refuses it",
    fix="Change the source, or pass what it needs: --option=-Iinclude, --option=-DNAME, --arch sm_80.",
    source="nvcc; NVRTC",
)


class CompiledCuda(NamedTuple):
    """The PTX of a file, and who made it."""

    ptx: str
    compiler: str  # "nvcc, V13.4.92"
    target: str


def compile_cuda(path: Path, *, arch: str | None = None, options: Sequence[str] = ()) -> CompiledCuda:
    """Compile a file with line numbers; a RuleError has the compiler's words, a DeviceError says that there is none."""
    target = DEFAULT_TARGET if arch is None else compile_target(arch)
    nvcc = find_nvcc()
    if nvcc is not None and shutil.which("g++") is not None:
        return _by_nvcc(nvcc, path, target, options)
    if importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None:
        return by_nvrtc(path.read_bytes(), path.name, target, options)
    if nvcc is not None:
        raise DeviceError(f"{nvcc} needs a C++ compiler beside it, and there is no g++: apt-get install g++.")
    raise DeviceError(
        "CUDA C++ is compiled by nvcc or NVRTC, and neither is installed: set CUDA_HOME to a CUDA toolkit, "
        "or pip install cuda-bindings nvidia-cuda-nvrtc."
    )


def compile_target(arch: str) -> str:
    """The target for an architecture; from sm_90 on the one with its own features, unless the name says otherwise.

    >>> compile_target("sm_80"), compile_target("sm_90"), compile_target("H200"), compile_target("sm_100f")
    ('sm_80', 'sm_90a', 'sm_90a', 'sm_100f')
    """
    if arch.strip().casefold()[-1:] in ("a", "f") and target_of(arch):
        return arch.strip().casefold()
    row = Arch.named(arch)
    name = target_of(arch) or row.name
    return f"{name}a" if row.compute_capability >= _FIRST_WITH_OWN_FEATURES else name


def find_nvcc() -> Path | None:
    """The nvcc of a toolkit or of NVIDIA's package."""
    for place in _nvcc_places():
        if place.is_file() and os.access(place, os.X_OK):
            return place
    return None


def _nvcc_places() -> Iterator[Path]:
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if root:
            yield Path(root) / "bin" / "nvcc"
    found = shutil.which("nvcc")
    if found:
        yield Path(found)
    yield Path("/usr/local/cuda/bin/nvcc")
    for place in _package_folders():
        yield from sorted(place.glob("*/bin/nvcc"), reverse=True)


def _package_folders() -> list[Path]:
    """The folders of NVIDIA's Python packages."""
    package = importlib.util.find_spec("nvidia")
    return [Path(place) for place in (package and package.submodule_search_locations) or ()]


def _by_nvcc(nvcc: Path, path: Path, target: str, options: Sequence[str]) -> CompiledCuda:
    number = target.removeprefix("sm_")
    # The package's folder of CCCL is not on its own nvcc's list; a toolkit has it at the same place.
    includes = [f"-I{place}" for place in (nvcc.parent.parent / "include" / "cccl",) if place.is_dir()]
    with tempfile.TemporaryDirectory(prefix="tilescope-nvcc-") as folder:
        made = Path(folder) / "kernel.ptx"
        command = [str(nvcc), "-ptx", "-lineinfo", _STANDARD, f"-gencode=arch=compute_{number},code=compute_{number}"]
        command += [*includes, *options, "-o", str(made), str(path)]
        environment = os.environ | {"PATH": f"{nvcc.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
        )
        if done.returncode:
            raise CUDA_COMPILE.error(
                file=path.name, errors=_errors(f"{done.stdout}\n{done.stderr}"), compiler=_nvcc_name(nvcc)
            )
        return CompiledCuda(made.read_text("utf-8", errors="replace"), _nvcc_name(nvcc), target)


def nvcc_version(nvcc: Path) -> str | None:
    """The version that nvcc prints, such as V13.4.92; None where it prints none."""
    try:
        done = subprocess.run(  # noqa: S603
            [str(nvcc), "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError:  # a file of that name that this machine cannot start
        return None
    versions = [word for word in done.stdout.split() if word.startswith("V") and word[1:2].isdigit()]
    return versions[0] if versions else None


def _nvcc_name(nvcc: Path) -> str:
    version = nvcc_version(nvcc)
    return "nvcc" if version is None else f"nvcc {version}"


def by_nvrtc(source: bytes, name: str, target: str, options: Sequence[str] = ()) -> CompiledCuda:
    """Compile a text by NVRTC; `name` is the file that errors name."""
    try:
        from cuda.bindings import nvrtc
    except (ImportError, RuntimeError) as error:
        raise DeviceError("NVRTC cannot be loaded: pip install nvidia-cuda-nvrtc.") from error
    _, major, minor = nvrtc.nvrtcVersion()
    compiler = f"NVRTC {major}.{minor}"
    status, program = nvrtc.nvrtcCreateProgram(source, name.encode(), 0, [], [])
    words = [f"--gpu-architecture=compute_{target.removeprefix('sm_')}", _STANDARD, "-lineinfo"]
    words += [f"-I{place}" for place in _header_folders()]
    flags = [word.encode() for word in (*words, *options)]
    status = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
    if int(status):
        raise CUDA_COMPILE.error(file=name, errors=_errors(_nvrtc_text(nvrtc, program, "Log")), compiler=compiler)
    return CompiledCuda(_nvrtc_text(nvrtc, program, "PTX"), compiler, target)


def _header_folders() -> Iterator[Path]:
    """Where NVIDIA's packages keep the headers of CUDA and of its C++ library."""
    for place in _package_folders():
        for folder in sorted(place.glob("*/include")):
            yield folder
            if (folder / "cccl").is_dir():
                yield folder / "cccl"


def _nvrtc_text(nvrtc: Any, program: object, what: str) -> str:
    """The log or the PTX of a program."""
    sizes = {"Log": nvrtc.nvrtcGetProgramLogSize, "PTX": nvrtc.nvrtcGetPTXSize}
    texts = {"Log": nvrtc.nvrtcGetProgramLog, "PTX": nvrtc.nvrtcGetPTX}
    _, size_bytes = sizes[what](program)
    text = bytes(int(size_bytes))
    texts[what](program, text)
    return text.rstrip(b"\0").decode("utf-8", errors="replace")


def _errors(output: str) -> str:
    """The lines of a compiler's output that report errors; all lines if none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line] or lines
    shown = [shortened(line, _LONGEST_LINE) for line in errors[:_ERRORS_SHOWN]]
    if len(errors) > _ERRORS_SHOWN:
        shown.append(f"… {len(errors) - _ERRORS_SHOWN} more lines")
    return "\n".join(shown) or "the compiler gave no reason"
