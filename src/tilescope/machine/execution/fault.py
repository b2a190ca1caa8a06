"""Faults of the card, which end a kernel, with the instruction and the thread that caused them."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.errors import FaultError, RuleError

ILLEGAL_ADDRESS = 700
ASSERT = 710
ILLEGAL_INSTRUCTION = 715
MISALIGNED_ADDRESS = 716
INVALID_ADDRESS_SPACE = 717
LAUNCH_FAILURE = 719
OPERAND_FIX = (
    "Check the start and the leading and stride byte offsets (LBO, SBO) of the descriptor: `tilescope decode` says what they "
    "are, `tilescope mma descriptors` what they should be."
)


@dataclass(slots=True)
class KernelFaultError(Exception):
    """Raised inside the machine where the card would stop the kernel; a run returns it as its outcome.

    `lane` is the thread's number in its cluster, where one thread is to blame; `reason` is a sentence without its full stop.
    """

    code: int
    reason: str
    lane: int | None = None
    address: int | None = None
    rule: str | None = None  # of tilescope, if one explains the fault
    is_global: bool = False  # `address` is one of global memory
    fix: str | None = None  # if it is not that of every fault with this code
    shared_end: int | None = None  # where shared memory of a block would have to end for the access, or later
    missing_bytes: int | None = None  # of an mbarrier that has too many arrivals: what its phase still waits for


def fault_of(
    error: RuleError, lane: int, address: int | None = None, code: int = ILLEGAL_INSTRUCTION
) -> KernelFaultError:
    """The fault for broken rules of tilescope: with their own error number, or `code` if they have none."""
    first = error.violations[0]
    return KernelFaultError(
        error.code if isinstance(error, FaultError) else code,
        f"{first.found}; {first.limit}",
        lane,
        address,
        first.rule,
    )
