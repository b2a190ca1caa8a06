"""What is wrong with a run: faults, hangs and the end of its budget, each with the instruction and the threads."""

from __future__ import annotations

from tilescope.errors import Violation
from tilescope.machine.grid import GridRun
from tilescope.machine.launch import Launch


def findings_of(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    """The findings of a run."""
    return ()
