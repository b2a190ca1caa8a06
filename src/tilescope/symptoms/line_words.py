"""Which topics people mean who use a word: the words of labelled lines of public threads, counted by topic.

    "setmaxnreg"    register-pool 9, setmaxnreg 7, warp specialization 2 … of 2600 lines
    "serialised"    serialised-wgmma 14

A line is scored by its words as BM25 scores documents: a word counts by how rare it is among the lines, by how often lines of the
topic have it, and by how much more often than other lines. The counts are in line_words.json; tests/symptoms/fit_choice.py makes
them of the labelled lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

from tilescope.symptoms.tables import Entry

_SATURATION = 1.0  # how many lines with a word make half of its weight
_SMOOTHED_LINES = 2  # a word of one line says less than one of many


class LineWords(NamedTuple):
    """The counts of labelled lines: of all, of each topic, of each word, and of each word in the lines of a topic."""

    lines: int
    of_topic: Mapping[str, int]
    of_word: Mapping[str, int]
    of_both: Mapping[str, Mapping[str, int]]  # by word, then by topic

    def scores(self, words: Collection[str], left_out: Collection[str] = ()) -> dict[str, float]:
        """How much the words speak for each topic.

        `left_out`: the topics of a line that is itself among the counts, so that it does not vouch for itself.
        """
        found: dict[str, float] = {}
        for word in words:
            of_word = self.of_word.get(word, 0) - bool(left_out)
            if of_word <= 0:
                continue
            rarity = log(1 + (self.lines - of_word + 0.5) / (of_word + 0.5))
            for topic, count in self.of_both[word].items():
                own = topic in left_out
                both = count - own
                if both > 0:
                    share = both / (self.of_topic[topic] - own)
                    excess = log(1 + share * self.lines / (of_word + _SMOOTHED_LINES))
                    found[topic] = found.get(topic, 0.0) + rarity * both / (both + _SATURATION) * excess
        return found


def count_words(lines: Collection[tuple[Collection[str], Collection[str]]]) -> LineWords:
    """The counts of lines, each as its words and its topics.

    >>> counts = count_words([({"hang", "parity"}, {"parity"}), ({"hang"}, {"barrier-bytes"})])
    >>> counts.of_both["hang"]
    {'parity': 1, 'barrier-bytes': 1}
    """
    of_topic: Counter[str] = Counter()
    of_word: Counter[str] = Counter()
    of_both: dict[str, Counter[str]] = {}
    for words, topics in lines:
        of_topic.update(topics)
        of_word.update(words)
        for word in words:
            of_both.setdefault(word, Counter()).update(topics)
    return LineWords(len(lines), dict(of_topic), dict(of_word), {word: dict(row) for word, row in of_both.items()})


def to_json(counts: LineWords) -> str:
    """The counts as JSON, a word a line: its lines, then each topic by its number with the lines of both."""
    topics = sorted(counts.of_topic)
    number = {topic: place for place, topic in enumerate(topics)}
    words = (
        f"{json.dumps(word)}: {json.dumps(_text_of_counts(counts.of_word[word], counts.of_both[word], number))}"
        for word in sorted(counts.of_word)
    )
    head = {"lines": counts.lines, "topics": [[topic, counts.of_topic[topic]] for topic in topics]}
    return f'{{"head": {json.dumps(head)},\n"words": {{\n' + ",\n".join(words) + "\n}}\n"


def _text_of_counts(lines: int, row: Mapping[str, int], number: Mapping[str, int]) -> str:
    """A word's lines, then topic and count in turn, as one text: few words of a file are looked up."""
    return " ".join(map(str, (lines, *(entry for topic in sorted(row) for entry in (number[topic], row[topic])))))


def line_words(words: Collection[str]) -> LineWords:
    """The counts of the labelled lines for these words.

    >>> max(line_words({"setmaxnreg"}).of_both["setmaxnreg"]) != ""
    True
    """
    stored = _stored_counts()
    names = [topic for topic, _ in stored["head"]["topics"]]
    of_word: dict[str, int] = {}
    of_both: dict[str, dict[str, int]] = {}
    for word in words:
        if word in stored["words"]:
            of_word[word], *flat = map(int, stored["words"][word].split())
            of_both[word] = {names[topic]: count for topic, count in zip(flat[::2], flat[1::2], strict=True)}
    return LineWords(stored["head"]["lines"], dict(stored["head"]["topics"]), of_word, of_both)


@cache
def _stored_counts() -> Entry:
    stored: Entry = json.loads(files(__package__).joinpath("line_words.json").read_bytes())
    return stored
