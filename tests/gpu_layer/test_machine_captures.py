"""Captures of a Blackwell card that the machine stands in for: suites run, one file is written, and its replay agrees."""

import numpy as np
import pytest
from machine_device import MachineDevice
from machine_driver import LAUNCH_US, machine_driver

from tilescope.gpu.verify.suites import Outcome, suite_named
from tilescope.gpu.verify.verification import Capture, Recording, replay

FACTS = {"card": "the machine", "arch": "sm_100", "driver": "0", "cuda": "0", "date": "2026-01-01"}
SUITES = ("tensor_memory", "shifts", "tcgen05", "gather4", "scatter4", "pair_exits", "remote_arrivals")


def recorded(name, count=2):
    """A suite's first cases, run by the machine."""
    suite = suite_named(name)
    cases = suite.cases(count, 1, "sm_100")
    if name == "remote_arrivals":
        cases = [case | {"rounds": 5} for case in cases]
    if name in ("gather4", "scatter4"):  # their maps lie in memory, and no card has shown the bits of sm_100's
        outcomes = map(suite.expected, cases)
    else:
        outcomes = map(Outcome, suite.results(MachineDevice("sm_100a"), cases))
    return Recording(name, tuple(cases), tuple(outcomes))


@pytest.fixture(scope="module")
def capture():
    pytest.importorskip("cuda.bindings")
    return Capture(FACTS, 1, tuple(map(recorded, SUITES)))


@pytest.mark.slow
def test_the_file_is_read_back_and_agrees(capture, tmp_path):
    capture.save(tmp_path / "card.npz")
    verification = replay(Capture.read(tmp_path / "card.npz"))
    assert [(suite.suite, suite.cases, suite.equal) for suite in verification.suites] == [
        (name, 2, 2) for name in SUITES
    ]
    assert verification.agrees
    notes = {suite.suite: suite.note for suite in verification.suites}
    assert notes["remote_arrivals"] == "scope default: 0 of 5 rounds stale; scope cluster: 0 of 5 rounds stale"
    assert notes["pair_exits"].startswith("the odd block leaves last: done, the even block's wait passed")


def test_a_card_that_shifts_the_other_way_is_noticed():
    pytest.importorskip("cuda.bindings")
    shifts = recorded("shifts")
    wrong = [Outcome(bytes(reversed(outcome.data))) for outcome in shifts.results]
    changed = Capture(FACTS, 1, (Recording("shifts", shifts.cases, tuple(wrong)),))
    verification = replay(changed)
    assert not verification.agrees
    assert verification.suites[0].difference.startswith("case 0: lane 0, column 0: card ")


PRODUCTS = (("sm_100", "bf16"), ("sm_100", "nvfp4"), ("sm_120", "e4m3"))


@pytest.mark.slow
@pytest.mark.thinned(3)
@pytest.mark.parametrize(("arch", "data_type"), PRODUCTS)
def test_emitted_gemms_are_timed_by_the_program_itself(monkeypatch, arch, data_type):
    """The whole program runs: its maps, launches, graphs, events and the comparison."""
    pytest.importorskip("cuda.core")
    card = machine_driver(f"{arch}a", monkeypatch, sms=2)
    suite = suite_named("rates")
    case = {"shape": [200, 64, 512], "data_type": data_type, "arch": arch}
    [data] = suite.results(None, [case])
    assert np.frombuffer(data, "<f8").tolist() == [LAUNCH_US, 0]
    assert suite.difference(case, Outcome(data)) == ""
    assert suite.note([case], [Outcome(data)]).endswith(f"200 x 64 x 512 {data_type}: 12.50 us")
    assert [finding for run in card.runs for finding in run.findings if finding.severity != "note"] == []
    elements = {made.data_type.name for made in card.maps}
    assert ("16u4_align8b" in elements) == (data_type == "nvfp4")  # a type of sm_100's own


@pytest.mark.slow
@pytest.mark.thinned(2)
@pytest.mark.parametrize("data_type", ["e4m3", "mxfp8"])
def test_emitted_programs_check_themselves_on_the_machine(monkeypatch, data_type):
    pytest.importorskip("cuda.core")
    machine_driver("sm_100a", monkeypatch, sms=2)
    suite = suite_named("emitted")
    case = {"gemm": [136, 64, 256], "data_type": data_type, "options": {"arch": "sm_100"}}
    [data] = suite.results(None, [case])
    assert suite.difference(case, Outcome(data)) == ""
    assert data == bytes([0, 1])  # right alone, and noticed with a spoiled input


def test_a_program_that_does_not_say_its_time_is_noticed(monkeypatch):
    pytest.importorskip("cuda.core")
    machine_driver("sm_100a", monkeypatch)
    suite = suite_named("rates")
    monkeypatch.setattr("tilescope.gpu.verify.suites.open_point_suite._run_program", lambda _: "3 elements\n")
    case = {"shape": [64, 64, 64], "data_type": "bf16", "arch": "sm_100"}
    [data] = suite.results(None, [case])
    assert suite.difference(case, Outcome(data)) == "the program did not print its time and how many elements are wrong"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_120"])
def test_every_product_is_timed_once(arch):
    suite = suite_named("rates")
    cases = suite.cases(suite.count, 1, arch)
    assert len({str(case) for case in cases}) == len(cases) == 12
    assert {case["data_type"] for case in cases} == {"bf16", "e4m3", "mxfp8", "nvfp4"}


def test_an_emitted_gemm_that_is_wrong_or_dies_is_noticed_beside_its_time():
    suite = suite_named("rates")
    case = {"shape": [128, 4096, 4096], "data_type": "bf16", "arch": "sm_100"}
    right, wrong = (Outcome(bytes(8) + number) for number in (bytes(8), b"\0\0\0\0\0\0\x08@"))
    assert suite.difference(case, right) == ""
    assert suite.difference(case, wrong) == "3 elements of the product are wrong"
    assert suite.difference(case, Outcome(ended="error 700")) == "the program ended with error 700"
    assert suite.note([case], [right]).splitlines()[1] == "128 x 4096 x 4096 bf16: 0.00 us"
