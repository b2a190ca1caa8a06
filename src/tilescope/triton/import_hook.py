"""Call a function right after a module is imported for the first time, by whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class ImportHook(MetaPathFinder):
    """Stands first among Python's finders, and wraps the loader of one module."""

    def __init__(self, name: str, imported: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._imported = imported
        self._is_searching = False

    def install(self) -> None:
        """Wait for the import."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that calls the function; None for other modules."""
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _WrappedLoader(spec.loader, self._imported)
        return spec


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
