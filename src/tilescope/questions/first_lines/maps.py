"""The first lines of answers about tensor maps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from tilescope.arithmetic import ceil_div
from tilescope.questions.first_lines import line, refused
from tilescope.questions.question import FirstLine
from tilescope.sentence import filled
from tilescope.tensor_map.text.driver_answer import DRIVER_RESULT

if TYPE_CHECKING:
    from tilescope.bits import Inspection
    from tilescope.errors import Violation
    from tilescope.tensor_map import AnyMap, Convolution, MapLog, MapReport, TensorMapDiff
    from tilescope.tensor_map.map_arguments import ArgumentChange

_KIND = {"tiled": "tiled", "im2col": "im2col", "wide": "im2col-wide"}
_MAP = (
    "{kind} map of {dims: x } {data_type}[[, box {box: x }]][[, {pixels} pixels of {channels} channels]]"
    "[[, interleave {interleave}]][[, swizzle {swizzle}]]"
)
_MOST_NAMED = 3  # arguments that differ or change


def described(a: AnyMap) -> str:
    """A map in a few words.

    >>> from tilescope.tensor_map import TensorMap
    >>> described(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B"))
    'tiled map of 64 x 64 bfloat16, box 64 x 8, swizzle 128B'
    """
    is_tiled = a.subject == "tiled"
    facts = {
        "kind": _KIND[a.subject],
        "dims": a.dims,
        "data_type": a.data_type.name,
        "box": getattr(a, "box", ()) if is_tiled else (),
        "pixels": 0 if is_tiled else a.visited_elements[-1],
        "channels": 0 if is_tiled else a.inner_elements,
        "interleave": a.interleave.name if a.interleave.slice_bytes else "",
        "swizzle": a.swizzle.name if a.swizzle.bits else "",
    }
    return filled(_MAP, facts)


def of_report(report: MapReport) -> FirstLine:
    """Whether the driver takes a map."""
    errors = [violation for violation in report.violations if violation.severity == "error"]
    if report.tensor_map is None:
        reasons = [violation for violation in errors if violation.rule != DRIVER_RESULT.name]
        return refused("Refused", reasons or errors)
    if not report.accepted:
        return refused("No rule is broken, yet the driver refused the map", errors)
    warnings = [violation for violation in report.violations if violation.severity == "warning"]
    return line(
        "Accepted[[, with {warnings:warning}]]: {map}; a copy brings {transaction_bytes} bytes[[. {first}]].",
        warnings=len(warnings),
        map=described(report.tensor_map),
        transaction_bytes=report.tensor_map.transaction_bytes,
        first=_first_warning(warnings),
    )


def _first_warning(warnings: Sequence[Violation]) -> str:
    if not warnings:
        return ""
    return filled("{found}; {limit}", {"found": warnings[0].found, "limit": warnings[0].limit})


def of_log(log: MapLog) -> FirstLine:
    """How many maps of a log are refused, and on which lines; the advice is about the first of them."""
    refused_maps = [*log.with_verdict("refused"), *log.with_verdict("not understood")]
    if not refused_maps:
        return FirstLine(log.summary)
    first = refused_maps[0]
    errors = [violation for violation in first.violations if violation.severity == "error"]
    reason = next((violation for violation in errors if violation.rule != DRIVER_RESULT.name), errors[0])
    facts = {"line": first.line, "found": reason.found, "limit": reason.limit, "fix": reason.fix}
    return FirstLine(log.summary, filled("Line {line}: {found}; {limit}. {fix}", facts))


def of_fixed(tensor_map: AnyMap, changes: Sequence[ArgumentChange]) -> FirstLine:
    """What was changed in a map that was refused."""
    return line(
        "Accepted[[ with {count:change}: {named:; }]][[ and {more} more]]: {map}.",
        count=len(changes),
        named=tuple(map(str, changes[:_MOST_NAMED])),
        more=max(0, len(changes) - _MOST_NAMED),
        map=described(tensor_map),
    )


def of_encoded(tensor_map: AnyMap) -> FirstLine:
    """What was encoded."""
    return line("128 bytes, as the driver writes them on sm_90: {map}.", map=described(tensor_map))


def of_inspection(inspection: Inspection) -> FirstLine:
    """What 128 bytes are."""
    tensor_map = inspection.tensor_map
    if tensor_map is None:
        return refused("The 128 bytes are no tensor map", inspection.violations)
    return line("The 128 bytes are a {map}, at {address:#x}.", map=described(tensor_map), address=tensor_map.address)


def of_difference(difference: TensorMapDiff) -> FirstLine:
    """In what two maps differ."""
    if difference.same:
        return line("The maps are the same: {map}.", map=described(difference.one))
    named = [
        filled("{name} is {one} and {other}", {"name": one.name, "one": one.one, "other": one.other})
        for one in difference.arguments[:_MOST_NAMED]
    ]
    return line(
        "The maps differ in {count:argument}: {named:, }[[ and {more} more]].",
        count=len(difference.arguments),
        named=tuple(named),
        more=len(difference.arguments) - len(named),
    )


def of_convolution(convolution: Convolution) -> FirstLine:
    """The map that a convolution needs."""
    a = convolution.tensor_map
    columns = ceil_div(prod(convolution.output_shape), a.pixels_per_column)
    slices = ceil_div(a.dims[0], a.channels_per_pixel)
    return line(
        "{direction} needs an im2col map with lower corner {lower} and upper corner {upper}: {copies:copy|copies} of "
        "{pixels} pixels x {channels} channels, {size} bytes each.",
        direction=convolution.direction.capitalize(),
        lower=a.lower_corner,
        upper=a.upper_corner,
        copies=columns * slices * len(convolution.taps),
        pixels=a.pixels_per_column,
        channels=a.channels_per_pixel,
        size=a.smem_bytes,
    )
