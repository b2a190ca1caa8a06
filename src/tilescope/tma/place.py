"""One element of a copy: its shared address, and the one that an XOR of the offset would give.

smem_address = 0x480, 128B          row 0, column 8 of the box
    address  (0x480 + 16)  XOR      0x480       what TMA and the tensor core do
    offset    0x480 + (16  XOR)     0x490       an XOR of the offset from the buffer's start: the wrong element
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilescope.errors import RuleError, argument_range
from tilescope.reading import integer
from tilescope.tma.tracing import Holds, Origin, Trace, first_bit_in_box
from tilescope.value import Value, hex_field


@dataclass(frozen=True, slots=True)
class Place(Value):
    """What a copy stores at a shared address, and where code that XORs offsets would look for it."""

    holds: Holds
    element: tuple[int, int] | None  # (row, column) of the box in shared memory; None in a gap
    coords: tuple[int, ...] | None  # of the tensor, innermost first
    byte: int | None  # within the element
    element_instead: tuple[int, int] | None  # the element at the XOR of the offset
    address: int = hex_field()
    offset_xor_address: int | None = hex_field(default=None)
    source_offset: int | None = hex_field(default=None)  # from the tensor's first byte
    first_bit: int | None = None  # of the element in that byte; above 0 only for elements of 4 and 6 bits


def place_at(trace: Trace, address: int) -> Place:
    """The element at a shared address.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    >>> found = place_at(ts.trace(a, (0, 16), smem_address=0x480), 0x490)
    >>> found.element, found.coords, hex(found.offset_xor_address), found.element_instead
    ((0, 0), (0, 16), '0x480', (0, 8))
    """
    address = integer("address", address)
    origin = trace.element_at(address)
    element = _element(trace, origin)
    instead = None
    element_instead = None
    if element is not None:
        swizzle = trace.tensor_map.swizzle
        logical = swizzle.apply(address)
        instead = trace.smem_address + swizzle.apply(logical - trace.smem_address)
        element_instead = _element(trace, trace.element_at(instead))
    return Place(
        holds=origin.holds,
        element=element,
        coords=origin.coords,
        byte=origin.byte,
        first_bit=None if element is None else 0,
        element_instead=element_instead,
        address=address,
        offset_xor_address=instead,
        source_offset=origin.source_offset,
    )


def place_of(trace: Trace, row: int, column: int) -> Place:
    """The address of the first byte of a box's element; rows are counted in the order of shared memory.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    >>> hex(place_of(ts.trace(a, (0, 16), smem_address=0x400), 1, 8).address)
    '0x480'

    Elements of 4 bits share a byte:

    >>> packed = ts.TensorMap("16u4_align8b", (256, 8), (128,), (256, 8), arch="sm_100")
    >>> found = place_of(ts.trace(packed), 1, 33)
    >>> hex(found.address), found.first_bit, found.element, found.coords
    ('0x90', 4, (1, 33), (33, 1))
    """
    for name, number, count in (("row", row, trace.rows), ("column", column, trace.row_elements)):
        if not 0 <= integer(name, number) < count:
            limit = f"the box has {count} {name}s" if count > 1 else f"the box has one {name}"
            fix = f"Use a {name} from 0 to {count - 1}." if count > 1 else f"Use {name} 0."
            raise RuleError([argument_range("element", (row, column), limit, fix)])
    place = place_at(trace, trace.address_in_box(row, column))
    first_bit = first_bit_in_box(trace, column)
    if not first_bit or place.element is None or place.coords is None:
        return place
    _, first_of_byte = place.element
    coords = (place.coords[0] + column - first_of_byte, *place.coords[1:])
    return replace(place, element=(row, column), coords=coords, byte=0, first_bit=first_bit)


def _element(trace: Trace, origin: Origin) -> tuple[int, int] | None:
    """(row, column) of the box."""
    if origin.row is None or origin.coords is None or origin.byte is None:
        return None
    if trace.tensor_map.interleave.slice_bytes:
        return origin.row, origin.byte * 8 // trace.tensor_map.data_type.bits
    return origin.row, origin.coords[0] - trace.coords[0]
