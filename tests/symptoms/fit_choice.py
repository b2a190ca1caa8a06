"""Makes line_words.json and choice.json of src/tilescope/symptoms from labelled lines: `python tests/symptoms/fit_choice.py`.

line_words.json counts the words of all labelled lines by topic, but for those of lines_held_out.tsv and lines_measured.tsv.

choice.json has a weight for each signal of choice.py: those that make the labelled topics of a line likeliest (a conditional logit).
The tables have phrases for lines of the older sets, so their first answer says more there than elsewhere. Fresh lines, for which no
phrase was written (lines_learned.tsv), count several times as much. A line does not vouch for itself: its own words are taken out
of the counts. The strength of a score is fitted by a logistic curve to the fresh lines alone.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.questions.sentence_choice import asked_of
from tilescope.questions.topic_questions import find_by_tables
from tilescope.rule import Rule
from tilescope.symptoms import diagnose
from tilescope.symptoms.choice import SIGNALS, candidates, rank_answers
from tilescope.symptoms.line_words import count_words, to_json
from tilescope.symptoms.word_forms import ordered_words

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "tilescope" / "symptoms"
OLDER = ("titles_and_error_lines", "lines_labelled_first", "lines_drawn_later", "pasted_lines", "what_people_type")
FRESH = "lines_learned"
HELD_OUT = ("lines_held_out", "lines_measured")
EVERY_OLDER = 4  # of the older lines every fourth fits the weights
FRESH_COUNT = 2  # how many older lines a fresh one counts as much as
PENALTY = 1.0
ROUNDS = 500
SURE_FROM = 0.83


class Labelled(NamedTuple):
    """A line and the topics that answer it."""

    line: str
    topics: frozenset[str]


class Fitted(NamedTuple):
    """A line with its candidates: their signals, and which of them are right."""

    labelled: Labelled
    names: list[str]
    signals: np.ndarray
    right: np.ndarray


def read_lines(name: str) -> list[Labelled]:
    """The labelled lines of a table; comments are left out."""
    rows = [
        row.split("\t") for row in (HERE / f"{name}.tsv").read_text("utf-8").splitlines() if not row.startswith("#")
    ]
    if name == "what_people_type":
        return [Labelled(line, frozenset({topic})) for line, kind, topic in rows if kind in ("symptom", "term")]
    parted_by = ", " if name == "pasted_lines" else " | "
    return [Labelled(line, frozenset(topics.split(parted_by))) for line, topics, *_ in rows]


def counted_lines() -> list[Labelled]:
    """The lines whose words are counted, each once; none that another set holds out."""
    held_out = {row.line for name in HELD_OUT for row in read_lines(name)}
    lines = [row for name in (*OLDER, FRESH) for row in read_lines(name)]
    return list({row.line: row for row in lines if row.line not in held_out}.values())


def write_counts() -> None:
    """Write line_words.json."""
    lines = [(frozenset(ordered_words(row.line)), row.topics) for row in counted_lines()]
    (PACKAGE / "line_words.json").write_text(to_json(count_words(lines)), "utf-8")


def fitted(rows: Iterable[Labelled]) -> list[Fitted]:
    """Lines with the signals of their candidates."""
    found = []
    for row in rows:
        try:
            answer = find_by_tables(row.line)
        except RuleError:
            continue
        if isinstance(answer, Rule):
            continue
        asked = asked_of(row.line, answer or diagnose(row.line))._replace(left_out=row.topics)
        rows_of_line = candidates(asked)
        if rows_of_line:
            names = [candidate.name for candidate in rows_of_line]
            signals = np.array([candidate.signals for candidate in rows_of_line])
            found.append(Fitted(row, names, signals, np.array([name in row.topics for name in names])))
    return found


def fit_weights(lines: list[Fitted], counts: list[float]) -> np.ndarray:
    """The weights under which the right candidates are likeliest."""
    weights = np.zeros(len(SIGNALS))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    usable = [(line, count) for line, count in zip(lines, counts, strict=True) if line.right.any()]
    for step in range(1, ROUNDS + 1):
        slope = -PENALTY * weights
        for line, count in usable:
            scores = line.signals @ weights
            likely = np.exp(scores - scores.max())
            likely /= likely.sum()
            right = likely * line.right
            slope += count * (line.signals.T @ (right / right.sum() - likely))
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        weights += 0.02 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return weights


def first_answers(lines: list[Fitted], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The score of the first answer to each line, and whether it is right."""
    scores, right = [], []
    for line in lines:
        scored = dict(zip(line.names, line.signals @ weights, strict=True))
        ranked = rank_answers(scored, diagnose(line.labelled.line))
        scores.append(ranked[0].score)
        right.append(not line.labelled.topics.isdisjoint(ranked[0].names))
    return np.array(scores), np.array(right, float)


def fit_strength(scores: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Offset and slope of the logistic curve of how often a first answer is right."""
    middle, spread = scores.mean(), scores.std()
    offset, slope = 0.0, 1.0
    for _ in range(4000):
        missed = right - 1 / (1 + np.exp(-(offset + slope * (scores - middle) / spread)))
        offset += 0.2 * missed.mean()
        slope += 0.2 * ((missed * (scores - middle) / spread).mean() - 0.002 * slope)
    return float(offset - slope * middle / spread), float(slope / spread)


def main() -> None:
    """Write both files."""
    write_counts()
    fresh = fitted(read_lines(FRESH))
    older = fitted(counted_lines()[::EVERY_OLDER])
    weights = fit_weights([*older, *fresh], [1.0] * len(older) + [float(FRESH_COUNT)] * len(fresh))
    scores, right = first_answers(fresh, weights)
    offset, slope = fit_strength(scores, right)
    model = {
        "weights": {signal: round(float(weight), 2) for signal, weight in zip(SIGNALS, weights, strict=True)},
        "strength": [round(offset, 3), round(slope, 3)],
        "sure_from": SURE_FROM,
    }
    (PACKAGE / "choice.json").write_text(json.dumps(model, indent=1) + "\n", "utf-8")
    sys.stdout.write(f"{int(right.sum())} of {len(right)} fresh lines are right first\n{json.dumps(model, indent=1)}\n")


if __name__ == "__main__":
    main()
