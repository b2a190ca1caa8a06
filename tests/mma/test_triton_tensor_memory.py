"""Tensor memory and its loads lie where Triton's linear layouts put them.

triton_tensor_memory.json is what triton_tensor_memory.py prints with Triton 3.9; the slow test runs it again where Triton is
installed. A linear layout is the XOR of one basis (a step in the matrix) for each bit of a lane, a column, a register.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.fragment import fragment
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_layout import tmem_layout

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "triton_tensor_memory.json").read_text("utf-8"))


def combined(*groups):
    """The matrix index of every combination of the groups' bits: one array of shape (2 ** len, …) a dimension."""
    row, column = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for number, bases in enumerate(groups):
        steps_row, steps_column = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for step_row, step_column in bases:
            steps_row = np.concatenate([steps_row, steps_row ^ step_row])
            steps_column = np.concatenate([steps_column, steps_column ^ step_column])
        if number == 0:
            row, column = steps_row, steps_column
        else:
            row, column = row[..., None] ^ steps_row, column[..., None] ^ steps_column
    return row, column


@pytest.mark.parametrize("case", RECORDED["accumulators"])
def test_accumulators_lie_where_triton_has_them(case):
    letter, n = case.split()
    recorded = RECORDED["accumulators"][case]
    path = DATAPATHS[letter]
    layout = tmem_layout((path.m, int(n)), cta_group=path.cta_group)
    assert layout.datapath == letter
    row, column = combined(recorded["rows"], recorded["columns"])  # of (lane, column)
    placed = layout.bit_addresses()[row % path.rows, column, 0]
    lane, cell = np.indices(row.shape)
    held = np.ones_like(row, np.bool_) if letter != "F" else lane % 32 < 16  # the other lanes repeat them
    assert (placed[held] == ((lane << 21) + (cell << 5))[held]).all()


@pytest.mark.parametrize("case", RECORDED["scales"])
def test_scales_lie_where_triton_has_them(case):
    rows, blocks = map(int, case.split("x"))
    recorded = RECORDED["scales"][case]
    placed = scale_layout(rows, blocks * 16, "nvfp4").tensor_memory("A").bit_addresses()
    row, block = combined(recorded["rows"], recorded["columns"])  # of (lane, byte)
    lane, byte = np.indices(row.shape)
    assert (placed[row, block, lane // 32] == (lane << 21) + (byte << 3)).all()


@pytest.mark.parametrize("case", RECORDED["registers"])
def test_registers_hold_what_triton_loads(case):
    form, n = case.split()
    registers, lanes, warps = RECORDED["registers"][case]
    halves = [basis for basis in registers if basis == [16, 0]]  # a second instruction, for the upper lanes
    held = fragment(
        f"tcgen05.ld.{form}.x{int(n) * 32 // {'32x32b': 32, '16x64b': 64, '16x128b': 128, '16x256b': 256}[form]}"
    )
    row, column = combined([basis for basis in registers if basis != [16, 0]], lanes)
    assert len(halves) == (held.shape[0] == 16)
    assert warps == [[32, 0], [64, 0]]
    _, lane, cell = held.indices()
    assert (row == lane.T).all()
    assert (column == cell.T).all()


@pytest.mark.slow
def test_triton_prints_the_recorded_layouts(require):
    require("triton")
    printed = subprocess.run(
        [sys.executable, HERE / "triton_tensor_memory.py"], check=True, text=True, capture_output=True
    ).stdout
    assert {**json.loads(printed), "triton": ""} == {**RECORDED, "triton": ""}
