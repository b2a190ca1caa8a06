"""The options that describe a tensor map, for every command that takes one.

    @click.command()
    @click.argument("source", nargs=-1)
    @map_options
    @output_options
    def check(source: tuple[str, ...], asked: MapArguments | None, output: Output) -> int | None: …

`asked` holds the arguments as given, sound or not, and is None where no option was given. `asked.completed()` adds what
they leave to a file, an array or a default: `check()` of that says what the rules find, `tensor_map()` makes the map.
--from-json is another way to give SOURCE.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any, NamedTuple

import click

from tilescope.arch import ARCH
from tilescope.cli.options import Command, completing, number, numbers
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.arguments import MapArguments

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
    "oob_fill": ("--fill", str, "FILL", "Fill outside the tensor: zero (the driver's NONE) or nan. [default: zero]"),
    "address": ("--address", number, "A", "Global address of the tensor. [default: 0]"),
    "arch": ("--arch", str, "ARCH", "sm_90, sm_100, … [default: sm_90]"),
    "lower_corner": ("--lower", numbers, "N,…", "Im2col: lower corner of the bounding box, W first."),
    "upper_corner": ("--upper", numbers, "N,…", "Im2col: upper corner of the bounding box, W first."),
    "channels_per_pixel": ("--channels", number, "N", "Im2col: channels of a pixel in one copy."),
    "pixels_per_column": ("--pixels", number, "N", "Im2col: pixels in one copy."),
    "mode": ("--wide", str, "MODE", "Im2col-wide: W or W128."),
}

_COMPLETED: dict[str, Iterable[str]] = {
    "data_type": DATA_TYPE,
    "swizzle": SWIZZLE,
    "arch": ARCH,
}  # what a shell completes


class JsonFile(NamedTuple):
    """The SOURCE that --from-json names: JSON, whatever it looks like."""

    path: str  # "-" is stdin


def map_options(command: Command) -> Command:
    """Give a command the options of a map; it receives them as one argument, `asked`, and its SOURCE as `source`."""

    @wraps(command)
    def with_map(*args: Any, source: tuple[str, ...], from_json: str | None, **options: Any) -> Any:
        if source and from_json is not None:
            raise click.UsageError("SOURCE and --from-json both give a map; give one of them.")
        given = {name: options.pop(name) for name in _OPTIONS}
        given = {name: value for name, value in given.items() if value is not None}
        where = source if from_json is None else JsonFile(from_json)
        return command(*args, source=where, asked=asked_for(given) if given else None, **options)

    wrapped: Command = with_map
    json_file = click.Path(exists=True, dir_okay=False, allow_dash=True)
    saying = "Take the map from JSON, as SOURCE; - is stdin."
    wrapped = click.option("--from-json", type=json_file, metavar="FILE", help=saying)(wrapped)
    for name, (option, read, metavar, help_text) in reversed(_OPTIONS.items()):
        complete = completing(_COMPLETED.get(name, ()))
        added = click.option(option, name, type=read, metavar=metavar, help=help_text, shell_complete=complete)
        wrapped = added(wrapped)
    return wrapped


def asked_for(given: dict[str, Any]) -> MapArguments:
    """The arguments that options give; the corners of an im2col-wide map are single numbers."""
    if "mode" in given:
        for name, width in (("lower_corner", "lower_width"), ("upper_corner", "upper_width")):
            if name in given:
                corner = given.pop(name)
                given[width] = corner[0] if len(corner) == 1 else corner
    return MapArguments.of(given)
