"""The result of `plan_kernel`: all addresses, the barriers, and alternatives that would fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.arch import Arch
from tilescope.kernel_plan.handovers import KernelBarrier
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.registers import RegisterUse
from tilescope.pipeline.description import Pipeline
from tilescope.planner.plans import Plan
from tilescope.tensor_map import Convolution, Im2colMap, TensorMap
from tilescope.value import Value, row_field


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTile(Value):
    """A tile in shared memory: its bytes, its stages, its lifetime, and how it is copied and read."""

    name: str
    offset_bytes: int  # from the start of shared memory
    size_bytes: int  # of all stages
    stage_bytes: int  # from one stage to the next
    stages: int
    alignment_bytes: int  # that its start is a multiple of
    alive: tuple[int, ...]  # places of steps
    plan: Plan | None  # None: it is stored packed, row by row
    tensor_map: TensorMap | Im2colMap | None
    convolution: Convolution | None = None  # of an image: the offsets of each filter tap, and the product

    @property
    def end_bytes(self) -> int:
        """The first byte behind it."""
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedColumns(Value):
    """One stage of a tile in tensor memory: its columns, its first lane, and its lifetime."""

    name: str
    tile: str
    first_column: int
    columns: int
    lane: int
    half_lanes: bool  # it uses 16 of every 32 lanes
    alive: tuple[int, ...]  # places of steps


@dataclass(frozen=True, slots=True)
class KernelOverlay(Value):
    """Two tiles that share memory, and the barriers that separate their lifetimes."""

    first: str  # alive before the other
    second: str  # alive after it
    memory: str  # shared or tensor
    barriers: tuple[str, ...]  # mbarriers; empty: the order of one role's own steps


@dataclass(frozen=True, slots=True)
class KernelAlternative(Value):
    """Another choice of stages that fits, and the limit that prevents one more stage."""

    stages: tuple[tuple[str, int], ...]  # of each ring
    smem_bytes: int
    tmem_columns: int  # of tensor memory
    overlays: int  # pairs of tiles that overlap
    limit: str  # what stops it from having one stage more


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan(Value):
    """The plan of a kernel: shared memory, tensor memory, registers and barriers.

    >>> from tilescope.kernel_plan.planning import plan_kernel
    >>> plan = plan_kernel("flash-attention-3-forward-128")
    >>> plan.smem_bytes, plan.smem_limit_bytes, plan.stages["K"], [use.registers for use in plan.registers]
    (214016, 232448, 2, [24, 240])
    >>> plan.overlays[0].second, plan.overlays[0].barriers
    ('O', ('O_over_V', 'V_over_O'))
    """

    _derived: ClassVar[tuple[str, ...]] = ("left_bytes", "left_columns")

    kernel: KernelDescription  # as it was described
    arch: Arch = row_field(Arch.named)
    blocks_per_sm: int
    tiles: tuple[PlacedTile, ...]
    columns: tuple[PlacedColumns, ...]
    registers: tuple[RegisterUse, ...]  # of each role
    entry_registers: int  # of a thread at the launch
    barriers: tuple[KernelBarrier, ...]
    barriers_offset_bytes: int  # where the mbarriers start in shared memory
    overlays: tuple[KernelOverlay, ...]  # tiles that overlap
    smem_bytes: int
    smem_limit_bytes: int  # what a block has
    tmem_columns: int  # columns in use
    alloc_columns: int  # columns for tcgen05.alloc
    tmem_limit_columns: int  # what a block has
    alternatives: tuple[KernelAlternative, ...]  # best first; the first one is this plan
    pipeline: Pipeline

    @property
    def stages(self) -> dict[str, int]:
        """The stages of each tile in shared memory."""
        return {tile.name: tile.stages for tile in self.tiles}

    @property
    def left_bytes(self) -> int:
        """Bytes of shared memory that are not used."""
        return self.smem_limit_bytes - self.smem_bytes

    @property
    def left_columns(self) -> int:
        """Columns of tensor memory beyond those that are allocated."""
        return self.tmem_limit_columns - self.alloc_columns

    def tile(self, name: str) -> PlacedTile:
        """The tile of this name in shared memory."""
        return next(tile for tile in self.tiles if tile.name == name)
