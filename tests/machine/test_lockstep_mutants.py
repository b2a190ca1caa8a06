"""Mutants give the same in lockstep as one block after another: a sample; lockstep_mutants.py compares as many as one likes."""

import lockstep_mutants
import pytest
from lockstep_mutants import compare, mutant

from tilescope.machine.execution.lockstep import _Lockstep

SAMPLE = range(17, 32)


@pytest.fixture(scope="module")
def comparisons():
    return [compare(mutant(number)) for number in SAMPLE]


def test_mutants_give_the_same(comparisons):
    assert [
        (found.mutant.base.name, found.mutant.change) for found in comparisons if found.outcome == "different"
    ] == []
    assert sum(found.outcome == "equal" for found in comparisons) >= len(SAMPLE) // 2


def test_a_run_in_lockstep_that_forgets_its_costs_is_different(comparisons, monkeypatch):
    ended = next(found.mutant for found in comparisons if found.has_ended)
    monkeypatch.setattr(_Lockstep, "_finish", lambda _: None)
    assert compare(ended).outcome == "different"


def test_the_number_of_a_mutant_decides_what_is_changed():
    first = mutant(3)
    lockstep_mutants.base.cache_clear()
    assert mutant(3)[1:] == first[1:]
