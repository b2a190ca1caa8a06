"""The compilers of the nvidia-cuda wheels, or of the system's CUDA toolkit; they need no card."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path


def cuda_root():
    """The folder that holds bin/nvcc, include and lib: of the wheels, or of the toolkit whose nvcc is on the path."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else map(Path, spec.submodule_search_locations)
    of_wheels = (path.parent.parent for root in roots for path in root.glob("*/bin/nvcc"))
    return next(of_wheels, None) or Path(shutil.which("nvcc")).resolve().parent.parent


def nvrtc(source, target):
    """The cubin that NVRTC makes of a source, without an include path."""
    from cuda.core import Program, ProgramOptions

    return Program(source, "c++", ProgramOptions(arch=target, std="c++17")).compile("cubin").code


def nvrtc_ptx(source, target):
    """The PTX on the way to that cubin."""
    from cuda.bindings import nvrtc as library

    program = _compiled(source, f"--gpu-architecture=compute_{target.removeprefix('sm_')}")
    return _text(program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)


def nvrtc_log(source, target, *options):
    """What NVRTC says about a source while it makes the cubin."""
    from cuda.bindings import nvrtc as library

    program = _compiled(source, f"--gpu-architecture={target}", *options)
    return _text(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)


def _compiled(source, *options):
    from cuda.bindings import nvrtc as library

    status, program = library.nvrtcCreateProgram(source.encode(), b"tile.cu", 0, [], [])
    words = [option.encode() for option in (*options, "--std=c++17")]
    assert int(library.nvrtcCompileProgram(program, len(words), words)[0]) == int(status) == 0
    return program


def _text(program, size_of, copy):
    _, size = size_of(program)
    text = b" " * size
    copy(program, text)
    return text.decode()


def run(program, *arguments):
    """A tool of CUDA; what it says is the message of a failure."""
    root = cuda_root()
    environment = os.environ | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [root / "bin" / program, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def link(source, target, folder):
    """The whole program, compiled and linked by nvcc."""
    path, number = folder / "tile.cu", target.removeprefix("sm_")
    path.write_text(source)
    library = cuda_root() / "lib"
    flags = ["-std=c++17", f"-gencode=arch=compute_{number},code=sm_{number}", f"-L{library}"]
    run("nvcc", *flags, "-o", folder / "tile", path)
    return folder / "tile"
