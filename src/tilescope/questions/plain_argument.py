"""An argument that has no option and no field, in plain words."""

from __future__ import annotations


def describe_argument(argument: str, value: object) -> str:
    """The name of an argument, and its value.

    >>> describe_argument("cta_group", 2), describe_argument("sparse", False), describe_argument("tile", (64, 64))
    ('cta group 2', 'sparse off', 'tile 64,64')
    """
    name = argument.replace("_", " ")
    if isinstance(value, bool):
        return f"{name} {'on' if value else 'off'}"
    if isinstance(value, tuple | list):
        return f"{name} {','.join(map(str, value))}"
    return f"{name} {value}"
