"""The adder of a tensor core: all products of an instruction and the accumulator, aligned, cut and added at once.

With F = 3 fractional bits, 1.5 * 1 + 1 * 0.171875 + 4:

    product or c    exponent      aligned to the largest, 2, and cut towards zero after 3 bits
    4                   2         1.000
    1.5                 0         0.011
    0.171875           -3         0.000|01011                        what lies behind the bar is lost, whatever its sign
                                  1.011 * 2**2 = 5.5                 added exactly, then cut or rounded to the output's type

An exponent is that of the factors added, not that of their product: 1.5 * 1.5 = 2.25 has exponent 0, and four bits before
the point are possible. Values are float64 here: a product of two elements is exact, so is a cut value times 2**F, and so is
the sum of as many as an instruction has.

The sum is implemented twice: here for numpy, and in aligned_sum_loop.py as a loop that numba compiles (the extra
`fast`), with the same bits. Loading numba takes as long as numpy needs for _LOOP_FROM_PRODUCTS. A process that has
computed that many, or has loaded numba anyway, uses the loop.

Several products may form one term, added exactly before the cut: groups of 16 of block-scaled 4-bit elements.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.mma.element_value import Doubles, Elements, Exponents
from tilescope.mma.tensor_core_arithmetic import Arithmetic, CutBits
from tilescope.swizzle.permutation import compiler

_FLOAT64_BIAS = 1023
_FLOAT64_FRACTION_BITS = 52
_FLOAT32_LEAST_EXPONENT = -126
_PIECE_RESULTS = 8192  # results that numpy sums at a time: temporaries of 64 KiB stay in the cache
_TERMS_APART_FROM_RESULTS = 2048  # from here on, numpy is faster with one term after the other
_LOOP_FROM_PRODUCTS = 1 << 26  # half a second of numpy
_CORES_FROM_PRODUCTS = 1 << 18  # a thread takes as long to start as these


Floats = npt.NDArray[np.float32]


class Terms(NamedTuple):
    """One operand as the adder takes it: (batch, rows, terms, elements of a term), and an exponent for every term."""

    values: Doubles
    exponents: Exponents

    def part(self, batch: slice, rows: slice) -> Terms:
        """Some of the batch and of the rows."""
        return Terms(self.values[batch, rows], self.exponents[batch, rows])


@dataclass(slots=True)
class _Work:
    """What this process has summed."""

    products: int = 0


_work = _Work()


def aligned_sum(a: Terms, b: Terms, c: Elements, fractional_bits: int) -> Doubles:
    """Sums of the terms of rows of `a` and of `b` with `c` (batch, m, n), each cut to `fractional_bits`; not yet rounded.

    >>> c = Elements(np.array([[[4.0]]]), np.array([[[2]]], np.int16))
    >>> a = Terms(np.array([1.5, 0.171875]).reshape(1, 1, 2, 1), np.array([[[0, -3]]], np.int16))
    >>> b = Terms(np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2), np.int16))
    >>> aligned_sum(a, b, c, 3).item()
    5.5
    """
    terms, elements = a.values.shape[2:]
    is_compiled = count_products(c.values.size * terms)
    loop = compiled_loop() if elements == 1 and is_compiled else None
    if loop is not None:
        return by_loop(loop, a, b, c, fractional_bits)
    return by_numpy(a, b, c, fractional_bits)


def count_products(products: int) -> bool:
    """Count the products of this process. True if numba is installed, and there are enough of them to pay for loading it."""
    _work.products += products
    is_worth_loading = _work.products >= _LOOP_FROM_PRODUCTS or "numba" in sys.modules
    return is_worth_loading and compiler() is not None


@cache
def compiled_loop() -> Callable[..., None] | None:
    """The loop that numba compiles; None where numba is not installed."""
    if compiler() is None:
        return None
    from tilescope.mma.aligned_sum_loop import add

    return add


def float32_sum(a: Terms, b: Terms, c: Floats, arithmetic: Arithmetic) -> Floats | None:
    """D of float32 by one compiled loop on all cores; None if the loop does not support the operands: use `aligned_sum`."""
    terms, elements = a.values.shape[2:]
    loop = compiled_loop() if elements == 1 and count_products(0) else None
    if loop is None:
        return None
    from tilescope.mma.aligned_sum_loop import cut, take_apart

    before = np.ascontiguousarray(c)
    d = np.empty_like(before)
    has_specials = np.zeros(1, np.bool_)

    def add_part(part: slice) -> None:
        sums = np.empty(before[part].shape)
        exponents = np.empty(sums.shape, np.int16)
        take_apart(before[part].reshape(-1), sums.reshape(-1), exponents.reshape(-1), has_specials)
        all_rows = slice(None)
        add_terms(
            loop, a.part(part, all_rows), b.part(part, all_rows), Elements(sums, exponents), arithmetic.fractional_bits
        )
        cut(sums.reshape(-1), arithmetic.result_bits, d[part].reshape(-1))

    on_all_cores(add_part, len(d), d.size * terms)
    return None if has_specials[0] else d


def on_all_cores(add_part: Callable[[slice], None], count: int, products: int) -> None:
    """Do parts of a batch at once, the first of them in this thread, where there is enough to do."""
    cores = min(_core_count(), count)
    if cores == 1 or products < _CORES_FROM_PRODUCTS:
        add_part(slice(0, count))
        return
    ends = [count * core // cores for core in range(cores + 1)]
    first_part, *others = [slice(*part) for part in itertools.pairwise(ends)]
    under_way = [_workers().submit(add_part, part) for part in others]
    add_part(first_part)
    for part in under_way:
        part.result()


@cache
def _core_count() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, _core_count() - 1), thread_name_prefix="tilescope-sums")


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_workers.cache_clear)  # threads do not survive one


def by_loop(loop: Callable[..., None], a: Terms, b: Terms, c: Elements, fractional_bits: int) -> Doubles:
    """The sum by the compiled loop."""
    sums = Elements(np.array(c.values), np.array(c.exponents))
    add_terms(loop, a, b, sums, fractional_bits)
    return sums.values


def add_terms(loop: Callable[..., None], a: Terms, b: Terms, c: Elements, fractional_bits: int) -> None:
    """Add terms to C in place by the compiled loop, which takes B with its columns side by side."""
    b_values = np.ascontiguousarray(b.values[..., 0].transpose(0, 2, 1))
    b_exponents = np.ascontiguousarray(b.exponents.transpose(0, 2, 1))
    a_values = np.ascontiguousarray(a.values[..., 0])
    a_exponents = np.ascontiguousarray(a.exponents)
    loop(a_values, a_exponents, b_values, b_exponents, c.values, c.exponents, fractional_bits)


def by_numpy(a: Terms, b: Terms, c: Elements, fractional_bits: int) -> Doubles:
    """The sum by numpy, in pieces that stay in the cache."""
    pieces = list(_pieces(c.values.shape))
    if len(pieces) == 1:
        return _piece_sum(a, b, c, fractional_bits)
    sums = np.empty(c.values.shape)
    all_rows = slice(None)
    for batch, rows in pieces:
        piece = Elements(c.values[batch, rows], c.exponents[batch, rows])
        sums[batch, rows] = _piece_sum(a.part(batch, rows), b.part(batch, all_rows), piece, fractional_bits)
    return sums


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Parts of the batch, or of the rows of one of it, whose results stay in the cache."""
    batch, m, n = shape
    at_once = max(1, _PIECE_RESULTS // (m * n))
    rows = max(1, _PIECE_RESULTS // n)
    for first in range(0, batch, at_once):
        for row in range(0, m, rows):
            yield slice(first, first + at_once), slice(row, row + rows)


def _piece_sum(a: Terms, b: Terms, c: Elements, fractional_bits: int) -> Doubles:
    """The sum of one piece, its terms first: (terms, batch, rows, …)."""
    a_exponents = a.exponents.transpose(2, 0, 1)[..., :, None]
    b_exponents = b.exponents.transpose(2, 0, 1)[..., None, :]
    left = a.values.transpose(2, 0, 1, 3)
    right = b.values.transpose(2, 0, 3, 1)
    if c.values.size < _TERMS_APART_FROM_RESULTS:
        largest = np.maximum((a_exponents + b_exponents).max(axis=0), c.exponents)
        scale = _power_of_two(fractional_bits - largest)
        total = _all_terms_at_once(left, right, scale)
        total += np.trunc(c.values * scale)
    else:
        largest = _largest_exponents(a_exponents, b_exponents, c.exponents)
        scale = _power_of_two(fractional_bits - largest)
        total = np.trunc(c.values * scale)
        _add_term_after_term(left, right, scale, total)
    total *= _power_of_two(largest - np.int16(fractional_bits))
    return total


def _power_of_two(exponents: npt.NDArray[Any]) -> Doubles:
    """2 to these powers, within the range of normal float64."""
    return (exponents.astype(np.int64) + _FLOAT64_BIAS << _FLOAT64_FRACTION_BITS).view(np.float64)


def _all_terms_at_once(left: Doubles, right: Doubles, scale: Doubles) -> Doubles:
    """The sum of the cut terms by arrays of (terms, batch, m, n): few calls of numpy."""
    products = left * right if left.shape[-1] == 1 else left @ right
    products *= scale
    np.trunc(products, out=products)
    total: Doubles = products.sum(axis=0)
    return total


def _largest_exponents(a_exponents: Exponents, b_exponents: Exponents, c_exponents: Exponents) -> Exponents:
    """The largest exponent among the terms and the accumulator of every result."""
    largest = c_exponents.copy()
    together = np.empty_like(largest)
    for of_a, of_b in zip(np.ascontiguousarray(a_exponents), np.ascontiguousarray(b_exponents), strict=True):
        np.add(of_a, of_b, out=together)
        np.maximum(largest, together, out=largest)
    return largest


def _add_term_after_term(left: Doubles, right: Doubles, scale: Doubles, total: Doubles) -> None:
    """Add the cut terms to the total, one term of all results after the other: temporaries no larger than the results."""
    term = np.empty_like(total)
    product = np.multiply if left.shape[-1] == 1 else np.matmul
    for of_a, of_b in zip(np.ascontiguousarray(left), np.ascontiguousarray(right), strict=True):
        product(of_a, of_b, out=term)
        np.multiply(term, scale, out=term)
        np.trunc(term, out=term)
        np.add(total, term, out=total)


def cut_to_float32(sums: Doubles, fractional_bits: CutBits) -> npt.NDArray[np.float32]:
    """Sums cut towards zero to float32, or to as few fractional bits; what is too large becomes infinite, and no zero is -0.

    >>> cut_to_float32(np.array([1 + 2.0**-20, -(2.0**-130) * 1.75, -(2.0**-150), 2.0**128]), 13).tolist()
    [1.0, -1.285696946211877e-39, 0.0, inf]
    """
    lost_bits = _FLOAT64_FRACTION_BITS - fractional_bits
    cut = (sums.view(np.int64) >> lost_bits << lost_bits).view(np.float64)
    is_small = np.abs(sums) < 2.0**_FLOAT32_LEAST_EXPONENT
    if is_small.any():
        least = 2.0 ** (_FLOAT32_LEAST_EXPONENT - fractional_bits)
        cut[is_small] = np.trunc(sums[is_small] / least) * least + 0.0
    with np.errstate(over="ignore"):
        return cut.astype(np.float32)


def rounded_to_float16(sums: Doubles) -> npt.NDArray[np.float16]:
    """Sums rounded to the nearest float16, ties to even; no zero is -0.

    >>> rounded_to_float16(np.array([1 + 2.0**-11, 65520, -(2.0**-26)])).tolist()
    [1.0, inf, 0.0]
    """
    with np.errstate(over="ignore"):
        return sums.astype(np.float16) + np.float16(0)
