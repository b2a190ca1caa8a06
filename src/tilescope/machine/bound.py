"""Arguments of a launch as the parameters of the PTX take them, beside the arguments of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilescope.machine.launch.kernel_arguments import Argument


class Bound(NamedTuple):
    """One value for each parameter of the PTX, and what each argument of the caller stands for: an array, a map, a number."""

    values: Sequence[Argument]
    sources: Sequence[Argument]
