"""Words of bit fields: encode, decode, and what does not fit."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.bits import WordField, WordFormat
from tilescope.mma.descriptor_form import WGMMA_FORM

SAMPLE = WordFormat("sample", 32, (WordField("low", 0, 3), WordField("middle", 8, 15, 16), WordField("high", 31, 31)))


@given(st.integers(0, 15), st.integers(0, 255), st.integers(0, 1))
def test_encode_and_decode_are_inverse(low, middle, high):
    values = {"low": low, "middle": 16 * middle, "high": high}
    word = SAMPLE.encode(values)
    assert word == low | middle << 8 | high << 31
    assert SAMPLE.decode(word) == values
    assert SAMPLE.reserved_ones(word) == ()
    assert SAMPLE.problems(values) == []


@given(st.integers(0, (1 << 32) - 1))
def test_reserved_ones_are_what_the_fields_do_not_carry(word):
    rest = word - SAMPLE.encode(SAMPLE.decode(word))
    assert sum(1 << bit for bit in SAMPLE.reserved_ones(word)) == rest


def test_both_sides_of_every_limit():
    for field in WGMMA_FORM.word.fields:
        assert field.problems(field.limit) == []
        assert field.problems(0) == []
        assert len(field.problems(field.limit + field.unit)) == 1
        assert len(field.problems(-field.unit)) == 1
        if field.unit > 1:
            assert len(field.problems(field.unit - 1)) == 1


def test_fields_do_not_overlap():
    assert sum(field.mask for field in WGMMA_FORM.word.fields) == (
        0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62
    )


SMALL_FIELDS = [
    WordField("small", low, low + width_bits - 1, unit, first, signed)
    for low, width_bits, unit, first, signed in product((0, 3), (1, 2, 3), (1, 2, 16), (-2, 0, 1, 5), (False, True))
]


@pytest.mark.parametrize("field", SMALL_FIELDS, ids=repr)
def test_a_field_takes_what_its_bits_can_say_and_nothing_else(field):
    """Whole for small fields: the values that bits decode to are those without a problem, and they encode to these bits."""
    meant = {field.extract(bits << field.low): bits for bits in range(1 << field.width_bits)}
    word = WordFormat("sample", 16, (field,))
    around = range(min(meant) - 2 * field.unit - 1, max(meant) + 2 * field.unit + 2)
    for value in around:
        problems = field.problems(value)
        assert (problems == []) == (value in meant)
        assert word.problems({"small": value}) == problems
        if value in meant:
            assert word.encode({"small": value}) == field.place(value) == meant[value] << field.low
        else:
            advised = [int(number, 16) for number in re.findall(r"-?0x[0-9a-f]+", problems[0].fix)]
            assert advised
            assert all(number in meant for number in advised)
            assert min(abs(value - number) for number in advised) == min(abs(value - number) for number in meant)


@pytest.mark.parametrize(
    ("field", "value", "numbers"),
    [
        (
            WordField("box[0]", 0, 7, first=1),
            0,
            ["0x0", "0x1", "0x100", "0x1"],
        ),
        (
            WordField("lower_corner[0]", 0, 4, signed=True),
            16,
            ["0x10", "-0x10", "0xf", "0xf"],
        ),
        (
            WordField("odd", 0, 3, unit=2, first=1),
            4,
            ["0x4", "0x1", "0x1f", "0x3", "0x5"],
        ),
    ],
)
def test_a_value_that_does_not_fit_is_told_the_range(field, value, numbers, wording):
    (problem,) = field.problems(value)
    assert (problem.rule, problem.argument) == ("descriptor-field", field.name)
    assert re.findall(r"-?0x[0-9a-f]+", str(problem)) == numbers
    wording(f"a value of {field.name} that does not fit", problem)
