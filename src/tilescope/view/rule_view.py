"""The drawings of a rule with its two examples, and of a diagnosis with the causes of a symptom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tilescope.cuda_error import CUDA_ERROR
from tilescope.errors import FAULTS
from tilescope.rule import Example, Rule
from tilescope.sentence import first_sentence, shorten
from tilescope.symptoms import Diagnosis
from tilescope.symptoms.choice import is_sure
from tilescope.symptoms.own_data import command_for
from tilescope.tensor_map.demonstration import demonstrate
from tilescope.view.drawing import Drawing, Part, Table
from tilescope.view.tensor_map_view import violation_words
from tilescope.view.topic_view import list_candidates

_SEVERITY = {
    "error": "error: refused",
    "warning": "warning: accepted, but wrong or forbidden by the documentation",
    "note": "note: advice",
}
_SUBJECT = {"tiled": "tiled maps", "im2col": "im2col maps", "wide": "im2col-wide maps", "instruction": "copies"}
_ALSO_SHOWN = 3
_CAUSES_IN_FULL = 4  # of a symptom; the others follow as a list
_NEAREST_SHOWN = 5


_KERNEL = re.compile(r"(?P<quotes>'''|\"\"\")// (?P<comment>[^\n]*)\n.*?(?P=quotes)", re.DOTALL)


def draw_rule(rule: Rule) -> Drawing:
    """Its demand, its scope, and its two examples with tilescope's answers.

    >>> from tilescope.rule import RULES
    >>> draw_rule(RULES["box-range"])["demand"]
    'Every box extent is 1 to 256 elements.'
    """
    facts = {
        "severity": _SEVERITY[rule.severity],
        "the chip answers": "" if rule.code is None else f"error {rule.code}, {_fault_name(rule.code)}",
        "applies to": ", ".join(_SUBJECT.get(subject, subject) for subject in rule.subjects),
        "architectures": ", ".join(rule.architectures),
        "basis": "measured on a card" if rule.basis == "measured" else "documented",
        "source": rule.source,
        "page": f"docs/rules.md#{rule.name.lower()}",
    }
    examples: list[tuple[str, str]] = []
    if rule.passing is not None and rule.failing is not None:
        examples = _examples(rule.passing, rule.failing)
        examples += [("", violation_words(violation)) for violation in demonstrate(rule, rule.failing)]
    return Drawing(
        rule.name,
        {"demand": rule.demand, "facts": Table(facts), "examples": Table(examples, title="Examples")},
    )


def _fault_name(code: int) -> str:
    """CUDA's name of an error that ends a kernel."""
    return FAULTS[code].fault if code in FAULTS else CUDA_ERROR[code].words


def _examples(passing: Example, failing: Example) -> list[tuple[str, str]]:
    """The two examples: their common arguments, and those that differ."""
    if isinstance(passing, str) or isinstance(failing, str):
        return [*_expression_rows("passes", str(passing)), *_expression_rows("fails", str(failing))]
    shared = {name: value for name, value in passing.items() if failing.get(name) == value}
    keeps = {name: value for name, value in passing.items() if failing.get(name) != value}
    breaks = {name: value for name, value in failing.items() if passing.get(name) != value}
    both = [("both", _show_arguments(shared))] if shared else []
    return [*both, ("passes", _show_arguments(keeps)), ("fails", _show_arguments(breaks))]


def _expression_rows(label: str, expression: str) -> list[tuple[str, str]]:
    """An expression as rows of a table; for a kernel only its comment: the page of the rule has all of it."""
    kernel = _KERNEL.search(expression)
    if kernel is None:
        return [(label, expression)]
    call = f"{expression[: kernel.start()]}…{expression[kernel.end() :]}"
    return [(label, f"`{call}`"), ("", kernel["comment"])]


def _show_arguments(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}={shorten(repr(value), 60)}`" for name, value in arguments.items()) or "(left out)"


def draw_diagnosis(diagnosis: Diagnosis) -> Drawing:
    """The symptom, its causes in order, how to distinguish them, and the test for each.

    >>> from tilescope.symptoms import diagnose
    >>> print(draw_diagnosis(diagnose("201")).text(width=72).splitlines()[0])
    the encode call returns 201
    """
    unknown = tuple(f"{code} is no CUDA error: the code is unknown." for code in diagnosis.unknown_codes)
    if not (diagnosis.symptoms or diagnosis.named):
        names = dict.fromkeys((*(symptom.name for symptom in diagnosis.suggested), *diagnosis.nearest))
        suggested = (
            list_candidates(diagnosis.candidates, "Not sure: one of these?")
            if diagnosis.candidates
            else _list_of("Is it one of these?", list(names)[:_NEAREST_SHOWN])
        )
        return Drawing(
            _title_of_unnamed(diagnosis),
            {"arithmetic": diagnosis.arithmetic, "unknown codes": unknown, "suggested": suggested},
        )
    title = diagnosis.symptoms[0].name if diagnosis.symptoms else diagnosis.named[0].name
    note = diagnosis.symptoms[0].note if diagnosis.symptoms else ""
    advice = diagnosis.symptoms[0].advice if diagnosis.symptoms else ""
    causes: dict[str, Part] = {}
    for number, cause in enumerate(diagnosis.causes[:_CAUSES_IN_FULL], 1):
        facts = {
            "what": cause.mechanism,
            "how to tell": cause.tell,
            "fix": cause.fix,
            "test it": f"`{cause.command}`",
            "basis": cause.basis,
            "seen in": ", ".join(cause.threads),
            "the word": f'`tilescope explain "{cause.term}"`' if cause.term and not diagnosis.symptoms else "",
        }
        causes[f"cause {cause.name}"] = Table(facts, title=f"{number}. {cause.name}")
    more = [(cause.name, first_sentence(cause.tell)) for cause in diagnosis.causes[_CAUSES_IN_FULL:]]
    if more:
        causes["more causes"] = list_candidates(more, "Then, by what tells them")
    is_unsure = not is_sure(diagnosis.strength)
    others = [other.name for other in diagnosis.symptoms[1 : 1 + _ALSO_SHOWN]]
    tested = diagnosis.causes[0].name if diagnosis.causes else title
    return Drawing(
        title,
        {
            "arithmetic": diagnosis.arithmetic,
            "candidates": list_candidates(diagnosis.candidates, "Not sure: one of these") if is_unsure else "",
            "note": note,
            "advice": advice,
            "unknown codes": unknown,
            **causes,
            "others": _others_of(diagnosis, others),
            "own data": f"On your own data: `{command_for(tested)}`",
        },
    )


def _others_of(diagnosis: Diagnosis, symptoms: list[str]) -> Table | str:
    """What else it may be: the other candidates with what tells them, or the other symptoms."""
    if not diagnosis.candidates:
        return _list_of("It may also be", symptoms)
    return list_candidates(diagnosis.candidates[1:], "It may also be") if is_sure(diagnosis.strength) else ""


def _title_of_unnamed(diagnosis: Diagnosis) -> str:
    """The title where a question names neither a symptom nor a cause."""
    if diagnosis.arithmetic:
        return "What the numbers come to"
    return "An unknown error code" if diagnosis.unknown_codes else "Nothing known by these words"


def _list_of(title: str, names: Iterable[str]) -> Table:
    return Table(([f'`tilescope explain "{name}"`'] for name in names), title=title)


DRAWINGS = {Diagnosis: draw_diagnosis, Rule: draw_rule}
