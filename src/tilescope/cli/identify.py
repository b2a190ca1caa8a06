"""`tilescope identify`: the layout of a tile somewhere in a dump."""

from __future__ import annotations

import click

from tilescope.cli.map_source import read_input
from tilescope.cli.options import output_options, rows_and_columns, smem_address_option
from tilescope.cli.output import Output
from tilescope.tma.array_file import LARGEST_DUMP_BYTES, dump_bytes, tile_of
from tilescope.tma.identification import identify as identified

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("dump", type=_FILE)
@click.argument("tile", type=_FILE)
@click.option("--type", "data_type", metavar="TYPE", help="Elements of the tile, where its file does not say.")
@click.option("--shape", type=rows_and_columns, metavar="RxC", help="Rows and columns of the tile, likewise.")
@smem_address_option(None, "Shared address of the dump's first byte. [default: unknown]")
@output_options
def identify(
    dump: str, tile: str, data_type: str | None, shape: tuple[int, int] | None, start: int | None, output: Output
) -> int:
    """Find the TILE somewhere in the DUMP, and say in which layout it lies there, and how much of it fits.

    Both are files, - is stdin: .npy as np.save writes it, raw bytes, or hexadecimal text of xxd, hexdump -C, cuda-gdb or printf.
    Swizzles of the hardware and any other XOR swizzle are tried, rows any distance apart, atoms and boxes in any order, and
    the transposed tile.

    \b
    tilescope identify smem.bin tile.npy
    tilescope identify gdb.txt tile.bin --type bf16 --shape 64x64

    Exit status 1: the tile is not there, or not all of it.
    """  # noqa: D301  \b keeps the lines below it apart
    if dump == tile == "-":
        raise click.UsageError("- can be given once: stdin holds one file.")
    content = dump_bytes(read_input(dump, LARGEST_DUMP_BYTES))
    found = identified(content, tile_of(read_input(tile), tile, data_type, shape), smem_address=start)
    output.show(found)
    return 0 if found.explained else 1
