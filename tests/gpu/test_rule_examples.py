"""The driver's verdict and bytes for the example of every rule; `verify` (test_verify.py) draws all other cases."""

import inspect

import pytest

import tilescope as ts
from tilescope.rule import RULES
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill

pytestmark = pytest.mark.gpu


def named_arguments(kind, given_arguments):
    """A map's arguments as rows, read without checking rules; None where they cannot be read."""
    if any(each.rule in ("argument-type", "argument-length", "unknown-name") for each in kind.check(**given_arguments)):
        return None
    rows = {
        "data_type": lambda name: ts.DataType.named(name).tma, "swizzle": ts.Swizzle.named,
        "interleave": Interleave.named,
        "l2_promotion": L2Promotion.named,
        "oob_fill": OobFill.named,
    }  # fmt: skip
    full = {
        "interleave": "none",
        "swizzle": "none",
        "l2_promotion": "none",
        "oob_fill": "zero",
        "address": 0,
        "arch": "sm_90",
    }
    full |= given_arguments
    full.setdefault("element_strides", (1,) * len(full["dims"]))
    return {name: rows[name](value) if name in rows else value for name, value in full.items() if name != "arch"}


def agrees(card, kind, arguments):
    read = named_arguments(kind, arguments)
    assert read is not None
    result, blob = card.encode(kind, read)
    refused = any(each.severity == "error" for each in kind.check(**arguments))
    assert refused == (result != 0), (arguments, result)
    if not refused:
        assert kind(**arguments).encode() == blob


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.subjects])
@pytest.mark.parametrize("side", ["passing", "failing"])
def test_the_driver_agrees_with_every_rules_example(card, name, side):
    rule = RULES[name]
    kind = ts.Im2colMap if "channels_per_pixel" in getattr(rule, side) else ts.TensorMap
    taken = inspect.signature(kind).parameters
    example = {key: value for key, value in getattr(rule, side).items() if key in taken}
    needed = {name for name, each in taken.items() if each.default is each.empty}
    if not needed <= example.keys() or "lower_width" in getattr(rule, side) or example.get("arch", "sm_90") != "sm_90":
        pytest.skip("not a map that an sm_90 driver is asked to encode")
    if named_arguments(kind, example) is None or (example.get("swizzle") or "none") not in (
        "none",
        "32B",
        "64B",
        "128B",
    ):
        pytest.skip("not expressible as a call of the driver")
    agrees(card, kind, example)
