"""The pages of tensor maps and of copies: what the rules say as one types, the 128 bytes, and one copy through a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from struct import unpack
from typing import Any

from tilescope.errors import RuleError, TensorMapError, Violation
from tilescope.inputs import chosen, command_words, defaults, in_words
from tilescope.inputs.maps import COPY, MAP, WIDTHS
from tilescope.tensor_map import AnyMap, MapArguments, TensorMap, descriptor_bytes, inspect_tensor_map
from tilescope.tensor_map.arguments import MAP_KINDS
from tilescope.tensor_map.source import MapSource
from tilescope.tma import Trace, trace
from tilescope.view.drawing import Beside, Drawing, Part
from tilescope.view.grid import Grid
from tilescope.view.ruler import byte_grid
from tilescope.view.tensor_map_view import findings
from tilescope.view.tensor_plane import chunk_links, dim_names
from tilescope.web.call import Call
from tilescope.web.page import Answer, Drag, Field, Page, address, drawn, form, limited

MAX_SMEM_BYTES = 1 << 18
MAX_LINES = 256  # drawn
EXACT = (32, 160)  # columns and rows of a tensor that are drawn one by one
_MAX_STEPS = 512
_BYTES = "bytes"
_PASTE = "paste"
_SAMPLE = TensorMap("bf16", (72, 16), (144,), (64, 8), swizzle="128B")

_ROWS = {row.name: row for row in MAP} | WIDTHS
_IMAGE = {
    "data_type": "bf16",
    "dims": "64,16,16,2",
    "channels_per_pixel": "64",
    "pixels_per_column": "64",
    "swizzle": "128B",
}
# kind of map: what its fields hold at first, and where its copy starts
_FIRST = {
    "tensor_map": ({"data_type": "bf16", "dims": "72,16", "box": "64,8", "swizzle": "128B"}, "16,11"),
    "im2col_map": (_IMAGE | {"lower_corner": "-1,-1", "upper_corner": "-1,-1"}, "0,-1,-1,0"),
    "im2col_wide_map": (_IMAGE | {"lower_width": "-1", "upper_width": "0", "mode": "W", "arch": "sm_100"}, "0,0,0,0"),
}
MAP_FORMS = {
    kind: form([_ROWS[name] for name in signature(MAP_KINDS[kind]).parameters if name in _ROWS], **first)
    for kind, (first, _) in _FIRST.items()
}
_COPY_FORMS = {
    kind: form([row for row in COPY if row.name != "offsets" or kind != "tensor_map"], coords=coords)
    for kind, (_, coords) in _FIRST.items()
}


def _map_arguments(kind: str, asked: Mapping[str, Any]) -> MapArguments:
    """The arguments of the map that the fields describe; strides that nobody says are dense."""
    arguments = MapArguments.of({"kind": kind} | chosen(MAP_FORMS[kind], asked)).completed()
    if missing := arguments.lacking():
        raise TensorMapError(missing)
    return arguments


def _map_call(arguments: MapArguments) -> Call:
    """The call that makes the map."""
    positional = [name for name in ("data_type", "dims", "strides_bytes", "box") if name in arguments.given]
    options = {name: value for name, value in arguments.given.items() if name not in positional}
    return Call(arguments.map_class, tuple(arguments.given[name] for name in positional), options, "tensor_map")


def map_answer(kind: str, asked: dict[str, Any]) -> Answer:
    """The verdict on the map, with its descriptor where it has one."""
    if kind == _BYTES:
        return _inspected(descriptor_bytes(asked["hex"]))
    arguments = _map_arguments(kind, asked)
    report = arguments.report()
    if report.not_understood:
        raise TensorMapError(report.not_understood)
    drawing = drawn(report, asked=arguments.given)
    parts = _without_findings(drawing.parts, report.violations)
    if report.tensor_map is not None:
        try:
            blob = report.tensor_map.encode()
        except RuleError as error:
            parts += [f"No descriptor: {violation}" for violation in error.violations]
        else:
            parts += _with_bytes(drawn(inspect_tensor_map(blob)).parts[-1:], blob)
    copy = address("load", {"kind": kind, "coords": ""} | _written(arguments.given))
    return Answer(
        _map_call(arguments),
        report,
        Drawing(drawing.title, tuple(parts)),
        violations=report.violations,
        leads={"One copy": {"See a copy through it": copy}},
    )


def map_command(kind: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    if kind == _BYTES:
        return ["decode", *(hex(word) for word in unpack("<16Q", descriptor_bytes(asked["hex"])))]
    return ["check", *_map_words(kind, asked)]


def _map_words(kind: str, asked: dict[str, Any]) -> list[str]:
    """The options that describe a map; --wide is always said, because a command has its kind from it."""
    taken = defaults(MAP_KINDS[kind])
    mode = {"mode": taken.pop("mode")} if "mode" in taken else {}
    return command_words(MAP_FORMS[kind], mode | asked, taken)


def _inspected(blob: bytes) -> Answer:
    blob_call = Call(bytes.fromhex, (blob.hex(),), name="blob", module="builtins")
    inspection = inspect_tensor_map(blob)
    drawing = drawn(inspection)
    parts = _with_bytes(_without_findings(drawing.parts, inspection.violations), blob)
    return Answer(
        Call(inspect_tensor_map, (blob_call,), name="inspection"),
        inspection,
        Drawing(drawing.title, tuple(parts)),
        violations=inspection.violations,
    )


def _without_findings(parts: tuple[Part, ...], violations: tuple[Violation, ...]) -> list[Part]:
    """The page lists what the rules say itself, with the cures as links."""
    listed = findings(violations)
    return [part for part in parts if part not in listed]


def _with_bytes(parts: Sequence[Any], blob: bytes) -> list[Part]:
    """The same with the bytes before the last part, the ruler that names their bits."""
    *others, ruler = parts
    return [*others, byte_grid(ruler, "The 128 bytes", blob), ruler]


def filled_by_paste(query: Mapping[str, str]) -> dict[str, str] | None:
    """The query that a pasted map turns into: its arguments, or its bytes where they are no sound map."""
    if _PASTE not in query:
        return None
    source = MapSource.read(query[_PASTE].encode("utf-8", errors="replace"))
    if source.blob is None:
        return {"kind": source.asked[0].map_class.kind} | _written(source.asked[0].given)
    tensor_map = inspect_tensor_map(source.blob).tensor_map
    if tensor_map is None:
        return {"kind": _BYTES, "hex": source.blob.hex()}
    return {"kind": tensor_map.kind} | _written({name: getattr(tensor_map, name) for name in tensor_map.readers})


def _written(arguments: Mapping[str, Any]) -> dict[str, str]:
    start = {"address": hex(arguments["address"])} if isinstance(arguments.get("address"), int) else {}
    return {name: in_words(value) for name, value in arguments.items() if value is not None} | start


def copy_answer(kind: str, asked: dict[str, Any]) -> Answer:
    """The trace of one copy."""
    arguments = _map_arguments(kind, asked)
    tensor_map: AnyMap = arguments.tensor_map()
    limited("bytes of shared memory", "box", tensor_map.smem_bytes, MAX_SMEM_BYTES, "Use a smaller box.")
    call = Call(trace, (_map_call(arguments),), chosen(COPY, asked), "trace")
    copied: Trace = call.run()
    drawing = drawn(copied, lines=MAX_LINES, exact=EXACT)
    rows = enumerate(copied.row_coords[:_MAX_STEPS].tolist())  # in the order of shared memory
    steps = [(chunk_links(copied, row), f"row {row} of the copy: coordinates {tuple(at)}") for row, at in rows]
    return Answer(
        call,
        copied,
        drawing,
        violations=tensor_map.findings,
        steps=steps,
        drag=_drag(copied, drawing),
    )


def copy_command(kind: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    return ["load", *_map_words(kind, asked), *command_words(_COPY_FORMS[kind], asked, defaults(trace))]


def _drag(copied: Trace, drawing: Drawing) -> Drag | None:
    """The plane of the tensor, which moves along the dimensions that it shows; four gathered rows do not."""
    plane = next(part for beside in drawing.parts if isinstance(beside, Beside) for part in beside.parts)
    if not isinstance(plane, Grid) or copied.operation not in ("load", "store"):
        return None
    names = dim_names(copied)
    across, down = plane.tiers[0].name, plane.label_names[0]
    return Drag("coords", plane.title, names.index(across), names.index(down) if down else None)


_HEX = Field("hex", label="Descriptor", hint="128 bytes or 16 words.", preset=_SAMPLE.encode().hex(), is_long=True)
MAP_PAGE = Page(
    "tensor-map",
    "Tensor map",
    "What the driver would say to a CUtensorMap: every broken rule with its cure, and the 128 bytes.",
    MAP_FORMS | {_BYTES: (_HEX,)},
    map_answer,
    map_command,
    ("kind", "Kind of map"),
    "What CUTLASS, TileLang or Triton print, a call in C++, JSON, words from cuda-gdb, or hex: it fills the fields.",
    filled_by_paste,
)
COPY_PAGE = Page(
    "load",
    "Load",
    "One TMA copy, byte for byte: where the box lies in the tensor, and where its rows land in shared memory.",
    {kind: (*_COPY_FORMS[kind], *fields) for kind, fields in MAP_FORMS.items()},
    copy_answer,
    copy_command,
    ("kind", "Kind of map"),
)
