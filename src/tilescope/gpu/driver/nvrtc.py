"""Compiles the CUDA C++ of gpu/kernels, and of generated programs, to cubins with NVRTC, which needs no GPU."""

from __future__ import annotations

from importlib.resources import files


def kernel_source(name: str) -> str:
    """CUDA C++ of one file of kernels, with the shared prologue in front."""
    folder = files("tilescope.gpu") / "kernels"
    return "".join((folder / file).read_text("utf-8") for file in ("prologue.cuh", f"{name}.cu"))


def compile_kernels(name: str, target: str) -> bytes:
    """Compile one file of kernels to a cubin for a target such as "sm_90a"."""
    return compile_text(kernel_source(name), target)


def compile_text(text: str, target: str) -> bytes:
    """Compile CUDA C++ to a cubin."""
    from cuda.core import Program, ProgramOptions

    return bytes(Program(text, "c++", ProgramOptions(arch=target, std="c++17")).compile("cubin").code)
