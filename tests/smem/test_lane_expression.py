import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.smem.lane_expression import LANE_NAMES, lane_values


@pytest.mark.parametrize(
    ("text", "of_lane"),
    [
        ("(lane % 8) * 144 + lane / 8 * 16", lambda lane: lane % 8 * 144 + lane // 8 * 16),
        ("lane << 4 ^ (lane & 0x18) << 1", lambda lane: lane << 4 ^ (lane & 0x18) << 1),
        ("1 | 2 ^ lane & 3 << 1 + 1", lambda lane: 1 | 2 ^ lane & 3 << 1 + 1),
        ("10 - 4 - lane % 3", lambda lane: 10 - 4 - lane % 3),
        ("100 / 7 / 2 * lane", lambda lane: 100 // 7 // 2 * lane),
        ("lane // 4", lambda lane: lane // 4),
        ("-lane + 31", lambda lane: 31 - lane),
        ("- - lane * -1 + 64", lambda lane: 64 - lane),
        ("~lane & 31", lambda lane: 31 - lane),
        ("0x1Fu & 0b11 * lane", lambda lane: 0x1F & 3 * lane),
        ("\tlane\n* 4ULL ", lambda lane: lane * 4),
        ("7", lambda _: 7),
    ],
)
def test_means_what_c_and_python_mean(text, of_lane):
    assert lane_values(text) == tuple(of_lane(lane) for lane in range(32))


@pytest.mark.parametrize("name", LANE_NAMES)
def test_the_lane_has_the_names_that_kernels_use(name):
    assert lane_values(f"{name}*2") == tuple(range(0, 64, 2))


TREES = st.recursive(
    st.one_of(st.just("lane"), st.integers(0, 40).map(str)),
    lambda part: st.tuples(part, st.sampled_from(["+", "*", "|", "^", "&", "-"]), part, st.booleans()).map(
        lambda each: f"({each[0]} {each[1]} {each[2]})" if each[3] else f"{each[0]} {each[1]} {each[2]}"
    ),
    max_leaves=8,
)


@given(TREES)
def test_equals_pythons_own_reading(text):
    expected = tuple(eval(text, {}, {"lane": lane}) for lane in range(32))
    if max(map(abs, expected)) <= 1 << 40:
        assert lane_values(text) == expected


@given(a=st.integers(0, 99), b=st.integers(1, 99), sign=st.sampled_from(["/", "//", "%", "<<", ">>"]))
def test_division_and_shifts_of_numbers_that_are_not_negative(a, b, sign):
    operations = {
        "/": operator.floordiv,
        "//": operator.floordiv,
        "%": operator.mod,
        "<<": operator.lshift,
        ">>": operator.rshift,
    }
    operation = operations[sign]
    b = b % 20 + 1
    assert lane_values(f"({a} + lane) {sign} {b}") == tuple(operation(a + lane, b) for lane in range(32))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid syntax"),
        ("   ", "invalid syntax"),
        ("lane +", "at character"),
        ("(lane", "was never closed, at character 1"),
        ("(lane 4", "at character [12]"),
        ("lane)", "at character 5"),
        ("lane lane", "at character [16]"),
        ("lane ** 2", r"'lane \*\* 2'; integers, lane"),
        ("lane == 2", "'lane == 2'"),
        ("lane ? 1 : 2", "at character 6"),
        ("lane if lane else 3", "'lane if lane else 3'"),
        ("__import__('os').system('true')", "__import__"),
        ("lane.__class__", "'lane.__class__'"),
        ("().__class__", r"'\(\).__class__'"),
        ("x", "'x'; .* the lane is called lane"),
        ("threadIdx.y", "'threadIdx.y'"),
        ("1e9", "'1e9'"),
        ("1.5", "'1.5'"),
        ("True", "'True'"),
        ("0x", "invalid hexadecimal literal"),
        ("017", "leading 0 as octal.* 17"),
        ("lane / 0", "a division by 0 in lane 0"),
        ("1 / lane", "a division by 0 in lane 0"),
        ("1 % (lane - 3)", "1 divided by -3 in lane 0"),
        ("(lane - 3) / 2", "-3 divided by 2 in lane 0.*divide"),
        ("1 << 41", "a shift by 41 in lane 0"),
        ("1 << -1", "a shift by -1"),
        ("1 >> (lane - 1)", "a shift by -1 in lane 0"),
        ("1 << 40 << 40", "81 bits"),
        ("9" * 499, "1658 bits"),
        ("4 * " * 200 + "4", "801 characters; at most 500"),
        ("(" * 249 + "1" + ")" * 249, "parentheses"),
        ("9999999 * " * 49 + "9", "bits"),
        ("lane;", "at character 5"),
        ("٣", "at character 1"),
        ("\0", "invalid syntax"),
        ("läne", "'läne'"),
    ],
)
def test_everything_else_is_refused_with_the_place(text, reason):
    with pytest.raises(RuleError, match=rf"lane-expression: .*(?:{reason})") as caught:
        lane_values(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("given", [None, 4, b"lane", ["lane"]])
def test_what_is_no_text_is_refused(given):
    with pytest.raises(RuleError, match="argument-type: expression = "):
        lane_values(given)


@given(st.text(alphabet="lane tidx.0123456789+-*/%^&|~<>()", max_size=60))
def test_any_text_gives_32_numbers_or_a_reason(text):
    values, rules = (), []
    try:
        values = lane_values(text)
    except RuleError as error:
        rules = [each.rule for each in error.violations]
    assert (len(values), rules) in ((32, []), (0, ["lane-expression"]))
