"""Attributes of other libraries that are replaced while the driver is active, and put back afterwards."""

from __future__ import annotations

_MISSING = object()


class Patches:
    """Replaced attributes, in order.

    >>> class Library:
    ...     speed = 1
    >>> patches = Patches()
    >>> patches.set(Library, "speed", 2)
    >>> patches.set(Library, "colour", "red")
    >>> Library.speed, Library.colour
    (2, 'red')
    >>> patches.restore()
    >>> Library.speed, hasattr(Library, "colour")
    (1, False)
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute until `restore`."""
        attributes = vars(owner) if isinstance(owner, type) else None
        if attributes is not None:
            before = attributes.get(name, _MISSING)  # with its staticmethod or property around it
        else:
            before = getattr(owner, name, _MISSING)
        self._replaced.append((owner, name, before))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Put everything back, the latest first."""
        while self._replaced:
            owner, name, before = self._replaced.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
