"""I report a bug and am asked for my versions; and I wonder what `verify` does without a GPU."""

import platform

import numpy as np

import tilescope as ts

IS_SLOW = True


def solve(desk):
    said = desk.type("tilescope verify --environment")
    assert said.status == 0
    assert said.first.startswith(f"tilescope {ts.__version__} on Python {platform.python_version()}")
    assert f"numpy {np.__version__}" in said.text
    assert "Extras extra installed missing" in said.text
    if "no NVIDIA card" in said.first:
        without = desk.type("tilescope verify")
        assert without.status == 3
        assert "NVIDIA driver" in without.err
        assert without.err.count("\n") == 1
