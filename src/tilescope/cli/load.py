"""`tilescope load`: one copy by TMA, drawn byte for byte."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import click
import numpy as np

from tilescope.cli.map_options import map_options
from tilescope.cli.map_source import described
from tilescope.cli.options import address, number, numbers, output_options
from tilescope.cli.output import STDOUT, Output
from tilescope.data_type import DataType
from tilescope.errors import RuleError, counted, shortened
from tilescope.rule import rule
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.array import array_box, metadata
from tilescope.tma import gather4, trace
from tilescope.tma import load as loaded
from tilescope.tma.tracing import OPERATIONS, Trace
from tilescope.view.trace_view import MOST_LINES

NPY_FILE = rule(
    "npy-file", "A .npy file holds one array of numbers, as np.save writes it.", source="the format of np.save"
)
NPY_TYPE = rule(
    "npy-type",
    "Elements of a .npy file that have no type there, as bfloat16 and fp8, are named by a --type of their width.",
    source="np.save, which writes such elements as bare bytes",
    passing='ts.cli.load.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "bf16")',
    failing='ts.cli.load.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "e4m3")',
)


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
@output_options(out="Write what shared memory holds, as .npy; - is stdout.")
def load(
    source: tuple[str, ...], asked: MapArguments | None, coords: tuple[int, ...] | None, offsets: tuple[int, ...],
    smem_address: int, operation: Any, lines: int | None, npy: str | None, output: Output,
) -> None:  # fmt: skip
    """Show what one copy does: the box in the tensor, and shared memory line by line.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text. An array
    (--npy) brings type, dims and strides of its own; options replace them one by one.

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
        output.write(_as_npy(smem), f": {len(smem)} bytes")
    output.show(found, lines=lines or MOST_LINES)


def _mapped(path: str, output: Output) -> np.ndarray[Any, Any]:
    """The array of a .npy file, read only where it is needed; so nothing may be written there."""
    for option, written in (("--out", output.out_path), ("--svg", output.svg_path)):
        if written is not None and written != STDOUT and written.exists() and written.samefile(path):
            raise click.UsageError(f"--npy {path} and {option} {written} are one file; give {option} another.")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        limit, fix = "one array of numbers, as np.save writes it", "Save it with np.save."
        if "'<f1'" in str(error):  # as which np.save spells float8_e5m2, and np.load does not read it
            fix = 'Save its bytes, np.save(…, array.view("u1")), and give --type e5m2.'
        raise NPY_FILE.error(path, f"no array: {shortened(str(error), 60)}", limit, fix) from None
    if not isinstance(array, np.ndarray):
        limit, fix = "one array, as np.save writes it", "Save one array: np.save(FILE, archive[NAME])."
        raise NPY_FILE.error(path, "an archive of several arrays", limit, fix)
    return array


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
                f"Give {array.ndim} entries; an array of shape {array.shape} has dims {array.shape[::-1]}.",
            )])  # fmt: skip
        return TensorMap.from_array(array, tuple(box)[::-1], **({"address": 0} | options))
    found = metadata(array)
    own = {"data_type": found.data_type, "dims": found.shape[::-1], "strides_bytes": found.strides_bytes[-2::-1]}
    return asked.completed(MapArguments(asked.map_class, own)).tensor_map()


def with_named_elements(array: np.ndarray[Any, Any], path: str, type_name: str | None) -> np.ndarray[Any, Any]:
    """The array with elements of a type that has a name; numpy saves bfloat16 and fp8 as bare bytes, which --type names."""
    try:
        DataType.named(array.dtype)
    except RuleError as error:
        if error.violations[0].rule != "unknown-name":  # it has a name, and cannot be moved
            raise
    else:
        return array
    element_bytes = array.dtype.itemsize
    found, limit = (
        f"{path} has elements of {array.dtype.str}, which say no type",
        "--type names a type of the same width",
    )
    values = {"element_bytes": element_bytes, "element_bits": 8 * element_bytes}
    if element_bytes not in (1, 2, 4, 8):
        raise NPY_TYPE.error(
            "--npy",
            found,
            limit,
            f'No type has {element_bytes} bytes; save the bytes: np.save(…, array.view("u1")).',
            values=values,
        )
    if type_name is None:
        alike = {1: "e4m3", 2: "bf16"}.get(element_bytes, f"u{8 * element_bytes}")
        raise NPY_TYPE.error("--type", found, limit, f"Say what they are, such as --type {alike}.", values=values)
    bits = DataType.named(type_name).bits
    if bits != 8 * element_bytes:
        found = f"--type {type_name} has {bits} bits, and the elements of {path} {8 * element_bytes}"
        raise NPY_TYPE.error(
            "--type",
            found,
            limit,
            f"Use a type of {8 * element_bytes} bits, such as --type u{8 * element_bytes}.",
            values=values | {"type_bits": bits},
        )
    return array.view(f"u{element_bytes}")


def _as_npy(array: np.ndarray[Any, Any]) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def _carried_out(found: Trace, array: np.ndarray[Any, Any]) -> Any:
    if found.operation == "gather4":
        column, *rows = found.coords
        return gather4(found.tensor_map, array, column, rows, smem_address=found.smem_address)
    return loaded(found.tensor_map, array, found.coords, offsets=found.offsets, smem_address=found.smem_address)
