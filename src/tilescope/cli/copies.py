"""`tilescope load`: one copy by TMA, drawn byte for byte; `tilescope identify`: the layout of a tile in a dump."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from tilescope.cli.command import INPUT_FILE, STDOUT, Output, command, refuse, write_to
from tilescope.cli.map_source import described, map_options, read_input
from tilescope.inputs import START, TYPE, Input
from tilescope.inputs.maps import COPY
from tilescope.tensor_map import MapArguments
from tilescope.tma import Trace, gather4, trace
from tilescope.tma import load as loaded
from tilescope.tma.array_file import LARGEST_DUMP_BYTES, as_npy, dump_bytes, map_of_array, read_array, tile_of
from tilescope.tma.identification import identify as identified
from tilescope.tma.place import place_at, place_of
from tilescope.written import pair, smem_address, tile


@command(
    *COPY,
    Input("element", "--element", "Say where this element of the box lies", "row, then column.", pair),
    Input("at", "--at", "Say which element lies at this shared address", read=smem_address),
    out="Write what shared memory holds, as .npy; - is stdout.",
)
@map_options
@click.option("--lines", type=click.IntRange(1), metavar="N", help="Lines of shared memory to draw. [default: 32]")
@click.option(
    "--npy", type=click.Path(exists=True, dir_okay=False),
    help="An array as the tensor; its type, dims and strides need no options.",
)  # fmt: skip
def load(
    source: Any, output: Output, asked: MapArguments | None = None, npy: str | None = None, lines: int | None = None,
    element: tuple[int, int] | None = None, at: int | None = None, **copy: Any,
) -> int:  # fmt: skip
    """Show what one copy does: the box in the tensor, and shared memory line by line.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text. An array
    (--npy) brings type, dims and strides of its own; options replace them one by one.

    --element and --at ask for one place: its address and its element. The answer also says where a reader would look
    who takes the XOR from the offset in the buffer instead of the address. ROW counts the rows of the box in order.

    gather4 and scatter4 take the column and four rows as --coords. With --npy the copy is carried out, and --out FILE
    writes the bytes that it leaves in shared memory.
    """
    array = None if npy is None else _mapped(npy, output)
    tensor_map = (
        map_of_array(array, npy, asked)
        if array is not None and npy is not None and not source
        else described(source, asked).tensor_map()
    )
    copied = trace(tensor_map, **copy)
    loads = array is not None and copied.is_load
    refuse((output.out_path is not None and not loads, "--out needs a load, and --npy FILE with the tensor."))
    if array is not None and loads:
        smem = _carried_out(copied, array)
        if output.out_path is not None:
            write_to(output.out_path, as_npy(smem), f": {len(smem)} bytes")
    places = [] if element is None else [place_of(copied, *element)]
    places += [] if at is None else [place_at(copied, at)]
    extra = {"places": [place.to_dict() for place in places]} if places else {}
    return output.show(copied, extra=extra, places=tuple(places), lines=lines)


def _mapped(path: str, output: Output) -> np.ndarray[Any, Any]:
    """The array of a .npy file, mapped into memory; so no output may go to the same file."""
    for option, written in (("--out", output.out_path), ("--svg", output.svg_path)):
        if written is not None and written != STDOUT and written.exists() and written.samefile(path):
            raise click.UsageError(f"--npy {path} and {option} {written} are the same file; give {option} another.")
    return read_array(path)


def _carried_out(copied: Trace, array: np.ndarray[Any, Any]) -> Any:
    if copied.operation == "gather4":
        column, *rows = copied.coords
        return gather4(copied.tensor_map, array, column, rows, smem_address=copied.smem_address)
    return loaded(copied.tensor_map, array, copied.coords, offsets=copied.offsets, smem_address=copied.smem_address)


@command(
    TYPE,
    Input("shape", "--shape", "Rows and columns of the tile", "where its file does not say.", tile),
    Input(
        "smem_address", START.option, "Shared address of the dump's first byte", read=smem_address, default="unknown"
    ),
)
@click.argument("dump", type=INPUT_FILE)
@click.argument("tile", type=INPUT_FILE)
def identify(dump: str, tile: str, output: Output, data_type: Any = None, shape: Any = None, **said: int) -> int:
    """Find the TILE somewhere in the DUMP, and say in which layout it lies there, and how much of it fits.

    Both are files, - is stdin: .npy as np.save writes it, raw bytes, or hexadecimal text of xxd, hexdump -C, cuda-gdb or printf.
    Swizzles of the hardware and any other XOR swizzle are tried, rows any distance apart, atoms and boxes in any order, and
    the transposed tile.

    \b
    tilescope identify smem.bin tile.npy
    tilescope identify gdb.txt tile.bin --type bf16 --shape 64x64

    Exit status 1: the tile is not there, or not all of it.
    """  # noqa: D301  \b keeps the lines below it apart
    refuse((dump == tile == "-", "- can stand for one of them: stdin holds one file."))
    content = dump_bytes(read_input(dump, LARGEST_DUMP_BYTES))
    identification = identified(content, tile_of(read_input(tile), tile, data_type, shape), **said)
    return output.show(identification, ok=identification.explained)
