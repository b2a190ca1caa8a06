"""The public names and their arguments are a promise: tests/public_api.txt holds it.

`python tests/test_public_api.py --write` writes that file anew, after a change that is meant.
"""

import dataclasses
import functools
import inspect
import re
import sys
from pathlib import Path

import pytest

import tilescope

ROOT = Path(__file__).parent.parent
SNAPSHOT = ROOT / "tests" / "public_api.txt"
OBJECTS = {name: getattr(tilescope, name) for name in sorted(tilescope.__all__)}
DOCUMENTED = [name for name, value in OBJECTS.items() if callable(value)]


class AsWritten(str):
    """An annotation that a signature shows as the source has it, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__

    @classmethod
    def of(cls, annotation):
        return cls(annotation) if isinstance(annotation, str) else annotation


def signature(function):
    """The arguments of a function or constructor, and what a function returns."""
    found = inspect.signature(function)
    parameters = [each.replace(annotation=AsWritten.of(each.annotation)) for each in found.parameters.values()]
    returned = found.empty if inspect.isclass(function) else AsWritten.of(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=returned))


def lines_of_class(name, cls):
    constructor = signature(cls) if inspect.isfunction(cls.__init__) else ""
    bases = " and ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}{constructor}" + (f" is {bases}" if bases else "")
    if dataclasses.is_dataclass(cls) and not cls.__dataclass_params__.init:  # else the constructor names them
        yield from (f"    {field.name}: {field.type}" for field in dataclasses.fields(cls) if field.name[0] != "_")
    for attribute in inspect.classify_class_attrs(cls):
        owner = attribute.defining_class
        inherited = owner is not cls and (owner.__name__ in OBJECTS or not owner.__module__.startswith("tilescope"))
        if attribute.name[0] == "_" or inherited:
            continue
        match attribute.kind:
            case "property":
                yield f"    property {attribute.name}{signature(attribute.object.fget)}"
            case "method" if isinstance(attribute.object, functools.cached_property):
                yield f"    property {attribute.name}{signature(attribute.object.func)}"
            case "method":
                yield f"    method {attribute.name}{signature(attribute.object)}"
            case "class method" | "static method":
                yield f"    {attribute.kind} {attribute.name}{signature(attribute.object.__func__)}"


def lines_of_table(name, table):
    yield f"{name}: {type(next(iter(table.values()))).__name__} by name"
    yield from (f"    {key}" for key in table)


def public_api():
    lines = []
    for name, value in OBJECTS.items():
        if inspect.isclass(value):
            lines += lines_of_class(name, value)
        elif callable(value):
            lines.append(f"{name}{signature(value)}")
        else:
            lines += lines_of_table(name, value)
    return "\n".join(lines) + "\n"


def test_signatures_are_those_of_the_snapshot():
    assert public_api().splitlines() == SNAPSHOT.read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_each_public_name_teaches_with_an_example(name):
    assert ">>> " in (OBJECTS[name].__doc__ or ""), f"the docstring of {name} has no example"


@pytest.mark.parametrize("name", tilescope.__all__)
def test_each_public_name_is_in_the_documentation(name):
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert any(re.search(rf"\b{name}\b", page.read_text("utf-8")) for page in pages)


def test_the_package_lists_its_public_names():
    assert set(tilescope.__all__) < set(dir(tilescope))
    with pytest.raises(AttributeError, match="no attribute 'swizle'"):
        _ = tilescope.swizle


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        SNAPSHOT.write_text(public_api(), "utf-8")
    else:
        sys.exit(f"{__doc__}")
