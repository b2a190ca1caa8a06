"""The first page's drawing: five stations of one tile, each a small grid made from the library's own answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from markupsafe import Markup

from tilescope.mma.fragment import fragment
from tilescope.swizzle import Swizzle
from tilescope.tensor_map import TensorMap, inspect_tensor_map
from tilescope.tma import trace
from tilescope.view.grid import Cell, Grid, Row
from tilescope.view.ruler import BitRuler, byte_grid
from tilescope.view.svg_canvas import number
from tilescope.view.svg_document import grid_block
from tilescope.view.trace_view import plane
from tilescope.web.page import drawn

_TILE = TensorMap("bf16", (128, 24), (256,), (64, 8), swizzle="128B")


@dataclass(frozen=True, slots=True)
class Station:
    """A place on the path: what happens there, a thumbnail, and the page that shows it in full."""

    name: str
    sentence: str
    page: str
    query: str
    picture: Markup


@cache
def stations() -> tuple[Station, ...]:
    """Global memory, the tensor map, the copy, shared memory, the tensor core."""
    copied = trace(_TILE, (64, 8))
    return (
        Station("Global memory", "A matrix in rows. The tile is a box of it.", "load",
                "?dims=128,24&box=64,8&coords=64,8", _thumbnail(plane(copied))),
        Station("Tensor map", "128 bytes tell the hardware where the matrix lies and how large the box is.", "tensor-map",
                "?dims=128,24&box=64,8", _thumbnail(_bytes(_TILE.encode()))),
        Station("TMA", "One instruction copies the box, row after row.", "load",
                "?dims=128,24&box=64,8&coords=64,8", _thumbnail(_rows(swizzled=False))),
        Station("Shared memory", "The swizzle moves 16-byte chunks, so that columns spread over all banks.", "swizzle",
                "", _thumbnail(_rows(swizzled=True))),
        Station("Tensor core", "Every thread of a warp holds its part of the operands and of the result.", "tensor-core",
                "?show=fragment", _thumbnail(_threads())),
    )  # fmt: skip


def _rows(*, swizzled: bool) -> Grid:
    """The eight lines of the 128B pattern, chunk by chunk."""
    swizzle = Swizzle.named("128B" if swizzled else "none")
    lines = swizzle.pattern() if swizzled else swizzle.pattern() * 8
    return Grid("", (), tuple(Row((), tuple(Cell(str(chunk), chunk) for chunk in line)) for line in lines))


def _bytes(blob: bytes) -> Grid:
    """The first 64 bytes of the descriptor, in the colours of its fields."""
    ruler = next(part for part in drawn(inspect_tensor_map(blob)).parts if isinstance(part, BitRuler))
    cells = [cell for row in byte_grid(ruler, "", blob).rows for cell in row.cells]
    return Grid("", (), tuple(Row((), tuple(cells[first : first + 8])) for first in range(0, 64, 8)))


def _threads() -> Grid:
    """Which thread holds each element of the result of an mma, in pairs."""
    thread, _ = fragment("mma.m16n8k16", operand="D", data_type="f32").holders()
    rows = thread[0, :8, ::2].tolist()
    return Grid("", (), tuple(Row((), tuple(Cell(f"T{holder}", holder, span=2) for holder in row)) for row in rows))


def _thumbnail(grid: Grid) -> Markup:
    """A grid without words around it, that fits its card."""
    rows = tuple(Row((), row.cells, row.ruled) for row in grid.rows)
    block = grid_block(replace(grid, title="", tiers=(), rows=rows, label_names=(), notes=()))
    svg = Markup('<svg class="tilescope thumbnail" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>')
    return svg.format(number(block.width), number(block.height), Markup(block.body))  # noqa: S704  view/ escapes it
