"""Questions that a command answers by computing: "how do I choose a swizzle for fp8?" is a plan, not the definition of a swizzle.

The rows are in symptoms/computed.toml.
"""

from __future__ import annotations

import re

from tilescope.questions.term_topics import term_topic
from tilescope.symptoms.symptom_diagnosis import question_words
from tilescope.symptoms.tables import Entry, table
from tilescope.symptoms.topic import Topic
from tilescope.symptoms.word_forms import fold_word, sequence_of

_ASKS = re.compile(
    r"\s*(?:\[[^\]]*\]\s*)*(?:how|which|what|can|could|should|shall|do|does|is|are|where|who|when)\b|.*\?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_LONGEST = 300  # characters of a question that a command answers
_TYPES = {
    "fp8": "e4m3",
    "float8": "e4m3",
    "e4m3": "e4m3",
    "e5m2": "e5m2",
    "fp16": "f16",
    "half": "f16",
    "f16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "f32": "f32",
    "tf32": "tf32",
    "int8": "s8",
    "fp4": "e2m1",
    "nvfp4": "e2m1",
}


def is_question(text: str) -> bool:
    """Whether a text is a question.

    >>> is_question("do all blocks need expect_tx?"), is_question("all blocks hang")
    (True, False)
    """
    return _ASKS.match(text) is not None


def computed_answer(question: str) -> Topic | None:
    """The topic of a question, with the command that computes its answer; None where no command does.

    >>> computed_answer("how do I choose a swizzle for fp8?").facts
    (('computed by', '`tilescope plan 128x64 e4m3`'),)
    """
    if len(question) > _LONGEST or not is_question(question):
        return None
    words = question_words(question) | frozenset(sequence_of(question))
    row = next((row for row in table("computed").values() if _fits(row, words)), None)
    topic = None if row is None else term_topic(row["topic"])
    if row is None or topic is None:
        return None
    data_type = next((name for word, name in _TYPES.items() if word in words), "bf16")
    command = row["command"].format(type=data_type)
    facts = (("computed by", f"`{command}`"),)
    return Topic(topic.name, topic.group, f"`{command}` {row['says']}. {topic.meaning}", topic.see, facts)


def _fits(row: Entry, words: frozenset[str]) -> bool:
    """Whether a question has a word of every group."""
    return all(not words.isdisjoint(map(fold_word, group.split())) for group in row["asks"])
