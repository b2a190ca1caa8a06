"""The drawing of a convolution's im2col map: the product it is, the copies of its taps, and the map itself."""

from __future__ import annotations

from tilescope.errors import by, ceil_div, counted
from tilescope.tensor_map.im2col import Convolution
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table
from tilescope.view.tensor_map_view import draw_map

_MOST_TAPS = 32
_SAYING = {
    "forward": "The image is A of the product, pixels by taps and channels; the filters are B through a tiled map of {n} x {k}.",
    "dgrad": "The gradient of the output is A of the product, pixels by taps and filters; the taps run backwards. The filters "
    "are B through a tiled map.",
    "wgrad": "The image is B of the product: its pixels are summed over, so it is read MN-major. The gradient of the output is A, "
    "through a tiled map of {k} pixels x {m} filters; it needs no im2col.",
}


def draw_convolution(found: Convolution) -> Drawing:
    """What the pass computes, which offsets every tap has, and the map.

    >>> draw_convolution(Convolution.of((8, 56, 56, 64), (128, 3, 3), "bf16", pad=1)).title
    '3 x 3 convolution, forward: an im2col map'
    """
    m, n, k = found.gemm
    a = found.tensor_map
    pixels = found.output_shape[0]
    for extent in found.output_shape[1:]:
        pixels *= extent
    columns, slices = ceil_div(pixels, a.pixels_per_column), ceil_div(a.dims[0], a.channels_per_pixel)
    facts = (
        ("product", f"m {m}, n {n}, k {k}"),
        ("walks over", f"{by(found.output_shape)} pixels (n, then outermost first), {pixels} in all"),
        ("one copy", f"{a.pixels_per_column} pixels x {a.channels_per_pixel} channels, {a.smem_bytes} bytes"),
        (
            "copies",
            f"{columns} columns of pixels x {counted(len(found.taps), 'tap')} x {counted(slices, 'slice')} of channels",
        ),
        ("first copy", f"coords {found.coords(0, 0)}, offsets {found.taps[0][1]} (innermost first)"),
    )
    shown = found.taps[:_MOST_TAPS]
    rows = tuple((", ".join(map(str, tap)), ", ".join(map(str, offsets))) for tap, offsets in shown)
    notes = (f"The first {_MOST_TAPS} of {len(found.taps)} taps.",) if len(found.taps) > _MOST_TAPS else ()
    names = {1: ("s", "w"), 2: ("r, s", "w, h"), 3: ("t, r, s", "w, h, d")}[len(found.stride)]
    taps = Table(rows, (f"tap {names[0]}", f"offsets {names[1]}"), title="Offsets of the taps", notes=notes)
    drawn = draw_map(a)
    parts: tuple[Part, ...] = (
        Paragraph(_SAYING[found.direction].format(m=m, n=n, k=k)), Table(facts), taps, Paragraph(drawn.title), *drawn.parts,
    )  # fmt: skip
    shape = by(tuple(last + 1 for last in found.taps[-1][0]))
    return Drawing(f"{shape} convolution, {found.direction}: an im2col map", parts)
