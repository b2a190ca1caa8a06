"""Tensor memory, its copies and scale factors lie where CuTe puts them, over whole domains.

cute_tensor_memory.tsv is what cute_tensor_memory.cpp prints, built from the headers of nvidia-cutlass 4.2; the slow test builds
it again. A line holds a number of places and the sum of (i + 1) times place i.
"""

from pathlib import Path

import numpy as np
import pytest

from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.fragment import fragment
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_copy import cp_shape
from tilescope.mma.tmem_layout import tmem_layout

HERE = Path(__file__).parent
RECORDED = [line.split("\t") for line in (HERE / "cute_tensor_memory.tsv").read_text("utf-8").splitlines()]


def extents(text):
    return tuple(int(each) for each in text.split("x"))


def matrix(operand, case, data_type):
    """All places of a block, row fastest; the copies of A count as further rows, as in CuTe."""
    name, shape = case.split()
    rows, columns = extents(shape)
    path = DATAPATHS[name]
    assert path.rows == rows
    layout = tmem_layout(
        (path.m, columns), operand=operand, data_type=data_type, cta_group=path.cta_group, ws=path.ws == (True,)
    )
    assert layout.datapath == name
    return layout.bit_addresses().transpose(1, 2, 0).ravel()


def metadata(data_type, m=128, ws=False):
    """All entries, row fastest; the copies of .ws count as further k, as in CuTe."""
    k = {"tf32": 16, "f16": 32, "e4m3": 64, "e2m1": 128}[data_type]
    layout = tmem_layout((m, k), operand="metadata", data_type=data_type, ws=ws)
    assert layout.shape[:2] == (m, k)
    return layout.bit_addresses().transpose(2, 1, 0).ravel()


def moved(direction, name):
    held = fragment(f"tcgen05.{direction}.{name}")
    place, lane, column = held.indices()
    return ((lane << 21) + ((column + place * held.shape[1]) << 5)).T.ravel()


def copied(name):
    shape = cp_shape(name)
    byte = np.arange(shape.row_bytes)
    lanes = shape.lanes
    return ((lanes.T[:, None, :] << 21) + (byte[None, :, None] << 3)).ravel()


def scales(case):
    block, shape = case.split()
    layout = scale_layout(*extents(shape), {"16": "nvfp4", "32": "mxfp8"}[block])
    return layout.offset(np.arange(layout.rows)[None, :], np.arange(layout.blocks)[:, None]).ravel()


def scales_in_tensor_memory(case):
    operand, *pair, shape = case.split()
    rows, blocks = extents(shape)
    layout = scale_layout(rows, blocks * 32, "mxfp8") if blocks == 1 else scale_layout(rows, blocks * 16, "nvfp4")
    placed = layout.tensor_memory(operand[-1], m=128, cta_group=2 if pair else 1)
    return placed.bit_addresses()[:rows, :blocks].transpose(1, 2, 0).ravel()


def scale_rows(operand, instruction):
    """The row or column of each lane, whatever the thread-id: lanes of all thread-ids together."""
    kind = {"m16n8k32": "mxfp8", "m16n8k64": "nvfp4"}[instruction]
    found = np.full(32, -1)
    for thread_id in range(2 if operand == "A" else 4):
        chosen = ScaleLanes(kind, operand, thread_id=thread_id)
        assert chosen.instruction == f"mma.{instruction}"
        found[list(chosen.lanes())] = np.arange(chosen.extent)
    return found


def places(what, case):
    match what.split():
        case ["D", *data_type]:
            return matrix("D", case, *(data_type or ["f32"]))
        case ["A", data_type]:
            return matrix("A", case, data_type)
        case ["metadata"]:
            return metadata(case)
        case ["metadata", "ws"]:
            data_type, m = case.split()
            return metadata(data_type, int(m), ws=True)
        case ["ld" | "st" as direction]:
            return moved(direction, case)
        case ["cp"]:
            return copied(case)
        case ["scales"]:
            return scales(case)
        case ["scales", "in", *_]:
            return scales_in_tensor_memory(case)
        case ["mma.sync", operand]:
            return scale_rows(operand[-1], case)
    raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "case", "count", "total"), RECORDED, ids=[f"{each[0]} {each[1]}" for each in RECORDED]
)
def test_places_are_those_of_cute(what, case, count, total):
    found = [int(each) for each in places(what, case)]
    assert len(found) == int(count)
    assert sum(number * place for number, place in enumerate(found, 1)) == int(total)


def test_every_form_and_count_of_ld_and_st_is_compared():
    recorded = {case.removesuffix(".pack::16b") for what, case, *_ in RECORDED if what == "ld"}
    counts = {"32x32b": 8, "16x64b": 8, "16x128b": 7, "16x256b": 6, "16x32bx2": 8}
    assert recorded == {f"{form}.x{1 << bit}" for form, bits in counts.items() for bit in range(bits)}
    assert sum(what == "ld" for what, *_ in RECORDED) == sum(what == "st" for what, *_ in RECORDED) == 74


@pytest.mark.slow
def test_cute_prints_the_recorded_places(printed_by_cute):
    assert printed_by_cute(HERE / "cute_tensor_memory.cpp") == ["\t".join(each) for each in RECORDED]
