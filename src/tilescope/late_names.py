"""Names of a package that are imported when somebody first asks for one, so that `import tilescope` loads little.

_names = LateNames("tilescope", {"swizzle": ("SWIZZLE", "Swizzle")})
__getattr__ = _names.loaded         # Python calls it for a name that the package does not have yet
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


class LateNames:
    """The names of a package by the modules below it that define them."""

    def __init__(self, package: str, names_in: Mapping[str, tuple[str, ...]]) -> None:
        self._package = package
        self._module_of = {name: module for module, names in names_in.items() for name in names}

    def loaded(self, name: str) -> Any:
        """What a name stands for; from then on the package has it itself.

        >>> LateNames("tilescope", {"swizzle": ("SWIZZLE", "Swizzle")}).loaded("Swizzle")
        <class 'tilescope.swizzle.mode.Swizzle'>
        """
        if name not in self._module_of:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}{self._hint(name)}")
        module = import_module(f"{self._package}.{self._module_of[name]}")
        value = getattr(module, name)
        setattr(sys.modules[self._package], name, value)
        return value

    def _hint(self, name: str) -> str:
        """Which name was meant; nothing for names that Python and notebooks ask every module for."""
        from tilescope.names import nearest_name

        classes_first = sorted(self._module_of, key=str.isupper)  # Swizzle rather than SWIZZLE, its table
        nearest = None if name.startswith("_") else nearest_name(name, classes_first)
        return f". Did you mean {nearest}?" if nearest else ""
