"""An argument that has no option and no field, in plain words."""

from __future__ import annotations


def said_plainly(argument: str, value: object) -> str:
    """The name of an argument, and its value.

    >>> said_plainly("cta_group", 2), said_plainly("sparse", False), said_plainly("tile", (64, 64))
    ('cta group 2', 'sparse off', 'tile 64,64')
    """
    name = argument.replace("_", " ")
    if isinstance(value, bool):
        return f"{name} {'on' if value else 'off'}"
    if isinstance(value, tuple | list):
        return f"{name} {','.join(map(str, value))}"
    return f"{name} {value}"
