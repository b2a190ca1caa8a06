"""What a run did: its outcome, what is wrong with it, and how often each instruction ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilescope.errors import Violation
from tilescope.rule import Basis
from tilescope.value import Value

Outcome = Literal["finished", "hang", "fault", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCount(Value):
    """One instruction of a kernel and how often it ran.

    `threads` counts the threads that came to it, `source_line` is the line of the program that the PTX was made from.
    """

    ptx_line: int
    source_line: str | None
    ptx_text: str
    threads: int
    warps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun(Value):
    """A kernel that was run without a card.

    `exact` is False where .approx functions, or float atomics whose order nobody fixes, took part: `inexact` names them.
    `printed` is what printf wrote.
    """

    entry: str
    outcome: Outcome
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    blocks_run: int
    steps: int  # instructions, each counted once for all threads that ran it together
    inexact: tuple[str, ...]
    findings: tuple[Violation, ...]
    instructions: tuple[InstructionCount, ...] = field(repr=False)
    printed: str
    basis: Basis

    @property
    def exact(self) -> bool:
        """Whether every bit of the result is the card's."""
        return not self.inexact
