"""`tilescope load`: one copy by TMA, drawn byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from tilescope.cli.map_options import map_options, with_strides
from tilescope.cli.map_source import described
from tilescope.cli.options import address, number, numbers, output_options
from tilescope.cli.output import Output
from tilescope.errors import broken, shortened
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.array import metadata
from tilescope.tma import gather4, trace
from tilescope.tma import load as loaded
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
@click.option("--lines", type=_positive, metavar="N", help="Draw so many lines of shared memory. [default: 32]")
@click.option("--npy", type=click.Path(exists=True, dir_okay=False), help="An array as the tensor; its type, dims and "
              "strides need no options.")  # fmt: skip
@click.option("--out", "result_file", type=click.Path(dir_okay=False), help="Write what shared memory holds, as .npy.")
@output_options
def load(
    source: tuple[str, ...], asked: MapArguments | None, coords: tuple[int, ...] | None, offsets: tuple[int, ...],
    smem_address: int, operation: Any, lines: int | None, npy: str | None, result_file: str | None, output: Output,
) -> None:  # fmt: skip
    """Show what one copy does: the box in the tensor, and shared memory line by line.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text. An array
    (--npy) brings type, dims and strides of its own; options replace them one by one.

    gather4 and scatter4 take the column and four rows as --coords. With --npy the copy is carried out, and --out FILE
    writes the bytes that it leaves in shared memory.
    """
    array = None if npy is None else _mapped(npy)
    if array is None or source:
        tensor_map = described(source, asked).tensor_map()
    else:
        tensor_map = _map_of(array, asked)
    found = trace(
        tensor_map, (0,) * tensor_map.rank if coords is None else coords, offsets=offsets, smem_address=smem_address,
        operation=operation,
    )  # fmt: skip
    if result_file is not None or array is not None:
        smem = _carried_out(found, array)
        if result_file is not None:
            with Path(result_file).open("wb") as file:
                np.save(file, smem)
            click.echo(f"wrote {result_file}: {len(smem)} bytes", err=True)
    output.show(found, lines=lines or MOST_LINES)


def _mapped(path: str) -> np.ndarray[Any, Any]:
    """The array of a .npy file, read only where it is needed."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        limit = "one array of numbers, as np.save writes it"
        raise broken(
            "npy-file", path, f"no array: {shortened(str(error), 40)}", limit, "Save it with np.save."
        ) from None
    if not isinstance(array, np.ndarray):
        raise broken(
            "npy-file", path, "an archive of several arrays", "one array, as np.save writes it", "Save the one."
        )
    return array


def _map_of(array: np.ndarray[Any, Any], asked: MapArguments | None) -> AnyMap:
    """The map of an array, with the options that were given beside it."""
    options = {} if asked is None else dict(asked.given)
    if asked is None or (asked.map_class is TensorMap and "box" not in options):
        raise click.UsageError("--npy needs --box, innermost first: the extents of one copy.")
    if "dims" not in options and asked.map_class is TensorMap:
        box = options.pop("box")
        return TensorMap.from_array(array, tuple(box)[::-1], **({"address": 0} | options))
    found = metadata(array)
    own = {"data_type": found.data_type, "dims": found.shape[::-1], "strides_bytes": found.strides_bytes[-2::-1]}
    return with_strides(asked, MapArguments(asked.map_class, own)).tensor_map()


def _carried_out(found: Trace, array: np.ndarray[Any, Any] | None) -> Any:
    if array is None or not found.is_load:
        raise click.UsageError("--out needs --npy FILE, the tensor, and a load.")
    if found.operation == "gather4":
        column, *rows = found.coords
        return gather4(found.tensor_map, array, column, rows, smem_address=found.smem_address)
    return loaded(found.tensor_map, array, found.coords, offsets=found.offsets, smem_address=found.smem_address)
