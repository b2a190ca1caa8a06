"""tensor_memory: the registers after tcgen05.ld, and tensor memory after tcgen05.st, at random lanes and columns.

tcgen05.ld.32x32b.x2 by warp 1, lane 32, column 7     thread 5 of the warp gets columns 7 and 8 of lane 37
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Piece, Result, Suite, pool
from tilescope.gpu.verify.suites.map_suite import draw_place
from tilescope.gpu.verify.suites.matrix_suite import registers_before
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_form import named_move

# as kernels/tensor_memory.cu numbers them
FORMS = (
    "32x32b.x1",
    "32x32b.x2",
    "32x32b.x8",
    "16x64b.x1",
    "16x64b.x4",
    "16x128b.x1",
    "16x128b.x4",
    "16x256b.x1",
    "16x256b.x2",
    "16x32bx2.x1",
    "16x32bx2.x4",
    "32x32b.x2.packed",
    "16x64b.x4.packed",
    "16x256b.x2.packed",
)
_COLUMNS = 128  # that a block allocates
_LANES = 128
_MOVED_REGISTERS = 8  # of a thread, at most
_SPLIT = 16  # columns to the second half of .16x32bx2
_PACKED = {"ld": "pack::16b", "st": "unpack::16b"}


def _draw_move(random: random.Random, _arch: str) -> Case:
    """A form at any column that it fits at; forms of 16 lanes in either half of the warp's quarter."""
    form = random.choice(FORMS)
    warp = random.randrange(4)
    direction = random.choice(("ld", "st"))
    move = named_move(_opcode(direction, form))
    reach = move.columns + (_SPLIT if move.form.places > 1 else 0)
    lane = 32 * warp
    if move.form.lanes == 16 and move.form.places == 1:
        lane += 16 * random.randrange(2)
    return {
        "direction": direction,
        "form": form,
        "warp": warp,
        "lane": lane,
        "column": random.randrange(_COLUMNS - reach + 1),
        "registers": draw_place(random),
    }


def _opcode(direction: str, form: str) -> str:
    return f"tcgen05.{direction}.{form.replace('packed', _PACKED[direction])}"


def _cells() -> Array:
    """What the cells hold before."""
    return pool()[: 4 * _LANES * _COLUMNS].view("<u4").reshape(_LANES, _COLUMNS)


def _predict_move(case: Case) -> list[Piece]:
    memory = TensorMemory().alloc(_COLUMNS)
    cells = memory.cells.copy()
    cells[:, :_COLUMNS] = _cells()
    memory = TensorMemory(cells, memory.allocations)
    opcode = _opcode(case["direction"], case["form"])
    address = case["lane"] << 16 | case["column"]
    split = _SPLIT if "x2.x" in case["form"] else None
    registers = registers_before(case, _MOVED_REGISTERS).copy()
    moved = registers[:, : named_move(opcode).registers]
    if case["direction"] == "ld":
        moved[:] = memory.load(opcode, address, warp=case["warp"], split=split)
    else:
        memory = memory.store(opcode, moved, address, warp=case["warp"], split=split)
    after = np.ascontiguousarray(memory.cells[:, :_COLUMNS])
    return [Piece("thread {}, register {}", registers, _MOVED_REGISTERS), Piece("lane {}, column {}", after, _COLUMNS)]


def _run_moves(device: Device, cases: list[Case]) -> Iterable[Result]:
    table = [
        [FORMS.index(case["form"]), case["direction"] == "st", case["warp"], case["lane"] << 16 | case["column"]]
        for case in cases
    ]
    registers = np.stack([registers_before(case, _MOVED_REGISTERS) for case in cases])
    loaded = np.empty_like(registers)
    after = np.empty((len(cases), _LANES, _COLUMNS), "<u4")
    device.launch(
        "tensor_memory:moves",
        np.array(table, np.int32),
        _cells(),
        registers,
        out=(loaded, after),
        blocks=len(cases),
        threads=128,
    )
    return zip(loaded, after, strict=True)


TENSOR_MEMORY = Suite(
    "tensor_memory", _draw_move, _predict_move, _run_moves, kernels=("tensor_memory",), feature="tcgen05"
)
