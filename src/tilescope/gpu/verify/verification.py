"""Verifying tilescope on a card: every suite's cases predicted here, run there, and compared.

Two calls give one kind of table:

    verify(["loads"], count=100)  ──▶ Verification: one row a suite, and the capture to save
    replay(Capture.read(path))    ──▶ the same from a file, without a card

A capture is an archive of arrays (.npz):

    header    JSON: format, card, driver, seed; of every suite its cases, and how those ended that gave no bytes
    digests   BLAKE2b-128 of every result: equal results need no more
    kept      whole results, where they are short or differ from what tilescope said when the capture was made
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilescope.arch import ARCH, Arch
from tilescope.errors import DeviceError, RuleError
from tilescope.gpu.driver.isolation import MadeOnCard, Progress, card_in_children
from tilescope.gpu.verify.suites import DIGEST_BYTES, SUITE_NAMES, Array, Case, Outcome, Suite, suite_named
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.rule import rule
from tilescope.sentence import counted, listed, shorten
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Part
from tilescope.view.table import Table

_SOURCE = "tilescope verify; a capture is a file, so no example runs"
CAPTURE_FORMAT = rule(
    "capture-format",
    "This version of tilescope reads the capture's format number.",
    argument="path",
    found="{path} has format {format}",
    limit="this tilescope reads {known}",
    fix="Capture again: tilescope verify --save FILE.",
    source=_SOURCE,
)
CAPTURE = rule(
    "capture",
    "A capture is a file that `tilescope verify --save` wrote.",
    argument="path",
    found="{path}",
    limit="a file that `tilescope verify --save` wrote",
    fix="Use the FILE of tilescope verify --save FILE.",
    source=_SOURCE,
)
OTHER_PROGRAM = rule(
    "capture-program",
    "This version of tilescope generates the programs of a capture from the same seeds.",
    argument="path",
    found="program {seed} of the capture has a text with digest {recorded}",
    limit="this tilescope grows one with digest {grown}",
    fix="Capture again: tilescope verify kernels --save FILE.",
    source=_SOURCE,
)
FORMAT = 1
_SHORT_BYTES = 64  # results up to this are always kept whole
_H200_SECONDS = {  # docs/on-the-card.md has them, too
    "encode": 2.4,
    "loads": 2.6,
    "im2col": 2.3,
    "multicast": 1.1,
    "bulk": 1.1,
    "plans": 3.7,
    "stores": 2.0,
    "reductions": 2.3,
    "faults": 21.8,
    "mbarriers": 0.9,
    "wgmma": 1.6,
    "fragments": 2.7,
    "ldmatrix": 1.3,
    "banks": 9.1,
    "emitted": 4.7,
}
_OTHER_SECONDS = 60.0  # of a suite that has no row there
_START_SECONDS = 5.0  # to compile a suite's kernels and start its children


class Recording(NamedTuple):
    """One suite of a capture."""

    suite: str
    cases: tuple[Case, ...]
    results: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """A run on a card: its facts, the seed, and every suite's cases and results."""

    facts: Mapping[str, str]  # card, arch, driver, cuda, date
    seed: int
    recordings: tuple[Recording, ...]

    def save(self, path: Path) -> None:
        """Write the capture to a file."""
        arrays: dict[str, Any] = {}
        suites = []
        for name, cases, results in self.recordings:
            suites.append({"suite": name, "cases": cases, "ended": [result.ended for result in results]})
            lengths = [-1 if result.data is None else len(result.data) for result in results]
            arrays[f"{name}.digests"] = np.frombuffer(b"".join(result.digest for result in results), np.uint8)
            arrays[f"{name}.lengths"] = np.array(lengths, np.int64)
            arrays[f"{name}.kept"] = np.frombuffer(b"".join(result.data or b"" for result in results), np.uint8)
        header = {"format": FORMAT, "facts": dict(self.facts), "seed": self.seed, "suites": suites}
        arrays["header"] = np.frombuffer(json.dumps(header, separators=(",", ":")).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """The capture in a file; any other file is refused."""
        try:
            with np.load(path) as arrays:
                header = json.loads(arrays["header"].tobytes())
                number = header["format"]
                if number == FORMAT:
                    recordings = tuple(_recording(suite, arrays) for suite in header["suites"])
                    return cls(header["facts"], header["seed"], recordings)
        except (KeyError, TypeError, ValueError, zipfile.BadZipFile, EOFError) as error:
            raise CAPTURE.error(path=str(path)) from error
        raise CAPTURE_FORMAT.error(path=str(path), format=number, known=FORMAT)


def _recording(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Recording:
    """One suite of a capture, from its part of the header and the arrays of the file."""
    name = header["suite"]
    digests = arrays[f"{name}.digests"]
    lengths = arrays[f"{name}.lengths"]
    kept_bytes = arrays[f"{name}.kept"]
    parts = [part.tobytes() for part in np.split(kept_bytes, np.cumsum(np.maximum(lengths, 0)))[:-1]]
    data = [None if length < 0 else part for length, part in zip(lengths, parts, strict=True)]
    outcomes = map(Outcome, data, header["ended"], map(bytes, digests.reshape(-1, DIGEST_BYTES)))
    return Recording(name, tuple(header["cases"]), tuple(outcomes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult(Value):
    """The result of one suite."""

    suite: str
    cases: int
    equal: int
    difference: str  # description of the first one; empty if there is none
    seconds: float
    note: str = ""  # a remark about all cases together


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(MadeOnCard):
    """A table of suites, with the card that they ran on."""

    replayed: bool  # whether the card's answers come from a capture
    suites: tuple[SuiteResult, ...]
    left_out: tuple[str, ...] = ()  # suites that the card's architecture does not have

    @property
    def agrees(self) -> bool:
        """Whether the card agreed with tilescope in every case."""
        return all(suite.equal == suite.cases for suite in self.suites)


def verify(
    suites: Iterable[str] = (),
    *,
    count: int | None = None,
    seed: int = 1,
    only: int | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> tuple[Verification, Capture]:
    """Compare tilescope with the card of this machine; also gives the capture of what the card did.

    `suites` are names (none: all); `count` is the number of cases of every suite (None: the suite's own); `only` is the
    number of the one case to run, as a difference names it. `announce` is told before the first case how long it will
    take, and what is skipped and why. CardLostError has the capture of the suites before.
    """
    chosen = [suite_named(name) for name in suites or SUITE_NAMES]
    compared: list[tuple[SuiteResult, Recording]] = []
    with card_in_children() as card:
        arch = card.facts["arch"]
        facts = {name: str(card.facts[name]) for name in ("card", "arch", "driver", "cuda", "date")}
        here = [suite for suite in chosen if arch in ARCH and Arch.named(arch).has(suite.feature)]
        if announce is not None:
            announce(outlook(facts["card"], arch, chosen, here, count=1 if only is not None else count))
        for suite in here:
            first = only or 0
            case_count = suite.count if count is None else count
            cases = suite.cases(case_count if only is None else only + 1, seed, arch)[first:]
            try:
                card.compile(suite.kernels)
                outcomes = card.outcomes(
                    suite.name, cases, together=suite.together, seconds=suite.seconds_at_most, children=suite.children
                )
                compared.append(_compare_outcomes(suite, cases, outcomes, progress, first=first))
            except DeviceError as error:
                left = [each.name for each in here[len(compared) :]]
                capture = Capture(facts, seed, tuple(recording for _, recording in compared))
                raise _card_lost([result for result, _ in compared], left, capture, error) from error
    left_out = tuple(suite.name for suite in chosen if suite not in here)
    results = tuple(result for result, _ in compared)
    verification = Verification(**facts, seed=seed, replayed=False, suites=results, left_out=left_out)
    return verification, Capture(facts, seed, tuple(recording for _, recording in compared))


def outlook(card: str, arch: str, chosen: Sequence[Suite], here: Sequence[Suite], *, count: int | None = None) -> str:
    """How long suites will take, by what an H200 took for as many cases, and which are skipped and why.

    >>> suites = [suite_named("loads"), suite_named("wgmma")]
    >>> outlook("B200", "sm_100", suites, suites[:1])
    'B200: 1 suite, about 1 minute. Skipped: wgmma (sm_100 has no wgmma).'
    """
    seconds = _START_SECONDS * len(here)
    for suite in here:
        cases = suite.count if suite.every is None else len(suite.every(arch))
        share = 1.0 if count is None else min(1.0, count / cases)
        seconds += share * _H200_SECONDS.get(suite.name, _OTHER_SECONDS)
    minutes = max(1, round(seconds / 60))
    parts = [f"{card}: {counted(len(here), 'suite')}, about {counted(minutes, 'minute')}."]
    skipped = [f"{suite.name} ({arch} has no {suite.feature})" for suite in chosen if suite not in here]
    if skipped:
        parts.append(f"Skipped: {', '.join(skipped)}.")
    return " ".join(parts)


class CardLostError(DeviceError):
    """A card that was lost during the run; `capture` has the suites before."""

    def __init__(self, message: str, capture: Capture) -> None:
        super().__init__(message)
        self.capture = capture


def _card_lost(done: Sequence[SuiteResult], left: Sequence[str], capture: Capture, error: DeviceError) -> CardLostError:
    """The error for a card that was lost during the run: the results so far, and how to go on."""
    cases = sum(result.cases for result in done)
    equal = sum(result.equal for result in done)
    before = f" In the suites before it the card did what tilescope says in {equal} of {cases} cases." if done else ""
    return CardLostError(
        f"The card was lost in the suite {left[0]}: {error}{before} "
        f"Reset the card (nvidia-smi --gpu-reset), then go on with: tilescope verify {' '.join(left)} --seed {capture.seed}",
        capture,
    )


def replay(capture: Capture, progress: Progress | None = None) -> Verification:
    """Compare tilescope with what a card did when the capture was made."""
    results = [
        _compare_outcomes(suite_named(name), cases, ended, progress)[0] for name, cases, ended in capture.recordings
    ]
    facts: dict[str, Any] = dict(capture.facts)
    return Verification(**facts, seed=capture.seed, replayed=True, suites=tuple(results))


def _compare_outcomes(
    suite: Suite, cases: Sequence[Case], results: Iterable[Outcome], progress: Progress | None, *, first: int = 0
) -> tuple[SuiteResult, Recording]:
    """How many results are as predicted, and the differences to report; `first` is the number of the first case."""
    start = time.monotonic()
    equal = 0
    difference = ""
    recorded = []
    for number, (case, result) in enumerate(zip(cases, results, strict=True)):
        try:
            words = suite.difference(case, result)
        except RuleError as refused:  # our mistake, not the card's: the other cases and suites go on
            words = f"tilescope refuses the case: {refused}"
        if not words:
            equal += 1
        elif not difference:
            difference = shorten(f"case {first + number}: {words}", 600)
        is_long = result.data is not None and len(result.data) > _SHORT_BYTES
        recorded.append(replace(result, data=None) if is_long and not words else result)
        if progress is not None:
            progress(suite.name, number + 1, len(cases))
    note = "" if suite.note is None else suite.note(cases, recorded)
    seconds = round(time.monotonic() - start, 1)
    suite_result = SuiteResult(
        suite=suite.name, cases=len(cases), equal=equal, difference=difference, seconds=seconds, note=note
    )
    return suite_result, Recording(suite.name, tuple(cases), tuple(recorded))


def verification_line(verification: Verification) -> FirstLine:
    """Whether the card agreed with tilescope."""
    cases = sum(suite.cases for suite in verification.suites)
    equal = sum(suite.equal for suite in verification.suites)
    if verification.agrees:
        return make_line(
            "The card did what tilescope says in all {cases:case} ({card}).", cases=cases, card=verification.card
        )
    first = next(suite for suite in verification.suites if suite.equal < suite.cases)
    return make_line(
        "The card did something else in {differing} of {cases:case} ({card}), first in {suite}[[: {difference}]].",
        differing=cases - equal,
        cases=cases,
        card=verification.card,
        suite=first.suite,
        difference=first.difference,
    )


def _note_parts(suite: SuiteResult) -> list[Part]:
    """The note of a suite; lines after its first one stay lines, such as those of a program, and are counted."""
    if not suite.note:
        return []
    first, *rest = suite.note.split("\n")
    parts: list[Part] = [f"{suite.suite}: {first}"]
    if rest:
        parts.append(Table(enumerate(rest, 1), align="rl"))
    return parts


def draw_verification(verification: Verification) -> Drawing:
    """The table that `tilescope verify` prints."""
    rows = tuple(
        (suite.suite, str(suite.cases), str(suite.equal), f"{suite.seconds:.1f}", suite.difference or "none")
        for suite in verification.suites
    )
    cases = sum(suite.cases for suite in verification.suites)
    equal = sum(suite.equal for suite in verification.suites)
    conclusion = f"The card did what tilescope says in all {counted(cases, 'case')}."
    if equal < cases:
        conclusion = f"The card did something else in {cases - equal} of {counted(cases, 'case')}."
    headings = ("suite", "cases", "equal", "seconds", "first difference")
    parts: list[Part] = [Table(rows, headings, align="lrrrl")]
    for suite in verification.suites:
        parts += _note_parts(suite)
    parts.append(conclusion)
    if verification.left_out:
        parts.append(f"Left out, for what {verification.arch} does not have: {listed(verification.left_out)}.")
    how = "a capture of" if verification.replayed else "on"
    where = f"{how} {verification.card}, {verification.software}"
    return Drawing(f"tilescope held against the hardware, {where}, seed {verification.seed}", {"parts": tuple(parts)})
