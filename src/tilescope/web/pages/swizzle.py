"""The page of swizzle modes: where each chunk of a line lies, walked chunk by chunk."""

from __future__ import annotations

from typing import Any

from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.view.swizzle_view import logical_grid
from tilescope.web.call import Call
from tilescope.web.field import PAGE_LIMIT, Field, integer
from tilescope.web.page import Answer, Page, Step, drawn

_SMEM_ADDRESS_END = 1 << 32


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """The mode's pattern from the address on; the walk visits every piece in the order in which a program counts."""
    address = asked["address"]
    if not 0 <= address < _SMEM_ADDRESS_END:
        raise PAGE_LIMIT.error("address", f"address = {address:#x}", "a shared address has 32 bits", "Use 0x0.")
    call = Call(Swizzle.named, (asked["mode"],), name="swizzle")
    swizzle = call.run()
    drawing = drawn(swizzle, address=address)
    cells = [cell for row in logical_grid(swizzle, address).rows for cell in row.cells]
    command = ("swizzle", asked["mode"], *(("--address", hex(address)) if address else ()))
    return Answer(call, command, swizzle, drawing, steps=tuple(Step(cell.link, cell.title) for cell in cells))


PAGE = Page(
    "swizzle",
    "Swizzle",
    "Where each 16-byte chunk of a line lies in shared memory, under a mode of the hardware or any XOR.",
    {
        "": (
            Field(
                "mode", "Mode", "128B", choices=tuple(SWIZZLE),
                hint="A mode, a driver name, or xor:B,M,S: CuTe's Swizzle<B,M,S> on byte addresses.",
            ),
            Field("address", "Shared address", "0x0", integer, hint="Where the tile starts."),
        )
    },
    answer,
)  # fmt: skip
