"""How a question describes a tensor map: by options, by fields of a page, or by what SOURCE holds.

    --type bf16 --dims 4096,4096 --box 64,128      options: every argument by its name
    'CUtensorMap … dims 4096 4096 …' --box 64,64   a text, of which an option replaces one argument
    /tensor-map?kind=tensor_map&dims=4096,4096     the fields of a page, which say what the options say

Commands that check, load, compare or emit a map have the same inputs, so all of them use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilescope.arch import ARCH
from tilescope.errors import RuleError, TensorMapError
from tilescope.questions.call import Call
from tilescope.questions.page import Fixes, address
from tilescope.questions.question import Asked, Input, defaults, in_words, refuse
from tilescope.questions.shared_inputs import TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import AnyMap, Im2colMap, Im2colWideMap, MapArguments, TensorMap, inspect_tensor_map
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.text.pasted_source import MapSource
from tilescope.written import number, numbers

_WIDE = defaults(Im2colWideMap)
DIMS = Input("dims", "--dims", "Extents", "elements, innermost first.", read=numbers)
STRIDES = Input("strides_bytes", "--strides", "Strides in bytes", "of dims 1, 2, …", read=numbers, unsaid="dense")
BOX = Input("box", "--box", "Box", "elements, innermost first.", read=numbers)
LOWER_CORNER = Input("lower_corner", "--lower", "Lower corner", "im2col maps only; W first.", read=numbers)
UPPER_CORNER = Input("upper_corner", "--upper", "Upper corner", "im2col maps only; W first.", read=numbers)
CHANNELS = Input(
    "channels_per_pixel",
    "--channels",
    "Channels of a pixel",
    "im2col maps only; how many one copy loads.",
    read=number,
)
PIXELS = Input("pixels_per_column", "--pixels", "Pixels of a copy", "im2col maps only.", read=number)
WIDE_MODE = Input("mode", "--wide", "Im2col-wide mode", choices=("W", "W128"))
MAP_OPTIONS = (
    Input("element_strides", "--element-strides", "Element strides", "1 to 8.", read=numbers, unsaid="1"),
    Input("interleave", "--interleave", "Interleave", choices=tuple(INTERLEAVE)),
    Input(
        "swizzle",
        "--swizzle",
        "Swizzle",
        f"the default of im2col-wide maps is {_WIDE['swizzle']}.",
        choices=tuple(SWIZZLE),
    ),
    Input("l2_promotion", "--l2", "L2 promotion", choices=tuple(L2_PROMOTION)),
    Input("oob_fill", "--fill", "Fill outside", "zero is the driver's NONE.", choices=tuple(OOB_FILL)),
    Input("address", "--address", "Global address", read=number, is_hex=True),
    Input(
        "arch",
        "--arch",
        "Architecture",
        f"the default of im2col-wide maps is {_WIDE['arch']}.",
        choices=tuple(ARCH),
    ),
)
MAP_INPUTS = (
    TYPE,
    DIMS,
    STRIDES,
    BOX,
    LOWER_CORNER,
    UPPER_CORNER,
    CHANNELS,
    PIXELS,
    WIDE_MODE,
    *MAP_OPTIONS,
)
SOURCE = Input("words", read=str, is_many=True, is_required=False, shown_as="[SOURCE]...")
FROM_JSON = Input("from_json", "--from-json", "SOURCE as JSON; - is stdin", file="input", shown_as="FILE")
DESCRIBED_MAP = (SOURCE, *MAP_INPUTS, FROM_JSON)  # of a question about a map: `source` is what SOURCE gives


def map_arguments(asked: Asked) -> MapArguments | None:
    """The arguments of a map, out of its inputs; None where none is given.

    The width of an im2col-wide map is its only corner.
    """
    arguments = asked.options(MAP_INPUTS)
    if not arguments and "kind" not in asked:
        return None
    if "mode" in arguments:
        for corner, width in (("lower_corner", "lower_width"), ("upper_corner", "upper_width")):
            if corner in arguments:
                ends = arguments.pop(corner)
                arguments[width] = ends[0] if isinstance(ends, tuple) and len(ends) == 1 else ends
    kind = {"kind": asked["kind"]} if "kind" in asked else {}
    return MapArguments.of(kind | arguments)


def read_map(asked: Asked) -> MapSource:
    """The map of SOURCE, with the options' arguments replacing those of the map."""
    options = map_arguments(asked)
    source: MapSource | None = asked.get("source")
    if source is None:
        return _complete(MapSource(None, ((options or MapArguments.of({})).completed(),)))
    refuse(
        source.blob is not None and options is not None,
        "options replace arguments, not the bytes of a descriptor.",
    )
    if source.blob is not None:
        return source
    if options is not None:
        source = source._replace(asked=tuple(options.completed(base) for base in source.asked))
    return _complete(source)


def _complete(source: MapSource) -> MapSource:
    """These arguments, or everything they lack; strides follow from the rest."""
    lacking = [arguments.lacking() for arguments in source.asked]
    if not all(lacking):  # for several maps, a report names missing arguments
        return source
    raise TensorMapError([violation for missing in lacking for violation in missing])


def map_taken(asked: Asked) -> Mapping[str, object]:
    """The defaults of a map of that kind; --wide has none: a command learns the kind from it."""
    if "mode" in asked:
        return {name: value for name, value in _WIDE.items() if name != "mode"}
    return defaults(TensorMap)  # as an im2col map


def map_call(maps: MapSource) -> Call[AnyMap] | None:
    """The call that makes the map; None for the bytes of one."""
    if not maps.asked:
        return None
    arguments = maps.asked[0].given
    positional = [name for name in ("data_type", "dims", "strides_bytes", "box") if name in arguments]
    options = {name: value for name, value in arguments.items() if name not in positional}
    return Call(maps.asked[0].map_class, tuple(arguments[name] for name in positional), options, "tensor_map")


def encode_call(tensor_map: AnyMap) -> str:
    """The call of the driver in C++ that makes a map."""
    from tilescope.emitter import snippet  # which a check starts without

    return snippet(tensor_map, "encode")


# The width of an im2col-wide map is its only corner.
_LOWER_WIDTH = replace(LOWER_CORNER, name="lower_width", read=number, hint="")
_UPPER_WIDTH = replace(UPPER_CORNER, name="upper_width", read=number, hint="")
MAP_FIELDS = {
    TensorMap.kind: (TYPE, DIMS, STRIDES, BOX, *MAP_OPTIONS),
    Im2colMap.kind: (TYPE, DIMS, STRIDES, LOWER_CORNER, UPPER_CORNER, CHANNELS, PIXELS, *MAP_OPTIONS),
    Im2colWideMap.kind: (
        TYPE,
        DIMS,
        STRIDES,
        _LOWER_WIDTH,
        _UPPER_WIDTH,
        CHANNELS,
        PIXELS,
        WIDE_MODE,
        *MAP_OPTIONS,
    ),
}
_IMAGE = {
    "data_type": "bf16",
    "dims": "64,16,16,2",
    "channels_per_pixel": "64",
    "pixels_per_column": "64",
    "swizzle": "128B",
}
MAP_PRESETS = {
    TensorMap.kind: {"data_type": "bf16", "dims": "72,16", "box": "64,8", "swizzle": "128B"},
    Im2colMap.kind: _IMAGE | {"lower_corner": "-1,-1", "upper_corner": "-1,-1"},
    Im2colWideMap.kind: _IMAGE | {"lower_width": "-1", "upper_width": "0", "mode": "W", "arch": "sm_100"},
}


def asking_map(asked: Asked) -> Asked:
    """The fields of a map as options of the command."""
    if asked["kind"] != Im2colWideMap.kind:
        return asked
    asked = asked.saying(mode=asked.get("mode", _WIDE["mode"]))
    for width, corner in (("lower_width", "lower_corner"), ("upper_width", "upper_corner")):
        if width in asked:
            asked = asked.saying(**{corner: (asked[width],)})
    return asked


def written_map(arguments: Mapping[str, object]) -> dict[str, str]:
    """The arguments of a map as the fields of a page hold them."""
    field_texts = {name: in_words(value) for name, value in arguments.items() if value is not None}
    gmem_address = arguments.get("address")
    if isinstance(gmem_address, int):
        field_texts["address"] = hex(gmem_address)
    return field_texts


def fix_map(asked: Asked, _: object) -> Fixes:
    """The fields of the nearest map that the driver takes, as `check --fix` finds it; none where nothing is to be fixed."""
    try:
        arguments = read_map(asked).asked[0]
        repaired = arguments.repaired()
    except RuleError:
        return {}
    fields = written_map(
        {change.argument: repaired.given[change.argument] for change in arguments.changes_to(repaired)}
    )
    return {"Apply all": fields} if fields else {}


def filled_by_paste(query: Mapping[str, str]) -> dict[str, str] | None:
    """The query that a pasted map turns into: its arguments, or its bytes where they are no sound map."""
    if "paste" not in query:
        return None
    source = MapSource.read(query["paste"].encode("utf-8", errors="replace"))
    if source.blob is None:
        return {"kind": source.asked[0].map_class.kind} | written_map(source.asked[0].given)
    tensor_map = inspect_tensor_map(source.blob).tensor_map
    if tensor_map is None:
        return {"kind": "bytes", "hex": source.blob.hex()}
    return page_fields(tensor_map)


def page_fields(tensor_map: AnyMap) -> dict[str, str]:
    """The query of a page that shows a map."""
    arguments = {name: getattr(tensor_map, name) for name in tensor_map.readers}
    return {"kind": tensor_map.kind} | written_map(arguments)


def page_of(tensor_map: AnyMap) -> str:
    """The page of a map, with its arguments in the fields."""
    return address("tensor-map", page_fields(tensor_map))
