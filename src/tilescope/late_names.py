"""Names that are imported on first use, so that `import tilescope` loads little.

_names = LateNames("tilescope", {"swizzle": ("SWIZZLE", "Swizzle")})
__getattr__ = _names.loaded         # Python calls it for a name that the package does not have yet
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


class LateNames:
    """Names of a module by the modules that define them, which are below the package `below`: by default, itself."""

    def __init__(self, module: str, names_in: Mapping[str, tuple[str, ...]], *, below: str | None = None) -> None:
        self._name = module
        self._package = below or module
        self._module_of = {name: module for module, names in names_in.items() for name in names}

    def loaded(self, name: str) -> Any:
        """The value of a name. After this call, the module has it as an attribute.

        >>> LateNames("tilescope", {"swizzle": ("SWIZZLE", "Swizzle")}).loaded("Swizzle")
        <class 'tilescope.swizzle.mode.Swizzle'>
        """
        if name not in self._module_of:
            raise AttributeError(f"module {self._name!r} has no attribute {name!r}{self._hint(name)}")
        value = getattr(import_module(f"{self._package}.{self._module_of[name]}"), name)
        setattr(sys.modules[self._name], name, value)
        return value

    def _hint(self, name: str) -> str:
        """The likely name; nothing for the special names that Python and notebooks look up in every module."""
        from tilescope.names import nearest_name

        classes_first = sorted(self._module_of, key=str.isupper)  # Swizzle rather than SWIZZLE, its table
        nearest = None if name.startswith("_") else nearest_name(name, classes_first)
        return f". Did you mean {nearest}?" if nearest else ""
