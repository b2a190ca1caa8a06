"""The table of cards: an H200 cell by cell as it was measured, the others as their datasheets say."""

from typing import get_args

import pytest

import tilescope as ts
from tilescope.card import CARD, Card, CardName, card_called

# name, architecture, SMs, MHz, MiB of L2, GB/s, and TFLOP/s of bf16, tf32, e4m3, e2m1, int8: dense, 32-bit sums
DATASHEETS = """
H200         sm_90   132  1980  60    4559   790    494.5  1979   -     1979
H100 SXM     sm_90   132  1980  50    3350   989.5  494.5  1979   -     1979
H100 PCIe    sm_90   114  1755  50    2000   756.5  378    1513   -     1513
A100         sm_80   108  1410  40    2039   312    156    -      -     624
L40S         sm_89   142  2520  -     864    362    183    733    -     733
RTX 4090     sm_89   128  2520  72    1008   165.2  82.6   330.3  -     660.6
RTX 5090     sm_120  170  2407  96    1792   209.5  104.8  419    1676  838
RTX PRO 6000 sm_120  188  2617  128   1792   503.8  251.9  1007.6 2015.2 1007.6
B200         sm_100  148  -     -     8000   2250   1125   4500   9000  4500
B300         sm_103  148  -     -     8000   2250   1125   4500   14000 150
"""


@pytest.mark.parametrize("line", DATASHEETS.strip().splitlines(), ids=lambda line: line[:13].strip())
def test_every_card_is_as_its_datasheet_says(line):
    card = CARD[line[:13].strip()]
    arch, *cells = line[13:].split()
    sms, clock, l2, memory, *rates = (None if cell == "-" else float(cell) for cell in cells)
    assert (card.arch.name, card.sms, card.clock_mhz, card.memory_gb_per_s) == (arch, sms, clock, memory)
    assert card.l2_bytes == (None if l2 is None else l2 * 1024 * 1024)
    types = ("bf16", "tf32", "e4m3", "e2m1", "int8")
    assert [card.tflops(ts.DataType.named(name)) for name in types] == rates
    assert card.tflops(ts.DataType.named("f16")) == rates[0]


def test_the_table_is_the_one_in_the_test():
    assert [line[:13].strip() for line in DATASHEETS.strip().splitlines()] == list(CARD)
    assert tuple(CARD) == get_args(CardName)


@pytest.mark.parametrize("card", CARD.values(), ids=lambda card: card.name)
def test_tensor_cores_of_twice_the_width_are_half_as_fast(card):
    """A law of the hardware that the datasheets follow: an error in one cell shows."""
    half, tf32 = card.tflop_per_s["bfloat16"], card.tflop_per_s.get("tfloat32")
    assert tf32 in (None, pytest.approx(half / 2, rel=0.02)) or card.basis("bfloat16") == "measured"
    if "e4m3" in card.tflop_per_s:
        assert card.tflop_per_s["e4m3"] == pytest.approx(2 * (half if card.name != "H200" else 989.5), rel=0.02)


def test_scale_factors_have_a_rate_of_their_own_where_plain_sums_are_slowed_down():
    e4m3, e2m1 = ts.DataType.named("e4m3"), ts.DataType.named("e2m1")
    rtx_5090 = CARD["RTX 5090"]
    assert rtx_5090.tflops(e4m3, "mxfp8") == rtx_5090.peak_tflops(e4m3, "mxfp8") == 2 * rtx_5090.tflops(e4m3)
    assert rtx_5090.tflops(e2m1, "nvfp4") == rtx_5090.tflops(e2m1)
    assert CARD["RTX PRO 6000"].tflops(e4m3, "mxfp8") == CARD["RTX PRO 6000"].tflops(e4m3)


@pytest.mark.parametrize(("name", "in_a_cycle"), [("RTX 5090", 512), ("RTX PRO 6000", 1024)])
def test_the_rates_of_a_white_paper_are_whole_numbers_of_operations_in_a_cycle(name, in_a_cycle):
    card = CARD[name]
    cycles_per_us = card.sms * card.clock_mhz / 1e6
    assert card.tflop_per_s["bfloat16"] == pytest.approx(in_a_cycle * cycles_per_us, rel=1e-3)
    assert card.tflop_per_s["e2m1"] == pytest.approx(4096 * cycles_per_us, rel=1e-3)


def test_only_the_h200_was_measured():
    for card in CARD.values():
        cells = ("sms", "clock_mhz", "l2_bytes", "memory_gb_per_s", "tma", "bfloat16")
        found = {cell: card.basis(cell) for cell in cells}
        if card.name == "H200":
            assert set(found.values()) == {"measured"}
        else:
            assert "measured" not in found.values()
            assert found["tma"] is None
    assert CARD["H200"].basis("e4m3") == "documented"
    assert [CARD["B200"].basis(cell) for cell in ("clock_mhz", "l2_bytes", "nothing")] == [None, None, None]


def test_an_architecture_names_the_card_that_stands_for_it():
    found = {name: getattr(Card.of_arch(row), "name", None) for name, row in ts.ARCH.items()}
    assert found == {
        "sm_80": "A100",
        "sm_86": None,
        "sm_89": "L40S",
        "sm_90": "H200",
        "sm_100": "B200",
        "sm_103": "B300",
        "sm_110": None,
        "sm_120": "RTX 5090",
    }


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("h200", "H200"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("H100", "H100 SXM"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("a100", "A100"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("GB300", None),  # another clock, and other rates
        ("H20", None),
        ("sm_90", None),
    ],
)
def test_cards_are_found_as_people_call_them(called, name):
    assert getattr(card_called(called), "name", None) == name


@pytest.mark.parametrize("name", ["H2000", 9, None])
def test_an_unknown_card_is_refused_with_the_known_ones(name):
    with pytest.raises(ts.RuleError, match="known: H200, H100 SXM"):
        Card.named(name)


def test_a_row_survives_plain_data():
    for card in CARD.values():
        assert Card.from_dict(card.to_dict()) is card
