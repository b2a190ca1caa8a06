"""Mosaic GPU's transforms of a shared buffer, as Pallas writes them.

    (TileTransform((8, 64)), SwizzleTransform(128))            of 128 x 128, 16 bits

    (128, 128) ── tiling ──▶ (16, 2, 8, 64)          stored row-major: the tiles of one row lie side by side
    (16, 2, 8, 64) ── TransposeTransform((1, 0, 2, 3)) ──▶ (2, 16, 8, 64)         … of one column do

The swizzle is the tensor map's, so the innermost extent must be as many bytes as it spans. Neither the
shape of the buffer nor its element type is part of the text.
"""

from __future__ import annotations

from math import prod

from tilescope.layout import Layout, Modes
from tilescope.layout.modes import coalesced
from tilescope.notation.hints import Hints, no_equivalent, on_pattern, tile_of
from tilescope.notation.text import Scanner, refusal
from tilescope.swizzle import SWIZZLE

_SWIZZLES = {16: "none", 32: "32B", 64: "64B", 128: "128B"}
_MODES = {"None": 16, "kNoSwizzle": 16, "k32ByteSwizzle": 32, "k64ByteSwizzle": 64, "k128ByteSwizzle": 128}
_TILES = ("TileTransform", "TilingTransform")


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
    dims = [(index, extent, 1) for index, extent in enumerate(shape)]  # source index, extent, step of that index
    swizzle = SWIZZLE["none"]
    for place, (name, argument) in enumerate(transforms):
        if name != "SwizzleTransform":
            dims = _transposed(dims, argument) if name == "TransposeTransform" else _tiled(dims, argument)
        elif place == len(transforms) - 1:
            swizzle = SWIZZLE[_SWIZZLES[argument[0]]]
        else:
            raise refusal("a SwizzleTransform before others", "it acts on the stored bytes", "Write it last.")
    span, row_bits = swizzle.span_bytes, dims[-1][1] * bits
    if span is not None and row_bits != span * 8:
        found = f"SwizzleTransform({span}) of rows of {row_bits / 8:.15g} bytes"
        limit, fix = (
            "the innermost extent is as many bytes as the swizzle spans",
            f"Tile by {span * 8 // bits} elements.",
        )
        raise refusal(found, limit, fix, span_bytes=span, row_bytes=row_bits / 8)
    start = on_pattern(hints.start, swizzle)
    return Layout.from_modes(_strides(dims, len(shape)), bits, swizzle=swizzle, start=start)


def spell(layout: Layout) -> tuple[str, ...]:
    """The transforms that may store a row-major buffer so.

    >>> print(spell(Layout((16, 64), 16, swizzle="128B"))[0])
    (TileTransform((8, 64)), SwizzleTransform(128))
    """
    width = {name: width for width, name in _SWIZZLES.items()}.get(layout.swizzle.name)
    if width is None:
        raise no_equivalent(f"swizzle {layout.swizzle}", "SwizzleTransform takes 32, 64 or 128 bytes", "Use 128B.")
    tile = tile_of(layout)
    if tile.padding_bytes:
        found = f"{tile.padding_bytes} bytes of padding a row"
        raise no_equivalent(found, "tiles lie without gaps", "Use padding_bytes = 0.", padding_bytes=tile.padding_bytes)
    turned = ["TransposeTransform((1, 0))"] if layout.major == "MN" else []
    swizzled = [f"SwizzleTransform({width})"] if width != 16 else []
    tilings = [
        [f"TileTransform(({rows}, {tile.atom[1]}))", *order]
        for rows in (8, tile.atom[0])
        for order in ([], ["TransposeTransform((1, 0, 2, 3))"])
    ]
    texts = [[*turned, *tiling, *swizzled] for tiling in (tilings if swizzled else [[], *tilings])]
    return tuple(f"({', '.join(text)}{',' if len(text) == 1 else ''})" for text in texts)


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
        elif name in ("(", "[", ",", "]", ")"):
            opened += {"(": 1, "[": 1, ",": 0}.get(scan.take().spelling, -1)
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
    width = _MODES[name] if name in _MODES and scan.take() else scan.integer()
    if width not in _SWIZZLES:
        raise refusal(f"a swizzle of {width} bytes", "32, 64 or 128 (16: none)", "Use 128.", width_bytes=width)
    return width


Dims = list[tuple[int, int, int]]


def _tiled(dims: Dims, tiling: tuple[int, ...]) -> Dims:
    """The last dims split into (outer, inner), all outers before all inners."""
    kept, split = dims[: -len(tiling)], list(zip(dims[-len(tiling) :], tiling, strict=False))
    if len(tiling) > len(dims) or any(step < 1 or extent % step for (_, extent, _), step in split):
        extents = tuple(extent for _, extent, _ in dims)
        found, fix = f"a tiling of {tiling} over {extents}", f"Use {extents[-2:]}, one tile."
        raise refusal(found, "whole tiles", fix, tiling=tiling, extents=extents)
    outer = [(index, extent // step, weight * step) for (index, extent, weight), step in split]
    inner = [(index, step, weight) for (index, _, weight), step in split]
    return [*kept, *outer, *inner]


def _transposed(dims: Dims, permutation: tuple[int, ...]) -> Dims:
    if sorted(permutation) != list(range(len(dims))):
        limit, fix = f"every number from 0 to {len(dims) - 1} once", f"Use {tuple(range(len(dims)))}."
        raise refusal(f"the permutation {permutation}", limit, fix, permutation=permutation)
    return [dims[place] for place in permutation]


def _strides(dims: Dims, rank: int) -> Modes:
    """Row-major storage of `dims`, gathered by the index that they came from."""
    strides = [prod(extent for _, extent, _ in dims[place + 1 :]) for place in range(len(dims))]
    stored = sorted(
        (index, weight, extent, stride) for (index, extent, weight), stride in zip(dims, strides, strict=True)
    )
    return Modes.of_indices(
        coalesced(*((extent, stride) for index, _, extent, stride in stored if index == source))
        for source in range(rank)
    )
