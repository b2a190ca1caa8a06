"""The first lines of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilescope.questions.first_lines import line
from tilescope.questions.question import FirstLine
from tilescope.rule import Rule
from tilescope.sentence import filled, first_sentence
from tilescope.symptoms import Diagnosis

if TYPE_CHECKING:
    from tilescope.questions.topics import Topic, TopicIndex

_CODE_SIGN = "`"  # around code in a text


def of_topic(topic: Topic | Rule | Diagnosis) -> FirstLine:
    """What something is; of something seen, the likeliest cause and its fix."""
    if isinstance(topic, Diagnosis):
        return _of_diagnosis(topic)
    said = topic.demand if isinstance(topic, Rule) else topic.meaning
    return line("{name}: {said}", name=topic.name, said=_plain(first_sentence(said)))


def _of_diagnosis(diagnosis: Diagnosis) -> FirstLine:
    if not diagnosis.symptoms:
        suggested = tuple(f'"{symptom.name}"' for symptom in diagnosis.suggested)
        return line("Nothing is known by these words[[; is it {suggested:or}?]]", suggested=suggested)
    symptom = diagnosis.symptoms[0]
    if not diagnosis.causes:
        return line("{name}: {said}", name=symptom.name, said=_plain(first_sentence(symptom.note)))
    cause = diagnosis.causes[0]
    facts = {"name": symptom.name, "cause": cause.name, "said": _plain(first_sentence(cause.mechanism))}
    return FirstLine(filled("{name}: look first at {cause}. {said}", facts), _plain(cause.fix))


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
