"""`tilescope load`: one copy by TMA, drawn byte for byte."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from tilescope.cli.map_options import map_options
from tilescope.cli.map_source import described
from tilescope.cli.options import address, number, numbers, output_options, pair
from tilescope.cli.output import STDOUT, Output
from tilescope.errors import RuleError, counted, shortened
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.array import array_box, metadata
from tilescope.tma import gather4, trace
from tilescope.tma import load as loaded
from tilescope.tma.array_file import as_npy, read_array, with_named_elements
from tilescope.tma.place import place_at, place_of
from tilescope.tma.tracing import OPERATIONS, Trace
from tilescope.view.trace_view import MOST_LINES


def _positive(text: str) -> int:
    found = number(text)
    if found < 1:
        raise click.BadParameter(f"{shortened(text, 40)} lines; at least 1.")
    return found


@click.command()
@click.argument("source", nargs=-1)
@map_options
@click.option("--coords", type=numbers, metavar="N,…", help="Where the box starts, innermost first. [default: 0,0,…]")
@click.option("--offsets", type=numbers, default="", metavar="N,…", help="Im2col: W, H, D; im2col-wide: halo, offset.")
@click.option("--smem-address", type=address, default="0", metavar="A", help="Shared address. [default: 0]")
@click.option("--operation", type=click.Choice(OPERATIONS), default="load", help="[default: load]")
@click.option(
    "--element", type=pair, metavar="ROW,COL", help="Say where this element of the box lies: row, then column."
)
@click.option("--at", type=address, metavar="ADDRESS", help="Say which element lies at this shared address.")
@click.option("--lines", type=_positive, metavar="N", help="Lines of shared memory to draw. [default: 32]")
@click.option("--npy", type=click.Path(exists=True, dir_okay=False), help="An array as the tensor; its type, dims and "
              "strides need no options.")  # fmt: skip
@output_options(out="Write what shared memory holds, as .npy; - is stdout.")
def load(
    source: tuple[str, ...], asked: MapArguments | None, coords: tuple[int, ...] | None, offsets: tuple[int, ...],
    smem_address: int, operation: Any, element: tuple[int, int] | None, at: int | None, lines: int | None,
    npy: str | None, output: Output,
) -> None:  # fmt: skip
    """Show what one copy does: the box in the tensor, and shared memory line by line.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text. An array
    (--npy) brings type, dims and strides of its own; options replace them one by one.

    --element and --at ask for one place: which byte, which element, and what an XOR of the offset from the buffer's
    start, instead of the address, would have given. ROW counts the rows of the box as they follow each other.

    gather4 and scatter4 take the column and four rows as --coords. With --npy the copy is carried out, and --out FILE
    writes the bytes that it leaves in shared memory.
    """
    array = None if npy is None else _mapped(npy, output)
    if array is None or npy is None or source:
        tensor_map = described(source, asked).tensor_map()
    else:
        tensor_map = _map_of(array, npy, asked)
    found = trace(
        tensor_map, (0,) * tensor_map.rank if coords is None else coords, offsets=offsets, smem_address=smem_address,
        operation=operation,
    )  # fmt: skip
    if output.out_path is not None and (array is None or not found.is_load):
        raise click.UsageError("--out needs --npy FILE, the tensor, and a load.")
    if array is not None and found.is_load:
        smem = _carried_out(found, array)
        output.write(as_npy(smem), f": {len(smem)} bytes")
    places = [] if element is None else [place_of(found, *element)]
    places += [] if at is None else [place_at(found, at)]
    extra = {"places": [place.to_dict() for place in places]} if places else {}
    output.show(found, extra=extra, lines=lines or MOST_LINES, places=tuple(places))


def _mapped(path: str, output: Output) -> np.ndarray[Any, Any]:
    """The array of a .npy file, read only where it is needed; so nothing may be written there."""
    for option, written in (("--out", output.out_path), ("--svg", output.svg_path)):
        if written is not None and written != STDOUT and written.exists() and written.samefile(path):
            raise click.UsageError(f"--npy {path} and {option} {written} are one file; give {option} another.")
    return read_array(path)


def _map_of(array: np.ndarray[Any, Any], path: str, asked: MapArguments | None) -> AnyMap:
    """The map of an array, with the options that were given beside it."""
    options = {} if asked is None else dict(asked.given)
    if asked is None or (asked.map_class is TensorMap and "box" not in options):
        raise click.UsageError("--npy needs --box, innermost first: the extents of one copy.")
    array = with_named_elements(array, path, options.get("data_type"))
    if "dims" not in options and asked.map_class is TensorMap:
        box = options.pop("box")
        if len(box) != array.ndim:
            raise RuleError([array_box.violation(
                "--box", f"--box {','.join(map(str, box))} has {counted(len(box), 'entry', 'entries')} and {path} {array.ndim} axes",
                "one entry for each axis, innermost first",
                f"Use {array.ndim} entries; an array of shape {array.shape} has dims {array.shape[::-1]}.",
            )])  # fmt: skip
        return TensorMap.from_array(array, tuple(box)[::-1], **({"address": 0} | options))
    found = metadata(array)
    own = {"data_type": found.data_type, "dims": found.shape[::-1], "strides_bytes": found.strides_bytes[-2::-1]}
    return asked.completed(MapArguments(asked.map_class, own)).tensor_map()


def _carried_out(found: Trace, array: np.ndarray[Any, Any]) -> Any:
    if found.operation == "gather4":
        column, *rows = found.coords
        return gather4(found.tensor_map, array, column, rows, smem_address=found.smem_address)
    return loaded(found.tensor_map, array, found.coords, offsets=found.offsets, smem_address=found.smem_address)
