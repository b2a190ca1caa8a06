"""`tilescope encode`: the 128 bytes of a tensor map."""

from __future__ import annotations

import struct
from pathlib import Path

import click

from tilescope.cli.command import Output, asked_by, output_options, parameters, show, write_to
from tilescope.cli.files import with_map
from tilescope.cli.manual import ManualCommand
from tilescope.questions.first_line import make_line
from tilescope.questions.map_inputs import DESCRIBED_MAP, read_map
from tilescope.questions.map_questions import describe_map
from tilescope.questions.question import Answer, MisuseError, as_options
from tilescope.sentence import saying_arguments
from tilescope.tensor_map import TensorMap, inspect_tensor_map

_WORDS_PER_LINE = 4
_HELP = """Print the 128 bytes that the driver writes for a tensor map on sm_90, without a driver.

The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text.

They are printed as 256 hexadecimal digits, in memory order, below a line that describes them. NVIDIA does not
document the layout of these bytes: use them to compare and to test; a program that launches kernels should call the
driver.
"""


@saying_arguments(as_options(DESCRIBED_MAP))
def encode(
    *,
    as_json: bool,
    is_quiet: bool,
    svg_path: Path | None,
    out_path: Path | None,
    in_hex: bool,
    in_c: bool,
    **said: object,
) -> int:
    """Print or write the bytes of the map that options and SOURCE describe."""
    output = Output(as_json, svg_path, out_path, is_quiet)
    output.require_one_on_stdout()
    if in_hex and in_c:
        raise click.UsageError("--hex and --c print the same bytes; give one of them.")
    try:
        tensor_map = read_map(with_map(asked_by(DESCRIBED_MAP, said), output)).tensor_map()
        blob = tensor_map.encode()
    except MisuseError as error:
        raise click.UsageError(str(error)) from None
    words = struct.unpack("<16Q", blob)
    if out_path is not None:
        write_to(out_path, blob)
    first = make_line("128 bytes, as the driver writes them on sm_90: {map}.", map=describe_map(tensor_map))
    if as_json or is_quiet or svg_path is not None:
        extra = {"hex": blob.hex(), "words": [hex(word) for word in words]}
        return show(Answer(inspect_tensor_map(blob), first=first, extra=extra), output)
    if out_path is None:
        comment = "" if in_hex else f"// {first.sentence}\n"  # which every reader of descriptors passes over
        click.echo(comment + (_words_in_c(words) if in_c else blob.hex()))
    return 0


def _words_in_c(words: tuple[int, ...]) -> str:
    spelled = [f"{word:#018x}ull" for word in words]
    lines = [", ".join(spelled[first : first + _WORDS_PER_LINE]) for first in range(0, len(words), _WORDS_PER_LINE)]
    return "alignas(128) const unsigned long long tensor_map[16] = {\n    " + ",\n    ".join(lines) + ",\n};"


COMMANDS = (
    ManualCommand(
        "encode",
        callback=encode,
        params=[
            *parameters(DESCRIBED_MAP, (TensorMap,)),
            click.Option(
                ["--hex", "in_hex"],
                is_flag=True,
                help="Print nothing but 256 hexadecimal digits, in memory order.",
            ),
            click.Option(["--c", "in_c"], is_flag=True, help="Print an array of 64-bit words in C."),
            *output_options(makes="Write the 128 bytes to a file; - is stdout."),
        ],
        help=_HELP,
    ),
)
