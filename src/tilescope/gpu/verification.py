"""Verifying tilescope on a card: every suite's cases predicted here, run there, and compared.

Two calls give one kind of table:

    verify(["loads"], count=100)  ──▶ Verification: one row a suite, and the capture to save
    replay(Capture.read(path))    ──▶ the same from a file, without a card
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tilescope.arch import ARCH, Arch
from tilescope.errors import counted, shortened
from tilescope.gpu.capture import Capture, Recorded, Recording
from tilescope.gpu.isolation import card_in_children
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.gpu.suites import SUITE_NAMES, suite_named
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Part, Table

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

    `suites` are names (none: all); `count` is the number of cases of every suite (None: the suite's own).
    """
    chosen = [suite_named(name) for name in suites or SUITE_NAMES]
    results, recordings = [], []
    with card_in_children() as card:
        arch = card.facts["arch"]
        here = [suite for suite in chosen if arch in ARCH and Arch.named(arch).has(suite.feature)]
        for suite in here:
            card.compile(suite.kernels)
            cases = suite.cases(suite.count if count is None else count, seed, arch)
            outcomes = card.outcomes(
                suite.name, cases, together=suite.together, seconds=suite.seconds_at_most, children=suite.children
            )
            result, recording = _compared(suite, cases, map(Recorded.of, outcomes), progress)
            results.append(result)
            recordings.append(recording)
    facts = {name: card.facts[name] for name in ("card", "arch", "driver", "cuda")}
    facts["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    left_out = tuple(suite.name for suite in chosen if suite not in here)
    verification = Verification(**facts, seed=seed, replayed=False, suites=tuple(results), left_out=left_out)
    return verification, Capture(facts, seed, tuple(recordings))


def replay(capture: Capture, progress: Progress | None = None) -> Verification:
    """Hold tilescope against what a card did when the capture was made."""
    results = [
        _compared(suite_named(recording.suite), recording.cases, recording.results, progress)[0]
        for recording in capture.recordings
    ]
    facts: dict[str, Any] = dict(capture.facts)
    return Verification(**facts, seed=capture.seed, replayed=True, suites=tuple(results))


def _compared(
    suite: Suite, cases: Sequence[Case], results: Iterable[Recorded], progress: Progress | None
) -> tuple[SuiteResult, Recording]:
    """How many results are what tilescope says, and what is worth keeping of them."""
    start, equal, difference, kept = time.monotonic(), 0, "", []
    for number, (case, result) in enumerate(zip(cases, results, strict=True)):
        expected = suite.expected(case)
        agrees = result.agrees(expected)
        equal += agrees
        if not agrees and not difference:
            difference = shortened(f"case {number}: {_difference(suite, case, result, expected)}", 600)
        kept.append(result.shortened() if agrees else result)
        if progress is not None:
            progress(suite.name, number + 1, len(cases))
    seconds = round(time.monotonic() - start, 1)
    made = SuiteResult(suite=suite.name, cases=len(cases), equal=equal, difference=difference, seconds=seconds)
    return made, Recording(suite.name, tuple(cases), tuple(kept))


def _difference(suite: Suite, case: Case, result: Recorded, expected: Outcome) -> str:
    if result.data is None and not expected.ended:
        return f"our bytes have another digest than the card's, whose bytes were not kept; case {case}"
    return suite.difference(case, Outcome(result.data or b"", result.ended), expected)


def draw_verification(verification: Verification) -> Drawing:
    """The table that `tilescope verify` prints."""
    rows = tuple(
        (suite.suite, str(suite.cases), str(suite.equal), f"{suite.seconds:.1f}", suite.difference or "none")
        for suite in verification.suites
    )
    headings = ("suite", "cases", "equal", "seconds", "first difference")
    parts: list[Part] = [Table(rows, headings, align="lrrrl"), _conclusion(verification)]
    if verification.left_out:
        names = ", ".join(verification.left_out)
        parts.append(f"Left out: {verification.arch} does not have what {names} needs.")
    where = f"{verification.card}, driver {verification.driver}, CUDA {verification.cuda}, {verification.date}"
    how = "a capture of" if verification.replayed else "on"
    return Drawing(f"tilescope held against the hardware, {how} {where}, seed {verification.seed}", tuple(parts))


def _conclusion(verification: Verification) -> str:
    cases = sum(suite.cases for suite in verification.suites)
    wrong = cases - sum(suite.equal for suite in verification.suites)
    if not wrong:
        return f"The card did what tilescope says in all {counted(cases, 'case')}."
    return f"The card did something else in {wrong} of {counted(cases, 'case')}."
