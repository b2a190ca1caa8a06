"""What the launches of a program did: counts, and findings grouped by kernel.

4 launches of 2 kernels for sm_90: 12032 warp instructions in 0.31 s, 1 error.
softmax_kernel: 2 launches, no finding
matmul_kernel: 2 launches, 1 error
  error run-race: …                                               launched at mm.py:40
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.errors import Violation
from tilescope.machine.report.finding_text import format_finding
from tilescope.machine.report.run import KernelRun
from tilescope.sentence import counted, listed
from tilescope.value import Value

_SEVERITIES = ("error", "warning", "note")


class FindingKey(NamedTuple):
    """What makes two findings of one kernel the same: their rule, severity and lines."""

    rule: str
    severity: str
    lines: tuple[int, ...]


def identify_finding(finding: Violation) -> FindingKey:
    """The key by which findings of several launches are counted once."""
    return FindingKey(finding.rule, finding.severity, tuple(finding.values.get("ptx_lines", ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedKernel(Value):
    """The launches of one kernel: how many, their work, and their findings."""

    name: str  # of the kernel
    launches: int  # how often it was launched
    warp_instructions: int  # of all its launches
    seconds: float  # that its launches took here
    findings: tuple[Violation, ...]  # each once, errors first
    call_sites: tuple[str | None, ...]  # for each finding, the line of the program that launched it first


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramReport(Value):
    """What a program under Triton's driver launched, by kernel."""

    arch: str  # that kernels were compiled for
    launches: int  # of all kernels
    warp_instructions: int  # of all launches
    seconds: float  # that the launches took here
    kernels: tuple[LaunchedKernel, ...]  # in the order of their first launch
    notes: tuple[str, ...]  # what was replaced or skipped, in sentences

    @property
    def findings(self) -> tuple[Violation, ...]:
        """The findings of all kernels."""
        return tuple(finding for kernel in self.kernels for finding in kernel.findings)

    @property
    def sentence(self) -> str:
        """The whole in one sentence."""
        launches = counted(self.launches, "launch", "launches")
        kernels = counted(len(self.kernels), "kernel")
        work = f"{counted(self.warp_instructions, 'warp instruction')} in {self.seconds:.3g} s"
        return f"{launches} of {kernels} for {self.arch}: {work}, {count_findings(self.findings)}."

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The report as lines of text: the sentence, every kernel, and its errors and warnings."""
        yield self.sentence
        for kernel in self.kernels:
            launches = counted(kernel.launches, "launch", "launches")
            yield f"{kernel.name}: {launches}, {count_findings(kernel.findings)}"
            for finding, call_site in zip(kernel.findings, kernel.call_sites, strict=True):
                if finding.severity == "note":
                    continue
                headline, *details = format_finding(finding)
                yield f"  {finding.severity} {headline}"
                yield from (f"  {detail}" for detail in details)
                if call_site is not None:
                    yield f"    launched at: {call_site}"
        yield from self.notes


def count_findings(findings: Iterable[Violation]) -> str:
    """How many findings there are of each severity."""
    numbers: Counter[str] = Counter(finding.severity for finding in findings)
    counts = [counted(numbers[severity], severity) for severity in _SEVERITIES if numbers[severity]]
    return listed(counts) if counts else "no finding"


class LaunchLog:
    """Collects launches for a report."""

    def __init__(self) -> None:
        self._launches: Counter[str] = Counter()
        self._warp_instructions: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._findings: dict[str, dict[FindingKey, tuple[Violation, str | None]]] = {}

    def add(self, run: KernelRun, seconds: float) -> None:
        """Count a launch."""
        name = run.entry
        self._launches[name] += 1
        self._warp_instructions[name] += sum(row.warps for row in run.instructions)
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        findings = self._findings.setdefault(name, {})
        for finding in run.findings:
            findings.setdefault(identify_finding(finding), (finding, run.call_site))

    def report(self, arch: str, notes: Sequence[str]) -> ProgramReport:
        """The launches so far."""
        kernels = []
        for name, launches in self._launches.items():
            findings = [*self._findings[name].values()]
            findings.sort(key=lambda pair: _SEVERITIES.index(pair[0].severity))
            kernels.append(
                LaunchedKernel(
                    name=name,
                    launches=launches,
                    warp_instructions=self._warp_instructions[name],
                    seconds=self._seconds[name],
                    findings=tuple(finding for finding, _ in findings),
                    call_sites=tuple(call_site for _, call_site in findings),
                )
            )
        return ProgramReport(
            arch=arch,
            launches=self._launches.total(),
            warp_instructions=self._warp_instructions.total(),
            seconds=sum(self._seconds.values()),
            kernels=tuple(kernels),
            notes=tuple(notes),
        )
