"""Kernels that are compiled before they run: a function of the user's Python module, or a file of CUDA C++."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from tilescope.errors import DeviceError
from tilescope.questions.question import MisuseError

if TYPE_CHECKING:
    from tilescope.machine.kernel import Kernel


class Compiled(NamedTuple):
    """A kernel, and a sentence about who compiled it."""

    kernel: Kernel
    sentence: str


def triton_kernel(
    place: str, signature: str, constexprs: Iterable[str], options: Iterable[str], arch: str | None
) -> Compiled:
    """The kernel at "module.py:function"; its module is imported, which executes it; "module.py" must have only one kernel."""
    from tilescope.machine.kernel import Kernel

    path, written_name = kernel_place(place)
    module = import_module_at(path)
    function_name = written_name or _only_kernel(module, path)
    function = getattr(module, function_name, None)
    if function is None:
        raise MisuseError(f"{path.name} has no {function_name}. {_kernels_in_words(module)}")
    constants = {name: value_in(module, text) for name, text in _pairs("--constexpr", constexprs)}
    chosen = {name: value_in(module, text) for name, text in _pairs("--option", options)}
    target = {} if arch is None else {"arch": arch}
    kernel = Kernel.from_triton(function, signature, constants, **target, **chosen)
    assert kernel.host is not None
    return Compiled(kernel, f"Imported {path.name}, and compiled {function_name} {kernel.host}.")


def kernel_place(place: str) -> tuple[Path, str]:
    """The file and the function of "module.py:function"; of "module.py" no function."""
    file, colon, name = place.rpartition(":")
    if not colon:
        file, name = place, ""
    if not file or (colon and not name.isidentifier()):
        raise MisuseError(f"--triton {place}: write MODULE.py:FUNCTION.")
    path = Path(file)
    if not path.is_file():
        raise MisuseError(f"--triton {place}: there is no file {file!r}.")
    return path, name


def _only_kernel(module: ModuleType, path: Path) -> str:
    """The only kernel of a module, where none is named."""
    from tilescope.machine.launch.triton_compiler import list_kernels

    names = list_kernels(module)
    if len(names) != 1:
        raise MisuseError(f"say which function of {path.name}: {path}:FUNCTION. {_kernels_in_words(module)}")
    return names[0]


def _kernels_in_words(module: ModuleType) -> str:
    from tilescope.machine.launch.triton_compiler import list_kernels

    names = list_kernels(module)
    if not names:
        return "It has no function of @triton.jit or @gluon.jit."
    return f"Its functions of @triton.jit and @gluon.jit: {', '.join(names)}."


def import_module_at(path: Path) -> ModuleType:
    """The user's module, with its folder first on the import path; its exceptions become one sentence."""
    folder = str(path.parent.absolute())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise MisuseError(f"{path.name} is no Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # by which Triton finds the functions that a kernel calls
    sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):  # what the module prints is no part of the answer
            spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"{path.name} imports {error.name}, which is not installed beside tilescope: pip install {error.name}."
        ) from None
    except Exception as error:  # noqa: BLE001  the user's module may raise anything
        raise MisuseError(f"{path.name} could not be imported: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)
    return module


def _pairs(option: str, said: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in said:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise MisuseError(f"{option} {text}: write NAME=VALUE.")
        pairs.append((name.strip(), value.strip()))
    return pairs


def value_in(module: ModuleType, said: str) -> object:
    """A value as Python writes it, a name of the module such as tl.float32, or the text itself.

    >>> import math
    >>> value_in(math, "64"), value_in(math, "True"), value_in(math, "pi"), value_in(math, "relu")
    (64, True, 3.141592653589793, 'relu')
    """
    try:
        return ast.literal_eval(said)
    except (ValueError, SyntaxError):
        pass
    value: object = module
    for name in said.split("."):
        if not hasattr(value, name):
            return said
        value = getattr(value, name)
    return value


def cuda_kernel(path: str, entry: str | None, options: Iterable[str], arch: str | None) -> Compiled:
    """The kernel of a .cu file."""
    from tilescope.machine.kernel import Kernel
    from tilescope.machine.launch.cuda_compiler import compile_cuda

    compiled = compile_cuda(Path(path), arch=arch, options=[*options])
    kernel = Kernel(compiled.ptx, entry)
    when = ", at an earlier run" if compiled.is_cached else ""
    return Compiled(kernel, f"Compiled {Path(path).name} by {compiled.compiler} for {compiled.target}{when}.")
