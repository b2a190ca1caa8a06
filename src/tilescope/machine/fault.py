"""What kills a kernel: the faults of the card, with the instruction and the thread that caused them."""

from __future__ import annotations

from dataclasses import dataclass, field

ILLEGAL_ADDRESS = 700
ASSERT = 710
ILLEGAL_INSTRUCTION = 715
MISALIGNED_ADDRESS = 716
LAUNCH_FAILURE = 719


@dataclass(slots=True)
class KernelFaultError(Exception):
    """Raised inside the machine where the card would stop the kernel; a run returns it as its outcome.

    `lane` is the thread's number in its cluster, where one thread is to blame; `reason` is a sentence without its full stop.
    """

    code: int
    reason: str
    lane: int | None = None
    address: int | None = None
    rule: str | None = None  # of tilescope, where one says more
    details: tuple[str, ...] = field(default=())
