"""An explanation: a topic with its sentences, the list of all topics, or similar ones.

>>> Topic("LBO", "terms", "Leading byte offset: …", see=("SBO",)).see
('SBO',)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilescope.value import Value

YOUR_NUMBERS = "your numbers"  # the first fact of a topic, where the numbers of the question come to something
HOW_TO_LIST = "`tilescope explain` lists what can be explained."


@dataclass(frozen=True, slots=True)
class Topic(Value):
    """Something explained: its name, its group, a few sentences, and what to read next."""

    name: str
    group: str
    meaning: str
    see: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # a table below the sentences
    rival: str = ""  # another topic that fits the question about as well
    candidates: tuple[tuple[str, str], ...] = ()  # of a sentence: topics that may be meant, and what tells each
    strength: float = 1.0  # how likely the answer is the right one


@dataclass(frozen=True, slots=True)
class TopicIndex(Value):
    """The names of all topics, group by group."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class NearestTopics(Value):
    """What somebody may have meant by words that name no topic."""

    question: str
    reason: str  # why it is not known
    topics: tuple[str, ...] = ()  # their names, the nearest first; empty where nothing is near
    advice: str = ""  # what to do instead


def fold_name(name: str) -> str:
    """A name without case, and without what people put between words."""
    return re.sub(r"[\s_\-]+", " ", name.strip().casefold())
