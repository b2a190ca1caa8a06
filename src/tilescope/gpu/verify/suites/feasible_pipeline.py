"""Random pipelines that are correct in at least one order: their steps are drawn along it.

In that order every wait passes and every read finds the tile it names. Most of these pipelines fail in another order.
"""

from __future__ import annotations

import random
from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]
Random: TypeAlias = random.Random


class _FeasibleOrder:
    """One interleaving of the roles, built step by step, in which every step is correct."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.barriers = {name: random.choice((1, 1, 2)) for name in ("f", "g", "h")[: random.choice((1, 2, 2, 3))]}
        self.pending = dict(self.barriers)
        self.tx_bytes = dict.fromkeys(self.barriers, 0)
        self.phase = dict.fromkeys(self.barriers, 0)
        self.slots = {name: random.choice((16, 32, 64)) for name in ("a", "b")[: random.choice((1, 2))]}
        self.tile: dict[str, int] = {}  # that slots hold
        self.tiles = 0

    def step(self) -> Data | None:
        """A step that is right now; None where the one drawn is not."""
        random = self.random
        barrier = random.choice(list(self.barriers))
        slot = random.choice(list(self.slots))
        match random.choice((*("wait", "arrive", "fill", "read") * 2, "expect", "write", "fence")):
            case "wait":
                return {"wait": barrier, "parity": (self.phase[barrier] + 1) % 2}
            case "arrive" if self.pending[barrier]:
                self._change(barrier, 1, 0)
                return {"arrive": barrier}
            case "expect":
                size = self.slots[slot]
                arrives = bool(self.pending[barrier]) and random.random() < 0.7
                self._change(barrier, int(arrives), size)
                if arrives:
                    return {"expect": barrier, "bytes": size}
                return {"expect": barrier, "bytes": size, "arrive": False}
            case "fill":
                self._change(barrier, 0, -self.slots[slot])
                return {"copy": slot, "bytes": self.slots[slot], "barrier": barrier, "tile": self._fill(slot)}
            case "read" if slot in self.tile:
                return {"read": [slot], "tile": self.tile[slot]}
            case "write":
                return {"write": [slot], "tile": self._fill(slot)}
            case "fence":
                return {"fence": "proxy.async"}
        return None

    def _fill(self, slot: str) -> int:
        self.tile[slot] = self.tiles
        self.tiles += 1
        return self.tile[slot]

    def _change(self, barrier: str, arrivals: int, tx_bytes: int) -> None:
        self.pending[barrier] -= arrivals
        self.tx_bytes[barrier] += tx_bytes
        if not self.pending[barrier] and not self.tx_bytes[barrier]:
            self.phase[barrier] += 1
            self.pending[barrier] = self.barriers[barrier]


def draw_feasible_pipeline(random: Random) -> Data:
    """Two or three roles with a few steps each, right in one order at least."""
    order = _FeasibleOrder(random)
    roles: list[Data] = [
        {"name": name, "threads": random.choice((1, 32)), "steps": []} for name in "pqr"[: random.choice((1, 2, 2, 3))]
    ]
    for _ in range(random.randint(4, 14)):
        step = order.step()
        if step is not None:
            random.choice(roles)["steps"].append(step)
    return {
        "barriers": {name: {"count": count} for name, count in order.barriers.items()},
        "slots": {name: {"bytes": size} for name, size in order.slots.items()},
        "roles": [role for role in roles if role["steps"]],
    }
