"""Im2col maps: corners, the bounding box, channels and pixels; what im2col-wide takes."""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Im2colGeometry, WideGeometry
from tilescope.tensor_map.rules.box import LARGEST_EXTENT, LARGEST_PIXELS
from tilescope.tensor_map.rules.samples import CUDA_H_IM2COL, CUDA_H_WIDE, H200, IMAGES, WIDE

CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of a corner, by rank
WIDE_ARCHITECTURES = architectures_with("im2col_wide")
_WIDE_SWIZZLES = ("64B", "96B", "128B", "128B_ATOM_32B")
_LARGE_IMAGES = IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608)}


def corner_range(rank: int) -> tuple[int, int]:
    """Smallest and largest corner of a map of this rank: 16, 8 or 5 signed bits for rank 3, 4, 5.

    >>> corner_range(4)
    (-128, 127)
    """
    bits = CORNER_BITS.get(rank, 16)
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def pixels_between(extent: int, lower: int, upper: int) -> int:
    """Pixels of the bounding box along one dim; the driver keeps its end, dim + upper, in signed 32 bits.

    >>> pixels_between(32, -1, -1), pixels_between((1 << 32) - 1, 0, 0)
    (32, -1)
    """
    end = (extent + upper + (1 << 31)) % (1 << 32) - (1 << 31)
    return end - lower


def _opened(extent: int, lower: int, upper: int, limits: tuple[int, int]) -> tuple[int, int] | None:
    """Corners within the limits that leave a pixel, the upper one raised first; None where there are none."""
    low, high = limits
    missing = 1 - pixels_between(extent, lower, upper)
    raised = min(upper + missing, high)
    lowered = max(lower - (upper + missing - raised), low)
    return (lowered, raised) if pixels_between(extent, lowered, raised) >= 1 else None


def _corners(opened: tuple[int, int] | None) -> str:
    return "Use a smaller dim." if opened is None else f"Use lower = {opened[0]}, upper = {opened[1]}."


@checked(
    "corner-range", "Corners fit 16, 8 or 5 signed bits for rank 3, 4, 5.", source=f"{CUDA_H_IM2COL}; {H200}",
    subjects=("im2col",), reads=("lower_corner", "upper_corner", "dims"),
    passing=_LARGE_IMAGES | {"lower_corner": (-128, 127)}, failing=_LARGE_IMAGES | {"lower_corner": (-129, 0)},
)  # fmt: skip
def _corner_range(a: Im2colGeometry) -> Found:
    low, high = corner_range(a.rank)
    corners = {"lower_corner": a.lower_corner, "upper_corner": a.upper_corner}
    outside = [
        (name, axis, place)
        for name, corner in corners.items()
        for axis, place in enumerate(corner)
        if not low <= place <= high
    ]
    if not outside:
        return ()
    names = {name for name, _, _ in outside}
    change = {name: tuple(min(max(place, low), high) for place in corners[name]) for name in names}
    limit = f"{low} to {high} for rank {a.rank}"
    return [
        Breach(
            f"{name}[{axis}]",
            f"{name}[{axis}] = {place}",
            limit,
            f"Use {change[name][axis]}: a smaller padding or filter.",
            change,
            {"corner": place, "least": low, "most": high},
        )
        for name, axis, place in outside
    ]


@checked(
    "bounding-box", "The bounding box holds at least one pixel in each spatial dim: dim + upper - lower >= 1.",
    source=f"{CUDA_H_IM2COL}; computed in signed 32 bits ({H200})", subjects=("im2col",),
    reads=("lower_corner", "upper_corner", "dims", "interleave"),
    passing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-31, -31)},
    failing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-32, -31)},
)  # fmt: skip
def _bounding_box(a: Im2colGeometry) -> Found:
    first = 0 if a.interleave.slice_bytes else 1  # interleaved dims start with W
    extents = a.dims[first : first + len(a.lower_corner)]
    axes = list(zip(extents, a.lower_corner, a.upper_corner, strict=True))
    if all(pixels_between(*each) >= 1 for each in axes):
        return ()
    limits = corner_range(a.rank)
    opened = [each[1:] if pixels_between(*each) >= 1 else _opened(*each, limits) for each in axes]
    possible = [corners for corners in opened if corners is not None]
    change = None
    if len(possible) == len(opened):
        lower, upper = zip(*possible, strict=True)
        change = {"lower_corner": lower, "upper_corner": upper}
    return [
        Breach(
            f"upper_corner[{axis}]",
            f"dims[{first + axis}] + upper - lower = {extent} + {upper} - {lower} = "
            f"{pixels_between(extent, lower, upper)} pixels",
            "every spatial dim has at least 1 pixel (the driver counts in signed 32 bits)",
            _corners(opened[axis]) + " For a convolution: lower = -pad, upper = pad - (filter - 1) * dilation.",
            change,
            {"extent": extent, "upper": upper, "lower": lower, "pixels": pixels_between(extent, lower, upper)},
        )
        for axis, (extent, lower, upper) in enumerate(axes)
        if pixels_between(extent, lower, upper) < 1
    ]


@checked(
    "channels-range", "channels_per_pixel is 1 to 256.", source=f"{CUDA_H_IM2COL}; {H200}", subjects=("im2col", "wide"),
    reads=("channels_per_pixel",), passing=IMAGES | {"channels_per_pixel": 256},
    failing=IMAGES | {"channels_per_pixel": 264},
)  # fmt: skip
def _channels_range(a: Im2colGeometry | WideGeometry) -> Found:
    if 1 <= a.channels_per_pixel <= LARGEST_EXTENT:
        return ()
    nearest = min(max(a.channels_per_pixel, 1), LARGEST_EXTENT)
    return Breach(
        "channels_per_pixel", f"channels_per_pixel = {a.channels_per_pixel}", "1 to 256", f"Use {nearest}.",
        {"channels_per_pixel": nearest}, {"channels_per_pixel": a.channels_per_pixel},
    )  # fmt: skip


@checked(
    "pixels-range", "pixels_per_column is 1 to 1024.", source=f"{CUDA_H_IM2COL}; {H200}", subjects=("im2col", "wide"),
    reads=("pixels_per_column",), passing=IMAGES | {"pixels_per_column": 1024},
    failing=IMAGES | {"pixels_per_column": 1025},
)  # fmt: skip
def _pixels_range(a: Im2colGeometry | WideGeometry) -> Found:
    if 1 <= a.pixels_per_column <= LARGEST_PIXELS:
        return ()
    nearest = min(max(a.pixels_per_column, 1), LARGEST_PIXELS)
    return Breach(
        "pixels_per_column", f"pixels_per_column = {a.pixels_per_column}", "1 to 1024",
        f"Use {nearest}" + (" and more copies." if a.pixels_per_column > LARGEST_PIXELS else "."),
        {"pixels_per_column": nearest}, {"pixels_per_column": a.pixels_per_column},
    )  # fmt: skip


@checked(
    "wide-corner", "The width corners fit 16 signed bits.", source=CUDA_H_WIDE, basis="documented", subjects=("wide",),
    reads=("lower_width", "upper_width"), architectures=WIDE_ARCHITECTURES, passing=WIDE,
    failing=WIDE | {"lower_width": -40000},
)  # fmt: skip
def _wide_corner(a: WideGeometry) -> Found:
    low, high = corner_range(3)
    corners = {"lower_width": a.lower_width, "upper_width": a.upper_width}
    outside = {name: place for name, place in corners.items() if not low <= place <= high}
    change = {name: min(max(place, low), high) for name, place in outside.items()}
    return [
        Breach(
            name,
            f"{name} = {place}",
            f"{low} to {high}",
            f"Use {change[name]}: a smaller padding or filter.",
            change,
            {"corner": place, "least": low, "most": high},
        )
        for name, place in outside.items()
    ]


@checked(
    "wide-bounding-box", "The bounding box holds at least one pixel along W: dims[1] + upper - lower >= 1.",
    source=CUDA_H_WIDE, basis="documented", subjects=("wide",), reads=("lower_width", "upper_width", "dims"),
    architectures=WIDE_ARCHITECTURES, passing=WIDE | {"lower_width": 0, "upper_width": -31},
    failing=WIDE | {"lower_width": 0, "upper_width": -32},
)  # fmt: skip
def _wide_bounding_box(a: WideGeometry) -> Found:
    if a.rank < 2:
        return ()
    pixels = pixels_between(a.dims[1], a.lower_width, a.upper_width)
    if pixels >= 1:
        return ()
    opened = _opened(a.dims[1], a.lower_width, a.upper_width, corner_range(3))
    change = None if opened is None else {"lower_width": opened[0], "upper_width": opened[1]}
    found = f"dims[1] + upper - lower = {a.dims[1]} + {a.upper_width} - {a.lower_width} = {pixels} pixels"
    fix = "Use a larger upper_width or a smaller lower_width."
    if opened is not None:
        fix = f"Use lower_width = {opened[0]} and upper_width = {opened[1]}."
    return Breach(
        "upper_width", found, "at least 1 pixel", fix, change,
        {"extent": a.dims[1], "upper": a.upper_width, "lower": a.lower_width, "pixels": pixels},
    )  # fmt: skip


@checked(
    "wide-swizzle", "An im2col-wide map is swizzled 64B, 128B or 128B_ATOM_32B, or in mode W 96B.", source=CUDA_H_WIDE,
    basis="documented", subjects=("wide",), reads=("swizzle", "mode"), architectures=WIDE_ARCHITECTURES, passing=WIDE,
    failing=WIDE | {"swizzle": "none"},
)  # fmt: skip
def _wide_swizzle(a: WideGeometry) -> Found:
    if a.swizzle.name in _WIDE_SWIZZLES and (a.swizzle.name != "96B" or a.mode == "W"):
        return ()
    return Breach(
        "swizzle", f"swizzle = {a.swizzle.name} in mode {a.mode}", "64B, 128B or 128B_ATOM_32B; 96B in mode W",
        'Use swizzle="128B".', {"swizzle": "128B"},
    )  # fmt: skip


@checked(
    "wide-interleave", "An im2col-wide map is not interleaved.", source='PTX ISA, "Interleave layout"',
    basis="documented", subjects=("wide",), reads=("interleave",), architectures=WIDE_ARCHITECTURES, passing=WIDE,
    failing=WIDE | {"interleave": "16B"},
)  # fmt: skip
def _wide_interleave(a: WideGeometry) -> Found:
    if not a.interleave.slice_bytes:
        return ()
    return Breach(
        "interleave", f"interleave = {a.interleave.name}", "im2col-wide takes no interleave", 'Use interleave="none".',
        {"interleave": "none"},
    )  # fmt: skip
