"""The compilers of the nvidia-cuda wheels, which need no card."""

import importlib.util
import os
import subprocess
from pathlib import Path


def cuda_root():
    """The folder of the wheels that holds bin/nvcc, include and lib."""
    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    return next(path.parent.parent for root in roots for path in root.glob("*/bin/nvcc"))


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
    """A tool of the CUDA wheels; what it says is the message of a failure."""
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
