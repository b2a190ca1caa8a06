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


def test_results_have_the_dtype_of_their_type():
    for form in recorded_forms():
        if form.name != "crossed":
            found, _, results = computed(form)
            bits = BITS_OF_TYPE[found.result_type]
            assert results[0].dtype == (bool if bits == 1 else f"u{bits // 8}"), form.opcode
            assert results[0].shape == (COUNT,), form.opcode


def test_operands_that_all_threads_share_give_the_same_results():
    for form in recorded_forms():
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


def test_results_are_arrays_of_their_own():
    for form in recorded_forms():
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


# PTX ISA, the section of each instruction: errors in units of the last place, relative or absolute. The ISA has none for the
# f64 forms (20 bits of fraction; rsqrt.approx.f64 is a program) and for sin and cos beyond 100 pi, where the card still keeps it.
MAX_ULPS = {"rcp.f32": 1, "div.f32": 2, "ex2.f32": 2, "rsqrt.f64": 1}
MAX_RELATIVE = {
    "sqrt.f32": 2.0**-23,
    "rsqrt.f32": 2.0**-22.9,
    "lg2.f32": 2.0**-22,
    "tanh.f32": 2.0**-11,
    "ex2.f16": 2.0**-9.9,
    "ex2.bf16": 2.0**-7,
    "rcp.ftz.f64": 2.0**-20,
    "rsqrt.ftz.f64": 2.0**-20,
}
MAX_ABSOLUTE = {
    "sin.f32": 2.0**-20.5,
    "cos.f32": 2.0**-20.5,
    "lg2.f32": 2.0**-22,
    "tanh.f16": 2.0**-10.987,
    "tanh.bf16": 2.0**-8,
}


def numbers(words, type_name):
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        if type_name == "bf16":
            return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return words.view(f"f{words.itemsize}").astype(np.float64)


def parts(words, type_name):
    return words.view(np.uint16) if type_name.endswith("x2") else words


def is_within_bounds(form, ours, card):
    """Lanes whose result lies within the ISA's bound of the card's; two neighbours in the format always do."""
    type_name = form.modifiers[-1].removesuffix("x2")
    is_coarse = type_name == "f64" and "ftz" in form.modifiers
    key = f"{form.name}.ftz.f64" if is_coarse else f"{form.name}.{type_name}"
    ulps = np.abs(ours.astype(np.int64) - card.astype(np.int64))
    our_numbers, card_numbers = numbers(ours, type_name), numbers(card, type_name)
    with np.errstate(all="ignore"):
        error = np.abs(our_numbers - card_numbers)
        inside = ulps <= MAX_ULPS.get(key, 1)
        inside |= error <= MAX_RELATIVE.get(key, 0) * np.abs(our_numbers)
        inside |= error <= MAX_ABSOLUTE.get(key, 0)
    return inside & (np.isnan(our_numbers) == np.isnan(card_numbers))


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_keep_the_bounds_of_the_isa(name):
    outside = []
    for form in forms_of(name):
        if not is_approximate(form):
            continue
        found, operands, results = computed(form)
        assert not found.is_exact
        type_name = form.modifiers[-1]
        ours, card = parts(results[0], type_name), parts(form.results[0], type_name)
        inside = is_within_bounds(form, ours, card)
        outside += [
            (
                form.opcode,
                [hex(parts(operand, type_name)[lane]) for operand in operands],
                hex(ours[lane]),
                hex(card[lane]),
            )
            for lane in np.flatnonzero(~inside)
        ]
    assert outside == []


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_of_special_values_are_those_of_the_card(name):
    for form in forms_of(name):
        if not is_approximate(form):
            continue
        _, operands, results = computed(form)
        type_name = form.modifiers[-1]
        ours, card = parts(results[0], type_name), parts(form.results[0], type_name)
        is_special = np.ones(len(ours), bool)
        for operand in operands:
            values = numbers(parts(operand, type_name), type_name.removesuffix("x2"))
            is_special &= (values == 0) | ~np.isfinite(values)
        assert is_special.sum() > 10
        assert np.array_equal(ours[is_special], card[is_special]), form.opcode
