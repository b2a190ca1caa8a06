"""Which topics a sentence may be about, the likeliest first, and how sure that is.

    "the epilogue releases the accumulator stage before reading it, corrupting output"
      early-release          4.9   a phrase of it is there whole, lines about it have these words
      the result is wrong    3.1   a generic symptom: behind every cause that the line names
      stale-accumulator      1.7

Two rankers speak for a topic: the phrases of the tables (symptom_diagnosis.py, ranking.py), and labelled lines (line_words.py). What
each says is a signal; the score of a topic is their weighted sum. A cause, the term of its name and the symptom that only it has are one
answer. Scores are odds: an answer is as likely as its share of all answers' odds. The strength of the first answer is the share of
labelled lines with such a share that are right. choice.json holds the weights; tests/symptoms/fit_choice.py fits them on labelled lines.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import exp, log
from typing import NamedTuple

from tilescope.symptoms.index import indexed_topics
from tilescope.symptoms.line_words import line_words
from tilescope.symptoms.ranking import Likely, is_about_a_fault, weight
from tilescope.symptoms.symptom_diagnosis import Diagnosis, is_certain, question_words
from tilescope.symptoms.tables import CAUSE, SYMPTOM, TERMS, Entry
from tilescope.symptoms.word_forms import ordered_words

SIGNALS = (
    "first symptom",  # the tables put it first
    "first cause",
    "first term",
    "certain",  # … by a code, or as a line of ptxas
    "named",  # a phrase of the cause is there whole
    "of the symptom",  # a cause of the symptom that the tables put first
    "spelled first",  # the spelled term with the most weight
    "spelled",
    "lines",  # share of the score from the words of labelled lines
    "lines first",
    "neighbours",  # how like the labelled lines about it are
    "phrases",  # share of the score from phrases that match in part
    "phrases first",
    "covered",  # share of the words that a phrase of it has which is there whole
    "joined",  # share of the words of a question that the sentences about a cause have too
    "symptom",
    "term of a fault",
    "term of a subject",
    "generic",  # a symptom that many causes have
    "frequent",  # in labelled lines
)
_BY_LINES = 8  # candidates
_BY_PHRASES = 8
_SHARED_OUT = 12  # topics among which the weight of lines and of phrases is shared out
_SYMPTOMS = 4
_CAUSES = 6
_TERMS = 4
_MISSING = 2  # power of the share of a phrase that is there
_FREQUENT = 5.0  # logarithm of the number of lines about the most frequent topic, approximately
_LEAST_STRENGTH = 0.02
_CERTAIN_ODDS = 6.0  # logarithm of the odds of an only answer
_UNSCORED = -99.0  # of a cause without any signal
_BEHIND = 0.01  # of a generic symptom behind the cause that a line names


class Candidate(NamedTuple):
    """A topic that may be meant: its signals, in the order of SIGNALS."""

    name: str
    signals: tuple[float, ...]


class Possible(NamedTuple):
    """One possible answer: its names, the likeliest first, and its score."""

    names: tuple[str, ...]
    score: float


class Choice(NamedTuple):
    """The possible answers to a sentence, the likeliest first, and how likely the first one is right."""

    answers: tuple[Possible, ...]
    strength: float


class Asked(NamedTuple):
    """A sentence, and what the tables make of it."""

    question: str
    diagnosis: Diagnosis
    first: frozenset[str]  # the names that the tables put first
    terms: tuple[Likely, ...]  # that the sentence spells
    left_out: frozenset[int] = frozenset()  # numbers of labelled lines to leave out


def choose(asked: Asked) -> Choice:
    """The possible answers to a sentence, the likeliest first."""
    rows = candidates(asked)
    weights = [_model()["weights"][signal] for signal in SIGNALS]
    scores = {row.name: sum(map(_product, weights, row.signals)) for row in rows}
    answers = rank_answers(scores, asked.diagnosis)
    return Choice(answers, strength_of_odds(first_odds(answers)) if answers else 0.0)


def _product(one: float, other: float) -> float:
    return one * other


def first_odds(answers: Sequence[Possible]) -> float:
    """The logarithm of the odds of the first answer against all others.

    >>> round(first_odds([Possible(("parity",), 2.0), Possible(("gap",), 1.0), Possible(("fill",), 1.0)]), 3)
    0.307
    """
    first, *others = (answer.score for answer in answers)
    return first - log(sum(map(exp, others))) if others else _CERTAIN_ODDS


def strength_of_odds(odds: float) -> float:
    """The share of labelled lines with such odds whose first answer is right."""
    offset, slope = _model()["strength"]
    return max(_LEAST_STRENGTH, 1 / (1 + exp(-(offset + slope * odds))))


def is_sure(strength: float) -> bool:
    """Whether answers of this strength are right often enough to be given without others.

    >>> is_sure(1.0), is_sure(0.1)
    (True, False)
    """
    return strength >= float(_model()["sure_from"])


def candidates(asked: Asked) -> list[Candidate]:
    """The topics with any signal, and their signals."""
    words = frozenset(ordered_words(asked.question))
    of_lines = line_words(words)
    by_lines = _shares(of_lines.scores(words, asked.left_out))
    neighbours = _by_family(of_lines.neighbours(words, asked.left_out))
    frequent = of_lines.of_topic(asked.left_out)
    all_words = words | question_words(asked.question)
    by_phrases = _shares(_phrase_scores(all_words))
    asks = asked.question.rstrip().endswith("?")
    diagnosis = asked.diagnosis
    of_symptom = diagnosis.symptoms[0].causes if diagnosis.symptoms else ()
    named = [cause.name for cause in diagnosis.named]
    spelled = {term.name: term.score / asked.terms[0].score for term in asked.terms[:_TERMS] if asked.terms[0].score}
    is_fault = is_about_a_fault(asked.question)
    certain = is_certain(asked.question)
    names = dict.fromkeys(
        (
            *sorted(asked.first),
            *list(by_lines)[:_BY_LINES],
            *list(by_phrases)[:_BY_PHRASES],
            *(symptom.name for symptom in diagnosis.symptoms[:_SYMPTOMS]),
            *(cause.name for cause in diagnosis.causes[:_CAUSES]),
            *spelled,
        )
    )
    rows = []
    for name in names:
        if name not in SYMPTOM and name not in CAUSE and name not in _term_names():
            continue
        is_first = name in asked.first
        is_term = name not in SYMPTOM and name not in CAUSE
        signals = {
            "first symptom": is_first and name in SYMPTOM,
            "first cause": is_first and name in CAUSE,
            "first term": is_first and is_term,
            "certain": is_first and certain,
            "named": 1 / (1 + named.index(name)) if name in named else 0.0,
            "of the symptom": name in of_symptom,
            "spelled first": next(iter(spelled), "") == name,
            "spelled": spelled.get(name, 0.0),
            "lines": by_lines.get(name, 0.0),
            "lines first": next(iter(by_lines), "") == name,
            "neighbours": neighbours.get(family(name), 0.0),
            "phrases": by_phrases.get(name, 0.0),
            "phrases first": next(iter(by_phrases), "") == name,
            "covered": _phrase_coverage(name, all_words),
            "joined": _topic_coverage(name, all_words) if asks and name in CAUSE else 0.0,
            "symptom": name in SYMPTOM,
            "term of a fault": is_term and is_fault,
            "term of a subject": is_term and not is_fault,
            "generic": is_generic(name),
            "frequent": log(1 + frequent.get(name, 0)) / _FREQUENT,
        }
        rows.append(Candidate(name, tuple(float(signals[signal]) for signal in SIGNALS)))
    return rows


def is_generic(name: str) -> bool:
    """Whether many causes have this symptom: "the kernel hangs" is less specific than any of them.

    >>> is_generic("the kernel hangs"), is_generic("illegal instruction (715)")
    (True, False)
    """
    return name in SYMPTOM and SYMPTOM[name].is_generic


def rank_answers(scores: Mapping[str, float], diagnosis: Diagnosis) -> tuple[Possible, ...]:
    """The answers, the likeliest first: topics that are one thing together, generic symptoms behind causes that the line names."""
    families: dict[str, list[str]] = {}
    for name in sorted(scores, key=lambda name: -scores[name]):
        families.setdefault(family(name), []).append(name)
    totals = {name: log(sum(exp(scores[member]) for member in members)) for name, members in families.items()}
    named = [totals[family(cause.name)] for cause in diagnosis.named if cause.name in scores]
    if named:
        below = max(named) - _BEHIND
        totals = {name: min(total, below) if is_generic(name) else total for name, total in totals.items()}
    answers: list[Possible] = []
    shown: set[str] = set()
    for name in sorted(totals, key=lambda name: -totals[name]):
        members = families[name]
        if name in shown or shown.issuperset(members):
            continue
        names = tuple(dict.fromkeys((*members, *_with_causes(members, scores, diagnosis))))
        answers.append(Possible(names, totals[name]))
        shown.update(names)
    return tuple(answers)


def _with_causes(members: Iterable[str], scores: Mapping[str, float], diagnosis: Diagnosis) -> list[str]:
    """What is shown with an answer: the likeliest cause of a symptom, or the symptom of a cause that was matched."""
    seen = diagnosis.symptoms[0].name if diagnosis.symptoms else ""
    shown: list[str] = []
    for name in members:
        if name in SYMPTOM:
            causes = [cause.name for cause in diagnosis.causes] if name == seen else list(SYMPTOM[name].causes)
            shown += sorted(causes, key=lambda cause: -scores.get(cause, _UNSCORED))[:1]
        elif name in CAUSE and seen and any(cause.name == name for cause in diagnosis.causes):
            shown.append(seen)
    return shown


@cache
def family(name: str) -> str:
    """The representative of equivalent topics: a cause, the term of its name, and a symptom that only it has.

    >>> family("dependent launch"), family("the last few elements are missing"), family("parity")
    ('dependent-launch', 'bulk-16-bytes', 'parity')
    """
    if name in SYMPTOM:
        causes = SYMPTOM[name].causes
        return causes[0] if len(causes) == 1 and not SYMPTOM[name].codes else name
    if name in CAUSE:
        return name
    cause = name.casefold().replace(" ", "-")
    return cause if cause in CAUSE and CAUSE[cause].term == name else name


def _by_family(scores: Mapping[str, float]) -> dict[str, float]:
    """The signals of each answer: the strongest of its topics."""
    best: dict[str, float] = {}
    for name, score in scores.items():
        best[family(name)] = max(score, best.get(family(name), 0.0))
    return best


def _shares(scores: Mapping[str, float]) -> dict[str, float]:
    """The best topics with their share of what all of them have, best first."""
    best = sorted(scores, key=lambda name: -scores[name])[:_SHARED_OUT]
    total = sum(scores[name] for name in best)
    return {name: scores[name] / total for name in best} if total else {}


def _phrase_scores(words: Collection[str]) -> dict[str, float]:
    """What the best phrase of each topic weighs, less the more of it is missing."""
    scores = {}
    weights = {word: weight((word,)) for word in words}
    for name, phrases in _phrases().items():
        best = 0.0
        for phrase in phrases:
            if phrase.isdisjoint(weights):
                continue
            there = sum(weights[word] for word in phrase if word in weights)
            if there > best:
                missing = sum(_weight(word) for word in phrase if word not in weights)
                best = max(best, there * (there / (there + missing)) ** _MISSING)
        if best:
            scores[name] = best
    return scores


def _phrase_coverage(name: str, words: frozenset[str]) -> float:
    """The share of the words' weight that the best phrase has of those that are there whole."""
    there = (sum(map(_weight, phrase)) for phrase in _phrases().get(name, ()) if phrase <= words)
    return max(there, default=0.0) / (sum(map(_weight, words)) or 1.0)


def _topic_coverage(name: str, words: frozenset[str]) -> float:
    """The share of the words' weight that phrases and sentences about a topic have: of a question, both of its nouns."""
    shared = words & _all_words()[name]
    return sum(map(_weight, shared)) / (sum(map(_weight, words)) or 1.0)


@cache
def _all_words() -> dict[str, frozenset[str]]:
    return {row.name: row.prose.union(*row.phrases) for row in indexed_topics()}


@cache
def _weight(word: str) -> float:
    return weight((word,))


@cache
def _phrases() -> dict[str, tuple[frozenset[str], ...]]:
    return {row.name: tuple(phrase for phrase in (row.name_words, *row.phrases) if phrase) for row in indexed_topics()}


@cache
def _term_names() -> frozenset[str]:
    return frozenset(term.name for term in TERMS)


@cache
def _model() -> Entry:
    """The weights of the signals, the strength of a score, and the strength from which an answer is sure."""
    model: Entry = json.loads(files(__package__).joinpath("choice.json").read_bytes())
    return model
