"""The drawings of tensor maps: what a map means in words, its dimensions, the fields of its 128 bytes, two side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilescope.errors import Violation, by, ceil_div, counted
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapReport
from tilescope.tensor_map.comparison import MapDifference, TensorMapDiff
from tilescope.tensor_map.driver_answer import DRIVER_RESULT
from tilescope.tensor_map.im2col import Im2colMap, Im2colWideMap
from tilescope.tensor_map.tiled import TensorMap
from tilescope.value import Row
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table

Map = TensorMap | Im2colMap | Im2colWideMap
_KIND = {"tiled": "Tiled tensor map", "im2col": "Im2col tensor map", "wide": "Im2col-wide tensor map"}
_ORDINAL = ("", "", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th")
_SAYING = {"error": "Broken rules", "warning": "Accepted, but", "note": "Good to know"}


def draw_map(tensor_map: Map) -> Drawing:
    """A map in words, its dimensions, what one copy takes, and what the rules found.

    >>> print(draw_map(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")).title)
    Tiled tensor map: 64 x 64 bfloat16, box 64 x 8, swizzle 128B
    """
    return Drawing(map_title(tensor_map), _map_parts(tensor_map, tensor_map.findings))


def _map_parts(tensor_map: AnyMap, violations: Iterable[Violation]) -> tuple[Part, ...]:
    return Paragraph(in_words(tensor_map)), _dimensions(tensor_map), _facts(tensor_map), *findings(violations)


def draw_map_report(report: MapReport, asked: Mapping[str, Any] | None = None) -> Drawing:
    """The verdict, the reasons, and the map; `asked` are the arguments of one that was refused."""
    if report.tensor_map is not None:
        drawn = _map_parts(report.tensor_map, report.violations)
        if not report.accepted:
            drawn = (*findings(report.violations), *_map_parts(report.tensor_map, ()))
        verdict = "Accepted." if report.accepted else "Sound arguments, which the driver refused."
        return Drawing(f"{verdict} {map_title(report.tensor_map)}", drawn)
    errors = sum(
        violation.severity == "error" and violation.rule != DRIVER_RESULT.name for violation in report.violations
    )
    parts: list[Part] = [*findings(report.violations)]
    if asked:
        rows = tuple((name, _plain(name, value)) for name, value in asked.items())
        parts.append(Table(rows, title="The arguments"))
    return Drawing(f"Refused: {counted(errors, 'broken rule')}", tuple(parts))


def draw_diff(diff: TensorMapDiff) -> Drawing:
    """What differs between two maps: arguments, what follows from them, words of the descriptors."""
    if diff.same:
        return Drawing("The same map", (Paragraph(in_words(diff.one)),))
    parts: list[Part] = [_differences(diff.arguments, "Arguments")]
    if diff.consequences:
        parts.append(_differences(diff.consequences, "What follows"))
    if diff.words:
        parts.append(_differences(diff.words, "Words of the descriptor"))
    count = len(diff.arguments)
    return Drawing(f"{count} argument{'s differ' if count > 1 else ' differs'}", tuple(parts))


def in_words(tensor_map: AnyMap) -> str:
    """What a map is and what one copy through it does, in a few sentences.

    >>> in_words(TensorMap("u8", (256,), (), (64,))).split(".")[0]
    'A tensor of 256 uint8 elements at 0x0'
    """
    a = tensor_map
    where = f"A tensor of {by(a.dims)} {a.data_type.name} elements at {a.address:#x}."
    if a.interleave.slice_bytes:
        where = (
            f"A tensor of {by(a.dims)} pixels (W to N, slices last but one) at {a.address:#x}, "
            f"{a.interleave.slice_bytes} bytes of {a.data_type.name} a pixel and slice."
        )
    sentences = [where, _copy_in_words(a), _smem_in_words(a)]
    fill = "zero" if a.oob_fill.name == "zero" else "NaN (0x7FF7 in every 16 bits)"
    sentences.append(f"What lies outside the tensor is loaded as {fill}.")
    if a.l2_promotion.name != "none":
        sentences.append(f"L2 fetches {a.l2_promotion.name} at a time.")
    return " ".join(sentences)


def _copy_in_words(a: AnyMap) -> str:
    if isinstance(a, TensorMap):
        steps = [
            f"every {_ORDINAL[stride]} element of dim {axis}"
            for axis, stride in enumerate(a.element_strides)
            if stride > 1
        ]
        if steps and steps[0].endswith("dim 0") and not a.interleave.slice_bytes:
            steps = steps[1:]  # dim 0 ignores its element stride
        return f"One copy brings a box of {by(a.box)}{': ' + ', '.join(steps) if steps else ''}."
    if isinstance(a, Im2colMap):
        spans = ", ".join(
            f"{name} {low} to {extent - 1 + high}"
            for name, low, high, extent in zip(
                "WHD", a.lower_corner, a.upper_corner, a.dims[0 if a.interleave.slice_bytes else 1 :], strict=False
            )
        )
        return (
            f"One copy brings {a.pixels_per_column} pixels of {a.channels_per_pixel} channels, walking base positions "
            f"{spans}."
        )
    assert isinstance(a, Im2colWideMap)
    return f"One copy brings {a.visited_elements[1]} pixels of {a.channels_per_pixel} channels along W (mode {a.mode})."


def _smem_in_words(a: AnyMap) -> str:
    row_bytes = a.interleave.slice_bytes or a.inner_bytes
    rows = f"{counted(a.rows, 'row')} of {row_bytes} bytes"
    if a.pitch_bytes > row_bytes:
        rows += f", {a.pitch_bytes} bytes apart (the gaps keep their old content)"
    swizzled = f", swizzled {a.swizzle.name}" if a.swizzle.bits else ""
    return f"In shared memory it is {rows}: {a.smem_bytes} bytes{swizzled}."


def findings(violations: Iterable[Violation]) -> tuple[Table, ...]:
    """What the rules found, by severity."""
    tables = []
    listed = list(violations)
    for severity, saying in _SAYING.items():
        rows = tuple(
            (each.rule, f"{each.found}; {each.limit}. {each.fix}") for each in listed if each.severity == severity
        )
        if rows:
            tables.append(Table(rows, title=saying))
    return tuple(tables)


def map_title(a: AnyMap) -> str:
    """The map in one line: its kind, extents, box and modes."""
    if isinstance(a, TensorMap):
        copy = f"box {by(a.box)}"
    else:
        copy = f"{a.visited_elements[-1]} pixels of {a.inner_elements} channels"
    parts = [f"{_KIND[a.subject]}: {by(a.dims)} {a.data_type.name}", copy]
    if a.interleave.slice_bytes:
        parts.append(f"interleave {a.interleave.name}")
    if a.swizzle.bits:
        parts.append(f"swizzle {a.swizzle.name}")
    return ", ".join(parts)


def _dimensions(a: AnyMap) -> Table:
    """One line a dimension: its extent, its step, and what a copy takes of it."""
    inner_bytes = a.interleave.slice_bytes or a.data_type.bits / 8
    strides = [f"{inner_bytes:g}", *map(str, a.strides_bytes)]
    columns: list[tuple[str, list[str]]] = [
        ("dim", list(map(str, range(a.rank)))),
        ("extent", list(map(str, a.dims))),
        ("stride bytes", strides),
    ]
    if isinstance(a, TensorMap):
        columns += [("box", list(map(str, a.box))), ("element stride", list(map(str, a.element_strides)))]
        columns.append(("visited", list(map(str, a.visited_elements))))
        boxes = [ceil_div(extent, box) for extent, box in zip(a.dims, a.box, strict=True)]
        columns.append(("boxes", list(map(str, boxes))))
    else:
        columns.append(("element stride", list(map(str, a.element_strides))))
        if isinstance(a, Im2colMap):
            first = 0 if a.interleave.slice_bytes else 1
            for name, corner in (("lower", a.lower_corner), ("upper", a.upper_corner)):
                placed = dict(enumerate(corner, first))
                columns.append((name, [str(placed.get(axis, "")) for axis in range(a.rank)]))
    rows = tuple(zip(*(column for _, column in columns), strict=True))
    return Table(rows, tuple(name for name, _ in columns), "Dimensions, innermost first", "r" * len(columns))


def _facts(a: AnyMap) -> Table:
    alignment = f"multiple of {max(128, a.smem_alignment_bytes)} bytes"
    if a.smem_alignment_bytes > 128:
        alignment += " (128 is enough for the chip, and starts inside the swizzle pattern)"
    basis = "measured on a card" if a.basis == "measured" else "from the documents"
    rows = [
        ("shared memory", f"{a.smem_bytes} bytes a copy"),
        ("shared address", alignment),
        ("mbarrier expects", f"{a.transaction_bytes} bytes a copy"),
        ("interleave", a.interleave.name),
        ("L2 promotion", a.l2_promotion.name),
        ("architecture", f"{a.arch.name}, {basis}"),
    ]
    return Table(tuple(rows), title="One copy")


def _differences(differences: tuple[MapDifference, ...], title: str) -> Table:
    rows = tuple((difference.name, f"`{difference.one}`", f"`{difference.other}`") for difference in differences)
    return Table(rows, ("", "one", "other"), title)


def _plain(name: str, value: Any) -> str:
    if isinstance(value, Row):
        return value.name
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return hex(value) if name == "address" and isinstance(value, int) else str(value)
