"""The drawing of a convolution: the product that it is, the offsets of every tap, the im2col map, and its first copy."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilescope.arithmetic import ceil_div
from tilescope.sentence import by, counted
from tilescope.tensor_map import Convolution
from tilescope.tma import Trace
from tilescope.view.drawing import Drawing, Part, Table
from tilescope.view.tensor_map_view import findings, map_parts, map_title
from tilescope.view.tensor_plane import EXACT_COLUMNS, EXACT_ROWS
from tilescope.view.trace_view import draw_trace, walk_trace
from tilescope.view.walk_step import Step

_MAX_TAPS = 32
_PRODUCT = {
    "forward": "The image is A of the product, pixels by taps and channels; "
    "the filters are B through a tiled map of {n} x {k}.",
    "dgrad": "The gradient of the output is A of the product, pixels by taps and filters; the taps run backwards. "
    "The filters are B through a tiled map.",
    "wgrad": "The image is B of the product: its pixels are summed over, so it is read MN-major. "
    "The gradient of the output is A, through a tiled map of {k} pixels x {m} filters; it needs no im2col.",
}


def draw_convolution(
    convolution: Convolution,
    *,
    copy: bool = False,
    lines: int | None = None,
    exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS),
) -> Drawing:
    """The product of the pass, the offsets of every tap, and the map; with `copy`, its first copy.

    `lines` and `exact` are those of the drawing of a copy.

    >>> draw_convolution(Convolution.of((8, 56, 56, 64), (128, 3, 3), "bf16", pad=1)).title
    '3 x 3 convolution, forward: an im2col map'
    """
    m, n, k = convolution.gemm
    a = convolution.tensor_map
    taps = convolution.taps
    shape = convolution.output_shape
    columns = ceil_div(prod(shape), a.pixels_per_column)
    slices = ceil_div(a.dims[0], a.channels_per_pixel)
    facts = {
        "product": f"m {m}, n {n}, k {k}",
        "walks over": f"{by(shape)} pixels (n, then outermost first), {prod(shape)} in all",
        "one copy": f"{a.pixels_per_column} pixels x {a.channels_per_pixel} channels, {a.smem_bytes} bytes",
        "copies": f"{columns} columns of pixels x {counted(len(taps), 'tap')} x {counted(slices, 'slice')} of channels",
        "first copy": f"coords {convolution.coords(0, 0)}, offsets {taps[0][1]} (innermost first)",
    }
    title = f"{by(last + 1 for last in taps[-1][0])} convolution, {convolution.direction}: an im2col map"
    drawn: dict[str, Part] = {}
    if copy:
        drawn = dict(draw_trace(first_copy(convolution), lines=lines, exact=exact).figures().named)
    return Drawing(
        title,
        {
            "product": _PRODUCT[convolution.direction].format(m=m, n=n, k=k),
            "facts": Table(facts),
            **drawn,
            "offsets": _tap_offsets(convolution),
            "map": map_title(a),
            **map_parts(a),
            "findings": findings(a.findings),
        },
    )


def _tap_offsets(convolution: Convolution) -> Table:
    dimensions = len(convolution.stride)
    tap_letters = ", ".join("trs"[-dimensions:])
    offset_letters = ", ".join("whd"[:dimensions])
    records = (
        {f"tap {tap_letters}": ", ".join(map(str, tap)), f"offsets {offset_letters}": ", ".join(map(str, offsets))}
        for tap, offsets in convolution.taps
    )
    return Table.of(records, "Offsets of the taps", most=_MAX_TAPS, noun="taps")


def first_copy(convolution: Convolution) -> Trace:
    """The copy of the first pixels and channels, at the first tap."""
    _, offsets = convolution.taps[0]
    return Trace(convolution.tensor_map, convolution.coords(0, 0), offsets=offsets)


def walk_convolution(convolution: Convolution, **options: object) -> Iterator[Step]:
    """The pixels of the first copy, where it is drawn."""
    if options.get("copy"):
        yield from walk_trace(first_copy(convolution))


DRAWINGS = {Convolution: draw_convolution}
WALKS = {Convolution: walk_convolution}
