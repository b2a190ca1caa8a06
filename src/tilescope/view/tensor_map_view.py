"""The drawings of tensor maps: a map in words, its dimensions, two side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilescope.arithmetic import ceil_div
from tilescope.errors import RuleError, Violation
from tilescope.sentence import by, counted
from tilescope.tensor_map import AnyMap, Im2colMap, Im2colWideMap, MapReport, TensorMap, TensorMapDiff
from tilescope.tensor_map.difference import MapDifference
from tilescope.tensor_map.map_decoding import inspect_tensor_map
from tilescope.tensor_map.text.driver_answer import DRIVER_RESULT
from tilescope.value import Row
from tilescope.view.drawing import Drawing, Part, Table
from tilescope.view.number_span import ordinal
from tilescope.view.word_ruler import map_bytes, map_ruler

_KIND = {"tiled": "Tiled tensor map", "im2col": "Im2col tensor map", "wide": "Im2col-wide tensor map"}
_SAYING = {"error": "Broken rules", "warning": "Accepted, but", "note": "Good to know"}


def draw_map(tensor_map: AnyMap) -> Drawing:
    """A map in words, its dimensions, what one copy takes, and what the rules found.

    >>> print(draw_map(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")).title)
    Tiled tensor map: 64 x 64 bfloat16, box 64 x 8, swizzle 128B
    """
    return Drawing(map_title(tensor_map), {**map_parts(tensor_map), "findings": findings(tensor_map.findings)})


def map_parts(tensor_map: AnyMap) -> dict[str, Part]:
    """A map in words, its dimensions, and what one copy takes."""
    return {"words": in_words(tensor_map), "dimensions": _dimensions(tensor_map), "copy": _facts(tensor_map)}


def draw_map_report(
    report: MapReport, *, asked: Mapping[str, object] | None = None, show_bytes: bool = False
) -> Drawing:
    """The verdict, the reasons, and the map; `asked` are the arguments of a refused one.

    With `show_bytes`, also the descriptor that the map is encoded into, or why there is none.
    """
    finding_parts = {"findings": findings(report.violations)}
    if report.tensor_map is None:
        broken = counted(broken_rules(report.violations), "broken rule")
        return Drawing(f"Refused: {broken}", {**finding_parts, "arguments": arguments_table(asked or {})})
    drawn = map_parts(report.tensor_map)
    title = map_title(report.tensor_map)
    encoded = _encoded_parts(report.tensor_map) if show_bytes else {}
    if report.accepted:
        return Drawing(f"Accepted. {title}", {**drawn, **finding_parts, **encoded})
    return Drawing(f"Sound arguments, which the driver refused. {title}", {**finding_parts, **drawn, **encoded})


def broken_rules(violations: Iterable[Violation]) -> int:
    """How many rules are broken; that the driver refused the map is none of them."""
    errors = [violation for violation in violations if violation.severity == "error"]
    return sum(violation.rule != DRIVER_RESULT.name for violation in errors)


def _encoded_parts(tensor_map: AnyMap) -> dict[str, Part | tuple[Part, ...]]:
    """The 128 bytes of a map and their fields; the reasons if it has no descriptor."""
    try:
        word = inspect_tensor_map(tensor_map.encode())
    except RuleError as error:
        return {"no descriptor": tuple(f"No descriptor: {violation}" for violation in error.violations)}
    ruler = map_ruler(word)
    return {"bytes": map_bytes(word, ruler), "ruler": ruler}


def draw_tensor_map_diff(diff: TensorMapDiff) -> Drawing:
    """What differs between two maps: arguments, what follows from them, words of the descriptors."""
    if diff.same:
        return Drawing("The same map", {"words": in_words(diff.one)})
    count = len(diff.arguments)
    return Drawing(
        "1 argument differs" if count == 1 else f"{count} arguments differ",
        {
            "arguments": differences_table("Arguments", diff.arguments),
            "consequences": differences_table("What follows", diff.consequences),
            "words": differences_table("Words of the descriptor", diff.words),
        },
    )


def differences_table(title: str, found: Iterable[MapDifference]) -> Table:
    """The differences, with the value of each map."""
    rows = ((difference.name, f"`{difference.one}`", f"`{difference.other}`") for difference in found)
    return Table(rows, ("", "one", "other"), title)


def in_words(tensor_map: AnyMap) -> str:
    """What a map is and what one copy through it does, in a few sentences.

    >>> in_words(TensorMap("u8", (256,), (), (64,))).split(".")[0]
    'A tensor of 256 uint8 elements at 0x0'
    """
    a = tensor_map
    interleaved = a.interleave.slice_bytes
    where = f"A tensor of {by(a.dims)} {a.data_type.name} elements at {a.address:#x}."
    if interleaved:
        where = (
            f"A tensor of {by(a.dims)} pixels (W to N, slices last but one) at {a.address:#x}, "
            f"{interleaved} bytes of {a.data_type.name} a pixel and slice."
        )
    row_bytes = interleaved or a.inner_bytes
    gaps = f", {a.pitch_bytes} bytes apart (the gaps keep their old content)" if a.pitch_bytes > row_bytes else ""
    swizzled = f", swizzled {a.swizzle.name}" if a.swizzle.bits else ""
    rows = f"{counted(a.rows, 'row')} of {row_bytes} bytes{gaps}"
    fill = "zero" if a.oob_fill.name == "zero" else "NaN (0x7FF7 in every 16 bits)"
    sentences = [
        where,
        f"One copy transfers {_copy_facts(a)}.",
        f"In shared memory it is {rows}: {a.smem_bytes} bytes{swizzled}.",
        f"Elements outside the tensor are loaded as {fill}.",
    ]
    if a.l2_promotion.name != "none":
        sentences.append(f"L2 fetches {a.l2_promotion.name} at a time.")
    return " ".join(sentences)


def _copy_facts(a: AnyMap) -> str:
    """The facts about one copy."""
    first = 0 if a.interleave.slice_bytes else 1  # dim 0 ignores its element stride, and has no corner
    if isinstance(a, TensorMap):
        steps = [
            f"every {ordinal(stride)} element of dim {axis}"
            for axis, stride in enumerate(a.element_strides)
            if axis >= first and stride > 1
        ]
        box = f"a box of {by(a.box)}"
        return f"{box}: {', '.join(steps)}" if steps else box
    if isinstance(a, Im2colMap):
        corners = zip("WHD", a.lower_corner, a.upper_corner, a.dims[first:], strict=False)
        spans = ", ".join(f"{name} {low} to {length - 1 + high}" for name, low, high, length in corners)
        return f"{a.pixels_per_column} pixels of {a.channels_per_pixel} channels, walking base positions {spans}"
    assert isinstance(a, Im2colWideMap)
    return f"{a.visited_elements[1]} pixels of {a.channels_per_pixel} channels along W (mode {a.mode})"


def findings(violations: tuple[Violation, ...], titles: Mapping[str, str] = _SAYING) -> tuple[Table, ...]:
    """What the rules found, a table for each severity under its title; some may be empty."""
    return tuple(
        Table(
            ((broken.rule, violation_words(broken)) for broken in violations if broken.severity == severity),
            title=title,
        )
        for severity, title in titles.items()
    )


def severities(violations: Iterable[Violation]) -> Table:
    """What the rules found, in one table."""
    return Table(
        ((violation.severity, violation_words(violation)) for violation in violations), title="What to look at"
    )


def violation_words(violation: Violation) -> str:
    """What a rule found, without its name: the value, the limit and the fix."""
    return f"{violation.found}; {violation.limit}. {violation.fix}"


def map_title(a: AnyMap) -> str:
    """The map in one line: its kind, extents, box and modes."""
    words = [f"{_KIND[a.subject]}: {by(a.dims)} {a.data_type.name}"]
    if isinstance(a, TensorMap):
        words.append(f"box {by(a.box)}")
    else:
        words.append(f"{a.visited_elements[-1]} pixels of {a.inner_elements} channels")
    if a.interleave.slice_bytes:
        words.append(f"interleave {a.interleave.name}")
    if a.swizzle.bits:
        words.append(f"swizzle {a.swizzle.name}")
    return ", ".join(words)


def _dimensions(a: AnyMap) -> Table:
    """One line a dimension: its extent, its step, and what a copy takes of it."""
    inner_bytes = a.interleave.slice_bytes or a.data_type.bits / 8
    columns: dict[str, Iterable[object]] = {
        "dim": range(a.rank),
        "extent": a.dims,
        "stride bytes": [f"{inner_bytes:g}", *a.strides_bytes],
    }
    if isinstance(a, TensorMap):
        columns["box"] = a.box
    columns["element stride"] = a.element_strides
    if isinstance(a, TensorMap):
        columns["visited"] = a.visited_elements
        columns["boxes"] = map(ceil_div, a.dims, a.box)
    elif isinstance(a, Im2colMap):
        columns["lower"] = _of_corner(a, a.lower_corner)
        columns["upper"] = _of_corner(a, a.upper_corner)
    return Table(zip(*columns.values(), strict=True), columns, "Dimensions, innermost first", "r" * len(columns))


def _of_corner(a: Im2colMap, corner: tuple[int, ...]) -> list[object]:
    """A corner by dimension; channels and images have none."""
    before = 0 if a.interleave.slice_bytes else 1
    after = a.rank - before - len(corner)
    return [*[""] * before, *corner, *[""] * after]


def _facts(a: AnyMap) -> Table:
    alignment = f"multiple of {max(128, a.smem_alignment_bytes)} bytes"
    if a.smem_alignment_bytes > 128:
        alignment += " (128 is enough for the chip, and starts inside the swizzle pattern)"
    basis = "measured on a card" if a.basis == "measured" else "documented"
    rows = {
        "shared memory": f"{a.smem_bytes} bytes a copy",
        "shared address": alignment,
        "mbarrier expects": f"{a.transaction_bytes} bytes a copy",
        "interleave": a.interleave.name,
        "L2 promotion": a.l2_promotion.name,
        "architecture": f"{a.arch.name}, {basis}",
    }
    return Table(rows, title="One copy")


def arguments_table(asked: Mapping[str, object]) -> Table:
    """The arguments of a map, by name."""
    return Table(((name, _plain(name, value)) for name, value in asked.items()), title="The arguments")


def _plain(name: str, value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    if isinstance(value, Row):
        return value.name
    if name == "address" and isinstance(value, int):
        return hex(value)
    return str(value)


DRAWINGS = {
    Im2colMap: draw_map,
    Im2colWideMap: draw_map,
    MapReport: draw_map_report,
    TensorMap: draw_map,
    TensorMapDiff: draw_tensor_map_diff,
}
