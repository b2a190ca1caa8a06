"""What a question is nearest to when no phrase fits it whole: topics that share its rare words.

    "TMA store pipelining"  →  bulk-group, TMA store, …

Each cause, symptom and term is a bag of words: its name and phrases, and with less weight its prose. A word weighs more the
fewer topics use it. A topic that shares one common word is not near: "wait for the train" is near nothing.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import log, sqrt
from typing import NamedTuple

from tilescope.symptoms.tables import CAUSE, SEEN, TERMS
from tilescope.symptoms.words import ELSEWHERE, VAGUE, words_of

_IN_PHRASE = 2.0  # weight of a word in a name or a phrase …
_IN_PROSE = 0.7  # … and in the sentences about it
_LEAST_WORDS = 2  # shared, for a topic to be near
_LEAST_SHARE = 0.25  # of what the question's words weigh


class _Topic(NamedTuple):
    """A topic as a bag of words, each with its weight there."""

    name: str
    words: dict[str, float]

    @property
    def length(self) -> float:
        """What all its words weigh: topics of many words share some with every question."""
        return sum(self.words.values())


def nearest(words: frozenset[str], count: int) -> tuple[str, ...]:
    """The names of the topics that share most with the words of a question, best first.

    >>> nearest(frozenset({"scatter4", "gather4"}), 1)
    ('gather4',)
    """
    if words & ELSEWHERE:
        return ()
    asked = {word: _rarity().get(word, _unknown()) for word in words}
    whole = sum(asked.values())
    scores: dict[str, float] = {}
    for topic in _topics():
        shared = [word for word in words if word in topic.words and word not in VAGUE]
        if len(shared) < _LEAST_WORDS or sum(asked[word] for word in shared) < _LEAST_SHARE * whole:
            continue
        scores[topic.name] = sum(asked[word] ** 2 * topic.words[word] for word in shared) / sqrt(topic.length)
    return tuple(sorted(scores, key=lambda name: -scores[name])[:count])


def rarity(words: frozenset[str]) -> float:
    """How much words say together: the fewer topics use them, the more.

    >>> rarity(frozenset({"mbarrier"})) > rarity(frozenset({"tile"}))
    True
    """
    return sum(_rarity().get(word, _unknown()) for word in words)


@cache
def _topics() -> tuple[_Topic, ...]:
    causes = [_topic(name, row.phrases, f"{row.mechanism} {row.tell} {row.fix}") for name, row in CAUSE.items()]
    symptoms = [_topic(name, row.phrases, row.note) for name, row in SEEN.items()]
    terms = [_topic(row.name, row.aliases, row.meaning) for row in TERMS]
    return (*causes, *symptoms, *terms)


def _topic(name: str, phrases: tuple[str, ...], prose: str) -> _Topic:
    words = dict.fromkeys(words_of(prose), _IN_PROSE)
    words |= dict.fromkeys(words_of(" . ".join((name, *phrases))), _IN_PHRASE)
    return _Topic(name, words)


@cache
def _rarity() -> dict[str, float]:
    """How much a word says: the fewer topics use it, the more."""
    used = Counter(word for topic in _topics() for word in topic.words)
    return {word: log(1 + len(_topics()) / count) for word, count in used.items()}


@cache
def _unknown() -> float:
    """How much a word says that no topic uses: as much as one that few use."""
    return log(1 + len(_topics()) / 4)
