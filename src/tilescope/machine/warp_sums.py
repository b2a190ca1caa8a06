"""Sums that all lanes of a warp hold, each with a rounding of its own, and store to one word.

mul.f32            p, x, x;
shfl.sync.bfly.b32 q, p, 16, 31, -1;
fma.rn.f32         s, x, x, q;        in lane 0 x0 * x0 is exact and x16 * x16 is rounded, in lane 16 the other way round
st.shared.b32      [sums], s;         Triton stores the sum of a warp by all lanes: which of the two stays?

Their last bits differ, and nobody who adds floats counts on those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.machine.program import Program
from tilescope.ptx.syntax import Instruction

_MOST_RELATIVE = 2.0**-16  # by which sums of 32 numbers of 24 bits differ, unless most of them cancel


def stores_of_sums(program: Program) -> frozenset[int]:
    """The instructions that store what a butterfly of shuffles and float additions has left in a register."""
    shuffled: set[int] = set()
    sums: set[int] = set()
    stores = set()
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        named = program.registers_named[pc]
        written = program.targets[pc]
        if instruction.name == "st" and not sums.isdisjoint(named):
            stores.add(pc)
        is_shuffled = instruction.name == "shfl" and "bfly" in instruction.modifiers
        is_sum = _adds_floats(instruction) and not shuffled.isdisjoint(named)
        if instruction.name == "mov":  # between registers of bits and of floats
            is_shuffled = not shuffled.isdisjoint(named)
            is_sum = not sums.isdisjoint(named)
        shuffled.difference_update(written)
        sums.difference_update(written)
        if is_shuffled:
            shuffled.update(written)
        if is_sum:
            sums.update(written)
    return frozenset(stores)


def _adds_floats(instruction: Instruction) -> bool:
    return instruction.name in ("add", "fma") and "f32" in instruction.modifiers


def differ_by_rounding(stored: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> bool:
    """Whether words are floats of 32 bits that differ from those stored in their last bits alone.

    >>> sums = np.array([1.0, 1.0000001, 3.0], np.float32).view(np.uint32)
    >>> differ_by_rounding(sums[:1], sums[1:2]), differ_by_rounding(sums[:1], sums[2:])
    (True, False)
    """
    if stored.dtype.itemsize != np.dtype(np.float32).itemsize:
        return False
    kept = stored.view(np.float32).astype(np.float64)
    lost = values.view(np.float32).astype(np.float64)
    return bool((np.abs(kept - lost) <= _MOST_RELATIVE * np.abs(kept))[stored != values].all())
