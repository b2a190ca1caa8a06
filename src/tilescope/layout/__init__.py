"""The addresses of elements in shared memory: one value for every tile, in any notation.

modes.py    nested shape:stride and its algebra
tiling.py   a tile as rows and columns; the modes that are a grid of equal atoms
checks.py   what a layout may be made of
layout.py   Layout: modes in bits, a swizzle of byte addresses, a start
terms.py    the address as data, printed in C, Python and PTX
"""

from tilescope.layout.checks import TILE_ATOMS
from tilescope.layout.layout import Layout
from tilescope.layout.modes import IntTree, Modes, as_modes
from tilescope.layout.terms import AddressTerms, Term
from tilescope.layout.tiling import (
    ATOM_ORDERS,
    ELEMENT_BITS,
    MAJORS,
    MAX_INDICES,
    AtomOrder,
    Major,
    Tiling,
    major_named,
    oriented,
)

__all__ = [
    "ATOM_ORDERS",
    "ELEMENT_BITS",
    "MAJORS",
    "MAX_INDICES",
    "TILE_ATOMS",
    "AddressTerms",
    "AtomOrder",
    "IntTree",
    "Layout",
    "Major",
    "Modes",
    "Term",
    "Tiling",
    "as_modes",
    "major_named",
    "oriented",
]
