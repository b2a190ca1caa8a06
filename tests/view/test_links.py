"""Cells that share a link show the same bytes: the swizzle, the trace and the descriptor say so on their own."""

import re

import numpy as np
import pytest

from tilescope.mma.consumer import tcgen05_descriptors, wgmma_descriptors
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map import Im2colMap, TensorMap, inspect_tensor_map
from tilescope.tma import trace
from tilescope.tma.walk import row_coords
from tilescope.view import draw
from tilescope.view.descriptor_view import k_step_grid, step_link
from tilescope.view.ruler import byte_grid


def grids(drawing):
    """The grids that stand beside each other."""
    return drawing["grids"].parts


def cells(grid):
    return [cell for row in grid.rows for cell in row.cells]


def first_address(cell):
    return int(re.search(r"0x[0-9a-f]+", cell.title)[0], 16)


@pytest.mark.parametrize("mode", [*SWIZZLE, "xor:2,3,3", "xor:1,4,3", "xor:3,4,-3"])
@pytest.mark.parametrize("address", [0, 0x480])
def test_a_swizzles_partners_are_a_byte_and_where_it_lies(mode, address):
    swizzle = Swizzle.named(mode)
    logical, physical, *by_rows = grids(draw(swizzle, address=address))
    lies_at = {cell.link: first_address(cell) for cell in cells(physical)}
    for cell in cells(logical):
        if cell.link in lies_at:
            assert swizzle.apply(first_address(cell)) == lies_at[cell.link]
    assert len(set(lies_at) & {cell.link for cell in cells(logical)}) > len(lies_at) // 2
    for grid in by_rows:
        for cell in cells(grid):
            assert lies_at[cell.link] == first_address(cell)


MAPS = [
    (TensorMap("bf16", (64, 16), (128,), (64, 8), swizzle="128B"), (0, 4), ()),
    (TensorMap("bf16", (72, 16), (144,), (64, 8), swizzle="128B"), (16, 11), ()),
    (TensorMap("f16", (64, 16), (128,), (32, 8), swizzle="64B"), (24, 2), ()),
    (TensorMap("u8", (64, 9), (64,), (48, 4)), (32, 7), ()),
    (TensorMap("f32", (8, 9, 4), (32, 288), (8, 2, 2), swizzle="32B"), (0, 3, 1), ()),
    (
        Im2colMap(
            "bf16",
            (64, 6, 6, 2),
            (128, 768, 4608),
            lower_corner=(-1, -1),
            upper_corner=(-1, -1),
            channels_per_pixel=64,
            pixels_per_column=16,
            swizzle="128B",
        ),
        (0, -1, -1, 0),
        (1, 2),
    ),
]


@pytest.mark.parametrize(("tensor_map", "coords", "offsets"), MAPS)
def test_a_copys_partners_are_an_element_and_its_shared_address(tensor_map, coords, offsets):
    found = trace(tensor_map, coords, offsets=offsets)
    tensor, shared = grids(draw(found, lines=None))
    lies_at = {cell.link: place * 16 for place, cell in enumerate(cells(shared)) if cell.link}
    rows = row_coords(found.copy).tolist()
    per_chunk = 16 * 8 // tensor_map.data_type.bits
    for link, address in lies_at.items():
        row, chunk = map(int, link.split("."))
        element = [rows[row][0] + chunk * per_chunk, *rows[row][1:]]
        assert found.address_of(*element) == address
    linked = [cell for cell in cells(tensor) if cell.link]
    assert linked
    for cell in linked:
        for link in cell.link.split():
            assert link in lies_at
            where = list(map(int, re.findall(r"dim \d+: (-?\d+)", cell.title)))
            row = rows[int(link.split(".")[0])]
            assert where[-1] in row  # the cell's row of the tensor


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("atom_order", ["column", "row"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("loops", [wgmma_descriptors, tcgen05_descriptors])
def test_the_chunks_of_a_k_step_are_those_that_its_descriptor_reads(loops, swizzle, atom_order, major):
    loop = loops((128, 64), "bf16", swizzle=swizzle, major=major, atom_order=atom_order, smem_address=0x400)
    grid = k_step_grid(loop)
    linked = {}
    for place, cell in enumerate(cells(grid)):
        linked.setdefault(cell.link, set()).add(0x400 // 16 + place)
    for block, steps in enumerate(loop):
        for step, descriptor in enumerate(steps):
            read = descriptor.addresses(major, loop.block_mn, loop.k_per_step, 16)
            assert linked[step_link(block, step)] == set(np.unique(read // 16).tolist())


def test_every_byte_of_a_descriptor_is_linked_with_the_fields_in_it():
    blob = TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B", address=0x7F0000000000).encode()
    ruler = draw(inspect_tensor_map(blob))["ruler"]
    shown = cells(byte_grid(ruler, "", blob))
    assert bytes(int(cell.text, 16) for cell in shown) == blob
    for field in ruler.fields:
        bits = range(field.low, field.high + 1)
        assert {place for place, cell in enumerate(shown) if field.link in cell.link.split()} == {
            bit // 8 for bit in bits
        }
    for place, cell in enumerate(shown):
        if not cell.link:
            assert blob[place] == 0
