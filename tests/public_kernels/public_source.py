"""Kernels out of public files, without running the rest of them: tutorials launch on a card when they are imported.

    definitions(path)                                  what the file defines for kernels, as a module
    kernel_of(path, "matmul_kernel")                   a kernel at the top
    kernel_of(path, "test_reduce1d.kernel")            a kernel inside a function, such as a test

The file is parsed, and what kernels need of it is executed: imports, constants, functions for the compiler, aggregates. What fails
(torch is not here) is left out. Code keeps its file and its lines, where Triton reads the source.
"""

import ast
import contextlib
import types
from pathlib import Path

_FOR_COMPILER = ("jit", "constexpr_function", "aggregate", "builtin")


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


def definitions(path, tree=None):
    """A module of what a file defines for kernels."""
    module = types.ModuleType(Path(path).stem.replace("-", "_"))
    module.__file__ = str(path)
    namespace = module.__dict__
    for node in (tree or ast.parse(Path(path).read_text())).body:
        is_wanted = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign) or (
            isinstance(node, ast.FunctionDef | ast.ClassDef) and _is_for_compiler(node)
        )
        if is_wanted:
            with contextlib.suppress(Exception):  # whatever needs torch, a card or another file
                _execute(node, path, namespace)
    return module


def _is_for_compiler(node):
    """Whether a decorator says that Triton's compiler reads it."""
    return any(word in ast.unparse(decorator) for decorator in node.decorator_list for word in _FOR_COMPILER)


def _execute(node, path, namespace):
    """Run one statement; decorators that tune a kernel, and what hosts want to know of it, are left out."""
    sibling = _imported_sibling(node)
    if sibling is not None:
        namespace[node.targets[0].id] = definitions(Path(path).with_name(f"{sibling}.py"))
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        kept = [one for one in node.decorator_list if any(word in ast.unparse(one) for word in _FOR_COMPILER)]
        bare = [one.func if isinstance(one, ast.Call) and "noinline" not in ast.unparse(one) else one for one in kept]
        node = _copy(node, decorator_list=bare)
    exec(compile(ast.Module([node], []), str(path), "exec"), namespace)


def _imported_sibling(node):
    """The name of the file beside it that `t5 = importlib.import_module("05-wgmma")` means; None for other statements."""
    match node:
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(name)])):
            return name
    return None


def _copy(node, **changed):
    made = type(node)(**{name: getattr(node, name) for name in node._fields if hasattr(node, name)} | changed)
    return ast.copy_location(made, node)
