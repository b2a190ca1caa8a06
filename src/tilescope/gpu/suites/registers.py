"""ldmatrix: registers after ldmatrix, shared memory after stmatrix. tensor_memory: the same of tcgen05.ld and .st."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.suites import UNTOUCHED, Array, Case, Piece, Suite, memory, pool
from tilescope.gpu.suites.maps import drawn_place
from tilescope.mma.ldmatrix import ldmatrix, stmatrix
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_form import named_move

_SMEM_BYTES = 8192
_ROW_BYTES = 16
_COUNTS = (1, 2, 4)
_REGISTERS = 4  # of a lane, at most


def _draw_matrices(random: random.Random, _arch: str) -> Case:
    """32 rows: anywhere for ldmatrix, no two the same for stmatrix."""
    direction = random.choice(("ldmatrix", "stmatrix"))
    places = range(_SMEM_BYTES // _ROW_BYTES)
    chosen = random.choices(places, k=32) if direction == "ldmatrix" else random.sample(places, 32)
    return {
        "direction": direction,
        "count": random.choice(_COUNTS),
        "transpose": random.random() < 0.5,
        "rows": [place * _ROW_BYTES for place in chosen],
        "registers": 512 * random.randrange(1000),
    }


def _before(case: Case, registers: int) -> Array:
    """What the registers of a warp hold before."""
    return pool()[case["registers"] :][: 4 * 32 * registers].view("<u4").reshape(32, registers)


def _predict_matrices(case: Case) -> list[Piece]:
    count, transpose = case["count"], case["transpose"]
    if case["direction"] == "ldmatrix":
        registers = np.zeros((32, _REGISTERS), "<u4")
        registers[:, :count] = ldmatrix(pool()[:_SMEM_BYTES], case["rows"], count=count, transpose=transpose)
        return [Piece("lane {}, register {}", registers, _REGISTERS)]
    smem = np.full(_SMEM_BYTES, UNTOUCHED, np.uint8)
    stmatrix(_before(case, _REGISTERS)[:, :count], smem, case["rows"], transpose=transpose)
    return [memory("shared memory", smem)]


def _run_matrices(device: Device, cases: list[Case]) -> Iterable[Any]:
    loads = cases[0]["direction"] == "ldmatrix"
    numbers = [_COUNTS.index(case["count"]) + 3 * case["transpose"] for case in cases]
    tables = np.array(numbers, np.int32), np.array([case["rows"] for case in cases], np.int32)
    source = pool() if loads else np.stack([_before(case, _REGISTERS) for case in cases])
    out = np.empty((len(cases), 512 if loads else _SMEM_BYTES), np.uint8)
    sizes = {"blocks": len(cases), "threads": 32, "smem_bytes": _SMEM_BYTES}
    kernel = "load_matrices" if loads else "store_matrices"
    device.launch(f"matrices:{kernel}", *tables, source, _SMEM_BYTES, out=[out], **sizes)
    return zip(out)


LDMATRIX = Suite(
    *("ldmatrix", _draw_matrices, _predict_matrices, _run_matrices, ("matrices",)),
    kind=lambda case: str(case["direction"]),
    feature="stmatrix",
)

FORMS = (
    *("32x32b.x1", "32x32b.x2", "32x32b.x8", "16x64b.x1", "16x64b.x4", "16x128b.x1", "16x128b.x4", "16x256b.x1"),
    *("16x256b.x2", "16x32bx2.x1", "16x32bx2.x4", "32x32b.x2.packed", "16x64b.x4.packed", "16x256b.x2.packed"),
)  # as kernels/tensor_memory.cu numbers them
_COLUMNS = 128  # that a block allocates
_LANES = 128
_MOVED_REGISTERS = 8  # of a thread, at most
_SPLIT = 16  # columns to the second half of .16x32bx2
_PACKED = {"ld": "pack::16b", "st": "unpack::16b"}


def _draw_move(random: random.Random, _arch: str) -> Case:
    """A form at any column that it fits at; forms of 16 lanes in either half of the warp's quarter."""
    form, warp, direction = random.choice(FORMS), random.randrange(4), random.choice(("ld", "st"))
    move = named_move(_opcode(direction, form))
    reach = move.columns + (_SPLIT if move.form.places > 1 else 0)
    return {
        "direction": direction,
        "form": form,
        "warp": warp,
        "lane": 32 * warp + (16 * random.randrange(2) if move.form.lanes == 16 and move.form.places == 1 else 0),
        "column": random.randrange(_COLUMNS - reach + 1),
        "registers": drawn_place(random),
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
    opcode, address = _opcode(case["direction"], case["form"]), case["lane"] << 16 | case["column"]
    where = {"warp": case["warp"], "split": _SPLIT if "x2.x" in case["form"] else None}
    registers = _before(case, _MOVED_REGISTERS).copy()
    moved = registers[:, : named_move(opcode).registers]
    if case["direction"] == "ld":
        moved[:] = memory.load(opcode, address, **where)
    else:
        memory = memory.store(opcode, moved, address, **where)
    after = np.ascontiguousarray(memory.cells[:, :_COLUMNS])
    return [Piece("thread {}, register {}", registers, _MOVED_REGISTERS), Piece("lane {}, column {}", after, _COLUMNS)]


def _run_moves(device: Device, cases: list[Case]) -> Iterable[Any]:
    table = [
        [FORMS.index(case["form"]), case["direction"] == "st", case["warp"], case["lane"] << 16 | case["column"]]
        for case in cases
    ]
    registers = np.stack([_before(case, _MOVED_REGISTERS) for case in cases])
    values = np.array(table, np.int32), _cells(), registers
    out = loaded, after = np.empty_like(registers), np.empty((len(cases), _LANES, _COLUMNS), "<u4")
    device.launch("tensor_memory:moves", *values, out=out, blocks=len(cases), threads=128)
    return zip(loaded, after, strict=True)


TENSOR_MEMORY = Suite("tensor_memory", _draw_move, _predict_move, _run_moves, ("tensor_memory",), feature="tcgen05")
