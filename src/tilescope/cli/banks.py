"""`tilescope banks`: what access patterns cost on a layout, and which layouts cure them."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.layout_text import layout_text_options
from tilescope.cli.options import byte_count, output_options, rows_and_columns
from tilescope.cli.output import Output
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.layout import ATOM_ORDERS, AtomOrder
from tilescope.notation import parse_layout, parse_modes
from tilescope.smem.access import Access
from tilescope.smem.search import find_layouts
from tilescope.smem.tile import cured_report, layout_as_written, require_aligned_rows, tile_report


@click.command()
@click.argument("tile", type=rows_and_columns, required=False)
@click.argument("data_type", metavar="[TYPE]", required=False)
@click.option("--pattern", "patterns", multiple=True, metavar="P", help="An access; may be repeated.")
@click.option("--layout", "text", metavar="TEXT", help="The layout in any notation, in place of tile and type.")
@click.option("--tv", metavar="TEXT", help="An access: (thread, value) → index of the layout, as CuTe writes it.")
@click.option("--op", metavar="OP", help="What --tv loads or stores with. [default: the widest load]")
@click.option("--swizzle", default="none", metavar="MODE", help="Swizzle of the tile. [default: none]")
@click.option("--pad", type=byte_count, metavar="BYTES", help="Padding after each row of an atom.")
@click.option(
    "--atom",
    type=rows_and_columns,
    metavar="RxC",
    help="Stored whole, in elements. [default: columns of the mode's span]",
)
@click.option("--atom-order", type=click.Choice(ATOM_ORDERS), default="column", show_default=True)
@layout_text_options
@click.option("--fix", is_flag=True, help="Search for layouts that serve all patterns.")
@click.option(
    "--max-padding", type=byte_count, default="128", metavar="BYTES", help="Widest padding to try. [default: 128]"
)
@output_options
def banks(
    tile: tuple[int, int] | None,
    data_type: str | None,
    patterns: tuple[str, ...],
    text: str | None,
    tv: str | None,
    op: str | None,
    swizzle: str,
    pad: int | None,
    atom: tuple[int, int] | None,
    atom_order: AtomOrder,
    beside: dict[str, Any],
    fix: bool,
    max_padding: int,
    output: Output,
) -> int:
    """Count the shared-memory wavefronts of patterns on a TILE such as 64x64 (rows x columns) of TYPE such as bf16.

    \b
    A pattern is one of
      "st.b128 rows", "ld.b32 columns"   lanes beside or below each other
      "ld.b32 lanes 8x4"                 lanes as 8 rows x 4 pieces of 4 bytes
      transpose                          single elements, column by column
      ldmatrix.x4, ldmatrix.x2.trans     a walk over the tile
      stmatrix.x4                        an epilogue
      "mma.m16n8k16 A bf16"              registers loaded straight from the tile
                                         (A.trans: MN-major)
      "ld.b32: lane * 33 * 4"            an expression of lane; it needs no tile

    \b
    tilescope banks 64x64 bf16 --swizzle 128B --pattern ldmatrix.x4
    tilescope banks 32x32 f32 --pattern transpose --pattern "st.b32 rows" --fix
    tilescope banks --pattern "ld.b32: lane * 33 * 4"
    tilescope banks --layout "(64,64):(72,1)" --bits 16 --pattern ldmatrix.x4
    tilescope banks --layout "(32,32):(32,1)" --bits 32 --tv "(32,32):(1,32)"

    Exit status 1: --fix found no layout without conflicts.
    """  # noqa: D301  \b keeps the lines below it apart
    if not patterns and tv is None:
        raise click.UsageError("say what is accessed: --pattern P, or --tv TEXT of a --layout.")
    if text is not None and tile is not None:
        raise click.UsageError("--layout takes the place of the tile: give one of them.")
    if text is None and tv is not None:
        raise click.UsageError("--tv is a thread-value layout of a tile: give the tile as --layout TEXT.")
    if fix and (tv is not None or (tile is None and text is None)):
        raise click.UsageError("--fix needs a tile, such as 64x64 bf16, or a --layout, and patterns alone.")
    if tile is None and text is None:
        output.show(tile_report([Access.named(each) for each in patterns]))
        return 0
    if text is not None:
        layout = parse_layout(text, **beside)
        tile = layout.as_rows().shape
    elif data_type is None or tile is None:
        raise click.UsageError("a tile needs the type of its elements, such as 64x64 bf16.")
    else:
        bits = DataType.named(data_type).smem_bits
        layout = layout_as_written(tile, bits, swizzle, pad, atom, atom_order, beside["start"])
    accesses = [Access.named(pattern, tile, layout.element_bits) for pattern in patterns]
    accesses += [] if tv is None else [Access.thread_values(parse_modes(tv), layout, op)]
    try:
        report = tile_report(accesses, layout)
    except RuleError:
        require_aligned_rows(accesses, layout, pad or 0)
        raise
    if not fix:
        output.show(report)
        return 0
    search = find_layouts(accesses, tile=tile, element_bits=layout.element_bits, max_padding_bytes=max_padding)
    cured = cured_report(accesses, layout, search.best.layout) if report.excess > search.best.excess else None
    output.show(report, extra={"search": search.to_dict()}, search=search, cured=cured)
    return 0 if search.conflict_free else 1
