"""`tilescope encode`: the 128 bytes of a tensor map, as the driver writes them."""

from __future__ import annotations

import struct

import click

from tilescope.cli.map_options import map_options
from tilescope.cli.map_source import described
from tilescope.cli.options import output_options
from tilescope.cli.output import Output
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.decoding import inspect_tensor_map

_WORDS_PER_LINE = 4


@click.command()
@click.argument("source", nargs=-1)
@map_options
@click.option(
    "--hex", "form", flag_value="hex", default="hex", help="Print 256 hexadecimal digits, in memory order. [default]"
)
@click.option("--c", "form", flag_value="c", help="Print an array of 64-bit words in C.")
@output_options(out="Write the 128 bytes to a file; - is stdout.")
def encode(source: tuple[str, ...], asked: MapArguments | None, form: str, output: Output) -> None:
    """Print the 128 bytes that the driver writes for a tensor map on sm_90, without a driver.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text.

    The layout of these bytes is NVIDIA's own: use them to compare and to test; a program that launches kernels asks
    the driver.

    \b
    tilescope encode --type bf16 --dims 4096,4096 --box 64,64 --c
    tilescope encode map.json --swizzle 128B --out map.bin
    """  # noqa: D301  \b keeps the lines below it apart
    blob = described(source, asked).tensor_map().encode()
    output.write(blob)
    if output.as_json or output.svg_path is not None:
        output.show(inspect_tensor_map(blob), extra={"hex": blob.hex(), "words": [hex(word) for word in _words(blob)]})
    elif output.out_path is None:
        click.echo(blob.hex() if form == "hex" else _in_c(blob))


def _words(blob: bytes) -> tuple[int, ...]:
    return struct.unpack("<16Q", blob)


def _in_c(blob: bytes) -> str:
    words = [f"{word:#018x}ull" for word in _words(blob)]
    lines = [", ".join(words[first : first + _WORDS_PER_LINE]) for first in range(0, len(words), _WORDS_PER_LINE)]
    return "alignas(128) const unsigned long long tensor_map[16] = {\n    " + ",\n    ".join(lines) + ",\n};"
