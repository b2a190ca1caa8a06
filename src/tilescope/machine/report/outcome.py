"""The outcome of a run in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilescope.errors import Violation
from tilescope.machine.report.run import KernelRun, is_about_result
from tilescope.ptx.source_name import source_name
from tilescope.sentence import counted, fill_template, listed

_OUTCOMES = {
    "finished": "{entry} finished",
    "hang": "{entry} hangs",
    "fault": "{entry} ends with a fault",
    "stopped": "{entry} was stopped before its end",
}


def outcome_sentence(run: KernelRun, seconds: float | None = None, accepted: Sequence[Violation] = ()) -> str:
    """The outcome of a run, the amount of work, and whether the bits of its result are those of a GPU.

    Findings that are `accepted` do not count, but the result is not certain for that.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    >>> outcome_sentence(kernel.run(grid=2, block=64))
    "k finished: 2 blocks of 64 threads, 4 warp instructions. Every bit of the result is the card's."
    """
    return f"{_describe_outcome(run, accepted)}: {describe_work(run, seconds)}"


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
    return f"{counts} {_describe_exactness(run)}"


def error_sentence(run: KernelRun, errors: Sequence[Violation], accepted: Sequence[Violation] = ()) -> str:
    """The outcome of a run with errors, the first of them, and its rule.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { .reg .b64 %d; mov.b64 %d, 0; st.global.u32 [%d], 1; ret; }"
    >>> run = Kernel(text).run(grid=1, block=1)
    >>> error_sentence(run, run.findings)
    'k ends with a fault: PTX line 1: an access of 4 bytes at 0x0, which no array contains (run-out-of-bounds).'
    """
    first = errors[0]
    outcome = _describe_outcome(run, accepted)
    if len(errors) > 1:
        outcome = f"{outcome}; the first"
    headline = first.values.get("headline", first.found)
    return fill_template(
        "{outcome}: {headline} ({rule}).", {"outcome": outcome, "headline": headline, "rule": first.rule}
    )


def warning_sentence(run: KernelRun, warnings: Sequence[Violation], accepted: Sequence[Violation] = ()) -> str:
    """The outcome of a run without errors for a strict reader: how many warnings it has, and the first of them with its rule."""
    first = warnings[0]
    outcome = f"{_describe_outcome(run, accepted, warnings)}{'; the first' if len(warnings) > 1 else ''}"
    headline = first.values.get("headline", first.found)
    return fill_template(
        "{outcome}: {headline} ({rule}).", {"outcome": outcome, "headline": headline, "rule": first.rule}
    )


def _describe_outcome(run: KernelRun, accepted: Sequence[Violation], counted_warnings: Sequence[Violation] = ()) -> str:
    outcome = _OUTCOMES[run.outcome].format(entry=source_name(run.entry))
    if run.outcome != "finished":
        return outcome
    findings = [finding for finding in run.findings if finding not in accepted]
    errors = [finding for finding in findings if finding.severity == "error"]
    parts = [counted(len(errors), "error")] if errors else []
    if counted_warnings:
        parts.append(counted(len(counted_warnings), "warning"))
    elif not errors and (rules := _list_warnings(findings)):
        parts.append(f"{counted(len(rules), 'warning')} ({listed(rules)})")
    if accepted:
        rules = [*dict.fromkeys(finding.rule for finding in accepted)]
        parts.append(f"{counted(len(accepted), 'accepted finding')} ({listed(rules)})")
    return f"{outcome}, with {listed(parts)}" if parts else outcome


def _list_warnings(findings: Sequence[Violation]) -> list[str]:
    """The rules of warnings about correctness, each once; not those about performance."""
    warnings = [finding.rule for finding in findings if finding.severity == "warning" and is_about_result(finding)]
    return [*dict.fromkeys(warnings)]


def _describe_exactness(run: KernelRun) -> str:
    if any(map(is_about_result, run.findings)):
        return "The result is not certain."
    if run.inexact:
        return f"Not exact: {listed(run.inexact)}, whose bits are not fixed."
    if run.assumed:
        return f"Approximate functions as measured on an H200: {listed(run.assumed)}."
    if run.basis == "documented":
        return "Every bit of the result follows the documentation; no card was measured."
    return "Every bit of the result is the card's."
