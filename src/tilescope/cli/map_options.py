"""The options that describe a tensor map, for every command that takes one.

    @click.command()
    @map_options
    @output_options
    def check(asked: MapArguments | None, output: Output) -> int | None: …

`asked` holds the arguments as given, sound or not: `asked.check()` says what the rules find,
`asked.tensor_map()` makes the map or raises. It is None where no option was given.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

import click

from tilescope.cli.options import Command, number
from tilescope.data_type import DataType
from tilescope.errors import RuleError, broken
from tilescope.tensor_map import reading
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.option import Interleave

LARGEST_INPUT_BYTES = 1 << 20  # a tensor map, however it is written, is far smaller


def numbers(text: str) -> tuple[int, ...]:
    """Numbers, innermost first: 4096,4096 or 4096x4096 or "64 32 32 8".

    >>> numbers("4096,0x40"), numbers("64x32"), numbers("")
    ((4096, 64), (64, 32), ())
    """
    plain = text.strip().strip("()[]{}")
    pieces = plain.split("x") if re.fullmatch(r"[1-9]\d*(x\d+)+", plain) else re.split(r"[\s,]+", plain)
    return tuple(number(piece) for piece in pieces if piece)


# argument of a map: (option, how it is read, its metavar, what --help says)
_OPTIONS: dict[str, tuple[str, Any, str, str]] = {
    "data_type": ("--type", str, "TYPE", "Element type: bf16, f16, u8, e4m3, CU_TENSOR_MAP_DATA_TYPE_…"),
    "dims": ("--dims", numbers, "N,…", "Extents of the tensor in elements, innermost first."),
    "strides_bytes": ("--strides", numbers, "BYTES,…", "Strides of dims 1, 2, … in bytes. [default: dense]"),
    "box": ("--box", numbers, "N,…", "Extents of the box in elements, innermost first."),
    "element_strides": ("--element-strides", numbers, "N,…", "Traversal strides, 1 to 8. [default: 1]"),
    "interleave": ("--interleave", str, "MODE", "none, 16B or 32B. [default: none]"),
    "swizzle": ("--swizzle", str, "MODE", "none, 32B, 64B, 128B, … [default: none]"),
    "l2_promotion": ("--l2", str, "SIZE", "L2 promotion: none, 64B, 128B or 256B. [default: none]"),
    "oob_fill": ("--fill", str, "FILL", "What lies outside: zero or nan. [default: zero]"),
    "address": ("--address", number, "A", "Global address of the tensor. [default: 0]"),
    "arch": ("--arch", str, "ARCH", "sm_90, sm_100, … [default: sm_90]"),
    "lower_corner": ("--lower", numbers, "N,…", "Im2col: lower corner of the bounding box, W first."),
    "upper_corner": ("--upper", numbers, "N,…", "Im2col: upper corner of the bounding box, W first."),
    "channels_per_pixel": ("--channels", number, "N", "Im2col: channels of a pixel in one copy."),
    "pixels_per_column": ("--pixels", number, "N", "Im2col: pixels in one copy."),
    "mode": ("--wide", str, "MODE", "Im2col-wide: W or W128."),
}


def map_options(command: Command) -> Command:
    """Give a command the options of a map; it receives them as one argument, `asked`."""

    @wraps(command)
    def with_map(*args: Any, from_json: str | None, **options: Any) -> Any:
        given = {name: options.pop(name) for name in _OPTIONS}
        given = {name: value for name, value in given.items() if value is not None}
        if from_json is not None:
            base = MapArguments.from_json(read_input(from_json))
            given = {"kind": base.map_class.kind} | dict(base.given) | given
        return command(*args, asked=asked_for(given) if given else None, **options)

    wrapped: Command = with_map
    saying = "Take the arguments from JSON, as --json prints them; - is stdin. Other options replace them."
    wrapped = click.option("--from-json", metavar="FILE", help=saying)(wrapped)
    for name, (option, read, metavar, help_text) in reversed(_OPTIONS.items()):
        wrapped = click.option(option, name, type=read, metavar=metavar, help=help_text)(wrapped)
    return wrapped


def read_input(source: str) -> bytes:
    """What a file holds, or stdin for "-"; more than a tensor map could need is refused."""
    with click.open_file(source, "rb") as file:
        content: bytes = file.read(LARGEST_INPUT_BYTES + 1)
    if len(content) > LARGEST_INPUT_BYTES:
        raise broken("input-size", source, "more than 1 MiB", "a tensor map is 128 bytes", "Give the map alone.")
    return content


def asked_for(given: dict[str, Any]) -> MapArguments:
    """The map that options describe: dense strides where none are given, single corners for im2col-wide."""
    if "mode" in given:  # the corners of an im2col-wide map are single numbers
        for name, width in (("lower_corner", "lower_width"), ("upper_corner", "upper_width")):
            if name in given:
                corner = given.pop(name)
                given[width] = corner[0] if len(corner) == 1 else corner
    if "dims" in given and "strides_bytes" not in given:
        dense = _dense_strides(given)
        if dense is not None:
            given["strides_bytes"] = dense
    return MapArguments.of(given)


def _dense_strides(given: dict[str, Any]) -> tuple[int, ...] | None:
    """Strides without padding; None where dims, type or interleave are unreadable, which a rule will say."""
    try:
        dims = reading.integers("dims", given["dims"])
        slice_bytes = Interleave.named(given.get("interleave", "none")).slice_bytes
        element_bits = slice_bytes * 8 if slice_bytes else DataType.named(given.get("data_type")).tma.bits
    except RuleError:
        return None
    strides, step_bits = [], element_bits
    for extent in dims[:-1]:
        step_bits *= extent
        strides.append(step_bits // 8)
    return tuple(strides)
