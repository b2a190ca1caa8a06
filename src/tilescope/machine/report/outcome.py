"""The outcome of a run in a sentence."""

from __future__ import annotations

from math import prod

from tilescope.errors import Violation
from tilescope.machine.report.cost_findings import COST_RULES
from tilescope.machine.report.run import KernelRun
from tilescope.ptx.source_name import source_name
from tilescope.sentence import counted, filled, listed

_OUTCOMES = {
    "finished": "{entry} finished",
    "hang": "{entry} hangs",
    "fault": "{entry} ends with a fault",
    "stopped": "{entry} was stopped before its end",
}


def outcome_sentence(run: KernelRun, seconds: float | None = None) -> str:
    """The outcome of a run, the amount of work, and whether the bits of its result are those of a GPU.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    >>> outcome_sentence(kernel.run(grid=2, block=64))
    "k finished: 2 blocks of 64 threads, 4 warp instructions. Every bit of the result is the card's."
    """
    return f"{_describe_outcome(run)}: {describe_work(run, seconds)}"


def describe_work(run: KernelRun, seconds: float | None = None) -> str:
    """The blocks and instructions that ran, and whether the bits of the result are those of a GPU."""
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
    return f"{counts} {'Another run may leave other results.' if _count_errors(run) else _describe_exactness(run)}"


def error_sentence(run: KernelRun, first: Violation) -> str:
    """The outcome of a run with errors, and the first error.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { .reg .b64 %d; mov.b64 %d, 0; st.global.u32 [%d], 1; ret; }"
    >>> run = Kernel(text).run(grid=1, block=1)
    >>> error_sentence(run, run.findings[0])  # doctest: +ELLIPSIS
    'k ends with a fault: PTX line 1 (st.global.u32 [%d], 1): thread (0, 0, 0) of block (0, 0, 0): ...
    """
    outcome = f"{_describe_outcome(run)}; the first" if _count_errors(run) > 1 else _describe_outcome(run)
    return filled("{outcome}: {found}; {limit}.", {"outcome": outcome, "found": first.found, "limit": first.limit})


def _describe_outcome(run: KernelRun) -> str:
    outcome = _OUTCOMES[run.outcome].format(entry=source_name(run.entry))
    if run.outcome != "finished":
        return outcome
    if _count_errors(run):
        return f"{outcome}, with {counted(_count_errors(run), 'error')}"
    rules = _list_warnings(run)
    return f"{outcome}, with {counted(len(rules), 'warning')} ({listed(rules)})" if rules else outcome


def _count_errors(run: KernelRun) -> int:
    return sum(finding.severity == "error" for finding in run.findings)


def _list_warnings(run: KernelRun) -> list[str]:
    """The rules of warnings about correctness, each once; not those about performance."""
    warnings = [finding.rule for finding in run.findings if finding.severity == "warning"]
    return [rule for rule in dict.fromkeys(warnings) if rule not in COST_RULES]


def _describe_exactness(run: KernelRun) -> str:
    if run.inexact:
        return f"Not exact: {listed(run.inexact)}, whose bits are not fixed."
    if run.assumed:
        return f"Approximate functions as measured on an H200: {listed(run.assumed)}."
    if run.basis == "documented":
        return "Every bit of the result is what the documents say; no card was measured."
    return "Every bit of the result is the card's."
