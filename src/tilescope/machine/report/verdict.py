"""Whether a run is clean: its findings by severity, without those that somebody has judged and accepted.

    run-race             every finding of the rule
    run-race@12          those at line 12 of the PTX text
    run-race@mm.py:12    those at line 12 of the source

A run that did not finish is never clean. Notes never count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.errors import PlainData, RuleError, Violation, unknown_name
from tilescope.machine.report.run import KernelRun
from tilescope.rule import ARGUMENT_RANGE, RULES

_PREFIX = "run-"  # of the names of all rules about runs
_SOURCE_LINE = re.compile(r".+:\d+")


class Acceptance(NamedTuple):
    """The findings of a rule that are accepted: at one line, or everywhere."""

    text: str
    rule: str
    line: str = ""

    def matches(self, finding: Violation) -> bool:
        """Whether a finding is accepted."""
        if finding.rule != self.rule:
            return False
        if not self.line:
            return True
        if self.line.isdecimal():
            return int(self.line) in finding.values.get("ptx_lines", ())
        return any(names_line(self.line, source) for source in finding.values.get("source_lines", ()))


def names_line(name: str, source_line: str) -> bool:
    """Whether somebody who writes `name` means a source line, whose folder may be left out.

    >>> names_line("mm.py:12", "kernels/mm.py:12"), names_line("mm.py:1", "mm.py:12"), names_line("mm.py:12", "gemm.py:12")
    (True, False, False)
    """
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?!\d)", source_line) is not None


def read_acceptance(text: str) -> Acceptance:
    """An entry of `allow`: a rule, and behind @ a line; an error if no rule has that name.

    >>> read_acceptance("run-race@mm.py:12").line
    'mm.py:12'
    """
    rule, separator, line = text.strip().partition("@")
    if rule not in RULES:
        raise RuleError([unknown_name("rule", "allow", rule, [name for name in RULES if name.startswith(_PREFIX)])])
    if separator and not line.isdecimal() and _SOURCE_LINE.fullmatch(line) is None:
        raise ARGUMENT_RANGE.error(
            argument="allow",
            found=f"the line {line!r} of {text!r}",
            limit="after @ comes a line of the PTX text, or a file and a line of the source",
            fix=f"Write {rule}@12 or {rule}@mm.py:12, for example.",
        )
    return Acceptance(text.strip(), rule, line)


class AcceptedFinding(NamedTuple):
    """A finding that does not count, and the entry of `allow` that accepts it."""

    allow: str
    finding: Violation

    def to_dict(self) -> PlainData:
        """Plain values for JSON."""
        return {"allow": self.allow, "finding": self.finding.to_dict()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a run that count, those that are accepted, and the entries of `allow` that matched none."""

    is_finished: bool
    errors: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    accepted: tuple[AcceptedFinding, ...] = ()
    unmatched: tuple[str, ...] = ()

    def is_clean(self, *, strict: bool) -> bool:
        """Whether the run finished without an error; a strict reader takes no warning either."""
        return self.is_finished and not self.errors and not (strict and self.warnings)

    @property
    def accepted_findings(self) -> tuple[Violation, ...]:
        """The findings that do not count."""
        return tuple(accepted.finding for accepted in self.accepted)

    def describe_unmatched(self) -> list[str]:
        """A line for each entry of `allow` that matched no finding."""
        return [f"allow {text} matched no finding of this run" for text in self.unmatched]


def judge_run(run: KernelRun, allow: Sequence[str] = ()) -> Verdict:
    """The findings that count, by severity, after taking out the accepted ones.

    >>> from tilescope.machine.kernel import Kernel
    >>> run = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }").run(grid=1, block=32)
    >>> judge_run(run, ["run-race@12"]).unmatched
    ('run-race@12',)
    """
    entries = [read_acceptance(text) for text in allow]
    used: set[Acceptance] = set()
    accepted: list[AcceptedFinding] = []
    unaccepted: list[Violation] = []
    for finding in run.findings:
        matching = [entry for entry in entries if entry.matches(finding)]
        used.update(matching)
        if matching:
            accepted.append(AcceptedFinding(matching[0].text, finding))
        else:
            unaccepted.append(finding)
    return Verdict(
        run.outcome == "finished",
        tuple(finding for finding in unaccepted if finding.severity == "error"),
        tuple(finding for finding in unaccepted if finding.severity == "warning"),
        tuple(accepted),
        tuple(entry.text for entry in entries if entry not in used),
    )
