"""Facts about the program text that the detector needs: which instructions need whole warps, and where branches lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

CollectiveKind = Literal["barrier", "aligned", "mask"]
"""Who must come to an instruction: the threads of a warp that have not exited, all lanes of the warp, or those of a mask."""


class ControlPaths(Protocol):
    """What a program's control flow must answer."""

    def is_between(self, branch: int, pc: int) -> bool:
        """Whether an instruction is between a branch and the join of its paths."""

    def next_of(self, branch: int, outcome: int) -> int:
        """Where an outcome of a branch leads."""

    def find_reachable(self, starts: Iterable[int], barred: int | None) -> frozenset[int]:
        """What can be reached without passing an instruction."""

    def find_tail(self, start: int) -> list[int]:
        """What is executed from an instruction to the end of the thread."""
