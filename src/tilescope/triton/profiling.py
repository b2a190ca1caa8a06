"""Triton's profiler, Proton, without a card: sessions record nothing, and its reports are skipped with one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from tilescope.triton.import_hook import ImportHook
from tilescope.triton.patches import Patches

NO_PROFILE = (
    "tilescope does not predict time: sessions of triton.profiler record nothing, and their reports are skipped."
)
_PROFILER = "triton.profiler"
_VIEWER = "triton.profiler.viewer"
_SESSION_FUNCTIONS = ("start", "activate", "deactivate", "finalize")


class ProfilerService:
    """Replaces the functions of triton.profiler that need a card: now if it is loaded, else when a program imports it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._patches: Patches | None = None
        self._hook = ImportHook(_PROFILER, self._serve)

    def install(self, patches: Patches) -> None:
        """Begin to serve; `patches` are restored by the device."""
        self._patches = patches
        profiler = sys.modules.get(_PROFILER)
        if profiler is None:
            self._hook.install()
        else:
            self._serve(profiler)

    def remove(self) -> None:
        """Serve no longer."""
        self._hook.remove()
        if isinstance(sys.modules.get(_VIEWER), _SilentViewer):
            del sys.modules[_VIEWER]

    def _serve(self, profiler: ModuleType) -> None:
        self._hook.remove()
        assert self._patches is not None
        for name in _SESSION_FUNCTIONS:
            self._patches.set(profiler, name, self._skip)
        viewer = _SilentViewer(_VIEWER)
        viewer.parse = self._skip_parse  # type: ignore[attr-defined]
        viewer.print_tree = self._skip  # type: ignore[attr-defined]
        sys.modules[_VIEWER] = viewer
        self._patches.set(profiler, "viewer", viewer)

    def _skip(self, *_arguments: object, **_options: object) -> None:
        self._say(NO_PROFILE)

    def _skip_parse(self, *_arguments: object, **_options: object) -> tuple[None, list[str]]:
        self._say(NO_PROFILE)
        return None, []


class _SilentViewer(ModuleType):
    """Stands for triton.profiler.viewer, which needs packages that few have."""
