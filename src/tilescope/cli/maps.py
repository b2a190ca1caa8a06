"""`tilescope check`, `encode`, `diff`, `conv`: would the driver take this tensor map, and which bytes does it write."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import click

from tilescope.cli.command import Output, command, refuse, write_to
from tilescope.cli.map_source import STDIN, described, map_options, read_source
from tilescope.errors import TensorMapError
from tilescope.inputs import TYPE, Input
from tilescope.tensor_map import Convolution, MapReport, TensorMapDiff, inspect_tensor_map
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.convolution import PASSES
from tilescope.tensor_map.source import MapSource
from tilescope.written import extents, number, numbers

_WORDS_PER_LINE = 4


@command()
@click.option(
    "--fix",
    is_flag=True,
    help="Print the call of the nearest map that is accepted, in C++ and Python, and what was changed.",
)
@map_options
def check(fix: bool, output: Output, **asked: Any) -> int:
    """Say whether the driver takes a tensor map, and every reason why not.

    The map is described by options, or by SOURCE: a file or text with JSON, with the arguments that CUTLASS, TileLang,
    Triton and others print when a map fails, with a call of the driver in C++ or Python, or with the words of a descriptor;
    - is stdin. A log may be of any length. --from-json FILE takes nothing but JSON. Options replace what SOURCE says.
    FILE:3 is the third line of a file that holds one map a line, as watch writes it.

    \b
    tilescope check --type bf16 --dims 4096,4096 --box 128,64 --swizzle 128B
    tilescope check failed.log --arch sm_100
    pbpaste | tilescope check -

    Exit status 1: refused; 2: not understood, such as a name that no table has.
    """  # noqa: D301  \b keeps the lines below it apart
    maps = described(**asked)
    reports = maps.reports()
    if unread := [broken for report in reports for broken in report.not_understood]:
        raise TensorMapError(unread)  # exit status 2, not 1
    if fix:
        return _show_fixed(maps, output)
    first, *others = zip(reports, [arguments.given for arguments in maps.asked] or [{}], strict=True)
    more = {"others": [report.to_dict() for report, _ in others]} if others else {}
    output.show(first[0], extra=more, asked=first[1])
    for report, arguments in [] if output.as_json else others:
        click.echo()
        Output().show(report, asked=arguments)
    return 0 if all(report.accepted for report in reports) else 1


def _show_fixed(maps: MapSource, output: Output) -> int:
    """The encode calls of the maps with the fixes of the broken rules, and what was changed."""
    from tilescope.emitter import snippet

    fixes: list[tuple[AnyMap, list[str]]] = []
    for asked in maps.asked:
        repaired = asked.repaired()
        fixes.append((repaired.tensor_map(), [str(change) for change in asked.changes_to(repaired)]))
    if not maps.asked:
        fixes.append((maps.tensor_map(), []))
    if output.as_json:
        beside = [{"changes": changes, "encode": snippet(fixed, "encode")} for fixed, changes in fixes]
        others = [fixed.to_dict() | more for (fixed, _), more in zip(fixes[1:], beside[1:], strict=True)]
        return output.show(fixes[0][0], extra=beside[0] | ({"others": others} if others else {}))
    for fixed, changes in fixes:
        said = [f"changed {change}" for change in changes] or ["nothing changed: no rule is broken"]
        for line in said:
            click.echo(f"// {line}")
        click.echo(snippet(fixed, "encode"))
        click.echo(snippet(fixed, "encode-bindings"))
    return 0


@command(out="Write the 128 bytes to a file; - is stdout.")
@map_options
@click.option("--hex", "in_c", flag_value=False, help="Print 256 hexadecimal digits, in memory order. [default]")
@click.option("--c", "in_c", flag_value=True, help="Print an array of 64-bit words in C.")
def encode(output: Output, in_c: bool = False, **asked: Any) -> None:
    """Print the 128 bytes that the driver writes for a tensor map on sm_90, without a driver.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text.

    The layout of these bytes is NVIDIA's own: use them to compare and to test; a program that launches kernels asks
    the driver.

    \b
    tilescope encode --type bf16 --dims 4096,4096 --box 64,64 --c
    tilescope encode map.json --swizzle 128B --out map.bin
    """  # noqa: D301  \b keeps the lines below it apart
    blob = described(**asked).tensor_map().encode()
    words = struct.unpack("<16Q", blob)
    if output.out_path is not None:
        write_to(output.out_path, blob)
    if output.as_json or output.svg_path is not None:
        output.show(inspect_tensor_map(blob), extra={"hex": blob.hex(), "words": [hex(word) for word in words]})
    elif output.out_path is None:
        click.echo(_words_in_c(words) if in_c else blob.hex())


def _words_in_c(words: tuple[int, ...]) -> str:
    spelled = [f"{word:#018x}ull" for word in words]
    lines = [", ".join(spelled[first : first + _WORDS_PER_LINE]) for first in range(0, len(words), _WORDS_PER_LINE)]
    return "alignas(128) const unsigned long long tensor_map[16] = {\n    " + ",\n    ".join(lines) + ",\n};"


@command()
@click.argument("one")
@click.argument("other")
def diff(one: str, other: str, output: Output) -> int:
    """Compare two tensor maps: arguments, what follows from them, and the words of their descriptors.

    ONE and OTHER are files or texts with JSON, with a dump of arguments, or with the bytes or words of a descriptor; -
    is stdin, FILE:3 the third line of a file that holds one map a line.

    Exit status 1: they differ.
    """
    refuse((one == other == STDIN, "- can stand for one of them: stdin holds one map."))
    first, second = (read_source((source,), takes_options=False).tensor_map() for source in (one, other))
    difference = TensorMapDiff.of(first, second)
    return output.show(difference, ok=difference.same)


@command(
    Input("image", read=extents),
    Input("filters", read=extents),
    replace(TYPE, option=""),
    Input("direction", "--direction", "Direction", default="forward", choices=PASSES),
    Input("pad", "--pad", "Padding", "one number, or one for each dimension.", numbers, "0"),
    Input("stride", "--stride", "Stride", read=numbers, default="1"),
    Input("dilation", "--dilation", "Dilation", read=numbers, default="1"),
    Input(
        "channels_per_pixel", "--channels", "Channels of one copy", read=number, default="a span of the widest swizzle"
    ),
    Input("pixels_per_column", "--pixels", "Pixels of one copy", read=number, default="128"),
    Input("swizzle", "--swizzle", "Swizzle", default="the widest that divides the channels"),
    Input("arch", "--arch", "Architecture", default="sm_90"),
)
def conv(image: tuple[int, ...], filters: tuple[int, ...], data_type: str, output: Output, **said: Any) -> int:
    """Make the im2col map of a convolution, with the corners, the strides and the offsets of every filter tap.

    The image is NxWxC, NxHxWxC or NxDxHxWxC, channels last; the filter is its count and taps: KxS, KxRxS, KxTxRxS.

    \b
    tilescope conv 8x56x56x64 128x3x3 bf16 --pad 1
    tilescope conv 8x56x56x64 128x3x3 bf16 --pad 1 --direction dgrad
    tilescope conv 2x16x32x32x64 64x3x3x3 f16 --pad 1 --direction wgrad

    wgrad's map is that of the activations. Exit status 1: there is no such map, for example for dgrad with a stride; the reason is printed.
    """  # noqa: D301  \b keeps the lines below it apart
    try:
        return output.show(Convolution.of(image, filters, data_type, **said))
    except TensorMapError as error:
        return output.show(MapReport(False, error.violations, None), ok=False)
