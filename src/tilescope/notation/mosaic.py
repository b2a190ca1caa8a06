"""Mosaic GPU's transforms of a shared buffer, as Pallas writes them.

    (TileTransform((8, 64)), SwizzleTransform(128))            of 128 x 128, 16 bits

    (128, 128) ── tiling ──▶ (16, 2, 8, 64)          stored row-major: the tiles of one row lie side by side
    (16, 2, 8, 64) ── TransposeTransform((1, 0, 2, 3)) ──▶ (2, 16, 8, 64)         … of one column do

The swizzle is the tensor map's, so the innermost extent must be as many bytes as it spans. Neither the
shape of the buffer nor its element type is part of the text.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilescope.layout import Layout, Modes
from tilescope.layout.modes import coalesced
from tilescope.notation.hints import NO_EQUIVALENT, Hints, on_pattern, tile_of
from tilescope.notation.text import NOTATION_TEXT, Scanner
from tilescope.swizzle import SWIZZLE

_SWIZZLES = {16: "none", 32: "32B", 64: "64B", 128: "128B"}
_MODES = {"None": 16, "kNoSwizzle": 16, "k32ByteSwizzle": 32, "k64ByteSwizzle": 64, "k128ByteSwizzle": 128}
_TILES = ("TileTransform", "TilingTransform")
_WIDTH_OF = {name: width for width, name in _SWIZZLES.items()}

EARLY_SWIZZLE = NOTATION_TEXT.worded(
    found="a SwizzleTransform before others",
    limit="it acts on the stored bytes",
    fix="Write it last.",
)
ROW_IS_NO_SPAN = NOTATION_TEXT.worded(
    found="SwizzleTransform({span_bytes}) of rows of {row_bytes:.15g} bytes",
    limit="the innermost extent is as many bytes as the swizzle spans",
    fix="Tile by {elements} elements.",
)
SWIZZLE_WIDTH = NOTATION_TEXT.worded(
    found="a swizzle of {width_bytes} bytes",
    limit="32, 64 or 128 (16: none)",
    fix="Use 128.",
)
UNEVEN_TILING = NOTATION_TEXT.worded(
    found="a tiling of {tiling} over {extents}",
    limit="whole tiles",
    fix="Use {one_tile}, one tile.",
)
NO_PERMUTATION = NOTATION_TEXT.worded(
    found="the permutation {permutation}",
    limit="every number from 0 to {last} once",
    fix="Use {identity}.",
)
NO_WIDTH_OF_SWIZZLE = NO_EQUIVALENT.worded(
    found="swizzle {swizzle}",
    limit="SwizzleTransform takes 32, 64 or 128 bytes",
    fix="Use 128B.",
)
PADDED_TILE = NO_EQUIVALENT.worded(
    found="{padding_bytes} bytes of padding a row",
    limit="tiles are stored without gaps",
    fix="Use padding_bytes = 0.",
)


class Dim(NamedTuple):
    """A dimension of the stored buffer: part of an index of the source."""

    source: int  # the index
    extent: int
    weight: int  # what one step adds to that index


def read(text: str, hints: Hints) -> Layout:
    """The layout of a buffer under a list of transforms.

    >>> layout = read("(TileTransform((8, 64)), SwizzleTransform(128))", Hints(element_bits=16, shape=(16, 64)))
    >>> str(layout.modes), layout.swizzle.name
    ('(16,64):(64,1)', '128B')
    """
    transforms = _read_transforms(Scanner(text))
    bits = hints.bits(None, "Mosaic's transforms")
    tiles = (argument for name, argument in transforms if name in _TILES and len(argument) == 2)
    shape = hints.tile_shape(next(tiles, None) if hints.shape is None else None, "Mosaic's transforms")
    dims = [Dim(index, extent, 1) for index, extent in enumerate(shape)]
    swizzle = SWIZZLE["none"]
    for place, (name, argument) in enumerate(transforms):
        if name != "SwizzleTransform":
            dims = _transpose(dims, argument) if name == "TransposeTransform" else _tile_dims(dims, argument)
        elif place == len(transforms) - 1:
            swizzle = SWIZZLE[_SWIZZLES[argument[0]]]
        else:
            raise EARLY_SWIZZLE.error()
    span = swizzle.span_bytes
    row_bits = dims[-1].extent * bits
    if span is not None and row_bits != span * 8:
        raise ROW_IS_NO_SPAN.error(span_bytes=span, row_bytes=row_bits / 8, elements=span * 8 // bits)
    start = on_pattern(hints.start, swizzle)
    return Layout.from_modes(_strides(dims, len(shape)), bits, swizzle=swizzle, start=start)


def spell(layout: Layout) -> tuple[str, ...]:
    """The transforms that may store a row-major buffer so.

    >>> print(spell(Layout((16, 64), 16, swizzle="128B"))[0])
    (TileTransform((8, 64)), SwizzleTransform(128))
    """
    width = _WIDTH_OF.get(layout.swizzle.name)
    if width is None:
        raise NO_WIDTH_OF_SWIZZLE.error(swizzle=layout.swizzle.name)
    tile = tile_of(layout)
    if tile.padding_bytes:
        raise PADDED_TILE.error(padding_bytes=tile.padding_bytes)
    turned = ["TransposeTransform((1, 0))"] if layout.major == "MN" else []
    swizzled = [f"SwizzleTransform({width})"] if width != 16 else []
    tilings = [
        [f"TileTransform(({rows}, {tile.atom[1]}))", *order]
        for rows in (8, tile.atom[0])
        for order in ([], ["TransposeTransform((1, 0, 2, 3))"])
    ]
    if not swizzled:
        tilings = [[], *tilings]
    return tuple(_tuple_text([*turned, *tiling, *swizzled]) for tiling in tilings)


def _tuple_text(entries: list[str]) -> str:
    """The text of a tuple.

    >>> _tuple_text(["a"]), _tuple_text(["a", "b"])
    ('(a,)', '(a, b)')
    """
    return f"({entries[0]},)" if len(entries) == 1 else f"({', '.join(entries)})"


def _read_transforms(scan: Scanner) -> list[tuple[str, tuple[int, ...]]]:
    """The transforms and their numbers: a tuple, list or sequence, `swizzle=128` counting as the last of them."""
    transforms: list[tuple[str, tuple[int, ...]]] = []
    opened = 0
    while scan.peek().kind != "end":
        name = str(scan.peek().value)
        if name in (*_TILES, "TransposeTransform", "SwizzleTransform"):
            transforms.append((name, _read_argument(scan, name == "SwizzleTransform")))
        elif scan.accept("swizzle", "="):
            transforms.append(("SwizzleTransform", (_read_width(scan),)))
        elif scan.peek().kind == "name" and scan.peek(1).value == "=":
            scan.take()
            scan.take()
        elif name in ("(", "["):
            scan.take()
            opened += 1
        elif name in ("]", ")"):
            scan.take()
            opened -= 1
        elif name == ",":
            scan.take()
        else:
            scan.refuse("TileTransform, TransposeTransform or SwizzleTransform")
    if opened:
        scan.refuse('")"')
    return transforms


def _read_argument(scan: Scanner, is_width: bool) -> tuple[int, ...]:
    """The argument of a transform, with or without its name."""
    scan.take()
    scan.expect("(")
    if scan.peek(1).value == "=":
        scan.name()
        scan.expect("=")
    tree = (_read_width(scan),) if is_width else scan.integers()
    if isinstance(tree, int) or not all(isinstance(branch, int) for branch in tree):
        scan.refuse("a flat tuple")
    scan.expect(")")
    return tree


def _read_width(scan: Scanner) -> int:
    name = str(scan.peek().value)
    if name in _MODES:
        scan.take()
        return _MODES[name]
    width = scan.integer()
    if width not in _SWIZZLES:
        raise SWIZZLE_WIDTH.error(width_bytes=width)
    return width


def _tile_dims(dims: list[Dim], tiling: tuple[int, ...]) -> list[Dim]:
    """The last dims split into (outer, inner), all outers before all inners."""
    untiled = dims[: -len(tiling)]
    split = list(zip(dims[-len(tiling) :], tiling, strict=False))
    if len(tiling) > len(dims) or any(step < 1 or dim.extent % step for dim, step in split):
        extents = tuple(dim.extent for dim in dims)
        raise UNEVEN_TILING.error(tiling=tiling, extents=extents, one_tile=extents[-2:])
    outer = [Dim(dim.source, dim.extent // step, dim.weight * step) for dim, step in split]
    inner = [Dim(dim.source, step, dim.weight) for dim, step in split]
    return [*untiled, *outer, *inner]


def _transpose(dims: list[Dim], permutation: tuple[int, ...]) -> list[Dim]:
    if sorted(permutation) != list(range(len(dims))):
        identity = tuple(range(len(dims)))
        raise NO_PERMUTATION.error(permutation=permutation, last=len(dims) - 1, identity=identity)
    return [dims[place] for place in permutation]


def _strides(dims: list[Dim], rank: int) -> Modes:
    """Row-major storage of `dims`, grouped by their original index, the finest of each first."""
    strides = []
    for place in range(len(dims)):
        inner = dims[place + 1 :]
        strides.append(prod(dim.extent for dim in inner))
    stored = sorted(zip(dims, strides, strict=True), key=lambda entry: entry[0].weight)
    indices = []
    for source in range(rank):
        pairs = [(dim.extent, stride) for dim, stride in stored if dim.source == source]
        indices.append(coalesced(*pairs))
    return Modes.of_indices(indices)
