"""`tilescope mma`: operands in shared memory, fragments in registers, descriptors of a K loop."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.map_options import map_options
from tilescope.cli.map_source import described
from tilescope.cli.options import (
    address,
    extents,
    given,
    number,
    numbers,
    output_options,
    pair,
    rows_and_columns,
    smem_address_option,
)
from tilescope.cli.output import Output
from tilescope.errors import RuleError
from tilescope.mma.agreement import compatible
from tilescope.mma.canonical import canonical_layout
from tilescope.mma.fragment import fragment as fragment_of
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.instruction_loops import tcgen05_descriptors, wgmma_descriptors
from tilescope.mma.readings import descriptor_readings
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.tensor_map.arguments import MapArguments

_LAYOUT_OPTIONS = (
    click.option("--major", default="K", metavar="K|MN", help="Which dimension is contiguous. [default: K]"),
    click.option("--swizzle", default="128B", metavar="MODE", help="none, 32B, 64B, 128B, 128B_ATOM_32B. [default: 128B]"),
    click.option(
        "--atom-order", default="column", metavar="ORDER",
        help="column: atoms along the strided dimension follow each other; row: along the contiguous. [default: column]",
    ),
    smem_address_option(),
)  # fmt: skip


def _layout_options(command: Any) -> Any:
    for option in reversed(_LAYOUT_OPTIONS):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.pass_context
def mma(context: click.Context) -> None:
    """Draw what tensor cores read and hold: operands, fragments, descriptors."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@mma.command(short_help="Draw an operand as it lies in shared memory.")
@click.argument("tile", type=extents)
@click.argument("data_type", metavar="TYPE")
@_layout_options
@click.option("--element", type=pair, metavar="MN,K", help="Mark this element, and draw the atom that holds it.")
@output_options
def layout(
    tile: Any, data_type: str, major: Any, swizzle: Any, atom_order: Any, start: int,
    element: Any, output: Output,
) -> None:  # fmt: skip
    """Draw an operand of TILE (mn x k, such as 128x64) elements of TYPE as it lies in shared memory."""
    found = canonical_layout(major, swizzle, data_type).tile(tile, atom_order=atom_order, start=start)
    extra = {} if element is None else {"element": list(element), "address": hex(found.address(*element))}
    output.show(found, extra=extra, element=element)


@mma.command(short_help="Draw which thread holds which element.")
@click.argument("instruction")
@click.option("--operand", metavar="A|B|C|D", help="Needed for mma and wgmma.")
@click.option("--type", "data_type", metavar="TYPE", help="The operand's own type, such as bf16, or f32 for D.")
@click.option("--lane", type=number, metavar="N", help="Mark this thread, and list all that it holds.")
@click.option("--element", type=pair, metavar="ROW,COLUMN", help="Mark the thread that holds this element.")
@output_options
def fragment(
    instruction: str, operand: Any, data_type: str | None, lane: int | None, element: Any, output: Output
) -> None:
    """Draw which thread holds which element, and what each thread holds.

    INSTRUCTION: mma.m16n8k16, wgmma.m64n128k16, ldmatrix.x4.trans or tcgen05.ld.32x32b.x8, for example.
    """
    found = fragment_of(instruction, operand=operand, data_type=data_type)
    extra: dict[str, Any] = {"inverse": str(found.inverse)}
    if lane is not None:
        extra |= {"lane": lane, "holds": [list(coord) for coord in found.held_by(lane)]}
        extra["matrices"] = [found.matrix_of(lane, value) for value in range(found.values)]
    if element is not None:
        holder, value = found.holder(*element)
        extra |= {"element": list(element), "holder": {"thread": holder, "value": value}}
    output.show(found, extra=extra, lane=lane, element=element)


@mma.command(short_help="Draw a matrix in tensor memory (Blackwell).")
@click.option(
    "--m", type=number, required=True, metavar="M", help="Rows of the instruction; with --cta-group 2 of both blocks."
)
@click.option("--n", type=number, metavar="N", help="Columns of the accumulator D.")
@click.option(
    "--k", type=number, metavar="K", help="Instead of --n: A, or with --metadata its metadata, of K elements along k."
)
@click.option(
    "--cta-group", type=number, default="1", metavar="1|2", help="Blocks that multiply together. [default: 1]"
)
@click.option("--ws", is_flag=True, help="The .ws instruction (M 32, 64, 128).")
@click.option("--sparse", is_flag=True, help="The .sp instruction.")
@click.option("--metadata", is_flag=True, help="With --k: where the metadata of a sparse A lies.")
@click.option("--type", "data_type", metavar="TYPE", help="The matrix's own type. [default: f32 for D, bf16 for A]")
@click.option("--address", type=number, default="0", metavar="WORD", help="Address of its first cell. [default: 0]")
@click.option("--element", type=pair, metavar="ROW,COLUMN", help="Say where this element lies.")
@output_options
def tmem(
    m: int, n: int | None, k: int | None, cta_group: int, ws: bool, sparse: bool, metadata: bool, data_type: str | None,
    address: int, element: Any, output: Output,
) -> None:  # fmt: skip
    """Draw where D (with --n) or A (with --k) lies in tensor memory: lanes by columns, with the warps' quarters."""
    if (n is None) == (k is None) or (metadata and k is None):
        raise click.UsageError("Give --n for the accumulator D, or --k for A (and --metadata for its metadata).")
    operand: Any = "D" if k is None else "metadata" if metadata else "A"
    extent = n if k is None else k
    found = tmem_layout(
        (m, extent or 0),
        operand=operand,
        data_type=data_type,
        cta_group=cta_group,
        ws=ws,
        sparse=sparse,
        address=address,
    )
    extra = {} if element is None else {"element": list(element), "place": found.place(*element)._asdict()}
    output.show(found, extra=extra, element=element)


@mma.command(short_help="Draw the scale factors of a block-scaled matrix.")
@click.argument("shape", type=rows_and_columns)
@click.argument("kind", metavar="KIND")
@click.option("--element", type=pair, metavar="ROW,K", help="Say where the scale of this element lies.")
@output_options
def scales(shape: Any, kind: str, element: Any, output: Output) -> None:
    """Draw where the scale factors of SHAPE (rows x k, such as 128x256) elements of KIND (mxfp8, mxfp4, nvfp4) lie."""
    rows, k = shape
    found = scale_layout(rows, k, kind)
    extra = {}
    if element is not None:
        row, block = element[0], element[1] // found.format.block
        extra = {"element": list(element), "block": block, "offset": int(found.offset(row, block))}
    output.show(found, extra=extra, element=element)


@mma.command(short_help="Build tcgen05's instruction descriptor.")
@click.argument("kind", metavar="KIND")
@click.argument("shape", type=rows_and_columns, metavar="MxN")
@click.option("--a-type", metavar="TYPE", help="Type of A. [default: the kind's, where it has one alone]")
@click.option("--b-type", metavar="TYPE", help="[default: as A]")
@click.option("--d-type", metavar="TYPE", help="Accumulator: f16, f32 or s32. [default: the widest]")
@click.option("--a-major", metavar="K|MN", help="[default: K]")
@click.option("--b-major", metavar="K|MN", help="[default: K]")
@click.option("--negate-a", is_flag=True, help="Multiply by -A.")
@click.option("--negate-b", is_flag=True, help="Multiply by -B.")
@click.option("--saturate", is_flag=True, help="Kind i8: sums saturate.")
@click.option("--sparse", is_flag=True, help="A is sparse (.sp).")
@click.option(
    "--selector", "sparsity_selector", type=number, metavar="0-3", help="Selector of the metadata. [default: 0]"
)
@click.option("--max-shift", type=number, metavar="N", help="Of .ws: 0, 8, 16 or 32. [default: 0]")
@click.option("--scale-type", metavar="TYPE", help="Block-scaled kinds: ue8m0 or ue4m3.")
@click.option("--a-scale-id", type=number, metavar="0-3", help="First byte of A's scale factors. [default: 0]")
@click.option("--b-scale-id", type=number, metavar="0-3", help="First byte of B's scale factors. [default: 0]")
@click.option("--k", type=number, metavar="K", help="96 for mxf4nvf4's wide step. [default: the kind's]")
@output_options
def instruction(kind: str, shape: tuple[int, int], output: Output, **options: Any) -> None:
    """Build the 32-bit descriptor of tcgen05.mma: KIND (f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4) and M x N.

    \b
    tilescope mma instruction f16 128x256 --a-type bf16
    tilescope mma instruction mxf4nvf4 256x256 --scale-type ue4m3
    """  # noqa: D301  \b keeps the lines below it apart
    found = InstructionDescriptor(kind, *shape, **given(options))
    output.show(found, extra={"word": hex(found.encode()), "forms": list(found.forms)})


_DESCRIBED_BY: dict[str, Any] = {"wgmma": wgmma_descriptors, "tcgen05": tcgen05_descriptors}


@mma.command(short_help="List the descriptors of a K loop.")
@click.argument("tile", type=extents)
@click.argument("data_type", metavar="TYPE")
@_layout_options
@click.option("--operand", default="A", metavar="A|B", help="A is read in blocks of rows, B in one n. [default: A]")
@click.option(
    "--for", "reader", type=click.Choice(list(_DESCRIBED_BY)), default="wgmma", help="Who reads. [default: wgmma]"
)
@output_options
def descriptors(
    tile: Any, data_type: str, major: Any, swizzle: Any, atom_order: Any, start: int, operand: Any, reader: str,
    output: Output,
) -> None:  # fmt: skip
    """List the descriptors that read an operand of TILE (mn x k) elements of TYPE, for the whole K loop."""
    loop = _DESCRIBED_BY[reader](
        tile, data_type, major=major, swizzle=swizzle, atom_order=atom_order, operand=operand, smem_address=start
    )
    words = [[hex(step.encode()) for step in steps] for steps in loop]
    findings = [finding.to_dict() for finding in loop.findings]
    output.show(loop, extra={"descriptors": words, "explanation": list(loop.explanation), "findings": findings})


def placed_copy(text: str) -> tuple[tuple[int, ...], int]:
    """Coordinates of a copy and where it goes: 64,0@8192.

    >>> placed_copy("64,0@0x2000")
    ((64, 0), 8192)
    """
    coords, _, offset = text.partition("@")
    return numbers(coords), number(offset or "0")


@mma.command(short_help="Say whether a descriptor reads what TMA wrote.")
@click.argument("word", type=number)
@click.argument("source", nargs=-1)
@map_options
@click.option("--smem-address", type=address, default="0", metavar="A", help="Shared address of the tile. [default: 0]")
@click.option(
    "--copy",
    "copies",
    type=placed_copy,
    multiple=True,
    metavar="COORDS@OFFSET",
    help="A copy that brings the tile, such as 64,0@8192; may be repeated. [default: one, to its start]",
)
@click.option("--major", metavar="K|MN", help="How the instruction reads it. [default: K]")
@click.option("--tile-major", metavar="K|MN", help="The dimension that is innermost in the map. [default: as --major]")
@click.option("--rows", type=number, metavar="N", help="mn that the instruction reads. [default: all, up to 256]")
@click.option("--k", type=number, metavar="N", help="k that the instruction reads. [default: 32 bytes]")
@click.option(
    "--origin", type=pair, default="0,0", metavar="MN,K", help="The first element that it reads. [default: 0,0]"
)
@click.option("--read-as", metavar="TYPE", help="Element type that the tensor core reads, if the map has another.")
@output_options
def check(
    word: int, source: tuple[str, ...], asked: MapArguments | None, smem_address: int, copies: Any, major: Any,
    tile_major: Any, rows: int | None, k: int | None, origin: Any, read_as: str | None, output: Output,
) -> int:  # fmt: skip
    """Say whether the bytes that TMA wrote are the bytes that the descriptor WORD reads, and if not, why.

    \b
    tilescope mma check 0x4000004000010040 map.bin --smem-address 0x400
    tilescope mma check 0x4000004000010040 --smem-address 0x400 --type bf16 \\
        --dims 64,64 --box 64,64 --swizzle 128B

    The tensor map is described by options or by SOURCE, as for `tilescope check`. Exit status 1: they do not agree.
    """  # noqa: D301  \b keeps the lines below it apart
    tensor_map = described(source, asked).tensor_map()
    readings = descriptor_readings(word).readings
    sound = [reading.descriptor for reading in readings if reading.major is not None and reading.sound]
    if not sound:
        raise RuleError(each.violations[0] for each in readings if each.major is not None)
    found = compatible(
        tensor_map, sound[0], major=major, tile_major=tile_major, rows=rows, k=k, origin=origin,
        smem_address=smem_address, copies=copies or None, data_type=read_as,
    )  # fmt: skip
    output.show(found)
    return 0 if found.agrees else 1
