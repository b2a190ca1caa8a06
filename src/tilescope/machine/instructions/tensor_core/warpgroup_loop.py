"""The products of many warpgroups by one loop that numba compiles (the extra `fast`), from codes in memory to registers and back.

    codes of a block ── places ──▶ factors of A (m, k) and B (k, n)  ─┐
    registers of lanes ── order ──▶ C (m, n)  ─────────────────────── ┴─▶ D (m, n) ── order ──▶ registers of lanes

One tile is in the cache at a time. A warpgroup whose product the sum in 32 bits refuses keeps its registers, and is marked.
"""

# ruff: noqa: PLR0917  a compiled loop takes its arrays one after the other

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.mma.narrow_sum_loop import Codes, Exponents, Floats, Places, add_tile, take_factors
from tilescope.swizzle.line_streaming import compile_loop


def _multiply(
    a_codes: Codes,
    a_blocks: npt.NDArray[np.int64],
    a_places: Places,
    a_sign: int,
    a_values: Floats,
    a_exponents: Exponents,
    b_codes: Codes,
    b_blocks: npt.NDArray[np.int64],
    b_places: Places,
    b_sign: int,
    b_values: Floats,
    b_exponents: Exponents,
    shape: tuple[int, int, int],
    registers: npt.NDArray[np.uint32],
    d_rows: npt.NDArray[np.int64],
    first_lanes: npt.NDArray[np.int64],
    order: npt.NDArray[np.uint16],
    adds_d: npt.NDArray[np.bool_],
    fractional_bits: int,
    result_bits: int,
    is_refused: npt.NDArray[np.bool_],
) -> None:
    """Multiply for every warpgroup; codes are (blocks, codes of a block), and a place counts from the start of a block.

    `order` maps a lane's registers, in order, to elements of D.
    """
    m, n, k = shape
    a, a_powers = np.empty((m, k), np.float32), np.empty((m, k), np.int16)
    b, b_powers = np.empty((k, n), np.float32), np.empty((k, n), np.int16)
    d = np.empty((m, n), np.float32)
    d_words = d.view(np.int32)
    words = d.reshape(m * n).view(np.uint32)
    lanes = len(order) // len(d_rows)
    for group in range(len(first_lanes)):
        is_taken = take_factors(
            a_codes[a_blocks[group]], a_places, a_sign, a_values, a_exponents, a.reshape(m * k), a_powers.reshape(m * k)
        ) and take_factors(
            b_codes[b_blocks[group]], b_places, b_sign, b_values, b_exponents, b.reshape(k * n), b_powers.reshape(k * n)
        )
        first = first_lanes[group]
        if is_taken:
            if adds_d[group]:
                for number in range(len(d_rows)):
                    register = registers[d_rows[number], first : first + lanes]
                    elements = order[number * lanes : (number + 1) * lanes]
                    for lane in range(lanes):
                        words[elements[lane]] = register[lane]
            else:
                words[:] = 0
            is_taken = add_tile(a, a_powers, b, b_powers, d, d_words, fractional_bits, result_bits)
        is_refused[group] = not is_taken
        if is_taken:
            for number in range(len(d_rows)):
                register = registers[d_rows[number], first : first + lanes]
                elements = order[number * lanes : (number + 1) * lanes]
                for lane in range(lanes):
                    register[lane] = words[elements[lane]]


multiply = compile_loop(_multiply)
