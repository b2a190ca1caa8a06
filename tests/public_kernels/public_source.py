"""Kernels out of public files, without running the rest of them: tutorials launch on a card when they are imported.

    definitions(path)                                  what the file defines for kernels, as a module
    kernel_of(path, "matmul_kernel")                   a kernel at the top
    kernel_of(path, "test_reduce1d.kernel")            a kernel inside a function, such as a test

The file is parsed, and what kernels need of it is executed: imports, constants, functions for the compiler, aggregates. What fails
(torch is not here) is left out. Names that a file imports from others of its package are read from those files in the same way: no
package is imported as a whole. Code keeps its file and its lines, where Triton reads the source.
"""

import ast
import contextlib
import importlib
import importlib.util
import types
from functools import cache
from pathlib import Path

_FOR_COMPILER = ("jit", "constexpr_function", "aggregate", "builtin")
DEPTH = 2  # a kernel's helpers, and theirs
_RENAMED = {"triton": "triton", "tl": "triton.language"}  # names that packages hand on under conditions of theirs


def kernel_of(path, name):
    """The kernel that a file has under a name, made by the decorator that it has there."""
    tree = ast.parse(Path(path).read_text())
    namespace = definitions(path, tree).__dict__
    outer, _, inner = name.rpartition(".")
    if outer:
        function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == outer)
        for node in ast.walk(function):
            if isinstance(node, ast.FunctionDef) and node is not function and _is_for_compiler(node):
                _execute(node, path, namespace)
    return namespace[inner]


def definitions(path, tree=None, depth=DEPTH):
    """A module of what a file defines for kernels; imports from its package are followed `depth` times."""
    module = types.ModuleType(Path(path).stem.replace("-", "_"))
    module.__file__ = str(path)
    namespace = module.__dict__
    namespace["__depth__"] = depth
    for node in (tree or ast.parse(Path(path).read_text())).body:
        is_wanted = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.If | ast.Try) or (
            isinstance(node, ast.FunctionDef | ast.ClassDef) and (_is_for_compiler(node) or not node.decorator_list)
        )
        if is_wanted:
            with contextlib.suppress(Exception):  # whatever needs torch, a card or another file
                _execute(node, path, namespace)
    return module


def _is_for_compiler(node):
    """Whether a decorator says that Triton's compiler reads it."""
    return any(word in ast.unparse(decorator) for decorator in node.decorator_list for word in _FOR_COMPILER)


def _package_file(node, path):
    """The file of the same checkout that `from package.module import name` or `from .module import name` means; None if none is there."""
    parts = node.module.split(".") if node.module else []
    if not node.level and importlib.util.find_spec(parts[0]) is not None:
        return None  # an installed package, such as Triton itself
    folders = [Path(path).parents[node.level - 1]] if node.level else Path(path).parents
    for folder in folders:
        for candidate in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
            if parts and candidate.is_file():
                return candidate
    return None


@cache
def _module_of(path, depth):
    return definitions(path, depth=depth)


def _import_names(node, path, namespace):
    """Bind the names of a `from` import; True if a file of the same checkout defines one of them."""
    file = _package_file(node, path)
    if file is None:
        return False
    defined = {}
    wanted = {alias.name for alias in node.names}
    if namespace["__depth__"] > 0 and not wanted <= _RENAMED.keys():
        defined = vars(_module_of(file, namespace["__depth__"] - 1))
    defined = defined | {name: importlib.import_module(_RENAMED[name]) for name in wanted & _RENAMED.keys()}
    found = {alias.asname or alias.name: defined[alias.name] for alias in node.names if alias.name in defined}
    namespace.update(found)
    return bool(found)


def _execute(node, path, namespace):
    """Run one statement; decorators that tune a kernel, and what hosts want to know of it, are left out."""
    if isinstance(node, ast.ImportFrom) and _import_names(node, path, namespace):
        return
    sibling = _imported_sibling(node)
    if sibling is not None:
        namespace[node.targets[0].id] = definitions(Path(path).with_name(f"{sibling}.py"))
        return
    if isinstance(node, ast.If | ast.Try):
        _execute_branches(node, path, namespace)
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        kept = [one for one in node.decorator_list if any(word in ast.unparse(one) for word in _FOR_COMPILER)]
        bare = [one.func if isinstance(one, ast.Call) and "noinline" not in ast.unparse(one) else one for one in kept]
        node = _copy(node, decorator_list=bare)
    exec(compile(ast.Module([node], []), str(path), "exec"), namespace)


def _execute_branches(node, path, namespace):
    """Run the branch of an `if` that its condition selects; of a `try`, its handler if the body fails."""
    if isinstance(node, ast.If):
        condition = compile(ast.Expression(node.test), str(path), "eval")
        branch = node.body if eval(condition, namespace) else node.orelse
        for statement in branch:
            _execute(statement, path, namespace)
        return
    try:
        for statement in node.body:
            _execute(statement, path, namespace)
    except Exception:  # noqa: BLE001  as the file's handler, whatever it names
        for statement in node.handlers[0].body if node.handlers else ():
            _execute(statement, path, namespace)


def _imported_sibling(node):
    """The name of the file beside it that `t5 = importlib.import_module("05-wgmma")` means; None for other statements."""
    match node:
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(name)])):
            return name
    return None


def _copy(node, **changed):
    made = type(node)(**{name: getattr(node, name) for name in node._fields if hasattr(node, name)} | changed)
    return ast.copy_location(made, node)
