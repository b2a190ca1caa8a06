"""Types of results are importable: whatever a public function returns can be named in a user's annotation."""

import ast
import contextlib
import dataclasses
import functools
import importlib
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import tilescope
from tilescope import types

ROOT = Path(__file__).parent.parent


@functools.cache
def namespace_of(module):
    """The names that annotations of a module may use, with those that it imports for type checkers alone."""
    names = dict(vars(sys.modules[module]))
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tilescope"):
            with contextlib.suppress(ImportError):  # an extra that is not installed; its modules define no results
                source = importlib.import_module(node.module)
                names |= {name.asname or name.name: getattr(source, name.name, None) for name in node.names}
    return names


def classes_in(annotation, module):
    """tilescope's own public classes in an annotation, however deep: KernelRun in "tuple[KernelRun, ...] | None"."""
    if isinstance(annotation, str):
        names = {node.id for node in ast.walk(ast.parse(annotation, mode="eval")) if isinstance(node, ast.Name)}
        parts = [namespace_of(module).get(name) for name in names]
    else:
        parts = () if typing.get_origin(annotation) is typing.Literal else typing.get_args(annotation)
    is_own = inspect.isclass(annotation) and annotation.__module__.startswith("tilescope")
    is_result = is_own and annotation.__name__[0] != "_" and not getattr(annotation, "_is_protocol", False)
    found = {annotation} if is_result else set()
    return found.union(*(classes_in(part, module) for part in parts if part is not annotation))


def functions_of(cls):
    """Public methods and properties that a class defines itself."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        function = member.func if isinstance(member, functools.cached_property) else member
        function = getattr(function, "fget", None) or getattr(function, "__func__", function)
        if inspect.isfunction(function):
            yield function


def returned_by(function):
    return classes_in(function.__annotations__.get("return"), function.__module__)


def held_by(cls):
    """What fields, properties and methods of a class give."""
    fields = [
        field for field in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()) if field.name[0] != "_"
    ]
    found = set().union(*(classes_in(field.type, cls.__module__) for field in fields))
    return found.union(*(returned_by(function) for function in functions_of(cls)))


def public_functions():
    for name in tilescope.__all__:
        value = getattr(tilescope, name)
        if inspect.isclass(value):
            yield from functions_of(value)
        elif inspect.isfunction(value):
            yield value


@functools.cache
def result_types():
    """Classes that public functions return, and those that these results hold."""
    returned = set().union(*(returned_by(function) for function in public_functions()))
    return returned.union(*(held_by(cls) for cls in returned))


def is_importable(cls):
    return any(getattr(place, cls.__name__, None) is cls for place in (tilescope, types))


def test_every_result_has_an_importable_type():
    missing = sorted(f"{cls.__module__}.{cls.__name__}" for cls in result_types() if not is_importable(cls))
    assert missing == []


def test_the_module_has_nothing_else():
    wanted = {cls.__name__ for cls in result_types()} - set(tilescope.__all__)
    assert set(types.__all__) == wanted
    assert list(types.__all__) == sorted(types.__all__)


@pytest.mark.parametrize("name", types.__all__)
def test_each_type_says_what_it_is(name):
    assert inspect.getdoc(getattr(types, name))


def test_the_documentation_lists_them():
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    assert [name for name in types.__all__ if f"`{name}`" not in page] == []


def test_importing_the_module_loads_no_other():
    program = (
        "import sys, tilescope; before = set(sys.modules); import tilescope.types; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tilescope.types"]


def test_a_wrong_name_is_corrected():
    with pytest.raises(AttributeError, match=r"has no attribute 'KernelRunn'. Did you mean KernelRun\?"):
        _ = types.KernelRunn
