"""The inputs of questions about a tensor map, and about one copy through it."""

from __future__ import annotations

from dataclasses import replace

from tilescope.arch import ARCH
from tilescope.inputs import SMEM_ADDRESS, TYPE, Input, defaults
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import Im2colWideMap
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tma.tracing import OPERATIONS
from tilescope.written import number, numbers


def _of_wide_maps(name: str) -> str:
    return f"im2col-wide maps: {defaults(Im2colWideMap)[name]} if nobody says it."


# What only im2col maps, and only im2col-wide maps, have says so.
MAP = (
    TYPE,
    Input("dims", "--dims", "Extents", "elements, innermost first.", numbers),
    Input("strides_bytes", "--strides", "Strides in bytes", "of dims 1, 2, …", numbers, "dense"),
    Input("box", "--box", "Box", "elements, innermost first.", numbers),
    Input("lower_corner", "--lower", "Lower corner", "im2col maps only; W first.", numbers),
    Input("upper_corner", "--upper", "Upper corner", "im2col maps only; W first.", numbers),
    Input(
        "channels_per_pixel", "--channels", "Channels of a pixel", "im2col maps only; how many one copy brings.", number
    ),
    Input("pixels_per_column", "--pixels", "Pixels of a copy", "im2col maps only.", number),
    Input("mode", "--wide", "Im2col-wide mode", choices=("W", "W128")),
    Input("element_strides", "--element-strides", "Element strides", "1 to 8.", numbers, "1"),
    Input("interleave", "--interleave", "Interleave", default="none", choices=tuple(INTERLEAVE)),
    Input("swizzle", "--swizzle", "Swizzle", _of_wide_maps("swizzle"), default="none", choices=tuple(SWIZZLE)),
    Input("l2_promotion", "--l2", "L2 promotion", default="none", choices=tuple(L2_PROMOTION)),
    Input("oob_fill", "--fill", "Fill outside", "zero is the driver's NONE.", default="zero", choices=tuple(OOB_FILL)),
    Input("address", "--address", "Global address", read=number, default="0x0"),
    Input("arch", "--arch", "Architecture", _of_wide_maps("arch"), default="sm_90", choices=tuple(ARCH)),
)
# The width of an im2col-wide map is its only corner.
WIDTHS = {
    row.name.replace("corner", "width"): replace(row, name=row.name.replace("corner", "width"), read=number, hint="")
    for row in MAP
    if "corner" in row.name
}


COPY = (
    Input("coords", "--coords", "Coordinates", "where the box starts, innermost first.", numbers, "0,0,…"),
    Input("offsets", "--offsets", "Offsets", "W, H, D of an im2col map; halo and offset of a wide one.", numbers),
    SMEM_ADDRESS,
    Input("operation", "--operation", "Operation", default="load", choices=OPERATIONS),
)
