"""The topic of a sentence: the meaning of its numbers, a term, or a symptom that it describes.

"what is a swizzle"                   the term: somebody asks what it means
"garbage in every second row"         a diagnosis: somebody says what is seen
"fix TMA load with multicast."        the one for which more of the words speak; the other is named beside it
"""

from __future__ import annotations

import re
from dataclasses import replace

from tilescope.cuda_error import known_names, unknown_names_in
from tilescope.names import nearest_name
from tilescope.questions.term_topics import ASKING, contained_term, mentioned_terms, term_topic
from tilescope.rule import UNKNOWN_NAME
from tilescope.sentence import shorten
from tilescope.symptoms import CAUSE, Diagnosis, diagnose
from tilescope.symptoms.ranking import Likely, is_about_a_fault
from tilescope.symptoms.symptom_diagnosis import is_certain, score_of
from tilescope.symptoms.topic import HOW_TO_LIST, Topic
from tilescope.symptoms.word_forms import words_of

SENTENCE_WORDS = 2
_HOW = re.compile(r"\s*how (?:do|to|can|should)\b", re.IGNORECASE)
_FEW_WORDS = 4  # content words
_AS_LIKELY = 0.8  # share of the best topic's score from which another one is named too
_MUCH_MORE = 1.5  # factor of a term's score that a diagnosis needs to rank before it
# A cause and a term of one name are one thing: what goes wrong with a dependent launch, and what it is.
_TERM_OF_CAUSE = {
    cause.name: cause.term for cause in CAUSE.values() if cause.name == cause.term.casefold().replace(" ", "-")
}


def asked_term(name: str) -> Topic | None:
    """The term whose meaning the user asks for; None if the question contains much more than the term."""
    asks_how = _HOW.match(name) is not None and not is_about_a_fault(name)
    term = contained_term(name) if ASKING.match(name) or asks_how else None
    return None if term is None or _says_more(diagnose(name), name) else term


def in_sentence(name: str) -> Topic | Diagnosis | None:
    """The topic of a sentence: the meaning of its numbers, or the topic with the best score."""
    asks_for_meaning = ASKING.match(name) is not None  # a question about a word, not about a mistake
    is_short = len(words_of(name)) <= _FEW_WORDS
    term = contained_term(name)
    diagnosis = known_diagnosis(name)
    if is_certain(name) or (diagnosis.symptoms and is_short):
        return diagnosis
    names_a_fault = is_about_a_fault(name) and bool(diagnosis.named)
    if term is not None and is_short and not asks_for_meaning and not names_a_fault:
        return term
    return _strongest(diagnosis, mentioned_terms(name))


def _says_more(diagnosis: Diagnosis, name: str) -> bool:
    """Whether a question describes much more than the terms it spells: "what alignment does TMA need"."""
    terms = mentioned_terms(name)
    return bool(terms) and score_of(diagnosis) > _MUCH_MORE * terms[0].score


def _strongest(diagnosis: Diagnosis, terms: tuple[Likely, ...]) -> Topic | Diagnosis | None:
    """The topic with the best score, a diagnosis or a term; with the runner-up if its score is close."""
    candidates = list(terms)
    if diagnosis.symptoms:
        candidates.append(Likely(score_of(diagnosis), diagnosis.symptoms[0].name, "symptom"))
    elif diagnosis.named:
        candidates.append(Likely(score_of(diagnosis), diagnosis.named[0].name, "cause"))
    if not candidates:
        return None
    best, *others = sorted(candidates, key=lambda likely: -likely.score)
    rival = next((other.name for other in others if _is_rival(other, best)), "")
    term = _term_shown(best, diagnosis)
    if not term:
        return replace(diagnosis, rival=rival)
    topic = term_topic(term)
    return None if topic is None else replace(topic, rival=rival)


def _term_shown(best: Likely, diagnosis: Diagnosis) -> str:
    """The term that answers; none where the diagnosis does. Of a cause and a term of one name a fault gets the cause."""
    cause = diagnosis.named[0].name if diagnosis.named and not diagnosis.symptoms else ""
    term = _TERM_OF_CAUSE.get(cause, "")
    if term and best.name in (cause, term):
        return "" if is_about_a_fault(diagnosis.question) else term
    return best.name if best.kind == "term" else ""


def _is_rival(other: Likely, best: Likely) -> bool:
    """Whether another topic has a similar score, and is not another aspect of the same thing."""
    return other.score >= _AS_LIKELY * best.score and words_of(other.name).isdisjoint(words_of(best.name))


def known_diagnosis(name: str) -> Diagnosis:
    """The topic that the words describe; an unknown CUDA error code is refused in any sentence."""
    diagnosis = diagnose(name)
    if diagnosis.symptoms:
        return diagnosis
    if diagnosis.unknown_codes:
        raise UNKNOWN_NAME.error(
            argument="topic",
            found=f"error {diagnosis.unknown_codes[0]}",
            limit="no error of CUDA's driver or runtime has that number, so it is unknown here",
            fix="Look it up where it was printed: a library's own codes, an exit status and an errno are other "
            "numbers.",
        )
    unknown = unknown_names_in(name)
    if unknown:
        nearest = nearest_name(unknown[0], known_names())
        raise UNKNOWN_NAME.error(
            argument="topic",
            found=f"error {shorten(unknown[0])}",
            limit="no error of CUDA's driver or runtime has that name",
            fix=f"Did you mean {nearest}?" if nearest else HOW_TO_LIST,
        )
    return diagnosis


def near_sentence(name: str) -> Diagnosis | None:
    """What the numbers of a sentence come to that names nothing, or what it is near to."""
    if len(name.split()) < SENTENCE_WORDS:
        return None
    diagnosis = diagnose(name)
    return diagnosis if diagnosis.arithmetic or diagnosis.suggested or diagnosis.nearest else None
