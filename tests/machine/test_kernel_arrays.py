"""Arrays that recordings describe by a few words are the same bytes everywhere."""

import numpy as np
import pytest
from kernel_arrays import filled

FILLS = {
    "bits": ({"kind": "bits", "seed": 1}, "uint32"),
    "integers": ({"kind": "integers", "seed": 1, "low": -3, "high": 4}, "int32"),
    "floats": ({"kind": "floats", "seed": 1, "exponents": [-2, 1]}, "float16"),
    "constant": ({"kind": "constant", "value": 7}, "int16"),
}
FIRST = {
    "bits": [3300504729, 3837447845, 1722151100, 91394483],
    "integers": [1, 1, -1, -2],
    "floats": [-0.47314453125, 1.0205078125, -0.301025390625, -0.58349609375],
    "constant": [7, 7, 7, 7],
}


def made(kind):
    fill, type_name = FILLS[kind]
    return filled({"type": type_name, "shape": [64], "fill": fill}).view(type_name)


@pytest.mark.parametrize("kind", FILLS)
def test_a_seed_always_gives_the_same_elements(kind):
    assert made(kind)[:4].tolist() == FIRST[kind]


def test_integers_lie_between_their_ends():
    assert set(made("integers").tolist()) == set(range(-3, 4))


def test_exponents_of_floats_lie_in_their_range():
    assert set(np.frexp(np.abs(made("floats").astype(np.float64)))[1] - 1) == {-2, -1, 0, 1}
