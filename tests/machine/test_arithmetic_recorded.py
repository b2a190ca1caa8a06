"""Every arithmetic form against what an H200 gave for 500 operand tuples: exact, .approx functions within the ISA's bounds."""

import functools
import lzma
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from recorded_operands import BITS, COUNT, operand_tuple

from tilescope.machine.arithmetic import operation
from tilescope.ptx.syntax import BITS_OF_TYPE

RECORDED = np.load(Path(__file__).parent.parent / "golden" / "instructions.npz")


class Form(NamedTuple):
    opcode: str
    sources: tuple[str, ...]  # kinds of operands
    results: tuple[np.ndarray, ...]  # what the card gave
    immediate: int | None

    @property
    def name(self):
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self):
        return tuple(self.opcode.split(".")[1:])


def recorded_result(data, start, kind):
    """(the 500 results that lie from byte `start` on, the byte behind them)."""
    if kind == "pred":
        end = start + -(-COUNT // 8)
        return np.unpackbits(np.frombuffer(data[start:end], np.uint8), count=COUNT).astype(bool), end
    size_bytes = BITS[kind] // 8
    end = start + COUNT * size_bytes
    planes = np.frombuffer(data[start:end], np.uint8).reshape(size_bytes, COUNT)
    return np.ascontiguousarray(planes.T).view(f"u{size_bytes}").ravel(), end


@functools.cache
def recorded_forms():
    data = lzma.decompress(RECORDED["results"].tobytes())
    forms = []
    end = 0
    for line in RECORDED["forms"].tobytes().decode().split("\n"):
        opcode, sources, result_kinds, immediate = line.split("\t")
        results = []
        for kind in result_kinds.split():
            result, end = recorded_result(data, end, kind)
            results.append(result)
        forms.append(Form(opcode, tuple(sources.split()), tuple(results), int(immediate) if immediate else None))
    assert end == len(data)
    return forms


@functools.cache
def shared_operands(kinds):
    arrays = operand_tuple(kinds)
    for array in arrays:
        array.flags.writeable = False  # an operation never writes into its sources
    return arrays


def form_operands(form):
    """The operands of a form as its kernel had them when the instruction ran (golden/instructions.md)."""
    arrays = list(shared_operands(form.sources))
    if form.immediate is not None:
        arrays.insert(3, np.broadcast_to(np.uint32(form.immediate), (COUNT,)))
    if form.name == "subc":
        arrays[2] = ~arrays[2]  # a borrow is a carry flag that is not set
    if form.name == "fns":
        offset = (arrays[2] - np.uint32(32)).view(np.int32)
        arrays[1:] = [arrays[1] & np.uint32(31), np.clip(offset, -40, 40).view(np.uint32)]
    return arrays


def computed(form):
    """(the operation, its operands, its results as a tuple)."""
    found = operation(form.name, form.modifiers, result_count=len(form.results))
    operands = [
        array if type_name == "pred" else array.astype(f"u{BITS_OF_TYPE[type_name] // 8}")
        for array, type_name in zip(form_operands(form), found.source_types, strict=True)
    ]
    with np.errstate(all="ignore"):
        results = found.compute(*operands)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == found.result_count
    return found, operands, results


def first_difference(form, operands, ours, card):
    """A sentence about the first tuple that differs, or None."""
    wrong = np.flatnonzero(ours != card)
    if not len(wrong):
        return None
    first = wrong[0]
    given = ", ".join(hex(operand[first]) for operand in operands)
    return (
        f"{form.opcode} ({given}): {hex(ours[first])}, on the card {hex(card[first])}; {len(wrong)} of {COUNT} differ"
    )


def forms_of(name):
    return [form for form in recorded_forms() if form.name == name]


def is_approximate(form):
    return "approx" in form.modifiers or "full" in form.modifiers


EXACT = sorted({form.name for form in recorded_forms() if not is_approximate(form)} - {"crossed"})
APPROXIMATE = sorted({form.name for form in recorded_forms() if is_approximate(form)})


@pytest.mark.parametrize("name", EXACT)
def test_equals_the_card(name):
    differences = []
    for form in forms_of(name):
        if is_approximate(form):
            continue
        _, operands, results = computed(form)
        card = list(form.results)
        if name in ("sub", "subc") and len(card) == 2:
            card[1] = ~card[1]  # recorded as a borrow
        for ours, theirs in zip(results, card, strict=True):
            differences.append(first_difference(form, operands, ours, theirs))
    assert differences
    assert list(filter(None, differences)) == []


@pytest.mark.slow
def test_results_have_the_dtype_of_their_type():
    for form in recorded_forms():
        if form.name != "crossed":
            found, _, results = computed(form)
            bits = BITS_OF_TYPE[found.result_type]
            assert results[0].dtype == (bool if bits == 1 else f"u{bits // 8}"), form.opcode
            assert results[0].shape == (COUNT,), form.opcode


@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(4))
def test_operands_that_all_threads_share_give_the_same_results(part):
    for form in recorded_forms()[part::4]:
        if form.name == "crossed":
            continue
        found, operands, results = computed(form)
        lane = 200
        shared = [np.broadcast_to(operand[lane], (32,)) for operand in operands]
        with np.errstate(all="ignore"):
            again = found.compute(*shared)
        again = again if isinstance(again, tuple) else (again,)
        for every, once in zip(results, again, strict=True):
            assert once.shape == (32,), form.opcode
            assert (once == every[lane]).all(), form.opcode


@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(4))
def test_results_are_arrays_of_their_own(part):
    for form in recorded_forms()[part::4]:
        if form.name != "crossed":
            _, operands, results = computed(form)
            assert not any(np.shares_memory(result, operand) for result in results for operand in operands), form.opcode


def test_a_borrow_is_a_carry_that_is_not_set():
    zero = np.zeros(COUNT, np.uint32)
    (add_then_subtract,) = [form for form in recorded_forms() if form.opcode == "crossed.add.cc.subc"]
    a, b = shared_operands(add_then_subtract.sources)
    _, carry = operation("add", ("cc", "u32")).compute(a, b)
    assert np.array_equal(operation("subc", ("u32",)).compute(zero, zero, carry), add_then_subtract.results[0])
    (subtract_then_add,) = [form for form in recorded_forms() if form.opcode == "crossed.sub.cc.addc"]
    _, carry = operation("sub", ("cc", "u32")).compute(a, b)
    assert np.array_equal(operation("addc", ("u32",)).compute(zero, zero, carry), subtract_then_add.results[0])


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_are_the_cards(name):
    """Bit for bit; rsqrt.approx.f64, a program that nobody has taken apart, is within one unit of the last place."""
    for form in forms_of(name):
        if not is_approximate(form):
            continue
        found, _, results = computed(form)
        if form.opcode != "rsqrt.approx.f64":
            assert found.exactness == "special unit"
            np.testing.assert_array_equal(results[0], form.results[0], err_msg=form.opcode)
        else:
            assert found.exactness == "unknown"
            assert np.abs(results[0].astype(np.int64) - form.results[0].astype(np.int64)).max() <= 1
