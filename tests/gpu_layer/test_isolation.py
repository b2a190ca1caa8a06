"""What a child process does to its caller: it costs one case, whether it faults, dies or hangs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.errors import DeviceError
from tilescope.gpu.driver import isolation
from tilescope.gpu.driver.isolation import CardInChildren, Child
from tilescope.gpu.verify.suites import Outcome

STAND_IN = (sys.executable, str(Path(__file__).parent / "stand_in.py"))


@pytest.fixture
def outcomes(tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "COMMAND", STAND_IN)

    def run(cases, *, together=4, seconds=20.0, children=1):
        card = CardInChildren(tmp_path)
        return list(card.outcomes("any", cases, together=together, seconds=seconds, children=children))

    return run


def answers(count):
    return [{"does": "answer", "number": number} for number in range(count)]


def expected(count):
    return [Outcome(bytes([number])) for number in range(count)]


@pytest.mark.parametrize(
    ("deed", "ended"),
    [
        ("die", "the process died (signal 6)"),
        ("leave", "the process died (status 5): something is wrong here"),
        ("fault", "error 715"),
    ],
)
def test_a_child_that_ends_costs_one_case(outcomes, deed, ended):
    cases = answers(10)
    cases[6] = {"does": deed}
    wanted = expected(10)
    wanted[6] = Outcome(ended=ended)
    assert outcomes(cases) == wanted


@pytest.mark.slow
def test_a_child_that_hangs_costs_one_case_and_its_time_limit(outcomes):
    cases = answers(4)
    cases[2] = {"does": "hang"}
    wanted = expected(4)
    wanted[2] = Outcome(ended="no answer in 3 s")
    assert outcomes(cases, together=1, seconds=3.0, children=2) == wanted


def test_children_side_by_side_keep_the_order(outcomes):
    assert outcomes(answers(40), together=3, children=4) == expected(40)


def test_no_child_outlives_its_work(outcomes, monkeypatch):
    started = []
    real = Child.__init__

    def remembered(child, *arguments):
        real(child, *arguments)
        started.append(child._process)

    monkeypatch.setattr(Child, "__init__", remembered)
    outcomes([*answers(3), {"does": "fault"}], together=1, children=3)
    assert started
    assert all(process.poll() is not None for process in started)


WITHOUT_A_CARD = """
import subprocess
import sys
from multiprocessing.connection import Connection
Connection(int(sys.argv[1])).send({"missing": "There is no card."})
"""


@pytest.mark.parametrize(
    ("program", "sentence"),
    [(WITHOUT_A_CARD, r"^There is no card\.$"), ("raise ImportError('no cuda here')", "no cuda here")],
)
def test_a_child_without_a_card_is_told_in_one_sentence(program, sentence):
    with pytest.raises(DeviceError, match=sentence):
        Child((sys.executable, "-c", program))


@pytest.mark.slow
def test_the_child_as_it_is_run_knows_every_kind_of_value():
    """A suite in the child may read plain data, which imports every module with a kind: none may be there twice."""
    reads_plain_data = """
import runpy, sys
from tilescope.errors import RuleError
from tilescope.value import Value
module = sys.argv.pop()
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except IndexError:  # it asks for its folder last: by then all of it is defined
    pass
try:
    Value.from_dict({"kind": "not yet seen"})
except RuleError:
    print("every module was asked")
"""
    command = [isolation.COMMAND[0], "-c", reads_plain_data, isolation.COMMAND[-1]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("every module was asked\n", "")
