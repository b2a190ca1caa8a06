"""How a run came out, in a sentence."""

from __future__ import annotations

from math import prod

from tilescope.machine.run import KernelRun
from tilescope.sentence import counted, listed

_ENDED = {
    "finished": "{entry} finished",
    "hang": "{entry} hangs",
    "fault": "{entry} ends with a fault",
    "stopped": "{entry} was stopped before its end",
}


def outcome_sentence(run: KernelRun, seconds: float | None = None) -> str:
    """How a run came out, what it took, and whether its bits are the card's.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    >>> outcome_sentence(kernel.run(grid=2, block=64))
    "k finished: 2 blocks of 64 threads, 4 warp instructions. Every bit of the result is the card's."
    """
    warps = sum(row.warps for row in run.instructions)
    blocks = counted(run.blocks_run, "block")
    facts = [f"{blocks} of {counted(prod(run.block), 'thread')}", counted(warps, "warp instruction")]
    if seconds is not None:
        facts.append(f"{seconds:.3g} s")
    ended = _ENDED[run.outcome].format(entry=run.entry)
    if run.outcome != "finished":
        facts[0] = f"{facts[0]} had finished"
        return f"{ended}: {', '.join(facts)}."
    errors = sum(finding.severity == "error" for finding in run.findings)
    if errors:
        return f"{ended}, with {counted(errors, 'error')}: {', '.join(facts)}. Another run may leave other results."
    return f"{ended}: {', '.join(facts)}. {_exactness(run)}"


def _exactness(run: KernelRun) -> str:
    if run.inexact:
        return f"Not exact: {listed(run.inexact)}, whose bits no document fixes."
    if run.basis == "documented":
        return "Every bit of the result is what the documents say; no card was measured."
    return "Every bit of the result is the card's."
