"""ldmatrix: the registers after ldmatrix, and shared memory after stmatrix, with rows of 16 bytes at random places.

ldmatrix.x2, row 3 at byte 0x40     lanes 12 to 15 hold bytes 0x40 to 0x4f, four each, in their first register
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import UNTOUCHED, Array, Case, Piece, Result, Suite, memory, pool
from tilescope.mma.ldmatrix import ldmatrix, stmatrix

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


def registers_before(case: Case, registers: int) -> Array:
    """What the registers of a warp hold before."""
    return pool()[case["registers"] :][: 4 * 32 * registers].view("<u4").reshape(32, registers)


def _predict_matrices(case: Case) -> list[Piece]:
    count = case["count"]
    transpose = case["transpose"]
    if case["direction"] == "ldmatrix":
        registers = np.zeros((32, _REGISTERS), "<u4")
        registers[:, :count] = ldmatrix(pool()[:_SMEM_BYTES], case["rows"], count=count, transpose=transpose)
        return [Piece("lane {}, register {}", registers, _REGISTERS)]
    smem = np.full(_SMEM_BYTES, UNTOUCHED, np.uint8)
    stmatrix(registers_before(case, _REGISTERS)[:, :count], smem, case["rows"], transpose=transpose)
    return [memory("shared memory", smem)]


def _run_matrices(device: Device, cases: list[Case]) -> Iterable[Result]:
    registers = np.stack([registers_before(case, _REGISTERS) for case in cases])
    images = np.empty((len(cases), _SMEM_BYTES), np.uint8)
    device.launch(
        "matrices:matrices",
        np.array([_matrices_operation(case) for case in cases], np.int32),
        np.array([case["rows"] for case in cases], np.int32),
        pool(),
        _SMEM_BYTES,
        out=(registers, images),
        blocks=len(cases),
        threads=32,
        smem_bytes=_SMEM_BYTES,
    )
    for case, words, image in zip(cases, registers, images, strict=True):
        yield [words if case["direction"] == "ldmatrix" else image]


def _matrices_operation(case: Case) -> int:
    """As kernels/matrices.cu numbers them: three counts, as they are and transposed, of ldmatrix and of stmatrix."""
    number = _COUNTS.index(case["count"])
    if case["transpose"]:
        number += len(_COUNTS)
    if case["direction"] == "stmatrix":
        number += 2 * len(_COUNTS)
    return number


LDMATRIX = Suite(
    "ldmatrix", _draw_matrices, _predict_matrices, _run_matrices, kernels=("matrices",), feature="stmatrix"
)
