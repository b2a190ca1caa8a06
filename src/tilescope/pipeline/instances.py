"""The barriers, slots and roles of all blocks, numbered as the search over all orders numbers them.

Barriers and slots are numbered through all blocks: number = block x barriers of a block + place in the block. Behind the
mbarriers come the barriers of threads (those of every block, and that of the cluster), then flags in global memory:

    barriers   full[0]  full[1]  …  | bar 0 … bar 15  … | the cluster barrier | flags | the grid before
    number     0        1             mbarriers           cluster               first_flag   grid
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Barrier, Flag, Role, Slot
from tilescope.sync.thread_limits import BARS

Of_co = TypeVar("Of_co", bound=Barrier | Slot | Flag | Role | str, covariant=True)
Row = TypeVar("Row", bound=Barrier | Slot | Flag | Role | str)
Staged = TypeVar("Staged", bound=Barrier | Slot)


class InstanceOf(NamedTuple, Generic[Of_co]):
    """A stage of a barrier or slot, or one of a role's groups of threads, in one block."""

    of: Of_co  # its row of the pipeline; of a barrier of threads its name
    number: int  # its stage; of a role which group
    block: int
    name: str  # in its block: full[2], consumer 1
    title: str  # in messages: full[2] of block 1
    home: int = 0  # its block among those of all grids: this grid's come first, then the earlier grid's

    @property
    def row_name(self) -> str:
        """The name of its row of the pipeline: full."""
        return self.of if isinstance(self.of, str) else self.of.name

    @property
    def stage(self) -> int | None:
        """Its stage; None if there is only one."""
        is_one_of_several = isinstance(self.of, Barrier | Slot | Flag) and self.of.stages > 1
        return self.number if is_one_of_several else None


Agent: TypeAlias = InstanceOf[Role]
BarrierInstance: TypeAlias = InstanceOf[Barrier | Flag | str]
Instance: TypeAlias = InstanceOf[Barrier | Slot | Flag | Role | str]


class Instances:
    """The agents of a pipeline, each a role in a block, and the barriers and slots that its steps name."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        # blocks of this grid, and of the earlier one, which have separate barriers and memory
        grids = 2 if any(role.earlier for role in pipeline.roles) else 1
        self.blocks = pipeline.blocks * grids
        self.agents = self._agents()
        self.slots = self._stages(pipeline.slots)
        mbarriers = self._stages(pipeline.barriers)
        self.counts = [barrier.of.count for barrier in mbarriers]  # arrivals that end a phase
        self.mbarriers = len(mbarriers)
        self.barriers: list[BarrierInstance] = [*mbarriers]
        for home in range(self.blocks):
            self.barriers += [self._instance("bar", bar, home, f"bar {bar}") for bar in range(BARS)]
        self.cluster = len(self.barriers)  # that of every grid
        for home in range(0, self.blocks, pipeline.blocks):
            self.barriers.append(InstanceOf("cluster", 0, 0, "the cluster barrier", "the cluster barrier", home))
        self.first_flag = len(self.barriers)
        for row in pipeline.flags:
            self.barriers += [InstanceOf(row, stage, 0, name, name) for stage, name in enumerate(_stage_names(row))]
        self.grid = len(self.barriers)
        self.barriers.append(InstanceOf("grid", 0, 0, "the grid before", "the grid before"))

    def _agents(self) -> list[Agent]:
        """Every role in every block that it acts in, block after block."""
        agents = []
        for home in range(self.blocks):
            grid, block = divmod(home, self.pipeline.blocks)
            for role in self.pipeline.roles:
                acts_here = role.mask is None or role.mask >> block & 1
                if role.earlier != bool(grid) or not acts_here:
                    continue
                for number in range(role.instances):
                    name = f"{role.name} {number}" if role.instances > 1 else role.name
                    agents.append(self._instance(role, number, home, name))
        return agents

    def _stages(self, rows: Iterable[Staged]) -> list[InstanceOf[Staged]]:
        """The stages of barriers or slots, of one block after another."""
        return [
            self._instance(row, stage, home, name)
            for home in range(self.blocks)
            for row in rows
            for stage, name in enumerate(_stage_names(row))
        ]

    def _instance(self, of: Row, number: int, home: int, name: str) -> InstanceOf[Row]:
        """A part of a block; in a cluster its title names the block, unless all blocks share it."""
        grid, block = divmod(home, self.pipeline.blocks)
        is_shared = isinstance(of, Slot) and of.space == "gmem"
        title = name if is_shared or self.pipeline.blocks == 1 else f"{name} of block {block}"
        if grid and not isinstance(of, Role):  # each role defines its own names
            title = f"{title} of the grid before"
        return InstanceOf(of, number, block, name, title, home)


def _stage_names(row: Barrier | Slot | Flag) -> list[str]:
    """full[0], full[1], …; a single stage has only the name."""
    return [f"{row.name}[{stage}]" for stage in range(row.stages)] if row.stages > 1 else [row.name]


def instances_by_name(pipeline: Pipeline) -> dict[str, Instance]:
    """Barriers, slots and roles of all blocks, by the names that messages and events have for them.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2, cluster=(2, 1))
    >>> full = instances_by_name(pipeline)["full[1] of block 0"]
    >>> full.name, full.stage, full.block
    ('full[1]', 1, 0)
    """
    parts = Instances(pipeline)
    return {part.title: part for part in (*parts.barriers, *parts.slots, *parts.agents)}
