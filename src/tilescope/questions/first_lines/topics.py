"""The first lines of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilescope.questions.first_lines import line
from tilescope.questions.question import FirstLine
from tilescope.questions.topic import YOUR_NUMBERS
from tilescope.rule import Rule
from tilescope.sentence import filled, first_sentence
from tilescope.symptoms import Diagnosis

if TYPE_CHECKING:
    from tilescope.questions.topic import NearestTopics, Topic, TopicIndex

_NEAREST_SAID = 3
_CODE_SIGN = "`"  # around code in a text


def of_topic(topic: Topic | Rule | Diagnosis) -> FirstLine:
    """What something is; of something seen, the likeliest cause and its fix. Where two topics fit, both are named."""
    if isinstance(topic, Rule):
        return line("{name}: {said}", name=topic.name, said=_plain(first_sentence(topic.demand)))
    if isinstance(topic, Diagnosis):
        first = _of_diagnosis(topic)
    else:
        first = _of_plain_topic(topic)
    if not topic.rival:
        return first
    facts = {"best": _name_of(topic), "rival": topic.rival, "first": first.sentence}
    both = filled('Two topics fit, "{best}" and "{rival}". {first}', facts)
    return FirstLine(both, first.advice)


def _of_plain_topic(topic: Topic) -> FirstLine:
    """What something is, or what the numbers come to that the question named beside it."""
    if topic.facts and topic.facts[0][0] == YOUR_NUMBERS:
        return line("{name}: {said}", name=topic.name, said=topic.facts[0][1])
    return line("{name}: {said}", name=topic.name, said=_plain(first_sentence(topic.meaning)))


def _name_of(topic: Topic | Diagnosis) -> str:
    """The name of a topic, or of what a diagnosis puts first."""
    if not isinstance(topic, Diagnosis):
        return topic.name
    return topic.symptoms[0].name if topic.symptoms else topic.named[0].name


def _of_diagnosis(diagnosis: Diagnosis) -> FirstLine:
    if not diagnosis.is_known:
        near = (*(symptom.name for symptom in diagnosis.suggested), *diagnosis.nearest)
        return _nothing_known(tuple(dict.fromkeys(near))[:_NEAREST_SAID])
    if diagnosis.arithmetic:
        fix = diagnosis.causes[0].fix if diagnosis.causes else ""
        return FirstLine(" ".join(diagnosis.arithmetic[:2]), _plain(fix))
    if not diagnosis.symptoms:
        cause = diagnosis.named[0]
        return FirstLine(filled("{name}: {said}", _told(cause.name, cause.mechanism)), _plain(cause.fix))
    symptom = diagnosis.symptoms[0]
    if not diagnosis.causes or (symptom.advice and not diagnosis.named):
        return FirstLine(filled("{name}: {said}", _told(symptom.name, symptom.note)), _plain(symptom.advice))
    cause = diagnosis.causes[0]
    facts = {"symptom": symptom.name, **_told(cause.name, cause.mechanism)}
    return FirstLine(filled("{symptom}: look first at {name}. {said}", facts), _plain(cause.fix))


def _told(name: str, text: str) -> dict[str, str]:
    """A name, and what is said of it first."""
    return {"name": name, "said": _plain(first_sentence(text))}


def of_nearest(near: NearestTopics) -> FirstLine:
    """That the words name nothing, and what they are near to."""
    return _nothing_known(near.topics) if near.topics else FirstLine(near.reason, _plain(near.advice))


def _nothing_known(names: tuple[str, ...]) -> FirstLine:
    near = tuple(f'"{name}"' for name in names)
    return line("Nothing is known by these words[[; is it {near:or}?]]", near=near)


def of_index(index: TopicIndex) -> FirstLine:
    """How many topics there are."""
    return line(
        "{count} topics can be explained: {groups:and}.",
        count=sum(len(names) for _, names in index.groups),
        groups=tuple(name for name, _ in index.groups),
    )


def _plain(text: str) -> str:
    """A text without the signs around code."""
    return text.replace(_CODE_SIGN, "")
