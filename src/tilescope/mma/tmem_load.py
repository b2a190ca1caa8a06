"""Which thread gets an element of tensor memory, in which register, by which tcgen05.ld.

D of 128 x 64, layout D          tcgen05.ld.32x32b.x32: 32 lanes, 32 columns
element (m 37, n 40)             lane 37, column 40
  warp 1                         the quarter of lanes 32 to 63
  address 0x00200020             its first lane, and the first column of the second load
  lane 5, register 8             lane 37 - 32, column 40 - 32
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.mma.fragment import fragment
from tilescope.mma.tmem_address import CELL_BITS, QUARTER_LANES, TmemAddress
from tilescope.mma.tmem_form import TMEM_PACK, directed_move
from tilescope.mma.tmem_layout import TmemLayout

PACKED_WHOLE_CELLS = TMEM_PACK.worded(
    found="{opcode} of {operand} with elements of {element_bits:bit}",
    limit="it takes the low halves of cells, which hold whole elements of a 16-bit D alone",
    fix="Leave .pack::16b out.",
)


class LoadedElement(NamedTuple):
    """The load of an element, and its place afterwards."""

    instruction: str
    cta: int  # the block of a pair
    warp: int  # modulo 4
    lane: int  # of the warp
    register: int
    bit: int  # the element's lowest in the register
    address: int  # the word that the warp passes to the load


def loaded_element(layout: TmemLayout, row: int, column: int, form: str) -> LoadedElement:
    """The load of a form such as "32x32b.x32" that loads an element, and the thread that then holds it.

    Loads follow each other from the matrix's first column on; the second part of .16x32bx2 follows its first, as in
    CuTe. If several lanes have an element, the first one is used.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> found = loaded_element(tmem_layout((128, 64)), 37, 40, "32x32b.x32")
    >>> found.warp, found.lane, found.register, hex(found.address)
    (1, 5, 8, '0x200020')
    """
    move = directed_move("ld", form)
    if move.packed and not fills_low_halves(layout):
        raise PACKED_WHOLE_CELLS.error(opcode=move.opcode, operand=layout.operand, element_bits=layout.element_bits)
    place = layout.place(row, column)
    lane = place.lanes[0]
    quarter, lane_of_quarter = divmod(lane, QUARTER_LANES)
    first_lane = lane - lane_of_quarter % move.form.lanes
    columns = move.columns * move.form.places
    load, column_of_load = divmod(place.column - layout.base.column, columns)
    matrix, column_of_place = divmod(column_of_load, move.columns)
    load_fragment = fragment(move.opcode)
    thread, value = load_fragment.holder(lane - first_lane, column_of_place, matrix)
    register, bit = load_fragment.register_of(value)
    first_column = layout.base.column + load * columns
    return LoadedElement(
        instruction=move.opcode,
        cta=place.cta,
        warp=quarter,
        lane=thread,
        register=register,
        bit=bit + place.bit,
        address=TmemAddress(first_lane, first_column).encode(),
    )


def fills_low_halves(layout: TmemLayout) -> bool:
    """Whether cells hold an element in their low half and nothing else, as a load with .pack::16b needs it."""
    return layout.operand == "D" and layout.element_bits == CELL_BITS // 2
