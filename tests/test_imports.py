"""Imports point one way, and starting up loads little."""

import ast
import graphlib
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import tilescope

PACKAGE = Path(tilescope.__file__).parent

# A module imports from its own package and from those above it.
ORDER = (
    "arithmetic",
    "one_rounding",
    "extras",
    "user_cache",
    "names",
    "late_names",
    "sentence",
    "former_arguments",
    "html_table",
    "errors",
    "written",
    "cuda_error",
    "value",
    "rule_index",
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
    "sync",
    "pipeline",
    "ptx",
    "machine",
    "triton",
    "testing",
    "pytest_plugin",
    "planner",
    "kernel_plan",
    "types",
    "emitter",
    "symptoms",
    "view",
    "questions",
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
    here = [*module.split("."), "__init__"] if is_package else module.split(".")
    found = [(known_module(name, known), line, when) for name, line, when in import_statements(tree, here, "start")]
    return [arrow for arrow in found if arrow[0]]


def import_statements(node, here, when):
    """(dotted name, line, when) for each name that is imported below a node of the syntax; `here` is the module's own name."""
    match node:
        case ast.Import(names):
            yield from ((name.name, node.lineno, when) for name in names)
        case ast.ImportFrom(origin, names, level):
            package = here[: len(here) - level] if level else []
            before = [*package, origin] if origin else package
            yield from ((".".join([*before, name.name]), node.lineno, when) for name in names)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            when = "call"
        case ast.If(ast.Name("TYPE_CHECKING")):
            when = "typing"
    for child in statements_below(node):
        yield from import_statements(child, here, when)


def statements_below(node):
    """The statements of a node's own blocks; a try has handlers and a match has cases, which hold blocks too."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, block, ())


def known_module(name, known):
    """The module that a dotted name lies in; empty for one of another package."""
    if name == "tilescope.__version__":  # a constant, not one of the public names that are loaded late
        return ""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def place(module):
    """Where a module stands in the order: tilescope.view.grid as view, tilescope itself as __init__."""
    return ORDER.index([*module.split("."), "__init__"][1])


@cache
def own_arrows():
    return tuple(read_arrows(PACKAGE))


def arrows(package):
    """(importing module, imported module, line, when) for all of the package's own imports; those of tilescope are read once.

    Packages of other tests are not kept: some versions of pytest give their folders to the next test.
    """
    return own_arrows() if package == PACKAGE else read_arrows(package)


def read_arrows(package):
    files = dict(modules(package))
    for module, path in files.items():
        tree = ast.parse(path.read_text("utf-8"))
        for target, line, when in imported(tree, module, path.stem == "__init__", files):
            if target != module:
                yield module, target, line, when


def against_the_order(package):
    for module, target, line, _ in arrows(package):
        if place(target) > place(module):
            yield f"{module}:{line} imports {target}, which stands below it"


def test_every_module_has_its_place_in_the_order():
    assert {module.split(".")[1] for module, _ in modules(PACKAGE) if "." in module} <= set(ORDER)


def test_no_import_points_against_the_order():
    assert list(against_the_order(PACKAGE)) == []


def packages_of(module, files):
    """The packages that Python runs before a module: tilescope.tensor_map.rules before tilescope.tensor_map.rules.arch_limits."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts)) if ".".join(parts[:count]) in files]


def import_graph(package):
    """What runs before what: an import runs the module, and the __init__ of every package that it is entered through.

    A package that the importing module itself lies in is running already.
    """
    files = dict(modules(package))
    graph = {module: set() for module in files}
    for module, target, _, when in arrows(package):
        if when == "start" and target != "tilescope":
            around = {module, *packages_of(module, files)}
            graph[module] |= {entered for entered in (target, *packages_of(target, files)) if entered not in around}
            if target.startswith(f"{module}."):  # a package's own modules
                graph[module].add(target)
    return graph


def circle(package):
    """The modules of a circle of imports; none where there is no circle."""
    try:
        graphlib.TopologicalSorter(import_graph(package)).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    assert circle(PACKAGE) == []


def any_circle(package):
    """The modules of a circle of imports of any kind: at the start, for typing, or inside functions."""
    graph = {module: set() for module, _ in modules(package)}
    for module, target, _, _ in arrows(package):
        if target != "tilescope":
            graph[module].add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_for_typing_or_late():
    assert any_circle(PACKAGE) == []


@pytest.mark.parametrize(
    "late",
    ["def late():\n    import tilescope.a", "if TYPE_CHECKING:\n    import tilescope.a", "import tilescope.a"],
)
def test_circles_for_typing_and_inside_functions_are_found(tmp_path, late):
    package = tmp_path / "tilescope"
    package.mkdir()
    for name, source in {"__init__": "", "a": "import tilescope.b", "b": late}.items():
        (package / f"{name}.py").write_text(source)
    assert any_circle(package) != []


ROOMS = ("machine", "gpu", "tensor_map")
MOST_MODULES = 20  # of a folder, about


@pytest.mark.parametrize("room", ROOMS)
def test_no_folder_holds_many_modules(room):
    folders = [PACKAGE / room, *(path for path in (PACKAGE / room).rglob("*") if (path / "__init__.py").exists())]
    counts = {str(folder.relative_to(PACKAGE)): len(list(folder.glob("*.py"))) - 1 for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES + 1} == {}


def test_an_instruction_imports_no_observer():
    instructions = [arrow for arrow in arrows(PACKAGE) if arrow[0].startswith("tilescope.machine.instructions")]
    observers = ("tilescope.machine.observers", "tilescope.machine.proof", "tilescope.sync.detector")
    assert len(instructions) > 100
    assert [arrow[:2] for arrow in instructions if arrow[1].startswith(observers)] == []


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for _, path in modules(PACKAGE) if path.stem not in ("__init__", "__main__"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("sources", "is_circle"),
    [
        ({"a": "import tilescope.b", "b": ""}, False),
        ({"a": "import tilescope.b", "b": "import tilescope.a"}, True),
        ({"a": "import tilescope.b", "b": "def late():\n    import tilescope.a"}, False),
        ({"p/__init__": "from tilescope.p import x", "p/x": "from tilescope.p import y", "p/y": ""}, False),
        # entering q.x runs q, which runs q.y, which needs a
        (
            {"a": "import tilescope.q.x", "q/__init__": "import tilescope.q.y", "q/x": "", "q/y": "import tilescope.a"},
            True,
        ),
    ],
)
def test_circles_are_found_through_packages_too(tmp_path, sources, is_circle):
    package = tmp_path / "tilescope"
    for name, source in ({"__init__": ""} | sources).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(source)
    assert bool(circle(package)) == is_circle


@pytest.mark.slow
@pytest.mark.parametrize("module", [name for name, _ in modules(PACKAGE) if name.startswith("tilescope.tensor_map")])
def test_every_module_of_tensor_maps_imports_alone(module):
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


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
        ("value.py", "def draw():\n    from tilescope import view", True),
        ("value.py", "from tilescope import view", True),
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


def test_a_table_of_chunks_needs_no_numpy():
    command = [sys.executable, "-X", "importtime", "-m", "tilescope", "swizzle", "128B"]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert "tilescope.swizzle.mode" in loaded
    assert "numpy" not in loaded


def test_the_name_of_a_kernel_loads_no_machine():
    names = ["numpy", "tilescope.ptx", "tilescope.sync", "tilescope.machine.program", "tilescope.machine.report"]
    loaded = f"import sys, tilescope; tilescope.Kernel; print([name for name in {names} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "[]\n"


def test_starting_up_loads_neither_drawing_nor_extras():
    names = ["rich", "click", "starlette", "uvicorn", "jinja2", "cuda", "numba", "tilescope.view", "tilescope.cli"]
    names += ["tilescope.ptx", "tilescope.machine"]
    loaded = f"import sys, tilescope; tilescope.Swizzle; print([name for name in {names} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "[]\n"
