"""What `Kernel.run` takes for `advice` and `smem`.

advice        a kernel with errors     a kernel without errors
"none"        runs once                runs once
"fixes"       again, with fixes        runs once
"barriers"    runs once                again, without some of its barriers
"all"         again, with fixes        again, without some of its barriers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Advice = Literal["none", "fixes", "barriers", "all"]
Smem = Sequence[int] | tuple[Sequence[int], str | int | None]  # a block, or a block and a line
ADVICE: dict[tuple[bool, bool], Advice] = {  # by whether fixes are tried, and idle barriers looked for
    (False, False): "none",
    (True, False): "fixes",
    (False, True): "barriers",
    (True, True): "all",
}


class SmemMoment(NamedTuple):
    """A block, and the line before which its shared memory is drawn; None: at the end."""

    block: Any
    at: Any


def read_smem(smem: object) -> SmemMoment:
    """The moment that `smem` selects.

    >>> read_smem((1, 0, 0)), read_smem(((1, 0, 0), "mm.py:12"))
    (SmemMoment(block=(1, 0, 0), at=None), SmemMoment(block=(1, 0, 0), at='mm.py:12'))
    """
    if isinstance(smem, list | tuple) and len(smem) == 2 and isinstance(smem[0], list | tuple):
        return SmemMoment(*smem)
    return SmemMoment(smem, None)
