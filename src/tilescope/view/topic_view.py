"""The drawings of `tilescope explain`: a topic with what to read next, and the list of all topics."""

from __future__ import annotations

from tilescope.questions.topics import Topic, TopicIndex
from tilescope.view.drawing import Drawing, Table


def draw_topic(topic: Topic) -> Drawing:
    """What it is, its facts, and what to read next.

    >>> from tilescope.questions.topics import find
    >>> draw_topic(find("LBO"))["see"]
    'See also: SBO, matrix descriptor, core matrix.'
    """
    see = f"See also: {', '.join(topic.see)}." if topic.see else ""
    return Drawing(topic.name, {"meaning": topic.meaning, "facts": Table(topic.facts), "see": see})


def draw_topic_index(index: TopicIndex) -> Drawing:
    """The names of all topics, group by group."""
    groups = {name: ", ".join(topics) for name, topics in index.groups}
    return Drawing("What can be explained", {"groups": Table(groups)})


DRAWINGS = {Topic: draw_topic, TopicIndex: draw_topic_index}
