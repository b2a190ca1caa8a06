"""Known kernels as files to start from, each held to its public source by file and line.

    flash-attention-3-forward.toml     the kernel, with the sizes of one head dimension
    variants.toml                      the sizes of the other ones

The text of a variant is that of its file with another line of sizes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from tilescope.errors import PlainData, RuleError, unknown_name
from tilescope.pipeline.toml_text import toml_value

_TEMPLATES = files(__package__) / "templates"
_VARIANTS = "variants.toml"
_SIZES = "sizes = "
_NAME = "name = "
_ENDING = ".toml"


@cache
def _variants() -> dict[str, PlainData]:
    """The variants by name: the file that each is one of, its sizes, and its source."""
    return tomllib.loads((_TEMPLATES / _VARIANTS).read_text("utf-8"))


@cache
def known_kernel_names() -> tuple[str, ...]:
    """The names of all known kernels, sorted.

    >>> "flash-attention-3-forward-128" in known_kernel_names()
    True
    """
    file_names = [file.name.removesuffix(_ENDING) for file in _TEMPLATES.iterdir() if file.name.endswith(_ENDING)]
    bases = {row["file"] for row in _variants().values()}
    alone = [name for name in file_names if name not in bases and name != _VARIANTS.removesuffix(_ENDING)]
    return tuple(sorted([*alone, *_variants()]))


def known_kernel_text(name: str) -> str:
    """The file of a known kernel; an unknown name is refused with a list of the known ones.

    >>> known_kernel_text("flash-attention-3-forward-64").startswith("# FlashAttention-3")
    True
    """
    if name not in known_kernel_names():
        raise RuleError([unknown_name("kernel", "template", name, known_kernel_names())])
    variant = _variants().get(name)
    if variant is None:
        return (_TEMPLATES / f"{name}{_ENDING}").read_text("utf-8")
    text = (_TEMPLATES / f"{variant['file']}{_ENDING}").read_text("utf-8")
    return "".join(f"{_vary(line, name, variant)}\n" for line in text.splitlines())


def _vary(line: str, name: str, variant: Mapping[str, object]) -> str:
    """A line of a file for the variant, with its name and its sizes."""
    if line.startswith(_SIZES):
        return f"{_SIZES}{toml_value(variant['sizes'])}    # {variant['source']}"
    if line.startswith(_NAME):
        return f"{_NAME}{toml_value(name)}"
    return line
