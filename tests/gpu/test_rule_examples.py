"""The driver's verdict and bytes for the example of every rule; `verify` (test_verify.py) draws all other cases."""

import inspect

import pytest

import tilescope as ts
from tilescope.rule import RULES

pytestmark = pytest.mark.gpu
DEFAULTS = {"interleave": "none", "swizzle": "none", "l2_promotion": "none", "oob_fill": "zero", "address": 0}
UNREADABLE = ("argument-type", "argument-length", "unknown-name")  # the driver's function takes no such argument
HOPPER_SWIZZLES = ("none", "32B", "64B", "128B")


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.subjects])
@pytest.mark.parametrize("side", ["passing", "failing"])
def test_the_driver_agrees_with_every_rules_example(card, name, side):
    example = getattr(RULES[name], side)
    if isinstance(example, str) or "lower_width" in example or example.get("arch", "sm_90") != "sm_90":
        pytest.skip("not a map that an sm_90 driver is asked to encode")
    kind = ts.Im2colMap if "channels_per_pixel" in example else ts.TensorMap
    parameters = inspect.signature(kind).parameters
    arguments = {key: value for key, value in example.items() if key in parameters}
    needed = {key for key, parameter in parameters.items() if parameter.default is parameter.empty}
    if not needed <= arguments.keys():
        pytest.skip("not a map that an sm_90 driver is asked to encode")
    violations = kind.check(**arguments)
    unreadable = any(violation.rule in UNREADABLE for violation in violations)
    if unreadable or (arguments.get("swizzle") or "none") not in HOPPER_SWIZZLES:
        pytest.skip("not expressible as a call of the driver")
    strides = {"element_strides": (1,) * len(arguments["dims"])}
    result, blob = card.encode(DEFAULTS | strides | arguments)
    refused = any(violation.severity == "error" for violation in violations)
    assert refused == (result != 0), (arguments, result)
    assert refused or kind(**arguments).encode() == blob
