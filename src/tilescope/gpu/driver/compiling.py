"""CUDA C++ of the package, and of programs that it writes, as cubins for the card. NVRTC needs no GPU."""

from __future__ import annotations

from importlib.resources import files


def source(name: str) -> str:
    """The text that is compiled for a file of kernels: what all share, then its own."""
    folder = files("tilescope.gpu") / "kernels"
    return "".join((folder / file).read_text("utf-8") for file in ("prologue.cuh", f"{name}.cu"))


def compiled(name: str, target: str) -> bytes:
    """The cubin of a file of kernels for a target such as "sm_90a"."""
    return compiled_text(source(name), target)


def compiled_text(text: str, target: str) -> bytes:
    """CUDA C++ as a cubin."""
    from cuda.core import Program, ProgramOptions

    return bytes(Program(text, "c++", ProgramOptions(arch=target, std="c++17")).compile("cubin").code)
