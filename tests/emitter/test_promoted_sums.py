"""8-bit floats: the sums of a K step are promoted while the next step's products run, with two accumulators in turn."""

import re

import numpy as np
import pytest
from gemm_machine import run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half
from tilescope.planner.consumer_roles import PROMOTED_RUN

ROW = 128  # elements of a K step
SMALL = {"tile": (64, 64, ROW), "stages": 3, "sms": 4}
CASES = {  # a shape, its options, and the accumulators of a K step
    "one whole run": ((64, 64, 4 * ROW), SMALL, 2),
    "runs and a rest": ((130, 128, 11 * ROW), SMALL | {"sms": 2}, 2),
    "a rest alone": ((64, 64, 3 * ROW), SMALL, 2),
    "a k that ends within a step": ((64, 64, 5 * ROW + 48), SMALL, 2),
    "two warpgroups": ((128, 96, 6 * ROW), SMALL | {"tile": (128, 96, ROW)}, 2),
    "three warpgroups": ((192, 72, 6 * ROW), SMALL | {"tile": (192, 72, ROW)}, 2),
    "registers of the producer": ((128, 128, 9 * ROW), SMALL | {"tile": (128, 128, ROW), "stages": 5}, 2),
    "two blocks of rows each": ((256, 64, 6 * ROW), SMALL | {"tile": (256, 64, ROW), "stages": 4}, 2),
    "a last round of any number of steps": ((320, 64, 11 * ROW), SMALL | {"sms": 2, "tail": 2}, 2),
    "multicast": ((128, 128, 6 * ROW), SMALL | {"multicast": 2}, 2),
    "a cluster that shares k": ((64, 64, 11 * ROW), SMALL | {"split": 2}, 2),
    "swapped, with a bias": ((60, 128, 7 * ROW), SMALL | {"swapped": True, "epilogue": "bias+relu"}, 2),
    "a bias that is fetched ahead": ((64, 64, 6 * ROW), SMALL | {"epilogue": "bias"}, 2),
    "too wide": ((64, 144, 5 * ROW), SMALL | {"tile": (64, 144, ROW)}, 1),
    "fewer stages than warps that copy": ((128, 128, 5 * ROW), SMALL | {"tile": (128, 128, ROW)}, 1),
    "a residual that TMA loads": ((64, 64, 5 * ROW), SMALL | {"epilogue": "scale+residual"}, 1),
}
MUTANTS = {
    "promoted before the wait": (r"wgmma_wait<1>\(\)", "wgmma_wait<2>()"),
    "the last of a run is not waited for": (r"wgmma_wait<0>\(\)", "wgmma_wait<1>()"),
    "the other accumulator": (r"const bool is_odd = k_tile % 2;", "const bool is_odd = false;"),
    "a step is promoted twice": (r"k_tile % 4 > 0 && !is_odd", "k_tile % 4 >= 0 && !is_odd"),
    "a stage is free too early": (r"\(slot == 0 \? STAGES : slot\) - 1", "slot"),
    "the stages never begin again": (r"if \(\+\+slot == STAGES\)", "if (++slot == STAGES + 1)"),
    "the phase stays": (r"phase \^= 1;", ";"),
    "the rest begins at stage 0": (r"(rest = [^;]*slot = )[^,]*,", r"\g<1>0,"),
}


def planned(name):
    shape, options, _ = CASES[name]
    return ts.plan_gemm(*shape, "e4m3", **options)


def is_right(c, expected):
    return (c.astype(np.float64) == expected.astype(c.dtype).astype(np.float64)).all()


@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_product_and_no_finding(name):
    gemm = planned(name)
    assert gemm.step_sums == CASES[name][2]
    c, expected, ran = run_gemm(gemm)
    assert (ran.outcome, [finding.rule for finding in ran.findings if finding.severity == "error"]) == ("finished", [])
    assert is_right(c, expected)


@pytest.mark.parametrize("name", CASES)
def test_its_pipeline_is_proven(name):
    assert ts.simulate(ts.plan_pipeline(planned(name))).verdict == "proven"


def test_a_run_has_an_even_number_of_steps():
    assert PROMOTED_RUN % 2 == 0  # its last step has the odd accumulator, and the rest begins with the even one


def test_consumers_take_registers_over_only_where_they_need_them():
    taken = {name: planned(name).redistributes_registers for name in CASES}
    assert [name for name, takes in taken.items() if takes] == ["registers of the producer", "two blocks of rows each"]
    source = ts.emit(planned("registers of the producer"), "cuda")
    assert re.findall(r"setmaxnreg_\w+<\d+>\(\);", source) == ["setmaxnreg_dec<40>();", "setmaxnreg_inc<232>();"]


@pytest.mark.slow
@pytest.mark.thinned(8)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_is_noticed(mutant):
    gemm = planned("runs and a rest")
    pattern, replacement = MUTANTS[mutant]
    source, changed = re.subn(pattern, replacement, device_half(ts.emit(gemm, "cuda")))
    assert changed
    c, expected, ran = run_gemm(gemm, source=source)
    found = [finding.rule for finding in ran.findings if finding.severity == "error"]
    assert found or ran.outcome != "finished" or not is_right(c, expected)
