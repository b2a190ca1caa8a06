"""approx: the approximate functions on all 2^32 inputs, by checksum.

A case is one function, sign and exponent, with its 2^23 fractions. The card adds up its results y_i in two ways:

    sum of y_i * (2 i + 1)    sees every result, but not a whole case that is off by a multiple of 2^18: its sign, its exponent
    sum of y_i                sees those

approx_sums.npz holds the sums that special_unit.py gives. Where the card's differ, all results of the case are compared, and
the first inputs named. A card of another architecture shows here whether its unit is that of an H200; if not, a capture keeps
every 256th result between 2^-8 and 2^8, from which the coefficients can be fitted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import as_file, files

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Outcome, Piece, Result, Suite
from tilescope.machine.arithmetic import operation
from tilescope.sentence import counted, listed

FUNCTIONS = (  # as kernels/approx.cu numbers them
    "rcp.approx.ftz.f32",
    "rsqrt.approx.ftz.f32",
    "sqrt.approx.ftz.f32",
    "lg2.approx.ftz.f32",
    "ex2.approx.ftz.f32",
    "sin.approx.ftz.f32",
    "cos.approx.ftz.f32",
    "tanh.approx.f32",
    "rcp.approx.f32",
    "rsqrt.approx.f32",
    "sqrt.approx.f32",
    "lg2.approx.f32",
    "ex2.approx.f32",
    "sin.approx.f32",
    "cos.approx.f32",
)
EXPONENTS = 512  # signs and exponents
FRACTIONS = 1 << 23

_SUMS_BYTES = 16
_INPUTS_KEPT = 8
_FITTED = range(127 - 8, 127 + 8)  # exponents whose results a capture keeps
_FITTED_EVERY = 256
_CARD_BLOCKS = 64  # for a case
_THREADS = 256
_DIFFERENCE = np.dtype([("input", "<u4"), ("card", "<u4"), ("ours", "<u4")])


@cache
def sums() -> Array:
    """Our sums: (function, sign and exponent, weighted or plain)."""
    with as_file(files(__package__).joinpath("approx_sums.npz")) as path, np.load(path) as table:
        return np.asarray(table["pairs"][table["numbers"]])


def compute_sums(words: Array) -> Array:
    """The two sums of the results of a case.

    >>> compute_sums(np.array([5, 7], np.uint32)).tolist()
    [26, 12]
    """
    wide = words.astype(np.uint64)
    weights = 2 * np.arange(words.size, dtype=np.uint64) + np.uint64(1)
    return np.array([(wide * weights).sum(dtype=np.uint64), wide.sum(dtype=np.uint64)])


def compute_words(function: str, exponent: int) -> Array:
    """Our results of a case."""
    name, *modifiers = function.split(".")
    inputs = np.arange(FRACTIONS, dtype=np.uint32) | np.uint32(exponent << 23)
    with np.errstate(all="ignore"):
        return np.asarray(operation(name, tuple(modifiers)).compute(inputs))


def _list_cases(_arch: str) -> list[Case]:
    return [{"function": name, "exponent": exponent} for name in FUNCTIONS for exponent in range(EXPONENTS)]


def _draw(random: random.Random, _arch: str) -> Case:
    return {"function": random.choice(FUNCTIONS), "exponent": random.randrange(EXPONENTS)}


def _predict(case: Case) -> list[Piece]:
    return [Piece("sum {}", sums()[FUNCTIONS.index(case["function"]), case["exponent"]])]


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    numbers = np.array([FUNCTIONS.index(case["function"]) for case in cases], np.int32)
    exponents = np.array([case["exponent"] for case in cases], np.uint32)
    card_sums = np.zeros((len(cases), 2), np.uint64)
    device.launch(
        "approx:sums", numbers, exponents, out=(card_sums,), blocks=_CARD_BLOCKS * len(cases), threads=_THREADS
    )
    for number, exponent, pair in zip(numbers.tolist(), exponents.tolist(), card_sums, strict=True):
        yield [pair, *([] if (pair == sums()[number, exponent]).all() else _compare_words(device, number, exponent))]


def _compare_words(device: Device, number: int, exponent: int) -> list[Array]:
    """The number of results that differ, the first of them, and those from which the function can be fitted."""
    card = np.empty(FRACTIONS, np.uint32)
    device.launch("approx:words", number, exponent, out=(card,), blocks=1024, threads=_THREADS)
    device.free()
    ours = compute_words(FUNCTIONS[number], exponent)
    wrong = np.flatnonzero(card != ours)
    first = np.zeros(min(wrong.size, _INPUTS_KEPT), _DIFFERENCE)
    places = wrong[: first.size]
    first["input"] = places | exponent << 23
    first["card"] = card[places]
    first["ours"] = ours[places]
    fitted = card[exponent % _FITTED_EVERY :: _FITTED_EVERY] if exponent & 0xFF in _FITTED else card[:0]
    return [np.array([wrong.size, first.size], "<u4"), first, fitted]


def _judge(case: Case, outcome: Outcome) -> str:
    if outcome.ended:
        return f"card: {outcome.ended}; case {case}"
    expected = _predict(case)[0].numbers.tobytes()
    data = outcome.data
    if data is None or data[:_SUMS_BYTES] == expected:
        return ""
    place = (
        f"{case['function']} of inputs {case['exponent'] << 23:#010x} to {case['exponent'] << 23 | FRACTIONS - 1:#010x}"
    )
    if len(data) <= _SUMS_BYTES:
        return f"{place}: the sums of the card's results are others"
    differing, listed_inputs = np.frombuffer(data, "<u4", 2, _SUMS_BYTES).tolist()
    first = np.frombuffer(data, _DIFFERENCE, listed_inputs, _SUMS_BYTES + 8)
    examples = [f"{row['input']:#010x} (card {row['card']:#010x}, ours {row['ours']:#010x})" for row in first]
    return f"{place}: {counted(differing, 'result')} differ, the first of {listed(examples)}"


def _describe_unit(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    functions = dict.fromkeys(case["function"] for case in cases)
    pairs = zip(cases, outcomes, strict=True)
    differing = dict.fromkeys(case["function"] for case, outcome in pairs if _judge(case, outcome))
    if not differing:
        return f"{counted(len(functions), 'function')}, {len(cases) * FRACTIONS} inputs: the unit of an H200."
    return f"not the unit of an H200 in {listed(list(differing))}; --save keeps results to fit it by."


APPROX = Suite(
    "approx",
    _draw,
    _predict,
    _run,
    kernels=("approx",),
    count=len(FUNCTIONS) * EXPONENTS,
    together=EXPONENTS,
    feature="mma",
    judge=_judge,
    note=_describe_unit,
    every=_list_cases,
)
