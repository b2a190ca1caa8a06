"""The request for a GEMM's plan, and a choice for each argument that it leaves open: a tile, and how its blocks share the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilescope.planner.gemm_schedule import COLUMN_GROUP, PLAIN, Schedule
from tilescope.planner.gemm_tiles import TILE_M
from tilescope.planner.problem import Operand
from tilescope.planner.product import Tile

# fields of a schedule that a predicted time decides
DECIDED_BY_TIME = ("swapped", "split", "parts", "group", "tail", "multicast", "ping_pong")
IsReadable = Callable[[Operand, tuple[int, int]], bool]  # whether the tensor core reads a tile of A or of B


class GemmRequest(NamedTuple):
    """The options of plan_gemm that the caller gave; None: the planner chooses."""

    tile: Tile | None
    stages: int | None
    swapped: bool | None
    split: int | None
    parts: int | None
    group: int | None
    tail: int | None
    dependent: bool
    cta_group: int | None
    dynamic: bool
    multicast: tuple[int, int] | None
    ping_pong: bool | None

    def allows(self, schedule: Schedule) -> bool:
        """Whether a schedule has all requested fields."""
        if self.dependent and schedule.multicast != PLAIN.multicast:
            return False
        return all(value == getattr(schedule, name) for name, value in self.requested_fields)

    @property
    def requested_fields(self) -> list[tuple[str, object]]:
        """The fields of a schedule that the caller gave, by name."""
        return [(name, value) for name in DECIDED_BY_TIME if (value := getattr(self, name)) is not None]

    @property
    def plain(self) -> Schedule:
        """The requested schedule, with the plain one for the rest."""
        return Schedule(
            swapped=bool(self.swapped),
            split=self.split or 1,
            parts=self.parts or 1,
            group=self.group or 0,
            tail=self.tail or 1,
            dependent=self.dependent,
            cta_group=self.cta_group or 1,
            dynamic=self.dynamic,
            multicast=self.multicast or PLAIN.multicast,
            ping_pong=bool(self.ping_pong),
        )


class Choice(NamedTuple):
    """A tile and how its blocks share the work."""

    tile: Tile
    schedule: Schedule
    is_predicted: bool = True
    is_last_resort: bool = False  # planned only if all others are refused


def suits_swapped(tile: Tile) -> bool:
    """Whether a requested tile must be swapped: its n is a multiple of wgmma's 64 rows, its m only of wgmma's columns."""
    m, n, _ = tile
    return m % TILE_M[0] != 0 and m % COLUMN_GROUP == 0 and n % TILE_M[0] == 0
