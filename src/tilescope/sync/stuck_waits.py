"""Why a wait does not end, decided once for both judges: the report of a run that hangs, and the search over all orders.

    1 of 1 arrivals, 4096 bytes missing      the copies deliver fewer bytes than expect_tx says
    3 of 4 arrivals, no bytes missing        the count of mbarrier.init exceeds the arrivals
    0 of 4 arrivals, no bytes expected       the wait may have the wrong parity, or somebody never arrives

A deadlock usually has one cause: a phase that received some of its arrivals or bytes, but not all. The other waits are
its consequences. A run knows what a phase has received. The search also knows which agents would still arrive, and uses
that in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from tilescope.sync.mbarrier import Mbarrier

Lack = Literal["everything", "arrivals", "bytes", "arrivals and bytes"]
Wait = TypeVar("Wait")


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
    def missing_arrivals(self) -> int:
        """Arrivals that the phase still waits for."""
        return self.expected - self.arrived

    @property
    def has_unexpected_bytes(self) -> bool:
        """Whether more bytes have come than anybody expected."""
        return self.missing_bytes < 0

    @property
    def is_partly_complete(self) -> bool:
        """Whether it received some, but not all, of its arrivals or bytes: the likely cause of a deadlock."""
        return self.lack != "everything"


class StuckWaits(NamedTuple, Generic[Wait]):
    """The waits of a deadlock: those that may be its cause, and those that follow from others."""

    causes: list[Wait]
    consequences: list[Wait]


def split_waits(waits: Sequence[Wait], is_consequence: Callable[[Wait], bool]) -> StuckWaits[Wait]:
    """The waits of a deadlock, causes apart from consequences.

    >>> split_waits(["empty", "full"], lambda wait: wait == "empty")
    StuckWaits(causes=['full'], consequences=['empty'])
    """
    consequences = [is_consequence(wait) for wait in waits]
    return StuckWaits(
        [wait for wait, follows in zip(waits, consequences, strict=True) if not follows],
        [wait for wait, follows in zip(waits, consequences, strict=True) if follows],
    )
