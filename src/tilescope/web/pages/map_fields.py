"""The fields that describe a tensor map, for the pages that take one, and the call they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilescope.arch import ARCH
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.web.call import Call
from tilescope.web.field import Field, Optional, choice, integer, integers

KIND = choice("kind", "Kind of map", ("tensor_map", "im2col_map", "im2col_wide_map"))


def _fields(defaults: Mapping[str, str]) -> tuple[Field, ...]:
    """The fields of one kind of map: those that `defaults` names, and those that every map has."""
    rows = (
        Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE), option="--type"),
        Field("dims", "Extents", read=integers, hint="Elements, innermost first.", option="--dims"),
        Field(
            "strides_bytes",
            "Strides in bytes",
            read=Optional(integers),
            hint="Of dims 1, 2, …; empty: dense.",
            option="--strides",
        ),
        Field("box", "Box", read=integers, hint="Elements, innermost first.", option="--box"),
        Field("lower_corner", "Lower corner", read=integers, hint="W first.", option="--lower"),
        Field("upper_corner", "Upper corner", read=integers, hint="W first.", option="--upper"),
        Field("lower_width", "Lower width", read=integer, option="--lower"),
        Field("upper_width", "Upper width", read=integer, option="--upper"),
        Field("channels_per_pixel", "Channels of a pixel", read=integer, option="--channels"),
        Field("pixels_per_column", "Pixels of a copy", read=integer, option="--pixels"),
        choice("mode", "Wide mode", ("W", "W128"), option="--wide"),
        Field(
            "element_strides",
            "Element strides",
            read=Optional(integers),
            hint="1 to 8; empty: 1.",
            option="--element-strides",
        ),
        choice("interleave", "Interleave", tuple(INTERLEAVE), option="--interleave", unsaid="none"),
        choice("swizzle", "Swizzle", tuple(SWIZZLE), option="--swizzle", unsaid="none"),
        choice("l2_promotion", "L2 promotion", tuple(L2_PROMOTION), option="--l2", unsaid="none"),
        choice("oob_fill", "Fill outside", tuple(OOB_FILL), option="--fill", unsaid="zero"),
        Field("address", "Global address", "0x0", integer, option="--address", unsaid="0"),
        choice("arch", "Architecture", tuple(ARCH), "sm_90", option="--arch", unsaid="sm_90"),
    )
    common = {"data_type", "strides_bytes", "element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill",
              "address", "arch"}  # fmt: skip
    kept = [row for row in rows if row.name in defaults or row.name in common]
    return tuple(replace(row, default=defaults.get(row.name, row.default)) for row in kept)


_IMAGE = {"dims": "64,16,16,2", "channels_per_pixel": "64", "pixels_per_column": "64", "swizzle": "128B"}
MAP_FORMS = {
    "tensor_map": _fields({"dims": "72,16", "box": "64,8", "swizzle": "128B"}),
    "im2col_map": _fields(_IMAGE | {"lower_corner": "-1,-1", "upper_corner": "-1,-1"}),
    "im2col_wide_map": _fields(_IMAGE | {"lower_width": "-1", "upper_width": "0", "mode": "W", "arch": "sm_100"}),
}


def map_arguments(kind: str, asked: Mapping[str, Any]) -> MapArguments:
    """The arguments of the map that the fields describe; strides that nobody gives are dense."""
    given = {form.name: asked[form.name] for form in MAP_FORMS[kind]}
    said = {name: value for name, value in given.items() if value is not None}
    return MapArguments.of({"kind": kind} | said).completed()


def map_call(arguments: MapArguments) -> Call:
    """The call that makes the map."""
    positional = [name for name in ("data_type", "dims", "strides_bytes", "box") if name in arguments.given]
    options = {name: value for name, value in arguments.given.items() if name not in positional}
    return Call(arguments.map_class, tuple(arguments.given[name] for name in positional), options, "tensor_map")
