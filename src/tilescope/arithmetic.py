"""Integers rounded up: quotients, and multiples."""

from __future__ import annotations


def ceil_div(number: int, divisor: int) -> int:
    """The quotient rounded up.

    >>> ceil_div(100, 16), ceil_div(96, 16)
    (7, 6)
    """
    return -(-number // divisor)


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple at or above `number`.

    >>> rounded_up(100, 16), rounded_up(96, 16)
    (112, 96)
    """
    return -(-number // multiple) * multiple
