"""The fields that describe a tensor map, for the pages that take one, and the call they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilescope.arch import ARCH
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.web.call import Call
from tilescope.web.field import Field, choice, integer, integers, optional
from tilescope.web.page import written_argument

KIND = choice("kind", "Kind of map", ("tensor_map", "im2col_map", "im2col_wide_map"))

# argument: the option of the command line
_OPTIONS = {
    "data_type": "--type", "dims": "--dims", "strides_bytes": "--strides", "box": "--box",
    "element_strides": "--element-strides", "interleave": "--interleave", "swizzle": "--swizzle", "l2_promotion": "--l2",
    "oob_fill": "--fill", "address": "--address", "arch": "--arch", "lower_corner": "--lower", "upper_corner": "--upper",
    "lower_width": "--lower", "upper_width": "--upper", "channels_per_pixel": "--channels", "pixels_per_column": "--pixels",
    "mode": "--wide",
}  # fmt: skip


def _fields(defaults: Mapping[str, str]) -> tuple[Field, ...]:
    """The fields of one kind of map: those that `defaults` names, and those that every map has."""
    rows = (
        Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE)),
        Field("dims", "Extents", read=integers, hint="Elements, innermost first."),
        Field("strides_bytes", "Strides in bytes", read=optional(integers), hint="Of dims 1, 2, …; empty: dense."),
        Field("box", "Box", read=integers, hint="Elements, innermost first."),
        Field("lower_corner", "Lower corner", read=integers, hint="W first."),
        Field("upper_corner", "Upper corner", read=integers, hint="W first."),
        Field("lower_width", "Lower width", read=integer),
        Field("upper_width", "Upper width", read=integer),
        Field("channels_per_pixel", "Channels of a pixel", read=integer),
        Field("pixels_per_column", "Pixels of a copy", read=integer),
        choice("mode", "Wide mode", ("W", "W128")),
        Field("element_strides", "Element strides", read=optional(integers), hint="1 to 8; empty: 1."),
        choice("interleave", "Interleave", tuple(INTERLEAVE)),
        choice("swizzle", "Swizzle", tuple(SWIZZLE)),
        choice("l2_promotion", "L2 promotion", tuple(L2_PROMOTION)),
        choice("oob_fill", "Fill outside", tuple(OOB_FILL)),
        Field("address", "Global address", "0x0", integer),
        choice("arch", "Architecture", tuple(ARCH), "sm_90"),
    )
    common = {"data_type", "strides_bytes", "element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill",
              "address", "arch"}  # fmt: skip
    kept = [row for row in rows if row.name in defaults or row.name in common]
    return tuple(
        Field(row.name, row.label, defaults.get(row.name, row.default), row.read, row.hint, row.choices, row.control)
        for row in kept
    )


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


def map_options(kind: str, asked: Mapping[str, Any]) -> list[str]:
    """The same as options of a command."""
    words = []
    for form in MAP_FORMS[kind]:
        written = written_argument(asked[form.name])
        if written in ("", "none", "zero") or (form.name, written) in (("address", "0"), ("arch", "sm_90")):
            continue
        option, value = _OPTIONS[form.name], hex(asked[form.name]) if form.name == "address" else written
        words += [f"{option}={value}"] if value.startswith("-") else [option, value]
    return words
