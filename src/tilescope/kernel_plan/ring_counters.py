"""Counters of rings: the fill that a round makes, its stage and its parity, as expressions of the loops' counters.

K, V in turns through 3 stages    fill (kv * 2 + 1)    stage (kv * 2 + 1) % 3    parity (kv * 2 + 1) / 3 % 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilescope.kernel_plan.handovers import Ring
from tilescope.kernel_plan.kernel_file import KernelDescription


@dataclass(frozen=True, slots=True)
class RingCounters:
    """Expressions of a kernel's loops for the fills of its rings."""

    kernel: KernelDescription
    stages: Mapping[str, int]  # of each tile

    def _fill(self, ring: Ring, fill: int) -> str:
        """The number of a fill among all fills of its ring."""
        counter = round_number(self.kernel, ring.home)
        if len(ring.fills) == 1:
            return counter
        return f"({counter} * {len(ring.fills)} + {fill})"

    def stage(self, ring: Ring, fill: int) -> str:
        """The stage that a fill goes to."""
        stages = self.stages[ring.tiles[0]]
        return "0" if stages == 1 else f"{self._fill(ring, fill)} % {stages}"

    def parity(self, ring: Ring, fill: int) -> str:
        """The parity of the phase that a fill completes."""
        stages = self.stages[ring.tiles[0]]
        number = self._fill(ring, fill)
        return f"{number} % 2" if stages == 1 else f"{number} / {stages} % 2"

    def barrier(self, name: str, ring: Ring, fill: int) -> str:
        """The barrier of that name that belongs to the stage of a fill."""
        stage = self.stage(ring, fill)
        return name if stage == "0" else f"{name}[{stage}]"


def round_number(kernel: KernelDescription, path: tuple[str, ...], last_from: int | None = None) -> str:
    """The number of a round among all rounds of its loops: (tile * kv_rounds + kv); the names are those of the loops.

    Loops from the number `last_from` on are in their last round.
    """
    text = ""
    for number, name in enumerate(kernel.loop(each).name for each in path):
        counter = name if last_from is None or number < last_from else f"{name}_rounds - 1"
        text = f"({text} * {name}_rounds + {counter})" if text else f"({counter})" if " " in counter else counter
    return text or "0"
