"""The inputs that several questions have."""

from __future__ import annotations

from dataclasses import replace

from tilescope.data_type import DATA_TYPE
from tilescope.layout import ATOM_ORDERS, MAJORS
from tilescope.questions.question import Input
from tilescope.written import number, pair, smem_address, tile

TYPE = Input(
    "data_type",
    "--type",
    "Element type",
    "such as bf16, u8, e4m3, or a driver's name.",
    choices=tuple(DATA_TYPE),
    is_open=True,
)
ELEMENT_TYPE = replace(TYPE, option="")
SMEM_ADDRESS = Input("smem_address", "--smem-address", "Shared address", read=smem_address, is_hex=True)
START = replace(SMEM_ADDRESS, option="--smem-address --address", argument="start")  # where nothing else has an address
TILE = Input("tile", "", "Tile", "in elements, mn x k.", read=tile)
MAJOR = Input("major", "--major", "Contiguous dimension", choices=MAJORS)
ELEMENT = Input("element", "--element", "Mark element", "as mn,k.", read=pair)
ATOM_ORDER = Input(
    "atom_order",
    "--atom-order",
    "Atom order",
    "with column, atoms along the strided dimension follow each other.",
    choices=ATOM_ORDERS,
)
# What the text of a layout may leave unsaid.
ELEMENT_BITS = Input("element_bits", "--bits", "Bits of an element", "if the text does not say.", read=number)
LAYOUT_SHAPE = Input("shape", "--shape", "Tile", "mn x k, if the text does not say.", read=tile)
LAYOUT_MAJOR = replace(MAJOR, hint="if the text does not say.", unsaid="K")
UNIT = Input(
    "unit",
    "--unit",
    "Unit of the swizzle",
    "of CuTe's Python form, which does not say.",
    unsaid="bytes",
    choices=("bytes", "elements"),
)
LAYOUT_BESIDE = (ELEMENT_BITS, LAYOUT_SHAPE, LAYOUT_MAJOR, UNIT, START)
