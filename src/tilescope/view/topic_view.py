"""The drawings of `tilescope explain`: a topic, the list of all topics, and what is near to words that name none."""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.symptoms.choice import is_sure
from tilescope.symptoms.own_data import command_for
from tilescope.symptoms.topic import NearestTopics, Topic, TopicIndex
from tilescope.view.drawing import Drawing, Table

_TESTED_GROUPS = ("terms", "causes")


def draw_topic(topic: Topic) -> Drawing:
    """What it is, its facts, and what to read next.

    >>> draw_topic(Topic("LBO", "terms", "Leading byte offset.", see=("SBO", "core matrix")))["see"]
    'See also: SBO, core matrix.'
    """
    see = f"See also: {', '.join(topic.see)}." if topic.see else ""
    is_unsure = not is_sure(topic.strength)
    return Drawing(
        topic.name,
        {
            "candidates": list_candidates(topic.candidates, "Not sure: one of these") if is_unsure else "",
            "meaning": topic.meaning,
            "facts": Table(topic.facts),
            "see": see,
            "others": "" if is_unsure else list_candidates(topic.candidates[1:], "It may also be"),
            "own data": f"On your own data: `{command_for(topic.name)}`" if topic.group in _TESTED_GROUPS else "",
        },
    )


def list_candidates(candidates: Iterable[tuple[str, str]], title: str) -> Table:
    """Topics that may be meant, a row each, with what tells them."""
    return Table(candidates, title=title)


def draw_topic_index(index: TopicIndex) -> Drawing:
    """The names of all topics, group by group."""
    groups = {name: ", ".join(topics) for name, topics in index.groups}
    return Drawing("What can be explained", {"groups": Table(groups)})


def draw_nearest_topics(near: NearestTopics) -> Drawing:
    """Why the words are unknown, and suggestions.

    >>> near = NearestTopics("swizle", "topic 'swizle': no topic has that name.", ("swizzle",))
    >>> draw_nearest_topics(near)["reason"]
    "topic 'swizle': no topic has that name."
    """
    commands = Table(([f'`tilescope explain "{name}"`'] for name in near.topics), title="Is it one of these?")
    return Drawing("Nothing known by these words", {"reason": near.reason, "advice": near.advice, "nearest": commands})


DRAWINGS = {Topic: draw_topic, TopicIndex: draw_topic_index, NearestTopics: draw_nearest_topics}
