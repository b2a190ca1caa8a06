"""The element at an address: of a box that a tensor copy moves through shared memory, or of an array in global memory.

    shared address 0x1234      row 37, columns 8 to 15 of the box at (0, 64) of args[0]
    global address 0x7f…d4     element [3, 5] of args[2]

The tensor map of a copy determines where each element is, with any swizzle. Boxes of im2col maps are left out: their pixels
depend on offsets that the run does not record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.execution.records import RECORDS_KEPT, CopyRecord
from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import Region
from tilescope.machine.report.places import name_array, name_owner
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.race import Conflict
from tilescope.tensor_map import AnyMap, TensorMap
from tilescope.tma import Trace, trace
from tilescope.tma.tracing import Operation, Origin


class Element(NamedTuple):
    """Adjacent elements: their name in a message, and the values of a finding."""

    name: str
    facts: dict[str, Any]


def box_trace(tensor_map: AnyMap, coords: tuple[int, ...], address: int, *, is_load: bool = True) -> Trace | None:
    """The addresses of a box's elements in shared memory; None if the map does not determine them."""
    if not isinstance(tensor_map, TensorMap):
        return None
    is_gathered = len(coords) != tensor_map.rank
    operation: Operation = "load" if is_load else "store"
    if is_gathered:
        operation = "gather4" if is_load else "scatter4"
    try:
        return trace(tensor_map, coords, smem_address=address, operation=operation)
    except RuleError:
        return None


def name_elements(first: Origin, last: Origin, traced: Trace) -> str | None:
    """Name the elements of a box between two bytes by row and columns, or by coordinates, innermost first; None for a gap.

    >>> import tilescope as ts
    >>> traced = ts.trace(ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B"), (0, 32), smem_address=0x400)
    >>> name_elements(traced.element_at(0x490), traced.element_at(0x49F), traced)
    'row 1, columns 0 to 7 of the box at (0, 32)'
    """
    if first.coords is None or last.coords is None or first.row != last.row:
        return None
    low, high = sorted((first.coords, last.coords))
    box = f"the box at {traced.coords}" if len(traced.coords) > 1 else f"the box at {traced.coords[0]}"
    if len(low) == len(traced.coords):
        low = _relative(low, traced.coords)
        high = _relative(high, traced.coords)
    else:
        box = f"the rows {traced.coords[1:]} from column {traced.coords[0]} on"
    if len(low) == 2 and len(traced.coords) == 2:
        columns = f"column {low[0]}" if low == high else f"columns {low[0]} to {high[0]}"
        name = f"row {low[1]}, {columns} of {box}"
    elif low == high:
        name = f"element {_format_coords(low)} of {box}"
    else:
        name = f"elements {_format_coords(low)} to {_format_coords(high)} of {box}"
    return f"{name} (fill, outside the tensor)" if first.holds == "fill" else name


def _relative(coords: tuple[int, ...], corner: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(coord - start for coord, start in zip(coords, corner, strict=True))


def _format_coords(coords: tuple[int, ...]) -> str:
    return str(coords[0]) if len(coords) == 1 else str(coords)


def tile_element(launch: Launch, conflict: Conflict) -> Element | None:
    """The element of a data race in shared memory, if a copy is one of the two accesses or wrote the bytes last."""
    if conflict.address is None or launch.detector is None:
        return None
    record = _find_copy(launch, conflict, conflict.address)
    if record is None:
        return None
    offset = conflict.address % launch.shared_stride
    start = record.shared_address & SHARED_OFFSET_MASK
    last = offset + launch.detector.shared_cell_bytes - 1
    if record.map_number is None or record.coords is None:
        return _copied_element(launch, record, offset - start)
    tensor_map = launch.maps[record.map_number]
    traced = box_trace(tensor_map, record.coords, start, is_load=record.kind == "load")
    if traced is None:
        return None
    first_origin = traced.element_at(offset)
    name = name_elements(first_origin, traced.element_at(last), traced)
    if name is None:
        return None
    owner = map_owner(launch, tensor_map)
    facts = {
        "coords": first_origin.coords,
        "box": record.coords,
        "holds": first_origin.holds,
        "map_number": record.map_number,
        "tensor": owner,
    }
    return Element(f"{name} of {owner}", facts)


def map_owner(launch: Launch, tensor_map: AnyMap) -> str:
    """The argument that holds the tensor of a map, or the address of the tensor."""
    region = launch.memory.region_at(tensor_map.address)
    owner = None if region is None else name_owner(launch, region)
    return f"the tensor at {tensor_map.address:#x}" if owner is None else owner


def _copied_element(launch: Launch, record: CopyRecord, offset: int) -> Element | None:
    """The element of global memory that a bulk copy moves to or from an offset of its destination or source in shared memory."""
    assert launch.detector is not None
    if record.other_address is None:
        return None
    address = record.other_address + offset
    region = launch.memory.region_at(address)
    if region is None or region.array.dtype.itemsize == 1:
        return None
    return array_element(launch, region, address, launch.detector.shared_cell_bytes)


def _find_copy(launch: Launch, conflict: Conflict, address: int) -> CopyRecord | None:
    """The copy that moves the byte at an address: one of the two accesses, or the last writer."""
    if conflict.copies_made >= RECORDS_KEPT:
        return None  # later copies were not recorded
    rank, offset = divmod(address, launch.shared_stride)
    sides = [side.pc for side in (conflict.now, conflict.before) if side is not None]
    pcs = {*sides} if conflict.writer_pc is None else {*sides, conflict.writer_pc}
    copies: dict[int, CopyRecord] = {}
    for record in launch.copies[: conflict.copies_made]:
        start = record.shared_address & SHARED_OFFSET_MASK
        is_here = record.shared_address >> SHARED_RANK_SHIFT == rank and start <= offset < start + record.bytes
        if record.pc in pcs and is_here and _is_one_cluster(launch, record.block, conflict.block):
            copies[record.pc] = record
    for pc in (*sides, conflict.writer_pc):
        if pc in copies:
            return copies[pc]
    return None


def _is_one_cluster(launch: Launch, block: BlockIndex, other: BlockIndex) -> bool:
    pairs = zip(block, other, launch.cluster, strict=True)
    return all(index // extent == other_index // extent for index, other_index, extent in pairs)


def array_element(launch: Launch, region: Region, address: int, size_bytes: int) -> Element:
    """The elements of an array that contain the `size_bytes` bytes at an address."""
    array = region.array
    first = (address - region.address) // array.dtype.itemsize
    last = (min(address + size_bytes, region.end) - 1 - region.address) // array.dtype.itemsize
    owner = name_owner(launch, region)
    facts = {"index": _index(region, first), "elements": last - first + 1, "array": owner}
    name = name_array(launch, region) if owner is None else owner
    elements = f"element {_format_index(_index(region, first))}"
    if first != last:
        elements = f"elements {_format_index(_index(region, first))} to {_format_index(_index(region, last))}"
    return Element(f"{elements} of {name}", facts)


def _index(region: Region, number: int) -> tuple[int, ...]:
    """The index along each axis of an element, by its number."""
    return tuple(int(coordinate) for coordinate in np.unravel_index(number, region.array.shape))


def _format_index(index: tuple[int, ...]) -> str:
    """An index as numpy writes it.

    >>> _format_index((7,)), _format_index((3, 5))
    ('7', '[3, 5]')
    """
    return str(index[0]) if len(index) == 1 else str(list(index))
