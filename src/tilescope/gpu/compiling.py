"""The kernels of this package, compiled by NVRTC: files that take their cases as data, so that each is compiled once.

NVRTC needs no GPU, so every kernel can be compiled on any machine.
"""

from __future__ import annotations

from importlib.resources import files

_FOLDER = files("tilescope.gpu") / "kernels"
_PROLOGUE = "prologue.cuh"


def kernel_files() -> tuple[str, ...]:
    """The names of the files with kernels.

    >>> "copies" in kernel_files()
    True
    """
    return tuple(sorted(each.name.removesuffix(".cu") for each in _FOLDER.iterdir() if each.name.endswith(".cu")))


def source(name: str) -> str:
    """The text that is compiled for a file: what all share, then its own."""
    return (_FOLDER / _PROLOGUE).read_text("utf-8") + (_FOLDER / f"{name}.cu").read_text("utf-8")


def compiled(name: str, target: str) -> bytes:
    """The cubin of a file of kernels for a target such as "sm_90a"."""
    from cuda.core import Program, ProgramOptions

    return bytes(Program(source(name), "c++", ProgramOptions(arch=target)).compile("cubin").code)
