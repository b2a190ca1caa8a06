"""The arithmetic of instructions against naive sums: Python's integers for bits, fractions for floats."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.machine.arithmetic import UnknownForm, operation
from tilescope.ptx.syntax import BITS_OF_TYPE

LAYOUT = {  # bits of exponent and fraction
    "f64": (11, 52),
    "f32": (8, 23),
    "bf16": (8, 7),
    "f16": (5, 10),
    "e5m2": (5, 2),
    "e4m3": (4, 3),
    "e3m2": (3, 2),
    "e2m3": (2, 3),
    "e2m1": (2, 1),
}
MODES = ("rn", "rz", "rm", "rp")
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


def bits_of(type_name):
    return 1 + sum(LAYOUT[type_name])


def run(opcode, *operands, result_count=1):
    """The result of one thread as an int (or a tuple of them); operands are ints, booleans for predicates."""
    name, *modifiers = opcode.split(".")
    found = operation(name, tuple(modifiers), len(operands), result_count)
    arrays = []
    for operand, type_name in zip(operands, found.source_types, strict=True):
        bits = BITS_OF_TYPE[type_name]
        arrays.append(np.array([operand], bool if bits == 1 else f"u{bits // 8}"))
    with np.errstate(all="ignore"):
        results = found.compute(*arrays)
    return tuple(int(result[0]) for result in results) if isinstance(results, tuple) else int(results[0])


def number(bits, type_name):
    """The fraction that a finite float stands for."""
    exponent_bits, fraction_bits = LAYOUT[type_name]
    bias = 2 ** (exponent_bits - 1) - 1
    fraction = bits % 2**fraction_bits
    exponent = bits >> fraction_bits & 2**exponent_bits - 1
    if exponent:
        fraction += 2**fraction_bits
    value = fraction * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)
    return -value if bits >> exponent_bits + fraction_bits else value


def nearest(value, type_name, mode):
    """The bits of a fraction other than 0, rounded by counting steps from 0; types with infinities."""
    exponent_bits, fraction_bits = LAYOUT[type_name]
    infinity = 2**exponent_bits - 1 << fraction_bits
    magnitude = abs(value)
    low, high = 0, infinity  # as bits, which are in the order of the numbers; 2^(bias + 1) stands at infinity
    while high - low > 1:
        middle = (low + high) // 2
        if number(middle, type_name) <= magnitude:
            low = middle
        else:
            high = middle
    below = number(low, type_name)
    above = Fraction(2) ** 2 ** (exponent_bits - 1) if high == infinity else number(high, type_name)
    away = (mode == "rp" and value > 0) or (mode == "rm" and value < 0)
    if magnitude == below:
        result = low
    elif mode == "rn":
        distance = magnitude - below - (above - magnitude)
        result = high if distance > 0 or (distance == 0 and low % 2 == 1) else low
    else:
        result = high if away else low
    return result | (value < 0) << exponent_bits + fraction_bits


def test_the_naive_rounding_is_that_of_python():
    for value in (0.1, -1 / 3, 5e-324, 1e308, 2.5e-310):
        assert nearest(Fraction(value), "f64", "rn") == int(np.float64(value).view(np.uint64))
    assert nearest(Fraction(65519), "f16", "rn") == 0x7BFF
    assert nearest(Fraction(65520), "f16", "rn") == 0x7C00
    assert nearest(Fraction(10**9), "f16", "rz") == 0x7BFF


@st.composite
def finite(draw, type_name):
    """Bits of a finite float: any, or one with few bits and an exponent near 1, where sums and products tie."""
    exponent_bits, fraction_bits = LAYOUT[type_name]
    bias = 2 ** (exponent_bits - 1) - 1
    sign = draw(st.booleans()) << exponent_bits + fraction_bits
    if draw(st.booleans()):
        return sign | draw(st.integers(0, (2**exponent_bits - 1 << fraction_bits) - 1))
    exponent = draw(st.integers(bias - min(bias - 1, 30), bias + min(bias, 30)))
    kept = draw(st.integers(0, fraction_bits))
    return sign | exponent << fraction_bits | draw(st.integers(0, 2**kept - 1)) << fraction_bits - kept


FLOATS = st.sampled_from(("f32", "f64", "f16", "bf16"))


def mode_of(data, type_name):
    """A rounding mode that PTX has: f16 and bf16 are rounded to nearest."""
    return data.draw(st.sampled_from(MODES)) if type_name in ("f32", "f64") else "rn"


@given(st.data(), FLOATS, st.sampled_from(("add", "sub", "mul")))
def test_sums_and_products_are_rounded_once(data, type_name, name):
    mode = mode_of(data, type_name)
    a, b = data.draw(finite(type_name)), data.draw(finite(type_name))
    x, y = number(a, type_name), number(b, type_name)
    exact = {"add": x + y, "sub": x - y, "mul": x * y}[name]
    if exact:
        assert run(f"{name}.{mode}.{type_name}", a, b) == nearest(exact, type_name, mode)


@given(st.data(), FLOATS, st.booleans())
def test_a_fma_is_rounded_once(data, type_name, cancels):
    mode = mode_of(data, type_name)
    a, b, c = (data.draw(finite(type_name)) for _ in range(3))
    product = number(a, type_name) * number(b, type_name)
    if cancels and product:  # c next to minus the product: what is left is the product's lower half
        near = nearest(-product, type_name, "rz")
        c = near ^ data.draw(st.integers(0, 3))
    exact = product + number(c, type_name)
    if exact:
        assert run(f"fma.{mode}.{type_name}", a, b, c) == nearest(exact, type_name, mode)


@given(st.data(), st.sampled_from(("f32", "f64")), st.sampled_from(MODES))
def test_a_quotient_is_rounded_once(data, type_name, mode):
    a, b = data.draw(finite(type_name)), data.draw(finite(type_name))
    x, y = number(a, type_name), number(b, type_name)
    if x and y:
        assert run(f"div.{mode}.{type_name}", a, b) == nearest(x / y, type_name, mode)
        assert run(f"rcp.{mode}.{type_name}", b) == nearest(1 / y, type_name, mode)


@given(st.data(), st.sampled_from(("f32", "f64")), st.sampled_from(MODES))
def test_a_root_is_rounded_once(data, type_name, mode):
    a = data.draw(finite(type_name)) % 2 ** (bits_of(type_name) - 1)
    x = number(a, type_name)
    if x:
        scaled = x * Fraction(4) ** 1200  # its root has hundreds of bits, the last of which is only a remainder's
        floor = math.isqrt(scaled.numerator // scaled.denominator)
        is_exact = floor * floor == scaled
        root = Fraction(2 * floor + (not is_exact), 2) / Fraction(2) ** 1200
        assert run(f"sqrt.{mode}.{type_name}", a) == nearest(root, type_name, mode)


def test_the_fma_that_two_roundings_get_wrong():
    # (2^12 + 1) * (2^12 + 1) = 2^24 + 2^13 + 1 lies half way between two f32. 2^-60 more decides, and a double drops it.
    factor, more, less = 0x45800800, 0x21800000, 0xA1800000
    below = 0x4B801000  # 2^24 + 2^13, which is even
    assert run("fma.rn.f32", factor, factor, 0) == below
    assert run("fma.rn.f32", factor, factor, more) == below + 1
    assert run("fma.rn.f32", factor, factor, less) == below
    assert run("fma.rp.f32", factor, factor, less) == below + 1


def test_a_cancelled_sum_is_negative_zero_only_when_rounding_down():
    one, minus_one = 0x3F800000, 0xBF800000
    assert [run(f"add.{mode}.f32", one, minus_one) for mode in MODES] == [0, 0, 0x80000000, 0]
    assert [run(f"fma.{mode}.f32", one, one, minus_one) for mode in MODES] == [0, 0, 0x80000000, 0]
    double_one, double_minus_one = 0x3FF0 << 48, 0xBFF0 << 48
    assert [run(f"fma.{mode}.f64", double_one, double_one, double_minus_one) for mode in MODES] == [0, 0, 1 << 63, 0]


@given(st.data(), st.sampled_from(("f32", "f16", "bf16")))
def test_a_smaller_and_a_larger_one(data, type_name):
    a, b = data.draw(finite(type_name)), data.draw(finite(type_name))
    sign = 1 << bits_of(type_name) - 1
    order = sorted([a, b], key=lambda bits: (number(bits, type_name), bits & sign == 0))
    assert [run(f"min.{type_name}", a, b), run(f"max.{type_name}", a, b)] == order


def test_extremes_of_three_floats():
    one, two, minus_three, nan = 0x3F800000, 0x40000000, 0xC0400000, 0x7FC00000
    assert run("max.f32", one, two, minus_three) == two
    assert run("max.abs.f32", one, two, minus_three) == 0x40400000
    assert run("min.f32", nan, two, minus_three) == minus_three
    assert run("min.NaN.f32", nan, two, minus_three) == 0x7FFFFFFF


# Forms of sm_100, which no recording has: pairs of f32, and sums whose first operands are narrow.


@given(st.lists(finite("f32"), min_size=6, max_size=6), st.sampled_from(MODES))
def test_pairs_of_f32_are_two_f32(words, mode):
    a, b, c = ([words[2 * i], words[2 * i + 1]] for i in range(3))
    singles = [run(f"fma.{mode}.f32", *lane) for lane in zip(a, b, c, strict=True)]
    both = run(f"fma.{mode}.f32x2", *[low | high << 32 for low, high in (a, b, c)])
    assert both == singles[0] | singles[1] << 32


@given(st.data(), st.sampled_from(("f16", "bf16")), st.sampled_from(MODES))
def test_mixed_sums_widen_the_narrow_operands_first(data, narrow, mode):
    a, b, c = data.draw(finite(narrow)), data.draw(finite(narrow)), data.draw(finite("f32"))
    exact = number(a, narrow) + number(c, "f32")
    if exact:
        assert run(f"add.{mode}.f32.{narrow}", a, c) == nearest(exact, "f32", mode)
    exact = number(a, narrow) * number(b, narrow) + number(c, "f32")
    if exact:
        assert run(f"fma.{mode}.f32.{narrow}", a, b, c) == nearest(exact, "f32", mode)


@given(st.data(), FLOATS, FLOATS, st.sampled_from(MODES))
def test_a_narrower_float_is_rounded_once(data, source, result, mode):
    a = data.draw(finite(source))
    if bits_of(source) > bits_of(result) and number(a, source):
        assert run(f"cvt.{mode}.{result}.{source}", a) == nearest(number(a, source), result, mode)


@given(st.data(), FLOATS, st.sampled_from(("u", "s")), st.sampled_from((16, 32, 64)), st.sampled_from(MODES))
def test_integers_become_floats_by_one_rounding(data, result, kind, bits, mode):
    a = data.draw(st.integers(0, 2**bits - 1) | st.integers(0, bits - 1).map(lambda power: 2**power + 1))
    value = a - (a >> bits - 1 << bits) if kind == "s" else a
    if value:
        assert run(f"cvt.{mode}.{result}.{kind}{bits}", a) == nearest(Fraction(value), result, mode)


@given(st.data(), FLOATS, st.sampled_from(("u", "s")), st.sampled_from((8, 16, 32, 64)))
def test_floats_become_integers_and_are_clamped(data, source, kind, bits):
    rounding, whole = data.draw(
        st.sampled_from([("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)])
    )
    a = data.draw(finite(source))
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind == "s" else (0, 2**bits - 1)
    expected = min(max(whole(number(a, source)), least), most)
    assert run(f"cvt.{rounding}.{kind}{bits}.{source}", a) == expected % 2 ** max(bits, 32 if bits == 8 else 0)


@pytest.mark.parametrize("small", ["e5m2", "e4m3", "e3m2", "e2m3", "e2m1"])
@given(st.data())
def test_small_floats_are_rounded_once_and_stay_finite(small, data):
    a = data.draw(finite("f32"))
    most = {"e5m2": 0x7B, "e4m3": 0x7E}.get(small, 2 ** (bits_of(small) - 1) - 1)
    patterns = range(most + 1)
    value = abs(number(a, "f32"))
    # The nearest of all patterns, an even one of two; what is too large is the largest.
    expected = min(patterns, key=lambda bits: (abs(number(bits, small) - value), bits % 2))
    expected |= (a >> 31) << bits_of(small) - 1
    place = 4 if small == "e2m1" else 8
    assert run(f"cvt.rn.satfinite.{small}x2.f32", a, 0) == expected << place
    assert run(f"cvt.rn.satfinite.{small}x2.f32", 0, a) == expected
    without_sign = 0 if a >> 31 else expected
    assert run(f"cvt.rn.satfinite.relu.{small}x2.f32", 0, a) == without_sign


@pytest.mark.parametrize("small", ["e5m2", "e4m3", "e3m2", "e2m3", "e2m1"])
def test_small_floats_become_f16_exactly(small):
    most = {"e5m2": 0x7B, "e4m3": 0x7E}.get(small, 2 ** (bits_of(small) - 1) - 1)
    for bits in range(1, most + 1):
        expected = nearest(number(bits, small), "f16", "rn")
        assert run(f"cvt.rn.f16x2.{small}x2", bits) == expected


def test_nan_in_small_floats():
    nan = 0xFFC00000
    found = [run(f"cvt.rn.satfinite.{small}x2.f32", 0, nan) for small in ("e5m2", "e4m3", "e3m2", "e2m3", "e2m1")]
    assert found == [0x7F, 0x7F, 0x1F, 0x1F, 0x7]


@pytest.mark.parametrize(
    ("number_bits", "towards_zero", "up"),
    [
        (0x3F800000, 127, 127),  # 1
        (0x3F800001, 127, 128),
        (0x3FC00000, 127, 128),  # 1.5
        (0xC0000000, 128, 128),  # the sign does not count
        (0x00000000, 0, 0),
        (0x00400000, 0, 0),  # 2^-127
        (0x00400001, 0, 1),
        (0x7F7FFFFF, 254, 254),
        (0x7F800000, 254, 254),
        (0x7FC00000, 255, 255),
    ],
)
def test_scale_factors_are_exponents(number_bits, towards_zero, up):
    assert run("cvt.rz.satfinite.ue8m0x2.f32", number_bits, 0x3F800000) == towards_zero << 8 | 127
    assert run("cvt.rp.satfinite.ue8m0x2.f32", 0x3F800000, number_bits) == 127 << 8 | up


def test_scale_factors_as_bf16():
    assert run("cvt.rn.bf16x2.ue8m0x2", 0x7F80) == 0x3F80_4000  # 1 and 2
    assert run("cvt.rn.bf16x2.ue8m0x2", 0x00FF) == 0x0040_7FFF  # 2^-127 and NaN


@given(finite("f32"), st.integers(0, 2**13 - 1))
def test_random_bits_round_up_where_they_carry(a, random):
    if 0x38800000 <= a % 2**31 < 0x477FE000:  # what f16 holds as a normal number
        towards_zero = nearest(number(a, "f32"), "f16", "rz")
        expected = towards_zero + (a % 2**13 + random >= 2**13)
        assert run("cvt.rs.f16x2.f32", 0, a, random) == expected
        assert run("cvt.rs.f16x2.f32", a, 0, random << 16) == expected << 16


def test_tf32():
    assert run("cvt.rn.tf32.f32", 0x3F801000) == 0x3F800000  # a tie, to even
    assert run("cvt.rna.tf32.f32", 0x3F801000) == 0x3F802000  # away from zero
    assert run("cvt.rz.tf32.f32", 0x3F801FFF) == 0x3F800000
    assert run("cvt.rn.satfinite.tf32.f32", 0xFF800000) == 0xFF7FE000
    assert run("cvt.rn.relu.tf32.f32", 0xBF800000) == 0


@given(U64, U64, U64)
def test_the_upper_half_of_a_product_of_64_bits(a, b, c):
    def as_signed(word):
        return word - (word >> 63 << 64)

    assert run("mul.hi.u64", a, b) == a * b >> 64
    assert run("mul.hi.s64", a, b) == (as_signed(a) * as_signed(b) >> 64) % 2**64
    assert run("mad.hi.u64", a, b, c) == ((a * b >> 64) + c) % 2**64


@given(U32, U32)
def test_signed_quotients_go_towards_zero(a, b):
    x, y = a - (a >> 31 << 32), b - (b >> 31 << 32)
    if y:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert run("div.s32", a, b) == quotient % 2**32
        assert run("rem.s32", a, b) == (x - quotient * y) % 2**32
        assert run("div.u32", a, b) == a // b
        assert run("rem.u32", a, b) == a % b


@given(U64, U64)
def test_quotients_of_64_bits(a, b):
    x, y = a - (a >> 63 << 64), b - (b >> 63 << 64)
    if y:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert run("div.s64", a, b) == quotient % 2**64
        assert run("rem.s64", a, b) == (x - quotient * y) % 2**64
        assert run("div.u64", a, b) == a // b


@given(st.data(), st.sampled_from((32, 64)), st.sampled_from(("u", "s")), st.integers(0, 70), st.integers(0, 70))
def test_a_field_is_extracted_bit_by_bit(data, width, kind, start, length):
    a = data.draw(st.integers(0, 2**width - 1))
    sign_place = min(start + length - 1, width - 1)
    sign = a >> sign_place & 1 if kind == "s" and length else 0
    expected = 0
    for place in range(width):
        inside = place < length and start + place < width
        expected |= (a >> start + place & 1 if inside else sign) << place
    assert run(f"bfe.{kind}{width}", a, start, length) == expected


@given(st.data(), st.sampled_from((32, 64)), st.integers(0, 70), st.integers(0, 70))
def test_a_field_is_inserted_bit_by_bit(data, width, start, length):
    a, b = (data.draw(st.integers(0, 2**width - 1)) for _ in range(2))
    expected = b
    for place in range(length):
        if start + place < width:
            expected = expected & ~(1 << start + place) | (a >> place & 1) << start + place
    assert run(f"bfi.b{width}", a, b, start, length) == expected


@given(U32, U32, U32)
def test_bytes_are_permuted(a, b, selector):
    source = (b << 32 | a).to_bytes(8, "little")
    expected = []
    for place in range(4):
        digit = selector >> 4 * place & 0xF
        byte = source[digit % 8]
        expected.append((0xFF if byte >= 0x80 else 0) if digit >= 8 else byte)
    assert run("prmt.b32", a, b, selector) == int.from_bytes(expected, "little")


@given(U32, U32, U32, st.integers(0, 255))
def test_every_function_of_three_words(a, b, c, table):
    expected = 0
    for place in range(32):
        row = (a >> place & 1) << 2 | (b >> place & 1) << 1 | c >> place & 1
        expected |= (table >> row & 1) << place
    assert run("lop3.b32", a, b, c, table) == expected


def test_the_tables_of_lop3_are_those_of_the_manual():
    a, b, c = 0xF0, 0xCC, 0xAA
    assert run("lop3.b32", a, b, c, 0x80) & 0xFF == a & b & c
    assert run("lop3.b32", a, b, c, 0x1A) & 0xFF == (a & b | c) ^ a


@given(U32, U32, st.integers(0, 80))
def test_a_funnel_shift(a, b, amount):
    both = b << 32 | a
    clamped, wrapped = min(amount, 32), amount % 32
    assert run("shf.l.clamp.b32", a, b, amount) == both << clamped >> 32 & 0xFFFFFFFF
    assert run("shf.r.clamp.b32", a, b, amount) == both >> clamped & 0xFFFFFFFF
    assert run("shf.l.wrap.b32", a, b, amount) == both << wrapped >> 32 & 0xFFFFFFFF
    assert run("shf.r.wrap.b32", a, b, amount) == both >> wrapped & 0xFFFFFFFF


@given(U64, st.integers(0, 80))
def test_a_shift_beyond_the_width_leaves_zeros_or_the_sign(a, amount):
    for bits in (16, 32, 64):
        word = a % 2**bits
        value = word - (word >> bits - 1 << bits)
        assert run(f"shl.b{bits}", word, amount) == (word << amount) % 2**bits
        assert run(f"shr.u{bits}", word, amount) == word >> amount
        assert run(f"shr.s{bits}", word, amount) == (value >> amount) % 2**bits


@given(U64)
def test_bits_are_counted(a):
    for bits in (32, 64):
        word = a % 2**bits
        assert run(f"popc.b{bits}", word) == word.bit_count()
        assert run(f"clz.b{bits}", word) == bits - word.bit_length()
        assert run(f"brev.b{bits}", word) == int(f"{word:0{bits}b}"[::-1], 2)
        assert run(f"bfind.u{bits}", word) == (word.bit_length() - 1) % 2**32


def test_a_comparison_and_its_opposite():
    assert run("setp.lt.and.s32", 0xFFFFFFFF, 0, True, result_count=2) == (1, 0)  # -1 < 0
    assert run("setp.lt.and.u32", 0xFFFFFFFF, 0, True, result_count=2) == (0, 1)
    assert run("setp.lt.and.s32", 0xFFFFFFFF, 0, False, result_count=2) == (0, 0)


def test_a_nan_is_unequal_to_everything_only_in_unordered_comparisons():
    nan = 0x7FC00000
    ordered = [run(f"setp.{compare}.f32", nan, nan) for compare in ("eq", "ne", "lt", "le", "gt", "ge", "num")]
    assert ordered == [0] * 7
    unordered = [run(f"setp.{compare}.f32", nan, 0) for compare in ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")]
    assert unordered == [1] * 7


@pytest.mark.parametrize(
    ("opcode", "reason"),
    [
        ("add.rn.sat.f64", "add.f64 has no .sat"),
        ("add.wide.u32", "no modifier .wide"),
        ("mul.wide.u64", ".wide has no type .u64"),
        ("min.relu.u32", "min.relu has no type .u32"),
        ("setp.lo.s32", ".lo does not compare .s32"),
        ("setp.lt.b32", ".lt does not compare .b32"),
        ("div.f32", "div.f32 needs a rounding mode"),
        ("cvt.s32.f32", "cvt.s32.f32 needs .rni, .rzi, .rmi or .rpi"),
        ("cvt.rn.f16.e4m3x2", "cvt has no form .f16.e4m3x2"),
        ("cvt.rn.s8x4.f32", "no type .s8x4"),
        ("shf.l.b32", ".clamp or .wrap"),
        ("fma.rn.relu.f32", "fma.f32 has no .relu"),
        ("rsqrt.rn.f32", "rsqrt.rn.f32 has no such type"),
        ("add", "add has no type"),
        ("frobnicate.u32", "no instruction frobnicate"),
    ],
)
def test_unknown_forms_say_what_is_not_understood(opcode, reason, wording):
    name, *modifiers = opcode.split(".")
    with pytest.raises(UnknownForm) as refused:
        operation(name, tuple(modifiers))
    assert reason in str(refused.value)
    wording(f"unknown form {opcode}", refused.value)


def test_a_wrong_number_of_operands_is_refused():
    assert len(operation("add", ("u32",), 2).source_types) == 2
    with pytest.raises(UnknownForm, match=r"add\.u32 takes 2 source operands, not 3"):
        operation("add", ("u32",), 3)
