"""The words of every topic: of its name, of its phrases, and of the sentences about it; and how terms are spelled.

    cause  base-16-bytes    phrases {sliced, tensor, tma} …    prose {start, slice, view …}
    term   matrix descriptor    spelled "smem_desc": smem desc as written, smem descriptor folded

Parsing thousands of phrases takes as long as the rest of `explain`, so the result is cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeAlias

from tilescope.symptoms.json_cache import Json, cached_json
from tilescope.symptoms.tables import CAUSE, SEEN, TERMS, table_sources
from tilescope.symptoms.word_forms import sequence_of, spelled_words, words_of, words_of_each

Kind: TypeAlias = Literal["cause", "symptom", "term"]
_MAKING = ("word_forms.py", "index.py")  # another way to take words apart makes another index


class IndexedTopic(NamedTuple):
    """A topic: the words of its name, of each of its phrases, and of the sentences about it."""

    kind: Kind
    name: str
    name_words: frozenset[str]
    phrases: tuple[frozenset[str], ...]
    prose: frozenset[str]


class IndexedSpelling(NamedTuple):
    """A name of a term: its words in order, folded and original, and its content words."""

    name: str
    term: str
    words: tuple[str, ...]
    as_written: tuple[str, ...]
    saying: frozenset[str]


class _Index(NamedTuple):
    topics: tuple[IndexedTopic, ...]
    spellings: tuple[IndexedSpelling, ...]
    uses: Mapping[str, int]  # of a word: the number of topics with it in their names and phrases
    fault_uses: Mapping[str, int]  # … how many symptoms and causes, whose names are no phrases of theirs


def indexed_topics() -> tuple[IndexedTopic, ...]:
    """Every cause, symptom and term.

    >>> [topic.kind for topic in indexed_topics() if topic.name == "swizzle-mode"]
    ['cause']
    """
    return _index().topics


def indexed_spellings() -> tuple[IndexedSpelling, ...]:
    """Every name of every term; what is another term's name belongs to that term."""
    return _index().spellings


def word_uses() -> Mapping[str, int]:
    """How many topics have a word in their names and phrases."""
    return _index().uses


def fault_word_uses() -> Mapping[str, int]:
    """How many symptoms and causes have a word in their phrases."""
    return _index().fault_uses


@cache
def _index() -> _Index:
    sources = [*table_sources().values(), *(files(__package__).joinpath(name).read_bytes() for name in _MAKING)]
    return _read_index(cached_json("words", sources, _make_index))


def _make_index() -> Json:
    """The index as JSON."""
    all_topics = tuple(_all_topics())
    topics: list[Json] = [
        [
            topic.kind,
            topic.name,
            sorted(topic.name_words),
            [sorted(words) for words in topic.phrases],
            sorted(topic.prose),
        ]
        for topic in all_topics
    ]
    spellings: list[Json] = [
        [row.name, row.term, list(row.words), list(row.as_written), sorted(row.saying)] for row in _all_spellings()
    ]
    uses = Counter(word for topic in all_topics for word in topic.name_words.union(*topic.phrases))
    fault_uses = Counter(word for topic in all_topics for word in _fault_words(topic))
    return {"topics": topics, "spellings": spellings, "uses": dict(uses), "fault uses": dict(fault_uses)}


def _fault_words(topic: IndexedTopic) -> frozenset[str]:
    """The words of the phrases of a symptom, its name among them, or of a cause."""
    if topic.kind == "term":
        return frozenset()
    own_name = topic.name_words if topic.kind == "symptom" else frozenset()
    return own_name.union(*topic.phrases)


def _read_index(stored: Any) -> _Index:
    """The index from its JSON."""
    topics = (
        IndexedTopic(kind, name, frozenset(name_words), tuple(map(frozenset, phrases)), frozenset(prose))
        for kind, name, name_words, phrases, prose in stored["topics"]
    )
    spellings = (
        IndexedSpelling(name, term, tuple(words), tuple(as_written), frozenset(saying))
        for name, term, words, as_written, saying in stored["spellings"]
    )
    return _Index(tuple(topics), tuple(spellings), stored["uses"], stored["fault uses"])


def _all_topics() -> Iterator[IndexedTopic]:
    for name, cause in CAUSE.items():
        yield _topic("cause", name, cause.phrases, f"{cause.mechanism} {cause.tell} {cause.fix}")
    for name, symptom in SEEN.items():
        yield _topic("symptom", name, symptom.phrases, symptom.note)
    for term in TERMS:
        yield _topic("term", term.name, term.aliases, term.meaning)


def _topic(kind: Kind, name: str, phrases: Iterable[str], prose: str) -> IndexedTopic:
    return IndexedTopic(kind, name, words_of(name), words_of_each(phrases), words_of(prose))


def _all_spellings() -> Iterator[IndexedSpelling]:
    names = {spelled_words(term.name) for term in TERMS}
    for term in TERMS:
        for name in (term.name, *term.aliases):
            is_modifier = name.startswith(".")  # ".cluster" is one, "cluster" is not
            is_numbers = not any(map(str.isalpha, name))  # 2:4, which is in Swizzle<2,4,3> as well
            if is_modifier or is_numbers or (name != term.name and spelled_words(name) in names):
                continue
            yield IndexedSpelling(name, term.name, sequence_of(name), spelled_words(name), words_of(name))
