"""A CuTe layout, as text, to a picture: the swizzle that CuTe prints, drawn in the terminal and as an SVG file.

CuTe prints layouts as `Sw<2,4,3> o smem_ptr[16b](unset) o (8,32):(32,1)`. The same layout has a name in Triton and in the driver.

    $ python examples/cute_picture.py
    cute    Sw<2,4,3> o smem_ptr[16b](unset) o (_8,_32):(_32,_1)
    triton  #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
    driver  CU_TENSOR_MAP_SWIZZLE_64B
    Operand 8 x 32 (mn x k), 16-bit elements, K-major 64B

    k is contiguous. An atom of 8 x 32 (mn x k) elements is stored whole in 512
    bytes, 8 rows along mn of 64 bytes each; the 64B swizzle then moves pieces of 16
    bytes by their address. Order column: atoms along the strided dimension follow
    each other in shared memory.

    Where each atom starts              One atom, by element
     mn k   0-31                        mn k   0     8     16    24
    0-7   0x0000*                        0   0x000 0x010 0x020 0x030
    The marked atom is drawn in full.    1   0x040 0x050 0x060 0x070
                                         2   0x090 0x080 0x0b0 0x0a0
                                         3   0x0d0 0x0c0 0x0f0 0x0e0
                                         4   0x120 0x130 0x100 0x110
                                         5   0x160 0x170 0x140 0x150
                                         6   0x1b0 0x1a0 0x190 0x180
                                         7   0x1f0 0x1e0 0x1d0 0x1c0
                                        A cell is a 16-byte chunk and says
                                        its address. Colour: the four banks
                                        that hold it.

    The same atom, by shared memory
      byte bank   0    4    8   12   16   20   24   28
    0x0000       0,0  0,8 0,16 0,24  1,0  1,8 1,16 1,24
    0x0080       2,8  2,0 2,24 2,16  3,8  3,0 3,24 3,16
    0x0100      4,16 4,24  4,0  4,8 5,16 5,24  5,0  5,8
    0x0180      6,24 6,16  6,8  6,0 7,24 7,16  7,8  7,0
    A cell names the mn,k that its piece starts with.
    Colour: the core matrix, a column of chunks.

    size         512 bytes; 1 x 1 atoms (mn x k)
    core matrix  8 x 8 (mn x k), 4 side by side in an atom
    leading      16 bytes (ignored: inside a swizzled atom k is contiguous, and one
                 instruction stays inside)
    stride       512 bytes from the atom at (mn 0, k 0) to the next 8 mn, at (mn 8,
                 k 0)
    alignment    512 bytes, for base offset 0
    read by      wgmma, tcgen05, ldmatrix
    basis        measured
"""

import sys
from pathlib import Path

import tilescope as ts

PRINTED = "Sw<2,4,3> o smem_ptr[16b](unset) o (8,32):(32,1)"

layout = ts.parse_layout(PRINTED, element_bits=16)
for notation in ("cute", "triton", "driver"):
    print(f"{notation:8}{ts.spell_layout(layout, notation)}")

if len(sys.argv) > 1:  # python cute_picture.py layout.svg
    Path(sys.argv[1]).write_text(layout.svg(), "utf-8")
else:
    print(layout)
