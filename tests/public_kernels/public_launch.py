"""One launch of a public kernel in the survey: what was run, and whether the results are right."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Result:
    """An array that a kernel wrote, and what it should be; `tolerance` is relative to the largest expected magnitude."""

    found: np.ndarray
    expected: np.ndarray
    tolerance: float = 0.0

    @property
    def is_right(self):
        return self.difference <= self.tolerance

    @property
    def difference(self):
        """The largest difference, divided by the largest magnitude that is expected."""
        found = np.asarray(self.found, np.float64)
        expected = np.broadcast_to(np.asarray(self.expected, np.float64), found.shape)
        is_number = np.isfinite(expected)
        if not np.array_equal(found[~is_number], expected[~is_number], equal_nan=True):
            return np.inf
        difference = np.abs(found - expected)[is_number]
        largest = max(float(np.abs(expected[is_number]).max(initial=0)), 1e-30)
        return float(difference.max(initial=0)) / largest if np.isfinite(difference).all() else np.inf


@dataclass
class Outcome:
    """The runs of a launch (host code may launch several kernels) and the results to compare."""

    runs: list
    results: list = field(default_factory=list)

    def problems(self):
        """Why the launch does not count as run; empty if it finished without an error and every result is right."""
        found = []
        for run in self.runs:
            if run.outcome != "finished":
                found.append(f"{run.outcome}: {run.findings[0] if run.findings else ''}")
                continue
            errors = [finding for finding in run.findings if finding.severity == "error"]
            if errors:
                found.append(f"{len(errors)} error findings: " + "; ".join(str(error) for error in errors[:3]))
        wrong = [result for result in self.results if not result.is_right]
        if wrong and not any(problem.startswith(("hang", "fault")) for problem in found):
            found.append(f"wrong result: {wrong[0].difference:.3g} of the largest value")
        if not self.runs:
            found.append("no kernel was launched")
        return found
