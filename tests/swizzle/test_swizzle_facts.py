"""Facts about swizzle modes: the numbers in the sentences are those of the hardware's table."""

import pytest

from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.swizzle.swizzle_facts import facts

MODE_128B = Swizzle.named("128B")


def base_offset(address):
    return facts(MODE_128B, address)["base offset"]


def test_a_buffer_on_the_pattern_has_base_offset_0_and_no_advice():
    assert base_offset(0x800) == "0 = (0x800 / 128) mod 8"


def test_a_buffer_off_the_pattern_is_told_both_neighbours():
    assert base_offset(0x480).startswith("1 = (0x480 / 128) mod 8")
    assert "0x400 and 0x800 have 0" in base_offset(0x480)
    assert "TMA refuses" not in base_offset(0x480)


def test_an_address_off_128_is_refused_by_tma():
    assert "TMA refuses 0x490: it is not a multiple of 128" in base_offset(0x490)


@pytest.mark.parametrize(
    ("mode", "bits"), [("32B", "4 XORed with 7"), ("64B", "5:4 XORed with 8:7"), ("128B", "6:4 XORed with 9:7")]
)
def test_the_address_bits_are_those_of_the_table(mode, bits):
    assert facts(SWIZZLE[mode])["address bits"] == bits


def test_no_swizzle_has_no_pattern_and_no_width():
    plain = facts(SWIZZLE["none"])
    assert plain["repeats"] == "no pattern: every line looks the same"
    assert "address bits" not in plain
    assert any("any multiple of 16 bytes" in fact for fact in plain.values())
    assert not any("any multiple of 16 bytes" in fact for fact in facts(MODE_128B).values())
