"""The optional packages of tilescope, by the extra that installs them: pip install 'tilescope[web]'.

>>> extra_of("uvicorn.config")
'web'
>>> extra_of("numpy") is None  # no extra: tilescope itself needs it
True
"""

from __future__ import annotations

from typing import NamedTuple


class OptionalPackage(NamedTuple):
    """A package that pip installs, and the top-level module that Python imports from it."""

    name: str
    module: str


class Extra(NamedTuple):
    """A name in the brackets of `pip install 'tilescope[…]'`."""

    name: str
    serves: str  # what works with it
    packages: tuple[OptionalPackage, ...]


EXTRAS = (
    Extra(
        "web",
        "the explorer in a browser: `tilescope serve`",
        (
            OptionalPackage("starlette", "starlette"),
            OptionalPackage("uvicorn", "uvicorn"),
            OptionalPackage("anyio", "anyio"),
        ),
    ),
    Extra(
        "gpu",
        "the card of this machine: `tilescope verify` and `tilescope bench`; `tilescope run --cuda` without nvcc",
        (
            OptionalPackage("cuda-core", "cuda"),
            OptionalPackage("cuda-bindings", "cuda"),
            OptionalPackage("nvidia-cuda-nvrtc", "nvidia"),
        ),
    ),
    Extra(
        "triton",
        "kernels and programs of Triton and Gluon without a GPU: `tilescope run program.py`, `pytest --tilescope`",
        (OptionalPackage("triton", "triton"),),
    ),
    Extra(
        "fast",
        "compiled loops for tensor-core products, scale factors and arithmetic instructions: the same results, faster",
        (OptionalPackage("numba", "numba"),),
    ),
)


def extra_of(module: str) -> str | None:
    """The extra that installs a module, by the first part of its dotted name; None if there is none."""
    top = module.partition(".")[0]
    for extra in EXTRAS:
        if any(package.module == top for package in extra.packages):
            return extra.name
    return None
