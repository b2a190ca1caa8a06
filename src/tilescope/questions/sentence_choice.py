"""The answer to a sentence: the likeliest topic, how sure that is, and what else it may be.

    sure        the topic or the diagnosis, with its fix; two others below it
    not sure    the three that may be meant, each with what tells it; no fix before them

A code, a rule or a term without other words is answered directly.
"""

from __future__ import annotations

from dataclasses import replace

from tilescope.questions.term_topics import mentioned_terms, term_topic
from tilescope.sentence import first_sentence
from tilescope.symptoms import CAUSE, SYMPTOM, Diagnosis, diagnose
from tilescope.symptoms.choice import Asked, Choice, choose, is_generic
from tilescope.symptoms.symptom_diagnosis import causes_in_reason
from tilescope.symptoms.topic import Topic
from tilescope.symptoms.word_forms import ELSEWHERE, words_of

CANDIDATES = 3
_LEAST_GUESSED = 0.4  # strength of a guess where the tables know nothing
_SENTENCE_WORDS = 3  # content words: fewer are a name, or a symptom in its own words


def choose_answer(name: str, found: Topic | Diagnosis) -> Topic | Diagnosis:
    """What the tables found, or a likelier topic; with the topics that may be meant, and how likely the first is."""
    if len(words_of(name)) < _SENTENCE_WORDS or words_of(name) & ELSEWHERE or _is_name_of(found, name):
        return found
    question = asked_of(name, found)
    choice = choose(question)
    if not choice.answers:
        return found
    shown = tuple((best, tell_of(best)) for best in (answer.names[0] for answer in choice.answers[:CANDIDATES]))
    if isinstance(found, Diagnosis) and not found.is_known:
        nearest = tuple(dict.fromkeys((*(candidate for candidate, _ in shown), *found.nearest)))
        return replace(found, candidates=shown, nearest=nearest, strength=round(choice.strength, 2))
    if isinstance(found, Diagnosis) and _is_xid(found):
        return replace(found, candidates=shown)  # a number that only one thing has
    if isinstance(found, Diagnosis) and causes_in_reason(name):  # the line has the reason
        return replace(found, candidates=_with_first(found.causes[0].name, shown))
    return replace(_answer_of(choice, question.diagnosis, found), candidates=shown, strength=round(choice.strength, 2))


def _with_first(name: str, shown: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The candidates with `name` before the others."""
    return ((name, tell_of(name)), *(row for row in shown if row[0] != name))[:CANDIDATES]


def _is_name_of(found: Topic | Diagnosis, name: str) -> bool:
    """Whether the words are only the name of the result: an error's name, or a symptom as it is listed."""
    names = [symptom.name for symptom in found.symptoms[:1]] if isinstance(found, Diagnosis) else [found.name]
    return any(words_of(name) <= words_of(topic) for topic in names)


def _is_xid(found: Diagnosis) -> bool:
    return bool(found.symptoms) and found.symptoms[0].name.startswith("Xid ")


def guess(name: str) -> Diagnosis | None:
    """What a sentence may be about that the tables know nothing of; None where the words of no labelled line fit either."""
    if min(len(name.split()), len(words_of(name))) < _SENTENCE_WORDS or words_of(name) & ELSEWHERE:
        return None
    answer = choose_answer(name, diagnose(name))
    return answer if isinstance(answer, Diagnosis) and answer.candidates and answer.strength >= _LEAST_GUESSED else None


def asked_of(name: str, found: Topic | Diagnosis) -> Asked:
    """A sentence with what the tables make of it."""
    return Asked(name, diagnose(name), frozenset(first_names(found)), mentioned_terms(name))


def first_names(found: Topic | Diagnosis) -> tuple[str, ...]:
    """What an answer puts first: the topic, or the first symptom and its first cause."""
    if not isinstance(found, Diagnosis):
        return (found.name,)
    if not found.is_known:
        return ()
    symptoms = tuple(symptom.name for symptom in found.symptoms[:1])
    return (*symptoms, *(cause.name for cause in found.causes[:1]))


def _answer_of(choice: Choice, diagnosis: Diagnosis, found: Topic | Diagnosis) -> Topic | Diagnosis:
    """The first answer as a topic or a diagnosis; what the tables found, where it is the same."""
    names = choice.answers[0].names
    if set(first_names(found)) & set(names[:1]):
        return found
    name = names[0]
    if name in CAUSE:
        return _named_first(diagnosis, name)
    if name in SYMPTOM:
        others = tuple(symptom for symptom in diagnosis.symptoms if symptom.name != name)
        causes = tuple(CAUSE[cause] for cause in names[1:] if cause in CAUSE)
        return replace(diagnosis, symptoms=(SYMPTOM[name], *others), named=causes, rival="")
    topic = term_topic(name)
    return found if topic is None else topic


def _named_first(diagnosis: Diagnosis, name: str) -> Diagnosis:
    """A diagnosis whose first cause is `name`; it keeps only symptoms with this cause, or symptoms that any cause may have."""
    symptoms = tuple(row for row in diagnosis.symptoms if name in row.causes or is_generic(row.name))
    named = (CAUSE[name], *(cause for cause in diagnosis.named if cause.name != name))
    return replace(diagnosis, symptoms=symptoms, named=named, suggested=(), nearest=(), rival="")


def tell_of(name: str) -> str:
    """What tells a topic from others: how to tell a cause; what a symptom or a term is."""
    if name in CAUSE:
        return first_sentence(CAUSE[name].tell)
    if name in SYMPTOM:
        symptom = SYMPTOM[name]
        first = symptom.causes[0] if symptom.causes else ""
        return f"Look first at {first}: {first_sentence(CAUSE[first].tell)}" if first else first_sentence(symptom.note)
    topic = term_topic(name)
    return "" if topic is None else first_sentence(topic.meaning)
