"""The colours can be told apart in greyscale and by colour-blind eyes, and text on them can be read."""

import itertools
import math

import pytest
from rich.color import Color, ColorSystem

from tilescope.view.palette import CHUNK_COLOURS, MARK_SIGN, ROLES, colour_of

LEAST_LIGHTNESS_STEP = 8  # of 100, between a chunk and the next
LEAST_DISTANCE = 18  # CIE76; about 2 can just be seen side by side
LEAST_CONTRAST = 4.5  # WCAG AA for text

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB: what the named eye makes of a colour.
EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def lab(rgb):
    x = (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.95047
    z = (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, luminance(rgb), z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen_by(eye, rgb):
    return [
        min(1.0, max(0.0, sum(factor * value for factor, value in zip(row, rgb, strict=True)))) for row in EYES[eye]
    ]


def contrast(one, other):
    low, high = sorted((luminance(linear(one)), luminance(linear(other))))
    return (high + 0.05) / (low + 0.05)


def test_the_measures_know_black_white_and_grey():
    assert lab(linear("#ffffff")) == pytest.approx((100, 0, 0), abs=0.1)
    assert lab(linear("#777777"))[0] == pytest.approx(50, abs=0.5)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert seen_by("protanopia", linear("#ffffff")) == pytest.approx([1, 1, 1], abs=0.01)


def test_chunk_colours_grow_lighter_by_equal_steps():
    lightness = [lab(linear(colour.fill))[0] for colour in CHUNK_COLOURS]
    steps = [high - low for low, high in itertools.pairwise(lightness)]
    assert len(CHUNK_COLOURS) == 8
    assert min(steps) >= LEAST_LIGHTNESS_STEP, steps
    assert max(steps) < 1.2 * min(steps), steps


@pytest.mark.parametrize("eye", EYES)
def test_every_two_chunk_colours_differ_to_every_eye(eye):
    seen = [lab(seen_by(eye, linear(colour.fill))) for colour in CHUNK_COLOURS]
    for one, other in itertools.combinations(range(8), 2):
        assert math.dist(seen[one], seen[other]) >= LEAST_DISTANCE, (one, other)


@pytest.mark.parametrize("eye", ["normal", "protanopia", "deuteranopia"])
def test_odd_and_even_chunks_are_warm_and_cool(eye):
    yellowness = [lab(seen_by(eye, linear(colour.fill)))[2] for colour in CHUNK_COLOURS]
    assert max(yellowness[0::2]) < 0 < min(yellowness[1::2])


@pytest.mark.parametrize("colour", [*CHUNK_COLOURS, *ROLES.values()], ids=lambda colour: colour.name)
def test_text_on_every_colour_can_be_read(colour):
    assert contrast(colour.fill, colour.ink) >= LEAST_CONTRAST


@pytest.mark.parametrize("colour", CHUNK_COLOURS, ids=lambda colour: colour.name)
def test_a_terminal_shows_the_same_colours(colour):
    assert colour.terminal == f"{colour.ink} on {colour.fill}"


def test_chunk_colours_differ_on_terminals_of_16_colours():
    """Where rich shows the nearest of a terminal's own 16, chunks 2 and 4 were one cyan."""
    shown = [Color.parse(colour.fill).downgrade(ColorSystem.STANDARD).number for colour in CHUNK_COLOURS]
    assert len(set(shown)) == len(CHUNK_COLOURS), shown


def test_numbers_beyond_eight_repeat_the_colours():
    assert [colour_of(lane) for lane in range(32)] == [*CHUNK_COLOURS] * 4


def test_roles_and_nothing_have_a_colour():
    assert all(colour_of(role) is ROLES[role] for role in ROLES)
    assert colour_of(None) is ROLES["background"]
    assert len({colour.name for colour in (*CHUNK_COLOURS, *ROLES.values())}) == 8 + len(ROLES)


def test_what_is_no_data_is_hatched_or_nearly_white():
    """So it cannot be taken for a chunk in greyscale either."""
    for role in ("gap", "fill"):
        assert ROLES[role].hatched
    assert lab(linear(ROLES["unused"].fill))[0] > lab(linear(CHUNK_COLOURS[7].fill))[0]


def test_marks_have_signs_of_their_own():
    assert len(set(MARK_SIGN.values())) == len(MARK_SIGN)
    assert MARK_SIGN[""] == ""
