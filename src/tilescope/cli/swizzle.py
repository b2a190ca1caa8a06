"""`tilescope swizzle`: a mode's table, rule, limits and codes."""

from __future__ import annotations

import click

from tilescope.cli.options import completing, output_options, smem_address_option
from tilescope.cli.output import Output
from tilescope.swizzle import SWIZZLE, Swizzle


@click.command()
@click.argument("mode", shell_complete=completing(SWIZZLE))
@smem_address_option(None, "Shared address of the first line drawn. [default: 0]")
@output_options
def swizzle(mode: str, start: int | None, output: Output) -> None:
    """Show the swizzle MODE: where each chunk of a line lies, the rule, limits, codes and sources.

    MODE is none, 32B, 64B, 96B, 128B, 128B_ATOM_32B, 128B_ATOM_32B_FLIP_8B, 128B_ATOM_64B, a driver name
    such as CU_TENSOR_MAP_SWIZZLE_128B, or any XOR swizzle on byte addresses as xor:B,M,S (CuTe's Swizzle<B,M,S>).
    """
    found = Swizzle.named(mode)
    extra = {} if start is None else {"address": hex(start), "base_offset": found.base_offset(start)}
    output.show(found, extra=extra, address=start or 0)
