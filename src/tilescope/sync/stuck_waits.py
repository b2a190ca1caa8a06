"""Why a wait for an mbarrier does not end: what the current phase has got, and what it still waits for.

    1 of 1 arrivals, 4096 bytes missing      the copies deliver fewer bytes than expect_tx says
    3 of 4 arrivals, no bytes missing        the count of mbarrier.init exceeds the arrivals
    0 of 4 arrivals, no bytes expected       the wait may have the wrong parity, or somebody never arrives

A deadlock usually has one cause: a phase that got something, but not all. The other waits are its consequences.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.sync.mbarrier import Mbarrier

Lack = Literal["everything", "arrivals", "bytes", "arrivals and bytes"]


class PhaseProgress(NamedTuple):
    """The current phase of an mbarrier."""

    phase: int
    arrived: int
    expected: int  # arrivals
    missing_bytes: int  # negative: too many have come

    @classmethod
    def of(cls, barrier: Mbarrier) -> PhaseProgress:
        """The progress of an mbarrier as the hardware counts it.

        >>> PhaseProgress.of(Mbarrier(4).arrive(3)).lack
        'arrivals'
        """
        return cls(barrier.phase, barrier.count - barrier.pending, barrier.count, barrier.tx_bytes)

    @property
    def lack(self) -> Lack:
        """What the phase still waits for."""
        if not self.arrived and not self.missing_bytes:
            return "everything"
        if not self.missing_bytes:
            return "arrivals"
        if self.arrived == self.expected:
            return "bytes"
        return "arrivals and bytes"

    @property
    def is_partly_complete(self) -> bool:
        """Whether it got some, but not all, of its arrivals or bytes: the likely cause of a deadlock."""
        return self.lack != "everything"
