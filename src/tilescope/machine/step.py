"""An instruction of a kernel, decoded: a step that all threads at this instruction take together, or a turn.

Step      straight: computes for the lanes it is given; they all go on to the next instruction
Turn      decides where its lanes go: branches, calls, exits, barriers, instructions that wait for their warp
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from tilescope.sync.cluster_shape import Lanes

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster
    from tilescope.machine.front import Front
    from tilescope.machine.schedule import Schedule

Step: TypeAlias = Callable[["Cluster", Lanes], None]
EVERYONE = slice(None)


class Versions(NamedTuple):
    """Counts of what changed in a cluster, and in global memory."""

    cluster: int
    memory: int


class Turn(Protocol):
    """An instruction after which lanes do not simply go on."""

    def take(self, schedule: Schedule, front: Front) -> None:
        """Move, split, park or end the front, which stands at this instruction."""


class RefusedError(Exception):
    """Raised while a kernel is made: what the machine cannot run, as a sentence without its full stop."""
