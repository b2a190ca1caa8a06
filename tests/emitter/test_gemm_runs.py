"""Emitted GEMMs run in the machine: every schedule gives the product, bit for bit, and nothing is found wrong with it."""

import numpy as np
import pytest
from gemm_machine import run_gemm

import tilescope as ts

SPLIT = {"tile": (16, 64, 64), "swapped": True, "split": 2, "stages": 2}
CASES = [
    ((16, 128, 256), "bf16", SPLIT),
    ((3, 72, 256), "bf16", SPLIT | {"tile": (8, 64, 64)}),  # one block of the cluster stores
    ((40, 64, 320), "bf16", SPLIT | {"tile": (24, 64, 64), "a_major": "MN"}),  # the descriptor's leading bytes count
    ((64, 72, 512), "f16", {"tile": (64, 64, 64), "split": 2, "parts": 2, "stages": 2}),
    ((190, 128, 512), "bf16", {"tile": (64, 64, 64), "tail": 2, "stages": 2, "sms": 4}),
    ((300, 200, 128), "bf16", {"tile": (64, 128, 64), "group": 2, "stages": 2, "sms": 4}),
    ((128, 128, 256), "e4m3", {"tile": (128, 64, 128), "stages": 2}),  # sums of a K step are promoted
    ((16, 64, 320), "bf16", SPLIT | {"dependent": True}),
    (
        (70, 160, 192),
        "bf16",
        {"tile": (64, 160, 64), "group": 1, "stages": 2, "sms": 1, "dependent": True},
    ),  # slices of 32
    ((72, 72, 96), "tf32", {"tile": (64, 64, 32), "stages": 2}),
    ((70, 72, 256), "e5m2", {"tile": (64, 64, 128), "stages": 2}),
    ((16, 128, 512), "s8", {"tile": (16, 64, 128), "swapped": True, "split": 2, "stages": 2}),
]


def run(shape, data_type, options):
    """C, the expected product, and the run of the plan's kernel on small whole numbers."""
    gemm = ts.plan_gemm(*shape, data_type, **options)
    c, expected, made = run_gemm(gemm)
    return c, expected.astype(c.dtype), made


@pytest.mark.thinned(12)
@pytest.mark.parametrize(
    ("shape", "data_type", "options"),
    [pytest.param(*case, marks=pytest.mark.slow if number % 2 else ()) for number, case in enumerate(CASES)],
)
def test_the_kernel_gives_the_product_and_no_finding(shape, data_type, options):
    c, expected, made = run(shape, data_type, options)
    assert made.outcome == "finished"
    assert [finding.rule for finding in made.findings if finding.severity == "error"] == []
    assert (c.astype(np.float64) == expected.astype(np.float64)).all()


@pytest.mark.slow
def test_a_cluster_that_does_not_meet_is_found(monkeypatch):
    """The same kernel without its meetings reads sums that nobody has sent yet."""
    emitted = ts.emit
    unmet = "// All threads of the cluster that do not meet.\n__device__ __forceinline__ void cluster_sync() {}\n"

    def without_meetings(gemm, target):
        head, _, rest = emitted(gemm, target).partition("// All threads of the cluster")
        return head + unmet + rest.partition("}\n")[2]

    monkeypatch.setattr(ts, "emit", without_meetings)
    _, _, made = run(*CASES[0])
    assert any(finding.severity == "error" for finding in made.findings)
