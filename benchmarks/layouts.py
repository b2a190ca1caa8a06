"""Time building, evaluating, parsing and converting one layout. Ratios are to the first peer's time for one offset.

python benchmarks/layouts.py
"""

import numpy as np
from ratio import PEERS, Work, optional, print_ratios, run, sized

import tilescope as ts

REPEATS = sized(500, tiny=2)
ATOM = "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"
TRITON = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"


def often(name, call):
    return Work(name, lambda: [call() for _ in range(REPEATS)], units=REPEATS)


def main():
    tile = ts.Layout((64, 128), 16, atom=(8, 64), swizzle="128B", start=0x400)
    rows, columns = np.ix_(np.arange(64), np.arange(128))
    print_ratios(
        "one layout",
        *others(),
        often("Layout((64, 64), 16)", lambda: ts.Layout((64, 64), 16)),
        often("… in atoms, swizzled", lambda: ts.Layout((64, 128), 16, atom=(8, 64), swizzle="128B", start=0x400)),
        often("address of one element", lambda: tile.address(5, 77)),
        Work("… of 8192 elements, per element", lambda: tile.address(rows, columns), units=8192),
        often("parse_layout, CuTe", lambda: ts.parse_layout(ATOM)),
        often("parse_layout, Triton", lambda: ts.parse_layout(TRITON)),
        often("convert_layout, CuTe to Triton", lambda: ts.convert_layout(ATOM, "triton")),
    )


def others():
    """One offset of the same tile, computed by other libraries."""
    for module, command in PEERS.items():
        if theirs := optional(module, command):
            layout, swizzle = theirs.Layout((64, (64, 2)), (64, (1, 4096))), theirs.Swizzle(3, 3, 3)
            yield often(f"{module}: one offset", lambda layout=layout, swizzle=swizzle: swizzle(layout(5 + 64 * 77)))


if __name__ == "__main__":
    run(main)
