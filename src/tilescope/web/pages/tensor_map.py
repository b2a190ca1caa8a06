"""The page of tensor maps: what the rules say as one types, and the 128 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from struct import unpack
from typing import Any

from tilescope.errors import RuleError, Violation
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.decoding import inspect_tensor_map
from tilescope.tensor_map.paste import descriptor_bytes
from tilescope.tensor_map.source import MapSource
from tilescope.tensor_map.tiled import TensorMap
from tilescope.view.byte_grid import byte_grid
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part
from tilescope.view.ruler import BitRuler
from tilescope.view.tensor_map_view import findings
from tilescope.web.call import Call
from tilescope.web.field import Field, choice, option_words, written_argument
from tilescope.web.page import Answer, Lead, Page, address, drawn
from tilescope.web.pages.map_fields import KIND, MAP_FORMS, map_arguments, map_call

_BYTES = "bytes"
_SAMPLE = TensorMap("bf16", (72, 16), (144,), (64, 8), swizzle="128B")
PASTE = "paste"


def answer(kind: str, asked: dict[str, Any]) -> Answer:
    """The verdict on the map, with its descriptor where it has one."""
    if kind == _BYTES:
        return _inspected(descriptor_bytes(asked["hex"]))
    arguments = map_arguments(kind, asked)
    call = map_call(arguments)
    command = ("check", *option_words(MAP_FORMS[kind], asked))
    report = arguments.report()
    said = {name: value for name, value in arguments.given.items() if value is not None}
    drawing = drawn(report, asked=arguments.given)
    parts = _without_findings(drawing.parts, report.violations)
    if report.tensor_map is not None:
        parts += _descriptor(report.tensor_map)
    return Answer(
        call, command, report, Drawing(drawing.title, tuple(parts)),
        extra=_bytes_of(report.tensor_map), violations=report.violations,
        leads={"One copy": (Lead(address("load", {"kind": kind, "coords": ""} | _written(said)), "See a copy through it"),)},
    )  # fmt: skip


def _inspected(blob: bytes) -> Answer:
    call = Call(
        inspect_tensor_map, (Call(bytes.fromhex, (blob.hex(),), name="blob", module="builtins"),), name="inspection"
    )
    found = inspect_tensor_map(blob)
    drawing = drawn(found)
    parts = _without_findings(drawing.parts, found.violations)
    with_bytes = Drawing(drawing.title, tuple(_with_bytes(parts, blob)))
    words = tuple(hex(word) for word in unpack("<16Q", blob))
    return Answer(call, ("decode", *words), found, with_bytes, violations=found.violations)


def _without_findings(parts: tuple[Part, ...], violations: tuple[Violation, ...]) -> list[Part]:
    """The page lists what the rules say itself, with the cures as links."""
    listed = findings(violations)
    return [part for part in parts if part not in listed]


def _descriptor(tensor_map: AnyMap) -> list[Part]:
    """The 128 bytes as a ruler and as bytes, or why there are none."""
    try:
        blob = tensor_map.encode()
    except RuleError as error:
        return [Paragraph(f"No descriptor: {violation}") for violation in error.violations]
    drawing = drawn(inspect_tensor_map(blob))
    return _with_bytes([part for part in drawing.parts if isinstance(part, BitRuler)], blob)


def _with_bytes(parts: list[Part], blob: bytes) -> list[Part]:
    """The same with the bytes before the ruler that names their bits."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, BitRuler):
            found.append(byte_grid(part, "The 128 bytes", blob))
        found.append(part)
    return found


def _bytes_of(tensor_map: AnyMap | None) -> dict[str, Any]:
    try:
        return {} if tensor_map is None else {"hex": tensor_map.encode().hex()}
    except RuleError:
        return {}


def filled_by_paste(query: Mapping[str, str]) -> dict[str, str] | None:
    """The query that a pasted map turns into: its arguments, or its bytes where they are no sound map."""
    if PASTE not in query:
        return None
    found = MapSource.read(query[PASTE].encode("utf-8", errors="replace"))
    if found.blob is None:
        return {"kind": found.asked[0].map_class.kind} | _written(found.asked[0].given)
    tensor_map = inspect_tensor_map(found.blob).tensor_map
    if tensor_map is None:
        return {"kind": _BYTES, "hex": found.blob.hex()}
    return {"kind": tensor_map.kind} | _written({name: getattr(tensor_map, name) for name in tensor_map.readers})


def _written(given: Mapping[str, Any]) -> dict[str, str]:
    address = {"address": hex(given["address"])} if isinstance(given.get("address"), int) else {}
    return {name: written_argument(value) for name, value in given.items()} | address


PAGE = Page(
    "tensor-map",
    "Tensor map",
    "What the driver would say to a CUtensorMap: every broken rule with its cure, and the 128 bytes.",
    MAP_FORMS
    | {_BYTES: (Field("hex", "Descriptor", _SAMPLE.encode().hex(), control="area", most_characters=4096, hint="128 bytes or 16 words."),)},
    answer,
    choice("kind", KIND.label, (*KIND.choices, _BYTES)),
    "What CUTLASS, TileLang or Triton print, a call in C++, JSON, words from cuda-gdb, or hex: it fills the fields.",
    filled_by_paste,
)  # fmt: skip
