"""Captures of a Blackwell card that the machine stands in for: suites run, one file is written, and its replay agrees."""

import pytest
from machine_device import MachineDevice

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


def test_a_card_that_shifts_the_other_way_is_noticed(capture):
    [shifts] = [recording for recording in capture.recordings if recording.suite == "shifts"]
    wrong = [Outcome(bytes(reversed(outcome.data))) for outcome in shifts.results]
    changed = Capture(FACTS, 1, (Recording("shifts", shifts.cases, tuple(wrong)),))
    verification = replay(changed)
    assert not verification.agrees
    assert verification.suites[0].difference.startswith("case 0: lane 0, column 0: card ")


def test_an_emitted_gemm_that_is_wrong_or_dies_is_noticed_beside_its_time():
    suite = suite_named("rates")
    case = {"shape": [128, 4096, 4096], "data_type": "bf16", "arch": "sm_100"}
    right, wrong = (Outcome(bytes(8) + number) for number in (bytes(8), b"\0\0\0\0\0\0\x08@"))
    assert suite.difference(case, right) == ""
    assert suite.difference(case, wrong) == "3 elements of the product are wrong"
    assert suite.difference(case, Outcome(ended="error 700")) == "the program ended with error 700"
    assert suite.note([case], [right]).splitlines()[1] == "128 x 4096 x 4096 bf16: 0.00 us"
