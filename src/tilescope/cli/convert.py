"""`tilescope convert`: a layout from one notation to another, every address compared."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.layout_text import layout_text_options
from tilescope.cli.options import output_options
from tilescope.cli.output import STDOUT, Output
from tilescope.errors import RuleError
from tilescope.notation import NOTATION, NoEquivalent, convert_layout, parse_layout


@click.command()
@click.argument("text")
@click.option(
    "--to", "notation", required=True, type=click.Choice(list(NOTATION)), metavar="NOTATION",
    help=f"The notation of the answer: {', '.join(NOTATION)}.",
)  # fmt: skip
@layout_text_options
@click.option("--draw", is_flag=True, help="Draw both layouts side by side.")
@output_options
def convert(text: str, notation: str, beside: dict[str, Any], draw: bool, output: Output) -> int:
    """Translate the layout TEXT into another notation, and prove it: all addresses are compared.

    TEXT is what CuTe prints (Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1), S<3,4,3> o 0 o (8,64):(64,1)), an
    atom's name (GMMA::Layout_K_SW128_Atom<half_t>), a Triton encoding (#ttg.nvmma_shared<{…}>), Mosaic's transforms,
    CU_TENSOR_MAP_SWIZZLE_128B, PTX's .swizzle_mode and .swizzle_atomicity, or Layout((64, 64), 16, swizzle="128B").

    Exit status 1, with the reason: there is no such text for this layout.
    """
    try:
        found = convert_layout(text, notation, **beside)
    except RuleError as refused:
        if any(violation.rule != "no-equivalent" for violation in refused.violations):
            raise
        reason = NoEquivalent(refused.violations)
        Output(as_json=True).show(reason) if output.as_json else click.echo(str(reason))
        if draw and not output.as_json:
            click.echo()
            output.show(parse_layout(text, **beside))
        return 1
    if not output.as_json and output.svg_path != STDOUT:
        click.echo(f"{found.result}\n")  # whole, on a line of its own, however narrow the terminal
    output.show(found, picture=draw or output.svg_path is not None)
    return 0
