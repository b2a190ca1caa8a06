"""The drawings of `tilescope explain`: a topic, the list of all topics, and what is near to words that name none."""

from __future__ import annotations

from tilescope.symptoms.topic import NearestTopics, Topic, TopicIndex
from tilescope.view.drawing import Drawing, Table


def draw_topic(topic: Topic) -> Drawing:
    """What it is, its facts, and what to read next.

    >>> draw_topic(Topic("LBO", "terms", "Leading byte offset.", see=("SBO", "core matrix")))["see"]
    'See also: SBO, core matrix.'
    """
    see = f"See also: {', '.join(topic.see)}." if topic.see else ""
    return Drawing(topic.name, {"meaning": topic.meaning, "facts": Table(topic.facts), "see": see})


def draw_topic_index(index: TopicIndex) -> Drawing:
    """The names of all topics, group by group."""
    groups = {name: ", ".join(topics) for name, topics in index.groups}
    return Drawing("What can be explained", {"groups": Table(groups)})


def draw_nearest_topics(near: NearestTopics) -> Drawing:
    """Why the words are not known, and what to ask instead.

    >>> near = NearestTopics("swizle", "topic 'swizle': no topic has that name.", ("swizzle",))
    >>> draw_nearest_topics(near)["reason"]
    "topic 'swizle': no topic has that name."
    """
    commands = Table(([f'`tilescope explain "{name}"`'] for name in near.topics), title="Is it one of these?")
    return Drawing("Nothing known by these words", {"reason": near.reason, "advice": near.advice, "nearest": commands})


DRAWINGS = {Topic: draw_topic, TopicIndex: draw_topic_index, NearestTopics: draw_nearest_topics}
