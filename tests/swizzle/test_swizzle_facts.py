"""Facts about swizzle modes: the numbers in the sentences are those of the hardware's table."""

import pytest

from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.swizzle.swizzle_facts import facts, rule_sentence

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


# cuda.h, CUtensorMapSwizzle; PTX ISA, "Matrix Descriptor Format" of wgmma and "Shared memory descriptor" of tcgen05.
PUBLISHED_CODES = {
    "none": ("0", "0", "0"),
    "32B": ("1", "3", "6"),
    "64B": ("2", "2", "4"),
    "128B": ("3", "1", "2"),
    "96B": ("-", "-", "-"),
    "128B_ATOM_32B": ("4", "-", "1"),
    "128B_ATOM_32B_FLIP_8B": ("5", "-", "-"),
    "128B_ATOM_64B": ("6", "-", "-"),
}


@pytest.mark.parametrize("mode", PUBLISHED_CODES)
def test_codes_names_and_sources_are_those_of_the_readers_that_have_the_mode(mode):
    driver, wgmma, tcgen05 = PUBLISHED_CODES[mode]
    told = facts(SWIZZLE[mode])
    for reader, code in (("driver", driver), ("wgmma", wgmma), ("tcgen05", tcgen05)):
        assert f"{reader} {code}" in told["codes"].split(", ")
    assert (f"CU_TENSOR_MAP_SWIZZLE_{mode}".upper() in told["names"]) == (driver != "-")
    assert ("cuda.h" in told["sources"]) == (driver != "-")
    assert ("CUDA C++ Programming Guide" in told["sources"]) == (mode in {"none", "32B", "64B", "128B"})
    assert ("tensormap.replace" in told["sources"]) == (driver == "-")
    assert ("wgmma" in told["sources"]) == (wgmma != "-")
    assert ("tcgen05" in told["sources"]) == (tcgen05 != "-")


# CuTe's sw128 and the like: the bits that change, the lowest of them, and how far the causing bits are above them.
CUTE_SWIZZLES = {
    "none": "Swizzle<0,4,3>",
    "32B": "Swizzle<1,4,3>",
    "64B": "Swizzle<2,4,3>",
    "128B": "Swizzle<3,4,3>",
    "128B_ATOM_32B": "Swizzle<2,5,2>",
    "128B_ATOM_64B": "Swizzle<1,6,1>",
}


@pytest.mark.parametrize("mode", SWIZZLE)
def test_a_mode_that_is_a_swizzle_of_cute_has_its_name(mode):
    """Two are not: CuTe does not exchange the halves of a chunk, and 96B is no XOR of address bits."""
    names = facts(SWIZZLE[mode])["names"]
    if mode in CUTE_SWIZZLES:
        assert CUTE_SWIZZLES[mode] in names
    else:
        assert "CuTe" not in names


def test_the_row_of_96b_is_not_said_to_leave_gaps():
    assert "at most 96 bytes" in facts(SWIZZLE["96B"])["inner width"]
    assert "gaps" not in facts(SWIZZLE["96B"])["inner width"]
    assert "gaps" in facts(SWIZZLE["64B"])["inner width"]


@pytest.mark.parametrize(("triple", "bits"), [((3, 4, 3), "6:4 XORed with 9:7"), ((2, 4, -3), "8:7 XORed with 5:4")])
def test_a_negative_shift_exchanges_the_bits(triple, bits):
    assert facts(Swizzle.xor(*triple))["address bits"] == bits


def test_an_xor_that_equals_a_mode_names_who_takes_it():
    assert "TMA, `wgmma` and `tcgen05` take it" in facts(Swizzle.xor(3, 4, 3))["equals"]
    assert "TMA and `tcgen05` take it" in facts(Swizzle.xor(2, 5, 2))["equals"]
    assert "TMA takes it" in facts(Swizzle.xor(1, 6, 1))["equals"]
    assert facts(Swizzle.xor(5, 2, 5))["used by"].startswith("software alone")


def test_an_address_off_128_of_a_software_swizzle_is_not_refused():
    told = facts(Swizzle.xor(5, 2, 5), 0x490)["base offset"]
    assert "TMA refuses" not in told
    assert told.endswith("The marked cell holds the address")


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("64B", "Chunk c of line l (128 bytes) is stored at place c XOR (l mod 4)."),
        ("128B_ATOM_32B", "Pair of chunks p = c / 2 of line l (128 bytes) is stored at place p XOR (l mod 4)."),
        ("128B_ATOM_64B", "Half h = c / 4 of line l (128 bytes) is stored at place h XOR (l mod 2)."),
    ],
)
def test_the_sentence_names_the_piece_that_moves(mode, sentence):
    assert rule_sentence(SWIZZLE[mode]).startswith(sentence)


@pytest.mark.parametrize(
    ("triple", "changed", "causing"),
    [((1, 4, 5), "bit 4 ", " bit 9."), ((2, 4, 5), "bits 5:4 ", " bits 10:9."), ((1, 4, -3), "bit 7 ", " bit 4.")],
)
def test_the_sentence_of_a_software_swizzle_names_its_address_bits(triple, changed, causing):
    sentence = rule_sentence(Swizzle.xor(*triple))
    assert changed in sentence
    assert sentence.endswith(causing)
