"""`tilescope mma`: operands in shared memory, fragments in registers, descriptors of a K loop."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.options import extents, number, output_options, pair, smem_address_option
from tilescope.cli.output import Output
from tilescope.mma.canonical import canonical_layout
from tilescope.mma.fragment import fragment as fragment_of
from tilescope.mma.wgmma_loop import wgmma_descriptors

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
    instruction: str,
    operand: Any,
    data_type: str | None,
    lane: int | None,
    element: Any,
    output: Output,
) -> None:
    """Draw which thread holds which element, and what each thread holds.

    INSTRUCTION is such as mma.m16n8k16, wgmma.m64n128k16 or ldmatrix.x4.trans.
    """
    found = fragment_of(instruction, operand=operand, data_type=data_type)
    extra: dict[str, Any] = {"inverse": str(found.inverse)}
    if lane is not None:
        extra |= {"lane": lane, "holds": [list(coord) for coord in found.held_by(lane)]}
    if element is not None:
        holder, value = found.holder(*element)
        extra |= {"element": list(element), "holder": {"thread": holder, "value": value}}
    output.show(found, extra=extra, lane=lane, element=element)


@mma.command(short_help="List the wgmma descriptors of a K loop.")
@click.argument("tile", type=extents)
@click.argument("data_type", metavar="TYPE")
@_layout_options
@click.option("--operand", default="A", metavar="A|B", help="A is read in blocks of 64, B in one n. [default: A]")
@output_options
def descriptors(
    tile: Any, data_type: str, major: Any, swizzle: Any, atom_order: Any, start: int, operand: Any,
    output: Output,
) -> None:  # fmt: skip
    """List the wgmma descriptors that read an operand of TILE (mn x k) elements of TYPE, for the whole K loop."""
    loop = wgmma_descriptors(
        tile, data_type, major=major, swizzle=swizzle, atom_order=atom_order, operand=operand, smem_address=start
    )
    words = [[hex(each.encode()) for each in steps] for steps in loop]
    output.show(loop, extra={"descriptors": words, "words": list(loop.words)})
