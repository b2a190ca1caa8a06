"""An instruction of a kernel, decoded: a step that all threads at this instruction take together, or a turn.

    Step      straight: computes for the given lanes, which all continue with the next instruction
    Turn      decides where its lanes go: branches, calls, exits, barriers, instructions that wait for their warp

The cluster that a step changes, and the schedule that a turn moves its front in, are typed where they are defined: both
import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tilescope.sync.cluster_shape import Lanes

Step: TypeAlias = Callable[[Any, Lanes], None]  # of a Cluster
EVERYONE = slice(None)


class Turn(Protocol):
    """An instruction after which lanes do not simply continue."""

    def take(self, schedule: Any, front: Any) -> None:
        """Move, split, park or end a Front of a Schedule, which is at this instruction."""


class RefusedError(Exception):
    """Raised while a kernel is made: what the machine cannot run, as a sentence without its full stop."""
