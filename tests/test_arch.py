"""Architectures are found under every name people use, and say what they have."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.arch import ARCH, Arch, architectures_with
from tilescope.errors import RuleError


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        *((name, name) for name in ARCH),
        *((name.upper(), name) for name in ARCH),
        *((name.removeprefix("sm_"), name) for name in ARCH),
        *((".".join(map(str, row.compute_capability)), name) for name, row in ARCH.items()),
        *((name.replace("sm_", "compute_"), name) for name in ARCH),
        ("sm_90a", "sm_90"),
        ("sm_100f", "sm_100"),
        (" sm_90 ", "sm_90"),
        ("sm90", "sm_90"),
        ("Hopper", "sm_90"),
        ("blackwell", "sm_100"),
        ("sm_121", "sm_120"),  # the documents give both one column
        ("12.1", "sm_120"),
        ("sm_101a", "sm_110"),  # its name before PTX 9.0
    ],
)
def test_is_found_by_its_names(given_name, name):
    assert Arch.named(given_name) is ARCH[name]


def test_row_stands_for_itself():
    assert Arch.named(ARCH["sm_90"]) is ARCH["sm_90"]


@pytest.mark.parametrize(("given_name", "nearest"), [("sm_91", "sm_90"), ("sm-100", "sm_100"), ("sm_1200", "sm_120")])
def test_unknown_name_suggests_the_nearest(given_name, nearest):
    with pytest.raises(RuleError, match=f"Did you mean {nearest}") as caught:
        Arch.named(given_name)
    assert caught.value.violations[0].change == {"arch": nearest}


@pytest.mark.parametrize("strange", [None, 90, 9.0, b"sm_90", ["sm_90"], {}, "", "\x00", "hopper" * 1000])
def test_strange_name_is_a_rule_error(strange):
    with pytest.raises(RuleError, match="unknown-name"):
        Arch.named(strange)


@given(st.text())
def test_any_text_is_found_or_refused(text):
    with suppress(RuleError):
        assert Arch.named(text).name in ARCH


@pytest.mark.parametrize(
    ("feature", "names"),
    [
        ("ldmatrix", "sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_110 sm_120"),
        ("tma", "sm_90 sm_100 sm_103 sm_110 sm_120"),
        ("wgmma", "sm_90"),
        ("tcgen05", "sm_100 sm_103 sm_110"),
        ("mma_f8f6f4", "sm_120"),
    ],
)
def test_feature_lists_its_architectures(feature, names):
    assert architectures_with(feature) == tuple(names.split())


@pytest.mark.parametrize(
    ("name", "feature", "target"),
    [
        ("sm_90", "tma", "sm_90"),
        ("sm_90", "wgmma", "sm_90a"),
        ("sm_100", "tcgen05", "sm_100a"),
        ("sm_103", "swizzle_96B", "sm_103a"),
        ("sm_80", "tma", None),
        ("sm_90", "tcgen05", None),
    ],
)
def test_target_to_compile_for(name, feature, target):
    assert Arch.named(name).target(feature) == target


def test_a_target_exists_exactly_where_the_feature_does():
    for row in ARCH.values():
        for feature in row.features:
            assert row.has(feature) == (row.target(feature) is not None) == (row.name in architectures_with(feature))


@pytest.mark.parametrize("ask", [ARCH["sm_90"].has, ARCH["sm_90"].target, architectures_with])
@pytest.mark.parametrize("strange", ["tmaa", "", None, 3, ["tma"]])
def test_unknown_feature_is_a_rule_error(ask, strange):
    with pytest.raises(RuleError, match="unknown-name: feature"):
        ask(strange)


def test_features_cannot_be_changed():
    with pytest.raises(TypeError):
        ARCH["sm_90"].features["tma"] = "-"
