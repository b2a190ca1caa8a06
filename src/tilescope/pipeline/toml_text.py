"""A pipeline as TOML, written as the documentation writes it: a table a line, steps below their role.

    [barriers]
    full = {count = 1, stages = 3}

    [[roles]]
    name = "producer"
    steps = [
        {loop = "i", count = 64, steps = [
            {wait = "empty[i % 3]", parity = "i / 3 % 2 ^ 1"},
        ]},
    ]

Fields with their default values are left out. `Pipeline.from_text` gives back an equal pipeline.

Templates are such files, with comments that name CUTLASS's and CuTe DSL's words: descriptions to start from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files

from tilescope.errors import RuleError, unknown_name
from tilescope.pipeline.description import Pipeline, field_defaults
from tilescope.pipeline.parts import Barrier, Flag, Loop, Role, Slot, Step
from tilescope.pipeline.pipeline_rules import Plain

_TEMPLATES = files(__package__) / "templates"
_TEMPLATE_ENDING = ".toml"
_INDENT = "    "
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(pipeline: Pipeline) -> str:
    """The file that describes a pipeline.

    >>> steps = [{"arrive": "full"}]
    >>> pipeline = Pipeline.from_dict({"barriers": {"full": {"count": 1}}, "roles": [{"name": "p", "steps": steps}]})
    >>> print(toml_text(pipeline).splitlines()[3])
    full = {count = 1}
    >>> Pipeline.from_text(toml_text(pipeline).encode(), "kernel.toml") == pipeline
    True
    """
    data = pipeline.to_dict()
    lines = [
        f"{name} = {toml_value(data[name])}"
        for name in ("name", "cluster", "constants", "registers", "not_covered", "mistakes_found", "basis")
        if name in data
    ]
    rows = {"barriers": Barrier, "slots": Slot, "flags": Flag}
    for kind, row_class in rows.items():
        if data.get(kind):
            lines += ["", f"[{kind}]"]
            defaults = field_defaults(row_class)
            lines += [f"{_key(name)} = {toml_value(_drop_defaults(row, defaults))}" for name, row in data[kind].items()]
    for role in pipeline.roles:
        stated = _drop_defaults(role.plain(), field_defaults(Role))
        lines += ["", "[[roles]]"]
        lines += [f"{name} = {toml_value(value)}" for name, value in stated.items() if name != "steps"]
        lines += ["steps = [", *_steps(role.steps, _INDENT), "]"]
    return "\n".join(lines) + "\n"


def _drop_defaults(row: Plain, defaults: Plain) -> Plain:
    """The fields of a row without those that have their default values."""
    return {name: value for name, value in row.items() if name not in defaults or value != defaults[name]}


def _steps(steps: Iterable[Step | Loop], indent: str) -> Iterator[str]:
    """A line for each step; those of a loop are below it."""
    for step in steps:
        if isinstance(step, Loop):
            fields = [f"{_key(name)} = {toml_value(value)}" for name, value in step.plain().items() if name != "steps"]
            yield f"{indent}{{{', '.join(fields)}, steps = ["
            yield from _steps(step.steps, indent + _INDENT)
            yield f"{indent}]}},"
        else:
            yield f"{indent}{toml_value(step.plain())},"


def toml_value(value: object) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {toml_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return repr(value)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quote_text(name)


def _quote_text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's; TOML has one more, and no halves of surrogate pairs."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(encodable, ensure_ascii=False).replace("\x7f", "\\u007f")


def template_names() -> tuple[str, ...]:
    """The names of all templates, sorted.

    >>> template_names()[:2]
    ('cooperative-store', 'flash-attention-3')
    """
    names = (file.name for file in _TEMPLATES.iterdir())
    return tuple(sorted(name.removesuffix(_TEMPLATE_ENDING) for name in names if name.endswith(_TEMPLATE_ENDING)))


def template_text(name: str) -> str:
    """The text of a template; an unknown name is refused with a list of the known ones."""
    if name not in template_names():
        raise RuleError([unknown_name("template", "template", name, template_names())])
    return (_TEMPLATES / f"{name}{_TEMPLATE_ENDING}").read_text("utf-8")
