"""tensor_memory: registers after tcgen05.ld, cells after tcgen05.st, in every form and packed."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np

from tilescope.gpu.compiling import source
from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Array, Case, Pieces, Suite
from tilescope.gpu.suites.maps import drawn_place
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_form import named_move

_COLUMNS = 128  # that a block allocates
_LANES = 128
_REGISTERS = 8  # of a thread, at most
_SPLIT = 16  # columns to the second half of .16x32bx2


@cache
def forms() -> tuple[str, ...]:
    """The forms that kernels/tensor_memory.cu moves, by their numbers there.

    >>> forms()[0], "16x256b.x2" in forms()
    ('32x32b.x1', True)
    """
    listed = re.findall(r'DO\((\d+), \d, "([\w.]+)"( PACKED)?', source("tensor_memory"))
    named = {int(number): form + ("packed" if packed else "") for number, form, packed in listed}
    return tuple(named[number] for number in range(len(named)))


def _draw(random: random.Random, _arch: str) -> Case:
    """A form at any column that it fits at; forms of 16 lanes in either half of the warp's quarter."""
    form, warp = random.choice(forms()), random.randrange(4)
    direction = random.choice(("ld", "st"))
    move = named_move(_opcode(direction, form))
    reach = move.columns + (_SPLIT if move.form.places > 1 else 0)
    lane = 32 * warp + (16 * random.randrange(2) if move.form.lanes == 16 and move.form.places == 1 else 0)
    return {
        "direction": direction, "form": form, "warp": warp, "lane": lane,
        "column": random.randrange(_COLUMNS - reach + 1), "registers": drawn_place(random),
    }  # fmt: skip


def _opcode(direction: str, form: str) -> str:
    packed = {"ld": "pack::16b", "st": "unpack::16b"}[direction]
    return f"tcgen05.{direction}.{form.replace('packed', packed)}"


def _cells() -> Array:
    """What the cells hold before."""
    return pool()[: 4 * _LANES * _COLUMNS].view("<u4").reshape(_LANES, _COLUMNS)


def _registers(case: Case) -> Array:
    return pool()[case["registers"] :][: 4 * 32 * _REGISTERS].view("<u4").reshape(32, _REGISTERS)


def _predict(case: Case) -> bytes:
    memory = TensorMemory().alloc(_COLUMNS)
    cells = memory.cells.copy()
    cells[:, :_COLUMNS] = _cells()
    memory = TensorMemory(cells, memory.allocations)
    opcode, address = _opcode(case["direction"], case["form"]), case["lane"] << 16 | case["column"]
    split = _SPLIT if "x2.x" in case["form"] else None
    registers = _registers(case).copy()
    count = named_move(opcode).registers
    if case["direction"] == "ld":
        registers[:, :count] = memory.load(opcode, address, warp=case["warp"], split=split)
    else:
        memory = memory.store(opcode, registers[:, :count], address, warp=case["warp"], split=split)
    return registers.tobytes() + memory.cells[:, :_COLUMNS].tobytes()


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    table = [
        [forms().index(case["form"]), case["direction"] == "st", case["warp"], case["lane"] << 16 | case["column"]]
        for case in cases
    ]
    registers = np.stack([_registers(case) for case in cases])
    loaded, after = device.allocate(registers.nbytes), device.allocate(len(cases) * 4 * _LANES * _COLUMNS)
    device.launch(
        "tensor_memory:moves", device.upload(np.array(table, np.int32)), device.upload(_cells()),
        device.upload(registers), loaded, after, blocks=len(cases), threads=128,
    )  # fmt: skip
    held = device.download(loaded, registers.shape, "<u4")
    cells = device.download(after, (len(cases), _LANES, _COLUMNS), "<u4")
    return [one.tobytes() + other.tobytes() for one, other in zip(held, cells, strict=True)]


def _pieces(_case: Case, data: bytes) -> Pieces:
    words = np.frombuffer(data, "<u4")
    registers, cells = words[: 32 * _REGISTERS], words[32 * _REGISTERS :]
    return [("thread {}, register {}", registers.reshape(32, -1)), ("lane {}, column {}", cells.reshape(_LANES, -1))]


TENSOR_MEMORY = Suite("tensor_memory", _draw, _predict, _run, _pieces, ("tensor_memory",), feature="tcgen05")
