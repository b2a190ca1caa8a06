"""Call a function right after a module is imported for the first time, by whoever imports it.

There are two methods. A finder that is first among Python's wraps the loader of the module. If another finder came
first, as pytest's does when every file is a test, the next import statement detects that the module is loaded.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class ImportHook(MetaPathFinder):
    """Waits for the import of one module."""

    def __init__(self, name: str, imported: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._imported = imported
        self._is_searching = False
        self._is_waiting = False
        self._import = builtins.__import__

    def install(self) -> None:
        """Wait for the import."""
        self._is_waiting = True
        sys.meta_path.insert(0, self)
        self._import = builtins.__import__
        builtins.__import__ = self._import_and_look

    def remove(self) -> None:
        """Wait no longer."""
        self._is_waiting = False
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if builtins.__import__ == self._import_and_look:
            builtins.__import__ = self._import

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that looks for the module; None for other modules."""
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _WrappedLoader(spec.loader, self._finish)
        return spec

    def _import_and_look(self, *arguments: Any, **options: Any) -> ModuleType:
        """Import as Python does, then see whether the module is there, and complete."""
        imported = self._import(*arguments, **options)
        if self._is_waiting:
            module = sys.modules.get(self._name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self._finish(module)
        return imported

    def _finish(self, module: ModuleType) -> None:
        if self._is_waiting:
            self.remove()
            self._imported(module)


class _WrappedLoader(Loader):
    """Loads as another loader does, then calls a function with the module."""

    def __init__(self, loader: Loader, imported: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._imported = imported

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module that the loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then call the function."""
        self._loader.exec_module(module)
        assert module.__spec__ is not None
        module.__spec__.loader = self._loader
        self._imported(module)
