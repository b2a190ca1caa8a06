"""cvt.rs to four small floats, against exact fractions: which random numbers round up, and what becomes of the ends of a range."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilescope.machine.kernel import Kernel

TYPES = {
    "e4m3x4": ml_dtypes.float8_e4m3fn,
    "e5m2x4": ml_dtypes.float8_e5m2,
    "e2m3x4": ml_dtypes.float6_e2m3fn,
    "e3m2x4": ml_dtypes.float6_e3m2fn,
    "e2m1x4": ml_dtypes.float4_e2m1fn,
}


def converted(name, rows, random, relu=""):
    """The four results of every row of four floats, a in front."""
    register, bits = (".b16", 16) if name == "e2m1x4" else (".b32", 32)
    text = f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 random, .param .u64 out)
{{
    .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<5>; .reg {register} %w;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [in]; mul.wide.u32 %d2, %r1, 16; add.s64 %d1, %d1, %d2;
    ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%d1];
    ld.param.u64 %d1, [random]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;
    ld.global.u32 %r2, [%d1];
    cvt.rs{relu}.satfinite.{name}.f32 %w, {{%f1, %f2, %f3, %f4}}, %r2;
    ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r1, {bits // 8}; add.s64 %d1, %d1, %d2;
    st.global.b{bits} [%d1], %w;
    ret;
}}
"""
    source = np.array(rows, np.float32)
    out = np.zeros(len(source), f"u{bits // 8}")
    run = Kernel(text).run(1, len(source), [source, np.array(random, np.uint32), out])
    assert run.outcome == "finished"
    assert run.inexact == (f"cvt.rs{relu}.satfinite.{name}.f32",)
    place = bits // 4
    codes = [[int(word) >> place * (3 - lane) & (1 << place) - 1 for lane in range(4)] for word in out]
    return np.array(codes, np.uint8).view(TYPES[name]).astype(np.float64)


def slices(name, random):
    """The 16 bits of each result, from the word of random bits."""
    bits = f"{random:032b}"  # bit 31 in front
    if name == "e2m1x4":
        upper, lower = bits[0:8] + bits[16:24], bits[8:16] + bits[24:32]
    else:
        upper, lower = bits[:16], bits[16:]
    return [int(one, 2) for one in (upper[::-1], upper, lower[::-1], lower)]


def numbers(name):
    """The finite numbers of a format that are not negative, in order."""
    kind = TYPES[name]
    every = np.arange(1 << ml_dtypes.finfo(kind).bits - 1, dtype=np.uint8).view(kind).astype(np.float64)
    return sorted(Fraction(float(one)) for one in every[np.isfinite(every)])


def expected(name, value, random):
    """The number below, or the one above where the random part of a step reaches it."""
    grid = numbers(name)
    magnitude = abs(Fraction(float(value)))
    if magnitude >= grid[-1]:
        return float(np.copysign(float(grid[-1]), value))
    below = max(one for one in grid if one <= magnitude)
    step = min(one for one in grid if one > below) - below
    rounded = below + step if magnitude + Fraction(random, 1 << 16) * step >= below + step else below
    return float(np.copysign(float(rounded), value))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", TYPES)
def test_random_bits_decide_between_the_neighbours(name):
    generator = np.random.default_rng(3)
    most = float(numbers(name)[-1])
    least = float(numbers(name)[1])
    rows = np.concatenate(
        [
            generator.uniform(-most, most, (40, 4)),
            generator.uniform(-2 * least, 2 * least, (20, 4)),
            np.exp2(generator.uniform(-12, np.log2(most), (40, 4))),
        ]
    ).astype(np.float32)
    random = generator.integers(0, 1 << 32, len(rows), dtype=np.uint32)
    random[:4] = 0, 0xFFFFFFFF, 0xFFFF, 0x80000000
    wanted = [
        [expected(name, value, own) for value, own in zip(row, slices(name, int(word)), strict=True)]
        for row, word in zip(rows, random, strict=True)
    ]
    np.testing.assert_array_equal(converted(name, rows, random), np.array(wanted))


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_the_format_stay_whatever_the_random_bits(name):
    grid = [float(one) for one in numbers(name)]
    rows = [[one, -one, one, -one] for one in grid]
    np.testing.assert_array_equal(converted(name, rows, [0xFFFFFFFF] * len(rows)), np.array(rows))


@pytest.mark.parametrize("name", TYPES)
def test_infinities_saturate_and_negatives_end_at_zero_with_relu(name):
    most = float(numbers(name)[-1])
    rows = [[np.inf, -np.inf, 1e30, -1e30]]
    assert converted(name, rows, [0]).tolist() == [[most, -most, most, -most]]
    assert converted(name, rows, [0], ".relu").tolist() == [[most, 0, most, 0]]


@pytest.mark.parametrize("name", ["e4m3x4", "e5m2x4"])
def test_nan_stays_nan(name):
    assert np.isnan(converted(name, [[np.nan, 1, 1, np.nan]], [0xFFFFFFFF])).tolist() == [[True, False, False, True]]
