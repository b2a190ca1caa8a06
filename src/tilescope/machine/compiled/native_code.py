"""Machine code of this host from LLVM's text, by llvmlite, which comes with the extra `fast`; kept on disk.

A file of the cache is named by a digest of the text, the processor and the version of llvmlite, and begins with a digest of what follows.
A file that is damaged is made anew. Where the folder cannot be written, the code lives as long as the process. A process that has added
files removes those beyond the limit that were used least recently.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilescope.user_cache import find_cache_folder, remove_least_recently_used, write_atomically

Function = Callable[[int, int, int, int], None]
_FOLDER = "runs"
_LIMIT_BYTES = 64 << 20  # of the folder; a function takes about 4 KiB
_SYMBOL = "run"
_DIGEST_BYTES = 32
_OPTIMIZATION = 1  # of instruction selection; the text needs no passes before it
_FEATURES_OF_X86 = ("avx2", "fma", "f16c")  # without them LLVM would call functions for fma and for f16
_LEAST_LLVM = (20, 0, 0)
_MACHINES = {"x86_64": _FEATURES_OF_X86, "AMD64": _FEATURES_OF_X86, "aarch64": (), "arm64": ()}


@cache
def can_compile() -> bool:
    """Whether llvmlite is installed and the host is one that it is used on; nothing is loaded."""
    is_supported = sys.platform != "win32" and sys.byteorder == "little" and platform.machine() in _MACHINES
    return is_supported and find_spec("llvmlite") is not None


def is_loaded() -> bool:
    """Whether the compiler has been loaded, which takes longer than a small launch."""
    return _host.cache_info().currsize > 0


class _Host:
    """The compiler for this processor, and the memory of its functions."""

    def __init__(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features()
        missing = [name for name in _MACHINES[platform.machine()] if not features.get(name)]
        if missing:
            raise RuntimeError(f"the processor has no {missing[0]}")
        if llvm.llvm_version_info < _LEAST_LLVM:
            raise RuntimeError("LLVM is too old for pointers without types, and for minimum and maximum of vectors")
        self._llvm: Any = llvm
        cpu = llvm.get_host_cpu_name()
        self._machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            cpu=cpu, features=features.flatten(), opt=_OPTIMIZATION, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        self._identity = f"{llvmlite.__version__} {cpu} {features.flatten()}"
        self._functions: dict[str, Function] = {}

    def function(self, text: str) -> Function:
        """The function of a text, whose name is `@run`."""
        digest = hashlib.sha256(f"{self._identity}\n{text}".encode()).hexdigest()
        if digest not in self._functions:
            name = f"{_SYMBOL}_{digest}"
            content = _read(digest)
            if content is None:
                content = self._machine.emit_object(
                    self._llvm.parse_assembly(text.replace(f"@{_SYMBOL}(", f"@{name}("))
                )
                _keep(digest, content)
            self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(content))
            self._engine.finalize_object()
            address = self._engine.get_function_address(name)
            prototype = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
            self._functions[digest] = prototype(address)
        return self._functions[digest]


@cache
def _host() -> _Host | None:
    """The compiler; None where it does not work on this host."""
    try:
        return _Host()
    except (ImportError, OSError, RuntimeError):
        return None


def compile_function(text: str) -> Function | None:
    """The function `@run` of LLVM's text; None where it cannot be compiled here."""
    host = _host()
    if host is None:
        return None
    try:
        return host.function(text)
    except RuntimeError:
        return None


def _read(digest: str) -> bytes | None:
    """The machine code that is kept under a digest; None if there is none, or it is damaged."""
    try:
        path = find_cache_folder() / _FOLDER / f"{digest}.o"
        stored = path.read_bytes()
    except (ImportError, OSError):
        return None
    with suppress(OSError):
        os.utime(path)  # used last
    content = stored[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == stored[:_DIGEST_BYTES] else None


def _keep(digest: str, content: bytes) -> None:
    """Keep machine code, if the folder can be written."""
    with suppress(ImportError, OSError):
        folder = find_cache_folder() / _FOLDER
        write_atomically(folder / f"{digest}.o", hashlib.sha256(content).digest() + content)
        _make_room(folder)


@cache
def _make_room(folder: Path) -> None:
    """Remove files beyond the limit, once in a process: looking at all of them takes as long as compiling one."""
    remove_least_recently_used(folder, _LIMIT_BYTES)
