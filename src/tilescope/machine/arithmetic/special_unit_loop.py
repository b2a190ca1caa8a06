"""The functions of special_unit.py for one word after another, compiled by numba (the extra `fast`).

numba takes the functions as they are written there; only `choose`, which is numpy.where on arrays, becomes a choice of one value.
Importing this module loads numba; a loop is compiled for its first words, and kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba.extending import overload, register_jitable

from tilescope.machine.arithmetic import special_unit
from tilescope.machine.arithmetic.special_unit import FLUSHED, QUOTIENTS, SCALED, Words
from tilescope.swizzle.line_streaming import compile_loop


@overload(special_unit.choose)
def _choose(is_first: Words, first: Words, second: Words) -> Callable[[Words, Words, Words], Words]:  # noqa: ARG001  types: numba's way
    def choose(is_first: Words, first: Words, second: Words) -> Words:
        return first if is_first else second

    return choose


_FUNCTIONS: tuple[Callable[..., Words], ...] = (*FLUSHED.values(), *SCALED.values(), *QUOTIENTS.values())
for _function in (*special_unit.PARTS, *_FUNCTIONS):
    register_jitable(_function)


@cache
def loop_of(function: Callable[..., Words]) -> Callable[..., None]:
    """The compiled loop of a function of one word, or of a quotient; it fills the last array."""
    is_quotient = function in QUOTIENTS.values()
    return compile_loop((special_unit.each_pair if is_quotient else special_unit.each_word)(function))
