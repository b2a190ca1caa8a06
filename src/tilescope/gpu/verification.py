"""Verifying tilescope on a card: every suite's cases predicted here, run there, and compared.

Two calls give one kind of table:

    verify(["loads"], count=100)  ──▶ Verification: one row a suite, and the capture to save
    replay(Capture.read(path))    ──▶ the same from a file, without a card
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilescope.arch import ARCH, Arch
from tilescope.errors import shortened
from tilescope.gpu.capture import Capture, Recorded, Recording
from tilescope.gpu.compiling import compiled
from tilescope.gpu.isolation import COMMAND, Child, Workers, greeted
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.gpu.suite_table import SUITE_NAMES, suite_named
from tilescope.value import Value

Progress = Callable[[str, int, int], None]  # suite, cases done, cases in all


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult(Value):
    """What came of one suite."""

    suite: str
    cases: int
    equal: int
    difference: str  # the first one, in words; empty where there is none
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether the card did what tilescope says in every case."""
        return self.equal == self.cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Value):
    """A table of suites, with the card that they ran on."""

    card: str
    arch: str
    driver: str
    cuda: str
    date: str  # UTC, when the cases ran on the card
    seed: int
    replayed: bool  # whether the card's answers come from a capture
    suites: tuple[SuiteResult, ...]
    left_out: tuple[str, ...] = ()  # suites that the card's architecture does not have

    @property
    def agrees(self) -> bool:
        """Whether every suite agrees."""
        return all(suite.agrees for suite in self.suites)


def verify(
    suites: Iterable[str] = (), *, count: int | None = None, seed: int = 1, progress: Progress | None = None
) -> tuple[Verification, Capture]:
    """Hold tilescope against the card of this machine, and the capture of what the card did.

    `suites` are names (none: all); `count` is the number of cases for each (none: each suite's own).
    """
    chosen = [suite_named(name) for name in suites or SUITE_NAMES]
    with tempfile.TemporaryDirectory() as folder:
        facts = _card_facts(Path(folder))
        arch = facts["arch"]
        here = [suite for suite in chosen if arch in ARCH and Arch.named(arch).has(suite.feature)]
        results, recordings = [], []
        for suite in here:
            _compile(suite, arch, Path(folder))
            cases = suite.cases(suite.count if count is None else count, seed, arch)
            start = time.monotonic()
            outcomes = _outcomes(suite, cases, Path(folder), progress)
            result, recording = _compared(suite, cases, outcomes, start)
            results.append(result)
            recordings.append(recording)
    left_out = tuple(suite.name for suite in chosen if suite not in here)
    facts["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    verification = Verification(**facts, seed=seed, replayed=False, suites=tuple(results), left_out=left_out)
    return verification, Capture(facts, seed, tuple(recordings))


def replay(capture: Capture, progress: Progress | None = None) -> Verification:
    """Hold tilescope against what a card did when the capture was made."""
    results = []
    for recording in capture.recordings:
        suite = suite_named(recording.suite)
        start, equal, difference = time.monotonic(), 0, ""
        for number, (case, found) in enumerate(zip(recording.cases, recording.results, strict=True)):
            expected = suite.predict(case)
            if found.agrees(expected):
                equal += 1
            else:
                difference = difference or _recorded_difference(suite, case, found, expected, number)
            if progress is not None:
                progress(suite.name, number + 1, len(recording.cases))
        results.append(_result(suite, len(recording.cases), equal, difference, start))
    facts: dict[str, Any] = dict(capture.facts)
    return Verification(**facts, seed=capture.seed, replayed=True, suites=tuple(results))


def _card_facts(folder: Path) -> dict[str, str]:
    """What the card says of itself, asked in a child: this process stays free of CUDA."""
    with Child((*COMMAND, str(folder))) as child:
        return greeted(child)


def _compile(suite: Suite, arch: str, folder: Path) -> None:
    """Compile the kernels of a suite for the children, once."""
    for name in suite.kernels:
        path = folder / f"{name}.cubin"
        if not path.exists():
            path.write_bytes(compiled(name, f"{arch}a"))


def _outcomes(suite: Suite, cases: Sequence[Case], folder: Path, progress: Progress | None) -> Iterator[Outcome]:
    batches = [cases[first : first + suite.together] for first in range(0, len(cases), suite.together)]
    done = 0
    for outcomes in Workers(suite.name, folder, COMMAND).outcomes(batches, suite.seconds_at_most, suite.children):
        yield from outcomes
        done += len(outcomes)
        if progress is not None:
            progress(suite.name, done, len(cases))


def _compared(
    suite: Suite, cases: Sequence[Case], outcomes: Iterable[Outcome], start: float
) -> tuple[SuiteResult, Recording]:
    equal, difference, results = 0, "", []
    for number, (case, found) in enumerate(zip(cases, outcomes, strict=True)):
        differs = suite.difference(case, found, suite.predict(case))
        equal += not differs
        if differs and not difference:
            difference = f"case {number}: {differs}"
        results.append(Recorded.of(found, whole=bool(differs)))
    recording = Recording(suite.name, tuple(cases), tuple(results))
    return _result(suite, len(cases), equal, difference, start), recording


def _recorded_difference(suite: Suite, case: Case, found: Recorded, expected: Outcome, number: int) -> str:
    if found.ended or expected.ended or found.data is not None:
        return f"case {number}: {suite.difference(case, Outcome(found.data or b'', found.ended), expected)}"
    return f"case {number}: our bytes have another digest than the card's, whose bytes were not kept: {case}"


def _result(suite: Suite, cases: int, equal: int, difference: str, start: float) -> SuiteResult:
    return SuiteResult(
        suite=suite.name, cases=cases, equal=equal, difference=shortened(difference, 600),
        seconds=round(time.monotonic() - start, 1),
    )  # fmt: skip
