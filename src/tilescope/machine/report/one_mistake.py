"""One finding for one mistake: a finding that another one explains becomes a detail of it.

    run-expected-bytes   an mbarrier expects 528 bytes, and the copies delivered 512      the mistake
    run-hang             threads 0-63 cannot pass the mbarrier                            what follows from it

Findings are about one mistake if the same tested fix removes them. Where no fix was found, these are:

    two accesses          that nothing orders, whichever of the two came first: a copy that is read early is also a slot refilled early
    unwritten bytes       read at a line that races with the write, or with the copy
    a pending copy        at the end of a block, at a line without a wait
    a shuffled value      of a lane that the mask names, and that does not take part
    all waits of a hang   behind the one that comes first, or behind an mbarrier with wrong bytes
    wrong bytes           of an mbarrier, and the copies of it that overwrite one another

A finding with a fix that was tested separately is a separate mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilescope.errors import Violation
from tilescope.machine.report.hang import HANG
from tilescope.machine.report.races.async_rules import BLOCK_END, COPY_WAIT, CP_ASYNC, REFILL, STORE_SOURCE
from tilescope.machine.report.races.convergence_report import UNDEFINED_LANE, WARP_MASK
from tilescope.machine.report.races.mbarrier_rules import EXPECTED_BYTES
from tilescope.machine.report.races.race_rules import RACE, UNWRITTEN

_SEVERITIES = ("error", "warning")
_UNORDERED = frozenset(rule.name for rule in (RACE, COPY_WAIT, REFILL, CP_ASYNC, STORE_SOURCE))
_AT_LINES_OF_UNORDERED = _UNORDERED | {UNWRITTEN.name, BLOCK_END.name}
_CONSEQUENCES = frozenset(rule.name for rule in (UNWRITTEN, BLOCK_END, UNDEFINED_LANE, HANG))
_OF_WRONG_BYTES = frozenset(rule.name for rule in (COPY_WAIT, REFILL))


def merge_findings(findings: Sequence[Violation]) -> list[Violation]:
    """The findings of a run, one for each mistake, in their order; the lines and the rules of the others are details of it."""
    order = sorted(range(len(findings)), key=lambda index: (*_rank(findings[index]), index))
    groups: list[list[int]] = []
    for index in order:
        finding = findings[index]
        group = next((group for group in groups if any(_explains(findings[member], finding) for member in group)), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    groups.sort(key=lambda group: group[0])
    return [_merge(findings[first], [findings[index] for index in sorted(others)]) for first, *others in groups]


def _rank(finding: Violation) -> tuple[bool, int]:
    """Errors come before warnings, and causes before consequences; wrong bytes, or a wait that another number fixes, are causes."""
    if finding.rule == EXPECTED_BYTES.name:
        order = 0
    elif finding.rule == HANG.name and finding.change is not None and "replace_ptx" in finding.change:
        order = 1
    else:
        order = 3 if finding.rule in _CONSEQUENCES else 2
    return finding.severity != "error", order


def _explains(cause: Violation, other: Violation) -> bool:
    """Whether a finding and another one, which is not more severe, are about one mistake."""
    if cause.severity not in _SEVERITIES or other.severity not in _SEVERITIES:
        return False
    if cause.change is not None or other.change is not None:
        return cause.change == other.change
    if other.rule == HANG.name:
        return cause.rule in (HANG.name, EXPECTED_BYTES.name)
    if cause.rule == EXPECTED_BYTES.name:
        return other.rule in _OF_WRONG_BYTES and _lines(other) <= _lines(cause)
    if other.rule == UNDEFINED_LANE.name:
        return cause.rule == WARP_MASK.name and cause.argument == other.argument
    if cause.rule in _UNORDERED and other.rule in _AT_LINES_OF_UNORDERED:
        return _lines(other) <= _lines(cause)
    return False


def _lines(finding: Violation) -> frozenset[str | int]:
    """The lines of the source that a finding is about; of the PTX text, if it names no source."""
    return frozenset(finding.values.get("source_lines") or finding.values.get("ptx_lines", ()))


def _merge(finding: Violation, others: Sequence[Violation]) -> Violation:
    if not others:
        return finding
    values = dict(finding.values)
    for name in ("ptx_lines", "source_lines"):
        lines = [line for violation in (finding, *others) for line in violation.values.get(name, ())]
        values[name] = tuple(dict.fromkeys(lines))
    values["also"] = [
        {"rule": other.rule, "severity": other.severity, "argument": other.argument, "found": other.found}
        for other in others
    ]
    return replace(finding, values=values)
