"""Which topics people mean who use these words: labelled lines of public threads, found by their words.

    "setmaxnreg"    16 of 2700 lines have it: 9 of them about register-pool, 7 about the instruction itself
    "setmaxnreg hangs the producer"    the lines most like it, and what they were about

Lines speak in two ways. Each word speaks for a topic as in BM25: by how rare it is among the lines, by how many lines of the topic
have it, and by how much more often than other lines. And the lines that are most like a sentence, by the cosine of their words, speak
for their topics. The lines are in line_words.json, as words; tests/symptoms/fit_choice.py makes it of the labelled lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from heapq import nlargest
from importlib.resources import files
from itertools import chain
from math import log, sqrt
from typing import NamedTuple

from tilescope.symptoms.tables import Entry

_SATURATION = 1.0  # how many lines with a word make half of its weight
_SMOOTHED_LINES = 2  # the weight of a word falls with the number of words in its line
_MOST_LIKE = 20  # lines that count for their topics


class LineWords(NamedTuple):
    """Labelled lines: the numbers of the topics of each, its length, and the lines that have a word."""

    names: Sequence[str]  # of topics
    topics: Sequence[Sequence[int]]  # by line
    lengths: Sequence[float]  # of a line as a vector of its words' rarities
    with_word: Mapping[str, Sequence[int]]

    def rarity(self, word: str) -> float:
        """The weight of a word: the fewer lines have it, the higher."""
        return self._rarity(len(self.with_word.get(word, ())))

    def scores(self, words: Collection[str], left_out: Collection[int] = ()) -> dict[str, float]:
        """The sum of the words' weights for each topic.

        `left_out`: lines that do not count, so that a labelled line, and others of its thread, do not vouch for it.
        """
        of_topic = self._count(line for line in range(len(self.topics)) if line not in left_out)
        totals: dict[int, float] = {}
        for word in words:
            lines = [line for line in self.with_word.get(word, ()) if line not in left_out]
            rarity = self._rarity(len(lines))
            for topic, both in self._count(lines).items():
                share = both / of_topic[topic]
                excess = log(1 + share * len(self.topics) / (len(lines) + _SMOOTHED_LINES))
                totals[topic] = totals.get(topic, 0.0) + rarity * both / (both + _SATURATION) * excess
        return {self.names[topic]: score for topic, score in totals.items()}

    def neighbours(self, words: Collection[str], left_out: Collection[int] = ()) -> dict[str, float]:
        """How like the sentence the lines about each topic are, of those most like it, added up."""
        shared: dict[int, float] = {}
        for word in words:
            squared = self.rarity(word) ** 2
            for line in self.with_word.get(word, ()):
                shared[line] = shared.get(line, 0.0) + squared
        length = sqrt(sum(self.rarity(word) ** 2 for word in words))
        likeness = {line: both / (length * self.lengths[line]) for line, both in shared.items() if line not in left_out}
        totals: dict[str, float] = {}
        for line in nlargest(_MOST_LIKE, likeness, key=lambda line: likeness[line]):
            for topic in self.topics[line]:
                totals[self.names[topic]] = totals.get(self.names[topic], 0.0) + likeness[line]
        return totals

    def of_topic(self, left_out: Collection[int] = ()) -> dict[str, int]:
        """The number of lines about each topic."""
        counts = self._count(line for line in range(len(self.topics)) if line not in left_out)
        return {self.names[topic]: count for topic, count in counts.items()}

    def _rarity(self, lines: int) -> float:
        return log(1 + (len(self.topics) - lines + 0.5) / (lines + 0.5))

    def _count(self, lines: Iterable[int]) -> Counter[int]:
        """The number of some lines about each topic, by its number."""
        return Counter(chain.from_iterable(map(self.topics.__getitem__, lines)))


def index_lines(lines: Collection[tuple[Collection[str], Collection[str]]]) -> LineWords:
    """The lines, each given by its words and its topics, found by their words.

    >>> found = index_lines([({"hang", "parity"}, {"parity"}), ({"hang"}, {"barrier-bytes"})])
    >>> found.with_word["hang"]
    [0, 1]
    """
    names = sorted({topic for _, topics in lines for topic in topics})
    number = {topic: place for place, topic in enumerate(names)}
    with_word: dict[str, list[int]] = {}
    for line, (words, _) in enumerate(lines):
        for word in words:
            with_word.setdefault(word, []).append(line)
    indexed = LineWords(names, [sorted(map(number.__getitem__, topics)) for _, topics in lines], (), with_word)
    lengths = [round(sqrt(sum(indexed.rarity(word) ** 2 for word in words)), 2) for words, _ in lines]
    return indexed._replace(lengths=lengths)


def to_json(lines: LineWords) -> str:
    """The lines as JSON, a word a row; the lines of a word are one text, because few words of the file are looked up."""
    head = {"names": lines.names, "topics": lines.topics, "lengths": lines.lengths}
    words = (f'{json.dumps(word)}: "{" ".join(map(str, lines.with_word[word]))}"' for word in sorted(lines.with_word))
    return f'{{"head": {json.dumps(head)},\n"words": {{\n' + ",\n".join(words) + "\n}}\n"


def line_words(words: Collection[str]) -> LineWords:
    """The labelled lines, found by these words.

    >>> len(line_words({"setmaxnreg"}).with_word["setmaxnreg"]) > 1
    True
    """
    stored = _load_entry()
    texts = stored["words"]
    return LineWords(
        **stored["head"], with_word={word: [*map(int, texts[word].split())] for word in words if word in texts}
    )


@cache
def _load_entry() -> Entry:
    stored: Entry = json.loads(files(__package__).joinpath("line_words.json").read_bytes())
    return stored
