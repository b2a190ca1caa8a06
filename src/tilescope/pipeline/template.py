"""Descriptions to start from: TOML files beside this module, with comments that name CUTLASS's and CuTe DSL's words."""

from __future__ import annotations

from importlib.resources import files

from tilescope.errors import RuleError, unknown_name

_FOLDER = files(__package__) / "templates"
_ENDING = ".toml"


def template_names() -> tuple[str, ...]:
    """The names of all templates, sorted.

    >>> template_names()[:2]
    ('cooperative-store', 'flash-attention-3')
    """
    names = (file.name for file in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)))


def template_text(name: str) -> str:
    """The text of a template; an unknown name is refused with a list of the known ones."""
    if name not in template_names():
        raise RuleError([unknown_name("template", "template", name, template_names())])
    return (_FOLDER / f"{name}{_ENDING}").read_text("utf-8")
