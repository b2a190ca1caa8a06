"""How a run came out, in a sentence."""

from __future__ import annotations

from math import prod

from tilescope.errors import Violation
from tilescope.machine.report.cost_findings import COST_RULES
from tilescope.machine.report.run import KernelRun
from tilescope.ptx.source_name import source_name
from tilescope.sentence import counted, filled, listed

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
    return f"{_ended(run)}: {what_ran(run, seconds)}"


def what_ran(run: KernelRun, seconds: float | None = None) -> str:
    """How much of a run came to its end, and whether its bits are the card's."""
    warps = sum(row.warps for row in run.instructions)
    blocks = f"{counted(run.blocks_run, 'block')} of {counted(prod(run.block), 'thread')}"
    if run.outcome != "finished":
        blocks = f"{blocks} had finished"
    facts = [blocks, counted(warps, "warp instruction")]
    if seconds is not None:
        facts.append(f"{seconds:.3g} s")
    counts = f"{', '.join(facts)}."
    if run.outcome != "finished":
        return counts
    return f"{counts} {'Another run may leave other results.' if _errors(run) else _exactness(run)}"


def error_sentence(run: KernelRun, first: Violation) -> str:
    """How a run with errors came out, and the first of them.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { .reg .b64 %d; mov.b64 %d, 0; st.global.u32 [%d], 1; ret; }"
    >>> run = Kernel(text).run(grid=1, block=1)
    >>> error_sentence(run, run.findings[0])  # doctest: +ELLIPSIS
    'k ends with a fault: PTX line 1 (st.global.u32 [%d], 1): thread (0, 0, 0) of block (0, 0, 0): ...
    """
    ended = f"{_ended(run)}; the first" if _errors(run) > 1 else _ended(run)
    return filled("{ended}: {found}; {limit}.", {"ended": ended, "found": first.found, "limit": first.limit})


def _ended(run: KernelRun) -> str:
    ended = _ENDED[run.outcome].format(entry=source_name(run.entry))
    if run.outcome != "finished":
        return ended
    if _errors(run):
        return f"{ended}, with {counted(_errors(run), 'error')}"
    doubts = _doubts(run)
    return f"{ended}, with {counted(len(doubts), 'warning')} ({listed(doubts)})" if doubts else ended


def _errors(run: KernelRun) -> int:
    return sum(finding.severity == "error" for finding in run.findings)


def _doubts(run: KernelRun) -> list[str]:
    """The rules of warnings about what the kernel does, each once; not of those about what it costs."""
    warnings = [finding.rule for finding in run.findings if finding.severity == "warning"]
    return [rule for rule in dict.fromkeys(warnings) if rule not in COST_RULES]


def _exactness(run: KernelRun) -> str:
    if run.inexact:
        return f"Not exact: {listed(run.inexact)}, whose bits no document fixes."
    if run.basis == "documented":
        return "Every bit of the result is what the documents say; no card was measured."
    return "Every bit of the result is the card's."
