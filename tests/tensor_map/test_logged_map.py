"""Maps of a log hold plain data: names, numbers and tuples of them, which JSON and a reader of another version take."""

import math

import pytest

import tilescope as ts
from tilescope.tensor_map.text.map_log import LoggedMap


def plain(**arguments):
    return LoggedMap("refused", (1,), "tensor_map", arguments, (0,)).arguments


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (ts.DataType.named("bf16"), "bfloat16"),
        (ts.Swizzle.named("128B"), "128B"),
        ([64, 128], (64, 128)),
        ((64, [8, True]), (64, (8, True))),
        ("tiled", "tiled"),
        (64, 64),
        (0.5, 0.5),
        (math.inf, "inf"),
    ],
    ids=str,
)
def test_arguments_are_held_as_plain_data(given, held):
    assert plain(argument=given) == {"argument": held}
    assert type(plain(argument=given)["argument"]) is type(held)


def test_arguments_that_were_not_given_are_left_out_and_an_address_is_hexadecimal():
    assert plain(address=4096, swizzle=None) == {"address": "0x1000"}
    assert plain(address="0x1000") == {"address": "0x1000"}
