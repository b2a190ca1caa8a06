"""The tiles of a GEMM that were weighed: a tile's floor and predicted time, and why another one comes first.

    4096 x 4096 x 4096 bf16, tile 256 x 128 x 64     floor 132 us (arithmetic)     predicted 174 us     behind in order

`gemm_tiles.py` computes the floors, `gemm_time.py` the predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.arch import Basis
from tilescope.errors import Violation
from tilescope.planner.gemm_schedule import PLAIN, Schedule
from tilescope.planner.product import Tile
from tilescope.planner.reason import Reason
from tilescope.sentence import in_us
from tilescope.value import Value

_BEHIND_IN = {  # the term that a reason is about
    "first": "",
    "behind-time": "time",
    "behind-sharing": "sharing",
    "behind-cluster": "cluster",
    "behind-floor": "floor",
    "behind-bytes": "bytes",
    "behind-few-bytes": "bytes",
    "behind-all-bytes": "bytes",
    "behind-instructions": "instructions",
    "behind-order": "order",
}


@dataclass(frozen=True, slots=True)
class FloorTerm(Value):
    """One of the times that no kernel undercuts, and the rate it comes from."""

    name: str
    us: float
    rate: float
    unit: str  # TFLOP/s or GB/s
    basis: Basis

    def __str__(self) -> str:
        return f"{self.name} {in_us(self.us)} at {self.rate:.4g} {self.unit} ({self.basis})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Value):
    """The predicted time of a kernel, in parts that gemm_time.py defines."""

    _derived: ClassVar[tuple[str, ...]] = ("us",)

    launch_us: float  # from one kernel to the next
    main_us: float  # the K steps of all rounds
    bound: str  # the longest of steps, memory, L2 and power
    bounds_us: tuple[tuple[str, float], ...]  # these times, by name
    epilogue_us: float  # sums converted and stored
    adding_us: float  # of blocks that share k
    basis: Basis
    fitted: bool = True  # to measured kernels; False: only documented rates, without the effects that they lack
    timed_kernels: int = 0  # timed on this very card, which corrected it: 1 is this one; 0: it is not corrected
    timed_on: str = ""  # the day of that

    @property
    def us(self) -> float:
        """All parts together."""
        return self.launch_us + self.main_us + self.epilogue_us + self.adding_us


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTile(Value):
    """A tile shape that can be computed, what it costs, and why it does not come first."""

    _derived: ClassVar[tuple[str, ...]] = ("floor_us", "behind_in", "why")

    tile: Tile
    schedule: Schedule = PLAIN  # how blocks share the work
    prediction: Prediction | None = None  # None: only the floor is known
    stages: int
    tiles: int  # of C
    rounds: int | None  # None: how many SMs there are is not known
    terms: tuple[FloorTerm, ...]  # the longest first
    busiest_bytes: int  # of operands that the SM with the most tiles fetches; all of them where rounds is None
    instructions: int  # of the tensor core, for one K step
    behind: Reason

    @property
    def floor_us(self) -> float | None:
        """Microseconds that no kernel with this tile undercuts; None where the card's rates are not known."""
        return self.terms[0].us if self.terms else None

    @property
    def behind_in(self) -> str:
        """The first term in which it is behind: time, floor, sharing, cluster, bytes, instructions, order; "" for the first."""
        return _BEHIND_IN[self.behind.name]

    @property
    def why(self) -> str:
        """Why it does not come first, as a sentence."""
        return self.behind.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTile(Value):
    """A tile shape that cannot be, why, and whether it would have come first."""

    tile: Tile
    violations: tuple[Violation, ...]
    would_lead: bool  # ranks before the tile that was chosen
