"""The drawing of a diagnosis: what was seen, its causes in order, how to tell them apart, what tests each."""

from __future__ import annotations

from tilescope.symptoms import Diagnosis
from tilescope.symptoms.cause import Cause
from tilescope.symptoms.symptom import Symptom
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table

_ALSO_SHOWN = 3


def draw_diagnosis(diagnosis: Diagnosis) -> Drawing:
    """A diagnosis as `tilescope explain` shows it.

    >>> from tilescope.symptoms import diagnose
    >>> print(draw_diagnosis(diagnose("201")).text(width=72).splitlines()[0])
    the encode call answers 201
    """
    if not diagnosis.symptoms:
        return Drawing("Nothing known by these words", (_list_of("Is it one of these?", diagnosis.suggested),))
    symptom, *others = diagnosis.symptoms
    parts: list[Part] = [Paragraph(symptom.note)] if symptom.note else []
    parts += [_cause(number, cause) for number, cause in enumerate(diagnosis.causes, 1)]
    if others:
        parts.append(_list_of("It may also be", tuple(others[:_ALSO_SHOWN])))
    return Drawing(symptom.name, tuple(parts))


def _cause(number: int, cause: Cause) -> Table:
    rows = [
        ("what", cause.mechanism),
        ("how to tell", cause.tell),
        ("fix", cause.fix),
        ("test it", f"`{cause.command}`"),
        ("basis", cause.basis),
    ]
    if cause.threads:
        rows.append(("seen in", ", ".join(cause.threads)))
    return Table(tuple(rows), title=f"{number}. {cause.name}")


def _list_of(title: str, symptoms: tuple[Symptom, ...]) -> Table:
    return Table(tuple((f'`tilescope explain "{symptom.name}"`',) for symptom in symptoms), title=title)
