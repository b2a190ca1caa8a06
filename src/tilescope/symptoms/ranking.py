"""Which topic a question is most about: every cause, symptom and term, weighed by the words it shares with the question.

    "Disable warp specialization for Hopper"     a subject: terms go first, and what stands before "for"
      warp_specialize   5.1 + 4.2                phrase "warp specialize": both of its words are there
      architecture      0.5 x 0.8 x (3.4 + 3.0)  phrase "hopper architecture": a cause, and behind "for"

A word weighs more the fewer topics use it in their names and phrases: log(1 + topics / topics that use it). A phrase that
is there whole counts with all its words, less the farther apart they stand; of one that is there in part, the more is
missing the less counts. The sentences about a topic count a little. What somebody sees goes before terms in a question about
a fault, and behind them in one about a subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from math import log, sqrt
from typing import NamedTuple

from tilescope.symptoms.index import IndexedSpelling, Kind, indexed_spellings, indexed_topics, word_uses
from tilescope.symptoms.tables import TERMS
from tilescope.symptoms.word_forms import (
    BACKGROUND,
    DECISIVE,
    ELSEWHERE,
    EVERYDAY,
    FAULT,
    FILLER,
    OF_NEIGHBOURS,
    ORDINARY,
    PRINTED,
    VAGUE,
    ordered_words,
    sequence_of,
    spelled_words,
    words_of,
)

_OF_OTHER_KIND = 0.5  # of a term in a question about a fault, of what goes wrong in one about a subject
_BEHIND = 0.8  # of a subject: of words only after its first preposition
_EVERYDAY_SHARE = 0.15  # of a term that is an everyday word: a line, a pass
_ORDINARY_SHARE = 0.6  # of a term that also occurs in titles about other things: a phase, fp8
_GENERAL_SHARE = 0.4  # of a term that occurs in titles about many things: a layout, an epilogue
_FURTHER = 0.6  # of the other words of a term besides its rarest
_TO_THE_LETTER = 1.2  # of a term that is spelled as its name is
_FILLER_WEIGHT = 1.0  # of a word of a term that has no weight elsewhere: "device" in "device TMA"
_BACKGROUND_WEIGHT = 1.0  # of a card or a target
_DECIDES = 3  # how many rare words a word outweighs that describes a symptom
_PRINTED_WEIGHT = 1.5  # … and one for text that one kind of program prints
_MISSING = 4  # power of the share of a phrase that is there
_ALSO_IN_PHRASES = 0.1  # of the words of a question that are in any phrase of a topic
_ALSO_IN_PROSE = 0.05  # … and in the sentences about it
_NEAR_IN_PROSE = 0.3  # the same, where no phrase is there whole; long texts share words with every question
_WORDS_BETWEEN = 2  # words between those of a phrase that cost nothing
_LEAST_WORDS = 2  # shared, for a topic to be near
_LEAST_SHARE = 0.25  # of what the question's words weigh
_LIKELY = 1.1  # score that makes a topic the answer where no phrase is there whole
_TAGS = re.compile(r"\A\s*(?:\[[^\]]*\]\s*:?\s*)+")  # before a title: [QST][CuTeDSL]
_ANSWER = re.compile(r"\breturn(?:s|ed)?\s+-?\d", re.IGNORECASE)  # a call returned 1: it failed
_CAPITALS_INSIDE = re.compile(r"[a-z][A-Z]")
_PREPOSITION = re.compile(
    r"\b(?:for|on|in|with|to|from|via|by|when|during|under|after|before|while|using)\b", re.IGNORECASE
)


class _Topic(NamedTuple):
    """A topic: the words of its name and of each of its phrases, and those of the sentences about it."""

    name: str
    kind: Kind
    phrases: tuple[frozenset[str], ...]
    prose: frozenset[str]

    @property
    def phrase_words(self) -> frozenset[str]:
        """The words of all its phrases."""
        return frozenset().union(*self.phrases)


class Likely(NamedTuple):
    """A topic and its score."""

    score: float
    name: str
    kind: Kind


class _Spelling(NamedTuple):
    """A name of a term: its words in order, folded and original, and its weight."""

    words: tuple[str, ...]
    as_written: tuple[str, ...]
    term: str
    weight: float
    is_of_code: bool  # a name in capitals, TiledCopy or SYNCS: only this form matches


@lru_cache(maxsize=64)
def is_about_a_fault(question: str) -> bool:
    """Whether a question reports a problem; others name a subject, or a plan.

    >>> is_about_a_fault("TMA store fails on Hopper"), is_about_a_fault("Add TMA store to the scheduler")
    (True, False)
    """
    words = {
        *sequence_of(question),
        *ordered_words(question),
    }  # filler such as "error", and "locks up", which is one word
    return not FAULT.isdisjoint(words) or _ANSWER.search(question) is not None


def weight(words: Iterable[str]) -> float:
    """The weight of words together: the fewer topics use them the higher, and highest if they describe a symptom.

    >>> weight({"mbarrier"}) > weight({"tile"})
    True
    """
    rarities, unknown = _rarity(), _unknown()
    return sum(rarities.get(word, unknown) for word in words)


def score_phrase(kind: Kind, name: str, phrase: frozenset[str], question: str, words: frozenset[str]) -> float:
    """The score of a topic for a phrase in the question: its words, their positions, and other matches."""
    place = closeness(phrase, question) * _front_share(phrase, question)
    return _kind_share(kind, question) * place * weight(phrase) + _also(_topic_named(kind, name), words)


def _kind_share(kind: Kind, question: str) -> float:
    """How much a kind of topic counts: terms in a question about a subject, causes and symptoms in one about a fault."""
    return 1.0 if is_about_a_fault(question) == (kind != "term") else _OF_OTHER_KIND


def _front_share(phrase: frozenset[str], question: str) -> float:
    """How much a phrase counts by its place: in a title about a subject less behind the first preposition."""
    return _BEHIND if not is_about_a_fault(question) and _is_behind(phrase, question) else 1.0


def closeness(phrase: frozenset[str], question: str) -> float:
    """The factor for a phrase whose words are far from each other in a question; 1 if they are near.

    Zero if a word that only modifies its neighbour (not, out) is separate from all others of the phrase.

    >>> near = closeness(frozenset({"size", "flag"}), "the size flag of small tensors")
    >>> near > closeness(frozenset({"size", "flag"}), "size the tile from the budget of the card, not from an sm80 flag")
    True
    """
    words = ordered_words(question)
    window = _window(phrase, words)
    if not window:
        return 1.0
    if not all(_is_beside(word, phrase, words) for word in phrase & OF_NEIGHBOURS):
        return 0.0
    return min(1.0, (len(phrase) + _WORDS_BETWEEN) / window)


def _is_beside(word: str, phrase: frozenset[str], words: tuple[str, ...]) -> bool:
    """Whether a word of a phrase occurs at least once as near to another one as words of a phrase may."""
    others = phrase - {word}
    reach = _WORDS_BETWEEN + 1
    places = (place for place, other in enumerate(words) if other == word)
    return not others or any(
        not others.isdisjoint(words[max(0, place - reach) : place + reach + 1]) for place in places
    )


def _window(phrase: frozenset[str], words: tuple[str, ...]) -> int:
    """The length of the shortest part of a question that has all words of a phrase; 0 if a word is misspelt there."""
    last: dict[str, int] = {}
    shortest = 0
    for place, word in enumerate(words):
        if word in phrase:
            last[word] = place
            if len(last) == len(phrase):
                window = place - min(last.values()) + 1
                shortest = min(shortest, window) if shortest else window
    return shortest


def spells_only_ordinary_words(question: str) -> bool:
    """Whether all terms that a question spells are words of other trades too: "I am standing in line"."""
    return all(len(spelling.words) == 1 and spelling.words[0] in ORDINARY for spelling in _spellings_in(question))


def spells_more_than_background(question: str) -> bool:
    """Whether a question spells a term that is more specific than a place: "mma" is not."""
    return any(not BACKGROUND.issuperset(spelling.words) for spelling in _spellings_in(question))


def terms_in(question: str, words: frozenset[str]) -> tuple[Likely, ...]:
    """The terms that a question spells, the strongest first.

    >>> [found.name for found in terms_in("wgmma with a 128B swizzle", frozenset())][:2]
    ['wgmma', 'swizzle']
    """
    best: dict[str, float] = {}
    for spelling in _spellings_in(question):
        place = _front_share(frozenset(spelling.words), question)
        score = _kind_share("term", question) * place * spelling.weight
        best[spelling.term] = max(best.get(spelling.term, 0.0), score)
    terms = [Likely(score + _also(_topic_named("term", name), words), name, "term") for name, score in best.items()]
    return tuple(sorted(terms, reverse=True))


def likely(words: frozenset[str], question: str) -> tuple[Likely, ...]:
    """The topics that share most with a question of which no phrase is there whole, best first.

    A topic that shares only one word besides cards and targets, or only words with little weight, is not likely.
    """
    if words & ELSEWHERE:
        return ()
    least = _LEAST_SHARE * weight(words)
    likely_topics = []
    for topic in _topics():
        shared = (words & (topic.phrase_words | topic.prose)) - VAGUE - BACKGROUND
        if len(shared) < _LEAST_WORDS or all(map(str.isdecimal, shared)) or weight(shared) < least:
            continue
        score = max((_share_of(phrase, words) for phrase in topic.phrases), default=0.0)
        score += _NEAR_IN_PROSE * weight(words & topic.prose) / sqrt(1 + len(topic.prose))
        likely_topics.append(Likely(_kind_share(topic.kind, question) * score, topic.name, topic.kind))
    return tuple(sorted(likely_topics, reverse=True))


def likeliest(words: frozenset[str], question: str) -> Likely | None:
    """The topic with the best score, for a question that names none; None if all scores are low."""
    topics = likely(words, question)
    return topics[0] if topics and topics[0].score >= _LIKELY else None


def nearest(words: frozenset[str], question: str, count: int) -> tuple[str, ...]:
    """The names of the topics that share most with a question, best first.

    >>> nearest(frozenset({"scatter4", "gather4"}), "scatter4 gather4", 1)
    ('gather4',)
    """
    return tuple(topic.name for topic in likely(words, question)[:count])


def _share_of(phrase: frozenset[str], words: frozenset[str]) -> float:
    """The weight of the matching words, reduced by the missing ones; a missing card's name counts as completely missing."""
    there = weight(phrase & words)
    missing = phrase - words
    missed = weight(missing - BACKGROUND) + len(missing & BACKGROUND) * _unknown()
    return there * (there / (there + missed)) ** _MISSING


def _also(topic: _Topic, words: frozenset[str]) -> float:
    """The weight of all words of a question that a topic has, in addition to the deciding phrase."""
    in_phrases = weight(words & topic.phrase_words)
    in_prose = weight(words & topic.prose)
    return _ALSO_IN_PHRASES * in_phrases + _ALSO_IN_PROSE * in_prose


def _is_behind(phrase: frozenset[str], question: str) -> bool:
    """Whether all of a phrase follows the first preposition of a title: "hopper" in "Disable TMA for Hopper"."""
    front = _front(question)
    return bool(front) and phrase.isdisjoint(front)


@lru_cache(maxsize=64)
def _front(question: str) -> frozenset[str]:
    """The words of a title before its first preposition, tags left out; nothing where it has none."""
    title = _TAGS.sub("", question, count=1)
    preposition = _PREPOSITION.search(title)
    if preposition is None:
        return frozenset()
    front = title[: preposition.start()]
    return words_of(front) | frozenset(sequence_of(front))


@lru_cache(maxsize=64)
def _spellings_in(question: str) -> tuple[_Spelling, ...]:
    """The spellings of terms whose words are adjacent in a question; an exact spelling has more weight.

    A spelling inside a longer one is not meant: "tensor memory" in "Tensor Memory Accelerator".
    """
    words = sequence_of(question)
    as_written = spelled_words(question)
    spellings: dict[range, list[_Spelling]] = {}
    for place, word in enumerate(words):
        for spelling in _spellings_from(word):
            span = range(place, place + len(spelling.words))
            if as_written[span.start : span.stop] == spelling.as_written:
                spellings.setdefault(span, []).append(spelling._replace(weight=_TO_THE_LETTER * spelling.weight))
            elif words[span.start : span.stop] == spelling.words and not spelling.is_of_code:
                spellings.setdefault(span, []).append(spelling)
    return tuple(spelling for span in spellings if not _is_inside(span, spellings) for spelling in spellings[span])


def _is_inside(span: range, others: Iterable[range]) -> bool:
    """Whether a span is inside a longer one."""
    return any(len(other) > len(span) and span.start >= other.start and span.stop <= other.stop for other in others)


@cache
def _spellings_from(word: str) -> tuple[_Spelling, ...]:
    """The spellings of all terms that begin with a word."""
    return tuple(map(_weighed_spelling, _rows_from().get(word, ())))


@cache
def _rows_from() -> dict[str, list[IndexedSpelling]]:
    """The names of all terms by their first word."""
    by_first: dict[str, list[IndexedSpelling]] = {}
    for row in indexed_spellings():
        by_first.setdefault(row.words[0], []).append(row)
    return by_first


def _weighed_spelling(row: IndexedSpelling) -> _Spelling:
    share = _GENERAL_SHARE if row.term in _general_terms() else 1.0
    is_of_code = _CAPITALS_INSIDE.search(row.name) is not None or (row.name.isupper() and row.words != row.as_written)
    return _Spelling(row.words, row.as_written, row.term, share * _said_by(row), is_of_code)


@cache
def _general_terms() -> frozenset[str]:
    return frozenset(term.name for term in TERMS if term.is_general)


def _said_by(row: IndexedSpelling) -> float:
    """The weight of a term's name: its rarest word and half of the others; everyday words have little."""
    if len(row.words) == 1 and row.words[0] in ORDINARY:
        share = _EVERYDAY_SHARE if row.words[0] in EVERYDAY else _ORDINARY_SHARE
        return share * weight(row.words)
    each = sorted((weight({word}) for word in row.saying), reverse=True)
    filler = _FILLER_WEIGHT * sum(word in FILLER for word in row.words)
    return sum(each[:1]) + _FURTHER * sum(each[1:]) + filler


@cache
def _topics() -> tuple[_Topic, ...]:
    """Every topic; its name is a phrase as well."""
    return tuple(
        _Topic(row.name, row.kind, tuple(words for words in (row.name_words, *row.phrases) if words), row.prose)
        for row in indexed_topics()
    )


@cache
def _topic_named(kind: Kind, name: str) -> _Topic:
    return next(topic for topic in _topics() if topic.kind == kind and topic.name == name)


@cache
def _rarity() -> dict[str, float]:
    """The weight of a word: the fewer topics use it in names and phrases, the higher; words for symptoms have the highest."""
    rarity = {word: log(1 + len(indexed_topics()) / count) for word, count in word_uses().items()}
    rarest = max(rarity.values())
    rarity |= {word: _DECIDES * rarest for word in DECISIVE if word in rarity}
    rarity |= {word: _PRINTED_WEIGHT * rarest for word in PRINTED if word in rarity}
    return rarity | dict.fromkeys(BACKGROUND, _BACKGROUND_WEIGHT)


@cache
def _unknown() -> float:
    """The weight of a word that no topic uses: that of a word that few use."""
    return log(1 + len(indexed_topics()) / 4)
