"""Makes line_words.json and choice.json of src/tilescope/symptoms from labelled lines: `python tests/symptoms/fit_choice.py`.

line_words.json has the words and topics of all labelled lines, but for those that are held out.

choice.json has a weight for each signal of choice.py: those that make the labelled topics of a line likeliest (a conditional logit).
A line does not vouch for itself: it and the other lines of its thread do not speak. The tables have phrases for lines of the older
sets, so their first answer is right more often there than elsewhere. The strength of odds is therefore a logistic curve through fresh
lines alone, for which no phrase was written (lines_learned.tsv), each asked with weights that were fitted without it.
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
from tilescope.symptoms import Diagnosis, diagnose
from tilescope.symptoms.choice import SIGNALS, candidates, family, first_odds, rank_answers
from tilescope.symptoms.line_words import index_lines, to_json
from tilescope.symptoms.word_forms import ordered_words

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "tilescope" / "symptoms"
OLDER = ("titles_and_error_lines", "lines_labelled_first", "lines_drawn_later", "pasted_lines", "what_people_type")
FRESH = "lines_learned"
HELD_OUT = ("lines_held_out", "lines_asked_once", "lines_measured")
EVERY_OLDER = 2  # of the older lines every second fits the weights
PENALTY = 1.0
ROUNDS = 400
PARTS = 11  # of the fresh lines: each is asked with weights that the others fit
SURE_FROM = 0.81


class Labelled(NamedTuple):
    """A line, the topics that answer it, and the thread it comes from."""

    line: str
    topics: frozenset[str]
    thread: str = ""


class Fitted(NamedTuple):
    """A line with its candidates: their signals, and which of them are right."""

    labelled: Labelled
    diagnosis: Diagnosis
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
    return [Labelled(line, frozenset(topics.split(parted_by)), thread) for line, topics, thread, *_ in rows]


def counted_lines() -> list[Labelled]:
    """The lines that speak, each once; none that another set holds out."""
    held_out = {row.line for name in HELD_OUT for row in read_lines(name)}
    lines = [row for name in (*OLDER, FRESH) for row in read_lines(name)]
    return list({row.line: row for row in lines if row.line not in held_out}.values())


def text_of_lines() -> str:
    """What line_words.json has to be."""
    return to_json(index_lines([(frozenset(ordered_words(row.line)), row.topics) for row in counted_lines()]))


def fitted(rows: Iterable[Labelled]) -> list[Fitted]:
    """Lines with the signals of their candidates."""
    counted = counted_lines()
    found = []
    for row in rows:
        try:
            answer = find_by_tables(row.line)
        except RuleError:
            continue
        if isinstance(answer, Rule):
            continue
        own = (
            number
            for number, other in enumerate(counted)
            if other.line == row.line or (row.thread and other.thread == row.thread)
        )
        asked = asked_of(row.line, answer or diagnose(row.line))._replace(left_out=frozenset(own))
        rows_of_line = candidates(asked)
        if rows_of_line:
            names = [candidate.name for candidate in rows_of_line]
            signals = np.array([candidate.signals for candidate in rows_of_line])
            right = np.array([name in row.topics for name in names])
            found.append(Fitted(row, asked.diagnosis, names, signals, right))
    return found


def fit_weights(lines: list[Fitted]) -> np.ndarray:
    """The weights under which the right candidates are likeliest."""
    lines = [line for line in lines if line.right.any()]
    sizes = [len(line.names) for line in lines]
    line_of = np.repeat(np.arange(len(lines)), sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    signals = np.concatenate([line.signals for line in lines])
    is_right = np.concatenate([line.right for line in lines])
    weights = np.zeros(len(SIGNALS))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, ROUNDS + 1):
        scores = signals @ weights
        likely = np.exp(scores - np.maximum.reduceat(scores, starts)[line_of])
        likely /= np.add.reduceat(likely, starts)[line_of]
        right = likely * is_right
        right /= np.add.reduceat(right, starts)[line_of]
        slope = signals.T @ (right - likely) - PENALTY * weights
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        weights += 0.02 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return weights


def ask(lines: list[Fitted], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The odds of the first answer to each line, whether it is right, and whether one of the first three is."""
    odds, right, among_three = [], [], []
    for line in lines:
        ranked = rank_answers(dict(zip(line.names, line.signals @ weights, strict=True)), line.diagnosis)
        wanted = set(map(family, line.labelled.topics))
        hits = [not wanted.isdisjoint(map(family, answer.names)) for answer in ranked[:3]]
        odds.append(first_odds(ranked))
        right.append(hits[0])
        among_three.append(any(hits))
    return np.array(odds), np.array(right, float), np.array(among_three, float)


def ask_each_without_it(older: list[Fitted], fresh: list[Fitted]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for the fresh lines, each with weights that were fitted without it."""
    odds, right, among_three = np.zeros(len(fresh)), np.zeros(len(fresh)), np.zeros(len(fresh))
    for part in range(PARTS):
        others = [line for place, line in enumerate(fresh) if place % PARTS != part]
        weights = fit_weights([*older, *others])
        odds[part::PARTS], right[part::PARTS], among_three[part::PARTS] = ask(fresh[part::PARTS], weights)
    return odds, right, among_three


def fit_strength(odds: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Offset and slope of the logistic curve of how often a first answer is right."""
    middle, spread = odds.mean(), odds.std()
    offset, slope = 0.0, 1.0
    for _ in range(4000):
        missed = right - 1 / (1 + np.exp(-(offset + slope * (odds - middle) / spread)))
        offset += 0.2 * missed.mean()
        slope += 0.2 * ((missed * (odds - middle) / spread).mean() - 0.002 * slope)
    return float(offset - slope * middle / spread), float(slope / spread)


def main() -> None:
    """Write both files."""
    (PACKAGE / "line_words.json").write_text(text_of_lines(), "utf-8")
    fresh = fitted(read_lines(FRESH))
    older = fitted(counted_lines()[::EVERY_OLDER])
    odds, right, among_three = ask_each_without_it(older, fresh)
    offset, slope = fit_strength(odds, right)
    weights = fit_weights([*older, *fresh])
    model = {
        "weights": {signal: round(float(weight), 2) for signal, weight in zip(SIGNALS, weights, strict=True)},
        "strength": [round(offset, 3), round(slope, 3)],
        "sure_from": SURE_FROM,
    }
    (PACKAGE / "choice.json").write_text(json.dumps(model, indent=1) + "\n", "utf-8")
    is_sure = 1 / (1 + np.exp(-(offset + slope * odds))) >= SURE_FROM
    sys.stdout.write(
        f"of {len(right)} fresh lines {int(right.sum())} are right first, {int(among_three.sum())} among three; "
        f"{int(is_sure.sum())} are sure, {int(right[is_sure].sum())} of them right\n{json.dumps(model, indent=1)}\n"
    )


if __name__ == "__main__":
    main()
