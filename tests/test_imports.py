"""Imports point one way, and starting up loads little."""

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tilescope

PACKAGE = Path(tilescope.__file__).parent

# A module imports from its own package and from those above it.
ORDER = (
    "errors",
    "written",
    "cuda_error",
    "value",
    "rule",
    "reading",
    "bits",
    "arch",
    "data_type",
    "card",
    "swizzle",
    "layout",
    "tensor_map",
    "tma",
    "mma",
    "smem",
    "notation",
    "pipeline",
    "planner",
    "emitter",
    "symptoms",
    "questions",
    "view",
    "gpu",
    "web",
    "cli",
    "__main__",
    "__init__",
)


def modules(package):
    """Dotted name of each module below the package folder, and its file: tilescope.view, tilescope.view.grid …"""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(tree, module, is_package, known):
    """(imported module, line, when) for each import of a known module: at "start", in a "call", for "typing" alone."""
    here = [*module.split("."), *(["__init__"] if is_package else [])]

    def visit(node, when):
        match node:
            case ast.Import(names):
                for name in names:
                    yield nearest(name.name), node.lineno, when
            case ast.ImportFrom(origin, names, level):
                package = here[: len(here) - level] if level else []
                for name in names:
                    yield nearest(".".join([*package, *filter(None, [origin]), name.name])), node.lineno, when
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                when = "call"
            case ast.If(ast.Name("TYPE_CHECKING")):
                when = "typing"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, when)

    def nearest(name):
        if name == "tilescope.__version__":  # a constant, not one of the public names that are loaded late
            return ""
        while name and name not in known:
            name = name.rpartition(".")[0]
        return name

    return [found for found in visit(tree, "start") if found[0]]


def place(module):
    """Where a module stands in the order: tilescope.view.grid as view, tilescope itself as __init__."""
    return ORDER.index([*module.split("."), "__init__"][1])


@cache
def arrows(package):
    """(importing module, imported module, line, when) for all of the package's own imports."""
    return tuple(_arrows(package))


def _arrows(package):
    files = dict(modules(package))
    for module, path in files.items():
        tree = ast.parse(path.read_text("utf-8"))
        for target, line, when in imported(tree, module, path.stem == "__init__", files):
            if target != module:
                yield module, target, line, when


def against_the_order(package):
    for module, target, line, when in arrows(package):
        late_view = module == "tilescope.value" and place(target) == ORDER.index("view") and when == "call"
        if place(target) > place(module) and not late_view:
            yield f"{module}:{line} imports {target}, which stands below it"


def test_every_module_has_its_place_in_the_order():
    assert {module.split(".")[1] for module, _ in modules(PACKAGE) if "." in module} <= set(ORDER)


def test_no_import_points_against_the_order():
    assert list(against_the_order(PACKAGE)) == []


def test_no_package_imports_in_a_circle():
    graph = {}
    for module, target, _, when in arrows(PACKAGE):
        if place(module) == place(target) and when != "typing":
            graph.setdefault(module, set()).add(target)
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("path", "source", "seen"),
    [
        ("swizzle.py", "import tilescope.layout", True),
        ("swizzle.py", "from tilescope.layout import Layout", True),
        ("swizzle.py", "from tilescope import layout", True),
        ("swizzle.py", "from . import layout", True),
        ("swizzle.py", "from .view import grid", True),
        ("swizzle.py", "from tilescope import Swizzle", True),
        ("swizzle.py", "if TYPE_CHECKING:\n    from tilescope.layout import Layout", True),
        ("swizzle.py", "def draw():\n    from tilescope import view", True),
        ("swizzle.py", "from tilescope.value import Value", False),
        ("swizzle.py", "import numpy.layout", False),
        ("view/grid.py", "from . import palette", False),
        ("view/grid.py", "from .. import cli", True),
        ("view/grid.py", "from ..swizzle import Swizzle", False),
        ("view/__init__.py", "from . import grid", False),
        ("view/__init__.py", "from .. import cli", True),
        ("value.py", "def draw():\n    from tilescope import view", False),
        ("value.py", "from tilescope import view", True),
        ("value.py", "def draw():\n    from tilescope import web", True),
        ("cli.py", "from tilescope import __version__", False),
        ("cli.py", "from tilescope import Swizzle", True),
        ("__init__.py", "from tilescope.cli import main", False),
    ],
)
def test_the_walk_sees_each_form_of_import(tmp_path, path, source, seen):
    package = tmp_path / "tilescope"
    for name in ("__init__", "swizzle", "value", "layout", "cli", "web", "view/__init__", "view/grid", "view/palette"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").touch()
    (package / path).write_text(source)
    assert bool(list(against_the_order(package))) == seen


def test_starting_up_loads_neither_drawing_nor_extras():
    names = ["rich", "click", "starlette", "uvicorn", "jinja2", "cuda", "numba", "tilescope.view", "tilescope.cli"]
    loaded = f"import sys, tilescope; tilescope.Swizzle; print([name for name in {names} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "[]\n"
