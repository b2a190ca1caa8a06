"""`tilescope diff`: two tensor maps, field by field."""

from __future__ import annotations

import click

from tilescope.cli.map_source import STDIN, read_source
from tilescope.cli.options import output_options
from tilescope.cli.output import Output
from tilescope.tensor_map.comparison import TensorMapDiff


@click.command()
@click.argument("one")
@click.argument("other")
@output_options
def diff(one: str, other: str, output: Output) -> int:
    """Compare two tensor maps: arguments, what follows from them, and the words of their descriptors.

    Each is a file or text with JSON, with a dump of arguments, or with the bytes or words of a descriptor; - is stdin,
    FILE:3 the third line of a file that holds one map a line.

    Exit status 1: they differ.
    """
    if one == other == STDIN:
        raise click.UsageError("- can be given once: stdin holds one map.")
    found = TensorMapDiff.of(read_source((one,)).tensor_map(), read_source((other,)).tensor_map())
    output.show(found)
    return 0 if found.same else 1
