"""The inputs of questions about tiles in shared memory and in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilescope.inputs import START, TYPE, Input
from tilescope.layout import ATOM_ORDERS, MAJORS
from tilescope.mma.consumer import CONSUMER
from tilescope.reading import known_name
from tilescope.swizzle import SWIZZLE
from tilescope.written import number, pair, tile, word

_READERS = {name: row.descriptors for name, row in CONSUMER.items() if row.descriptors is not None}
FIRST_READER = next(iter(_READERS))

TILE = Input("tile", "", "Tile", "in elements, mn x k.", tile)
ELEMENT_TYPE = replace(TYPE, option="")
MAJOR = Input("major", "--major", "Contiguous dimension", default="K", choices=MAJORS)
ELEMENT = Input("element", "--element", "Mark element", "as mn,k.", pair)
ATOM_ORDER = Input(
    "atom_order", "--atom-order", "Atom order",
    "with column, atoms along the strided dimension follow each other.", default="column", choices=ATOM_ORDERS,
)  # fmt: skip

# What the text of a layout may leave unsaid.
LAYOUT_TEXT = (
    Input("element_bits", "--bits", "Bits of an element", "if the text does not say.", number),
    Input("shape", "--shape", "Tile", "mn x k, if the text does not say.", tile),
    replace(MAJOR, hint="if the text does not say."),
    Input(
        "unit",
        "--unit",
        "Unit of the swizzle",
        "of CuTe's Python form, which does not say.",
        default="bytes",
        choices=("bytes", "elements"),
    ),
    START,
)
DRAWN_LAYOUT = (
    Input("text", "", "Layout", "CuTe, Triton, Gluon, Mosaic, PTX, the driver's names, Layout(…).", is_long=True),
    Input("other", "--other", "Compare with", "a second layout of the same tile.", is_long=True),
    *LAYOUT_TEXT,
)
BANK_TILE = (
    Input(
        "swizzle", "--swizzle", "Swizzle", "a mode, or xor:B,M,S.", default="none", choices=tuple(SWIZZLE), is_open=True
    ),
    Input("pad", "--pad", "Padding in bytes", "after each row of an atom.", number, "rows as TMA writes them"),
    Input("atom", "--atom", "Atom", "rows x columns that are stored as one piece.", tile),
    ATOM_ORDER,
    replace(MAJOR, hint="with MN, the first extent of the tile is contiguous."),
)
OPERAND = (
    TILE,
    ELEMENT_TYPE,
    MAJOR,
    Input("swizzle", "--swizzle", "Swizzle", default="128B", choices=("none", "32B", "64B", "128B", "128B_ATOM_32B")),
    ATOM_ORDER,
    START,
)
DESCRIPTORS = (
    *OPERAND,
    Input(
        "operand", "--operand", "Operand", "A is read in blocks of rows, B in one n.", default="A", choices=("A", "B")
    ),
    Input("reader", "--for", "Read by", default=FIRST_READER, choices=tuple(_READERS)),
)
FRAGMENT = (
    Input("instruction", "", "Instruction", choices=(
        "mma.m16n8k16", "mma.m16n8k8", "wgmma.m64n128k16", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4"), is_open=True),
    Input("operand", "--operand", "Operand", "of mma and wgmma.", default="none", choices=("A", "B", "C", "D")),
    replace(TYPE, hint="the operand's own, such as f32 for D.", default="none"),
    Input("lane", "--lane", "Mark thread", read=number),
)  # fmt: skip
WORD = (
    Input("word", "", "Word", "a number from a debugger.", word),
    MAJOR,
    replace(TYPE, default="bf16"),
)


def loop_of(reader: str = FIRST_READER) -> Callable[..., Any]:
    """The function that lists the descriptors with which a tensor core reads a tile."""
    return _READERS[known_name("reader", reader, tuple(_READERS))]
