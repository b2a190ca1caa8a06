"""Words of bit fields: encode, decode, and what does not fit."""

from hypothesis import given
from hypothesis import strategies as st

from tilescope.bits import WordField, WordFormat
from tilescope.mma.descriptor import FORMS

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
    for field in FORMS["wgmma"].word.fields:
        assert field.problems(field.limit) == []
        assert field.problems(0) == []
        assert len(field.problems(field.limit + field.unit)) == 1
        assert len(field.problems(-field.unit)) == 1
        if field.unit > 1:
            assert len(field.problems(field.unit - 1)) == 1


def test_fields_do_not_overlap():
    assert sum(field.mask for field in FORMS["wgmma"].word.fields) == (
        0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62
    )
