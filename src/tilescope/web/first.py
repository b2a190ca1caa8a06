"""The first page's drawing: five stations of one tile, each a small grid made from the library's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from markupsafe import Markup

from tilescope.mma.fragment import fragment
from tilescope.swizzle import Swizzle
from tilescope.tensor_map import TensorMap, inspect_tensor_map
from tilescope.tma import trace
from tilescope.value import Value
from tilescope.view.grid import Grid
from tilescope.view.parts import Beside
from tilescope.view.ruler import BitRuler, byte_grid
from tilescope.view.svg_document import grid_block, number
from tilescope.view.trace_view import plane
from tilescope.web.page import drawn

_TILE = TensorMap("bf16", (128, 24), (256,), (64, 8), swizzle="128B")


class Station(NamedTuple):
    """A place on the path: what happens there, the page that shows it in full, and a thumbnail."""

    name: str
    sentence: str
    path: str
    picture: Markup


@cache
def stations() -> tuple[Station, ...]:
    """Global memory, the tensor map, the copy, shared memory, the tensor core."""
    matrix = "dims=128,24&box=64,8"
    logical, physical = _grids(Swizzle.named("128B"))
    threads, _ = _grids(fragment("mma.m16n8k16", operand="D", data_type="f32"))
    blob = _TILE.encode()
    ruler = next(part for part in drawn(inspect_tensor_map(blob)).parts if isinstance(part, BitRuler))
    return (
        Station("Global memory", "A matrix in rows. The tile is a box of it.",
                f"load?{matrix}&coords=64,8", _thumbnail(plane(trace(_TILE, (64, 8))))),
        Station("Tensor map", "128 bytes tell the hardware where the matrix lies and how large the box is.",
                f"tensor-map?{matrix}", _thumbnail(byte_grid(ruler, "", blob))),
        Station("TMA", "One instruction copies the box, row after row.",
                f"load?{matrix}&coords=64,8", _thumbnail(logical)),
        Station("Shared memory", "The swizzle moves 16-byte chunks, so that columns spread over all banks.",
                "swizzle", _thumbnail(physical)),
        Station("Tensor core", "Every thread of a warp holds its part of the operands and of the result.",
                "tensor-core?show=fragment", _thumbnail(replace(threads, rows=threads.rows[:8]))),
    )  # fmt: skip


def _grids(value: Value) -> Iterator[Grid]:
    """The grids of a value's drawing."""
    for part in drawn(value).parts:
        yield from (inner for inner in (part.parts if isinstance(part, Beside) else [part]) if isinstance(inner, Grid))


def _thumbnail(grid: Grid) -> Markup:
    """A grid without words around it, that fits its card."""
    rows = tuple(replace(row, labels=()) for row in grid.rows)
    block = grid_block(replace(grid, title="", tiers=(), rows=rows, label_names=(), notes=()))
    svg = Markup('<svg class="tilescope thumbnail" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>')
    return svg.format(number(block.width), number(block.height), Markup(block.body))  # noqa: S704  view/ escapes it
