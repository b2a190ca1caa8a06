"""`tilescope draw`: any layout or thread-value layout, in any notation."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.layout_text import layout_text_options
from tilescope.cli.options import output_options, pair
from tilescope.cli.output import Output
from tilescope.layout import Modes
from tilescope.notation import parse_layout, parse_layout_or_modes


@click.command()
@click.argument("text")
@layout_text_options
@click.option("--element", type=pair, metavar="MN,K", help="Say where this element lies.")
@click.option("--other", metavar="TEXT", help="A second layout of the same tile: what lies elsewhere is marked.")
@output_options
def draw(text: str, beside: dict[str, Any], element: tuple[int, int] | None, other: str | None, output: Output) -> None:
    """Draw the layout TEXT: where each piece of a tile lies in shared memory, or which thread holds what.

    \b
    tilescope draw "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"
    tilescope draw "CU_TENSOR_MAP_SWIZZLE_64B" --bits 16 --shape 64x32
    tilescope draw "((32,4),4):((16,4),1)" --bits 8
    tilescope draw "((4,8),(2,2)):((32,1),(16,8))" --shape 16x8
    tilescope draw "(64,64):(64,1)" --bits 16 --other "(64,64):(72,1)"

    TEXT is in any notation that `tilescope convert` reads. A shape and stride without --bits is a thread-value layout:
    thread and value lead to an index of the tile, whose first index runs fastest; --shape draws who holds each element.
    """  # noqa: D301  \b keeps the lines below it apart
    found = parse_layout_or_modes(text, **beside)
    if isinstance(found, Modes):
        output.show(found, shape=beside["shape"])
    else:
        output.show(found, element=element, other=None if other is None else parse_layout(other, **beside))
