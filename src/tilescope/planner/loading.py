"""What the roles of a loading pipeline agree on: the count of stages, their slots, the waits, the loops."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.planner.planned_scales import SCALE_SLOTS, ScalePlan
from tilescope.planner.plans import Plan
from tilescope.planner.staging import Staging

Step = dict[str, object]  # by the names of pipeline.parts
Steps = list[Step]
SLOTS = "abcdefgh"  # of a stage
TILE_OF_TURN = "(2 * turn + instance)"  # the tile of one of two consumers that take turns


class Registers(NamedTuple):
    """Registers of a thread; the sums over a block are equal at entry and behind it."""

    at_entry: int
    producer: int
    consumer: int


REGISTERS = {2: Registers(168, 40, 232), 3: Registers(128, 32, 160)}  # by consumers


class Loading:
    """What one pipeline loads, and the expressions that its roles share; a GEMM's has an epilogue too."""

    def __init__(self, staging: Staging, plans: tuple[Plan, ...], tile: str = "t", counter: str = "k_tile") -> None:
        self.staging = staging
        self.tile = tile  # the number of a block's tile, as an expression
        self.counter = counter  # of its K steps
        self.plans = plans  # of the part that one block loads of every tile
        self.gemm = staging.gemm
        self.step = self._step_number()  # an expression of the kernel's counters, as the two below
        self.stage = f"{self.step} % STAGES"
        self.turn = f"{self.step} / STAGES % 2"
        scales = () if self.gemm is None else self.gemm.scale_plans
        names = (*SLOTS[: len(plans)], *SCALE_SLOTS[: len(scales)])
        self.brought: dict[str, Plan | ScalePlan] = dict(
            zip(names, (*plans, *scales), strict=True)
        )  # in a stage, by slot
        self.slots = [f"{name}[{self.stage}]" for name in names]
        alone = staging.in_tmem or staging.takes_turns
        self.writers = 1 if alone else staging.consumers  # of a slice of C, each into its part of the buffer

    def _step_number(self) -> str:
        """Stages used before, over the whole kernel; blocks that share k take one tile."""
        if self.gemm is None:
            return "i"
        if self.gemm.schedule.persistent:
            return f"({self.tile} * K_TILES + {self.counter})"
        return self.counter if self.counter.isidentifier() else f"({self.counter})"

    def at(self, counter: str) -> Loading:
        """The same at another K step of a tile, given as an expression."""
        return Loading(self.staging, self.plans, self.tile, counter)

    @property
    def turn_of_consumer(self) -> Loading:
        """The same for consumers that take tiles in turn: consumer `instance` has every second one."""
        return Loading(self.staging, self.plans, TILE_OF_TURN) if self.staging.takes_turns else self

    @property
    def has_epilogue(self) -> bool:
        """Whether slices of C go through shared memory."""
        return self.gemm is not None and self.gemm.epilogue is not None

    @property
    def registers(self) -> Registers | None:
        """The registers that setmaxnreg distributes. Of most GEMMs the registers at entry suffice: the producer has two warps."""
        if self.gemm is not None and not self.gemm.redistributes_registers:
            return None
        if not self.staging.by_warpgroups:
            return None
        return REGISTERS.get(self.staging.consumers)

    @property
    def filled(self) -> Steps:
        """A consumer's wait for a stage; bytes of cp.async are made visible to a tensor core that reads shared memory."""
        steps: Steps = [{"wait": f"full[{self.stage}]", "parity": self.turn}]
        if self.staging.first.copy == "cp.async" and self.staging.by_descriptor:
            steps.append({"fence": "proxy.async"})
        return steps

    @property
    def feeders(self) -> str:
        """The mask of the blocks whose copies land here: those of the same x (or pair) and those of the same y."""
        across, down = self.staging.cluster
        x = "x" if self.staging.cta_group == 1 else "(x - x % 2)"
        column = f"{column_of(across, down, self.staging.cta_group)} << {x}"
        if self.staging.b_sharers == 1:
            return column
        return f"{column} | {(1 << across) - 1} << ({across} * y)"

    def meet(self, registers: int | None = None) -> Steps:
        """Barriers are initialised by the producer (the first role) and seen by everyone before anyone uses them.

        Blocks that share only k use no barriers of each other.
        """
        splits = self.gemm is not None and self.gemm.schedule.split > 1
        steps: Steps = [{"sync": 0} if self.staging.blocks == 1 or splits else {"cluster": "sync"}]
        if registers is not None:
            steps.append({"registers": registers})
        return steps

    def loops(self, steps: Steps, before: Steps, after: Steps) -> Steps:
        """The K loop; for a persistent GEMM within the loop over tiles, counted through."""
        if self.gemm is None:
            return [{"loop": "i", "count": "k_tiles", "steps": steps}]
        return self.tile_loop([*before, {"loop": "k_tile", "count": self.tile_steps(), "steps": steps}, *after])

    def tile_loop(self, steps: Steps) -> Steps:
        """The steps of one tile of a GEMM; if it is persistent, within the loop over its tiles."""
        if self.gemm is None or not self.gemm.schedule.persistent:
            return steps
        steps = [*steps, *self.next_tile()]
        if self.tile == TILE_OF_TURN:
            return [{"loop": "turn", "count": "(tiles + 1 - instance) / 2", "steps": steps}]
        return [{"loop": "t", "count": "tiles", "steps": steps}]

    def tile_steps(self) -> str:
        """K steps of a tile; blocks that share a tile of the last round have fewer."""
        if self.gemm is None or self.gemm.schedule.tail == 1:
            return "K_TILES"
        return "(K_TILES - (t == whole) * (K_TILES - tail_k_tiles))"

    @property
    def asks(self) -> bool:
        """Whether blocks request their next tile."""
        return self.staging.answers > 0

    def next_tile(self) -> Steps:
        """The steps of a role after a tile: wait for the next tile's number, read it, and release its buffer at the requester."""
        if not self.asks:
            return []
        slot = f"t % {self.staging.answers}"
        leader = 1 if self.staging.blocks > 1 else None  # the first block of a cluster requests for all
        return [
            {"wait": f"next_full[{slot}]", "parity": f"(t / {self.staging.answers}) % 2"},
            {"read": [f"answer[{slot}]"]},
            {"fence": "proxy.async"},
            step_of(release=f"next_empty[{slot}]", mask=leader),
        ]

    @property
    def is_dependent(self) -> bool:
        """Whether the kernel starts before the one before it has ended."""
        return self.gemm is not None and self.gemm.schedule.dependent


def step_of(**fields: object) -> Step:
    """A step, without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def both(first: str, second: str | None) -> str:
    """The condition that holds where two do; None is no second one."""
    return first if second is None else f"({first}) & ({second})"


def column_of(across: int, down: int, width: int) -> int:
    """The bits of `width` neighbouring blocks in every row of a cluster."""
    return sum(((1 << width) - 1) << across * row for row in range(down))
