"""`tilescope swizzle`: a mode's table, rule, limits and codes."""

from __future__ import annotations

from tilescope.cli.command import Output, command
from tilescope.inputs import MODE
from tilescope.inputs.beside import swizzle_facts
from tilescope.swizzle import Swizzle


@command(*MODE)
def swizzle(mode: str, output: Output, address: int = 0) -> int:
    """Show the swizzle MODE: where each chunk of a line lies, the rule, limits, codes and sources.

    MODE is none, 32B, 64B, 96B, 128B, 128B_ATOM_32B, 128B_ATOM_32B_FLIP_8B, 128B_ATOM_64B, a driver name
    such as CU_TENSOR_MAP_SWIZZLE_128B, or any XOR swizzle on byte addresses as xor:B,M,S (CuTe's Swizzle<B,M,S>).
    """
    row = Swizzle.named(mode)
    return output.show(row, extra=swizzle_facts(row, address), address=address)
