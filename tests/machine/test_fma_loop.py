"""fma.rn.f32 by the compiled loop has the bits of numpy's, and of exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tilescope.machine.arithmetic import floating, operation

pytestmark = pytest.mark.usefixtures("numba")

SPECIAL = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001], np.uint32
)


def operands():
    """Special words in all combinations, random words, and products half way between two f32 beside tiny addends."""
    random = np.random.default_rng(5)
    signed = np.concatenate([SPECIAL, SPECIAL | np.uint32(1 << 31)])
    of_special = [grid.ravel() for grid in np.meshgrid(signed, signed, signed)]
    of_random = random.integers(0, 1 << 32, (3, 20_000), dtype=np.uint64).astype(np.uint32)
    factors = (1 + random.integers(0, 1 << 12, (2, 20_000)) / (1 << 12)).astype(np.float32)
    addends = random.choice([2.0**-60, -(2.0**-60), 2.0**-30, 0.0], 20_000).astype(np.float32)
    of_ties = [*factors.view(np.uint32), addends.view(np.uint32)]
    return [np.concatenate(parts) for parts in zip(of_special, of_random, of_ties, strict=True)]


def test_the_loop_has_the_bits_of_numpy(monkeypatch):
    sources = operands()
    with np.errstate(all="ignore"):
        by_loop = floating._fma_by_loop(*sources)
        monkeypatch.setattr(floating, "_LOOP_FROM_THREADS", 1 << 30)
        by_numpy = operation("fma", ("rn", "f32")).compute(*sources)
    different = np.flatnonzero(by_loop != by_numpy)
    assert [[hex(source[place]) for source in sources] for place in different[:3]] == []


def test_a_product_half_way_is_rounded_by_its_addend():
    """1 + 2^-12 squared ends in 2^-24, half way between two f32: the sign of a tiny addend decides."""
    factor = np.full(2, 1 + 2**-12, np.float32).view(np.uint32)
    addends = np.array([2.0**-60, -(2.0**-60)], np.float32).view(np.uint32)
    above, below = floating._fma_by_loop(factor, factor, addends).view(np.float32).tolist()
    half_way = Fraction(1 + 2**-12) ** 2
    assert Fraction(above) - half_way == half_way - Fraction(below) == Fraction(1, 1 << 24)


def test_many_threads_take_the_loop(monkeypatch):
    taken = []
    monkeypatch.setattr(floating, "_fma_by_loop", lambda a, *_: taken.append(len(a)) or a)
    ones = np.full(1024, 0x3F800000, np.uint32)
    compute = operation("fma", ("rn", "f32")).compute
    compute(ones, ones, ones)
    compute(ones[:1023], ones[:1023], ones[:1023])
    assert taken == [1024]
