"""One shared-memory layout in every notation: read it, write it, prove both texts mean the same addresses.

    "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"  ─┐
    "GMMA::Layout_K_SW128_Atom<half_t>"                      ├─ read ──▶ Layout ───── spell ──▶ any of them
    "#ttg.nvmma_shared<{swizzlingByteWidth = 128, ...}>"    ─┘             │
                                                              512 addresses, compared one by one

text.py               tokens of a text, with limits for whatever is pasted
hints.py              between a text and a layout: what the text leaves unsaid, what a layout must be to have one
cute.py               CuTe, as C++ and Python print it           cute_atom.py     GMMA and UMMA atoms by name
triton.py             the shared encodings of Triton             triton_text.py    how TTGIR and Gluon write them
linear.py             linear layouts as strides and one XOR      mosaic.py         Mosaic GPU's transforms
layout_call.py        tilescope's own Layout(...)                swizzle_names.py   mode names, the driver, PTX
layout_conversion.py  from one to another, with its proof
"""

from tilescope.notation.layout_conversion import (
    NOTATION,
    Conversion,
    NoEquivalent,
    assumption,
    convert_layout,
    parse_layout,
    parse_layout_assuming,
    parse_layout_or_modes,
    parse_modes,
    spell_layout,
)

__all__ = [
    "NOTATION",
    "Conversion",
    "NoEquivalent",
    "assumption",
    "convert_layout",
    "parse_layout",
    "parse_layout_assuming",
    "parse_layout_or_modes",
    "parse_modes",
    "spell_layout",
]
