"""The drawing of a planned kernel: its shared memory over time, its tensor memory, registers, barriers and alternatives.

               step   0  1  2  3  4        addresses go down, steps across; a bar is a tile that is alive;
byte    bytes         ld ld mm th st       two names in one row of addresses are an overlay
0       16384         K  K  K  K
32768   8192          V  V  V     O
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tilescope.kernel_plan.placement import BARRIERS
from tilescope.kernel_plan.planned_kernel import KernelPlan, PlacedTile
from tilescope.sentence import by, counted
from tilescope.tensor_map import Im2colMap
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.palette import Tint

_BARRIERS_COLOUR: Tint = "unused"


class _Bar(NamedTuple):
    """A tile in a memory: where it starts and ends, and when it is alive."""

    name: str
    start: int
    end: int
    alive: frozenset[int]
    colour: int


class _Axes(NamedTuple):
    """A memory: its title, what its addresses count, and their end."""

    title: str
    unit: str
    end: int


def draw_kernel_plan(plan: KernelPlan, *, proof: str = "") -> Drawing:
    """A planned kernel; `proof` is the verdict on its pipeline, in a sentence.

    >>> from tilescope.kernel_plan import plan_kernel
    >>> drawn = draw_kernel_plan(plan_kernel("gemm"))
    >>> drawn.title
    'gemm: 197632 of 232448 bytes on sm_90'
    """
    steps = Table.of(
        (
            {"step": place, "role": step.role, "does": step.title, "in loop": step.loop or "-"}
            for place, step in enumerate(plan.kernel.steps)
        ),
        title="Steps",
        align="rlll",
    )
    return Drawing(
        f"{plan.kernel.name}: {plan.smem_bytes} of {plan.smem_limit_bytes} bytes on {plan.arch.name}",
        {
            "sentence": proof,
            "memory": Beside({"shared": _shared_grid(plan), "tensor": _tensor_grid(plan)}),
            "registers": _registers(plan),
            "steps": steps,
            "tiles": _tiles(plan),
            "overlays": _overlays(plan),
            "barriers": _barriers(plan),
            "alternatives": _alternatives(plan),
        },
    )


def _colours(plan: KernelPlan) -> dict[str, int]:
    return {tile.name: number for number, tile in enumerate(plan.kernel.tiles)}


def _shared_grid(plan: KernelPlan) -> Grid | None:
    colours = _colours(plan)
    bars = [
        _Bar(tile.name, tile.offset_bytes, tile.end_bytes, frozenset(tile.alive), colours[tile.name])
        for tile in plan.tiles
    ]
    size = sum(row.stages for row in plan.barriers) * 8
    if size:
        always = frozenset(range(len(plan.kernel.steps)))
        bars.append(_Bar(BARRIERS, plan.barriers_offset_bytes, plan.barriers_offset_bytes + size, always, -1))
    notes = [f"{counted(plan.left_bytes, 'byte')} left."]
    return _grid(plan, _Axes("Shared memory over time", "byte", plan.smem_bytes), bars, notes)


def _tensor_grid(plan: KernelPlan) -> Grid | None:
    if not plan.columns:
        return None
    colours = _colours(plan)
    bars = []
    for column in plan.columns:
        half = ""
        if column.half_lanes:
            half = " low" if column.lane == 0 else " high"
        bars.append(
            _Bar(
                f"{column.name}{half}",
                column.first_column,
                column.first_column + column.columns,
                frozenset(column.alive),
                colours[column.tile],
            )
        )
    notes = [f"tcgen05.alloc of {plan.alloc_columns} columns; low and high are halves of the lanes."]
    return _grid(plan, _Axes("Tensor memory over time", "column", plan.tmem_columns), bars, notes)


def _grid(plan: KernelPlan, axes: _Axes, bars: Sequence[_Bar], notes: Sequence[str]) -> Grid | None:
    """Rows between all ends of bars, columns of steps; a cell names what is alive there."""
    cuts = sorted({0, axes.end, *(edge for bar in bars for edge in (bar.start, bar.end))})
    rows = {(low, high): (str(low), str(high - low)) for low, high in pairwise(cuts)}
    if not rows or not plan.kernel.steps:
        return None
    columns = {place: str(place) for place in range(len(plan.kernel.steps))}

    def cell(row: tuple[int, int], place: int) -> Cell:
        alive = [bar for bar in bars if bar.start <= row[0] and row[1] <= bar.end and place in bar.alive]
        if not alive:
            return Cell("", "gap", title=f"{axes.unit}s {row[0]} to {row[1] - 1}, step {place}: free")
        text = "+".join(dict.fromkeys(bar.name if bar.colour >= 0 else "mbar" for bar in alive))
        colour: Tint = _BARRIERS_COLOUR if alive[0].colour < 0 else alive[0].colour
        step = plan.kernel.steps[place]
        return Cell(text, colour, title=f"{text} at {step.role}: {step.title}", link=alive[0].name)

    return Grid.of(axes.title, (axes.unit, f"{axes.unit}s", "step"), rows, columns, cell, notes=notes)


def _registers(plan: KernelPlan) -> Table:
    return Table.of(
        (
            {
                "role": use.role,
                "threads": plan.kernel.role(use.role).threads * plan.kernel.role(use.role).instances,
                "tiles": use.held,
                "others": use.other,
                "has": use.registers,
                "left": use.left,
                "alive at the peak": ", ".join(use.tiles) or "-",
            }
            for use in plan.registers
        ),
        title=f"Registers of a thread ({plan.entry_registers} at entry)",
        align="lrrrrrl",
    )


def _tiles(plan: KernelPlan) -> Table:
    return Table.of(
        (
            {
                "tile": tile.name,
                "shape": by(plan.kernel.tile(tile.name).shape),
                "type": plan.kernel.tile(tile.name).data_type.name,
                "at": tile.offset_bytes,
                "stages": tile.stages,
                "stage bytes": tile.stage_bytes,
                "align": tile.alignment_bytes,
                "swizzle": tile.plan.swizzle.name if tile.plan else "-",
                "copies": _copies(tile),
            }
            for tile in plan.tiles
        ),
        title="Tiles in shared memory",
        align="lllrrrrll",
    )


def _copies(tile: PlacedTile) -> str:
    """The boxes of a tile, and the rank of its map."""
    if tile.plan is None or tile.tensor_map is None:
        return "-"
    if isinstance(tile.tensor_map, Im2colMap):
        pixels = f"{tile.tensor_map.pixels_per_column} pixels x {tile.tensor_map.channels_per_pixel} channels"
        return f"{tile.plan.tma_instructions} of {pixels} (im2col)"
    box = " x ".join(map(str, tile.tensor_map.box))
    return f"{tile.plan.tma_instructions} of box {box}"


def _overlays(plan: KernelPlan) -> Table:
    return Table.of(
        (
            {
                "tile": overlay.second,
                "lies over": overlay.first,
                "memory": overlay.memory,
                "kept apart by": ", ".join(overlay.barriers) or "the order of one role's steps",
            }
            for overlay in plan.overlays
        ),
        title="Overlays",
    )


def _barriers(plan: KernelPlan) -> Table:
    return Table.of(
        (
            {
                "barrier": row.name,
                "stages": row.stages,
                "count": row.count,
                "bytes": row.bytes or "-",
                "arrive": ", ".join(row.arriving),
                "wait": ", ".join(row.waiting),
                "for": row.purpose,
            }
            for row in plan.barriers
        ),
        title="Barriers",
        align="lrrrlll",
    )


def _alternatives(plan: KernelPlan) -> Table:
    return Table.of(
        (
            {
                "stages": ", ".join(f"{name} {count}" for name, count in other.stages),
                "bytes": other.smem_bytes,
                "columns": other.tmem_columns or "-",
                "overlays": other.overlays,
                "limit": other.limit,
            }
            for other in plan.alternatives
        ),
        title="Alternatives, best first",
        align="lrrrl",
    )


DRAWINGS = {KernelPlan: draw_kernel_plan}
