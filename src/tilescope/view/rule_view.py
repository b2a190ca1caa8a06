"""The drawing of a rule: its demand, where it holds, and its two examples with what tilescope says to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilescope.errors import FAULTS, shortened
from tilescope.rule import Example, Rule
from tilescope.tensor_map.demonstration import demonstrated
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table

_SEVERITY = {
    "error": "error: what breaks it is refused",
    "warning": "warning: what breaks it is accepted, but wrong or forbidden by the documents",
    "note": "note: advice",
}
_SUBJECT = {"tiled": "tiled maps", "im2col": "im2col maps", "wide": "im2col-wide maps", "instruction": "copies"}


def draw_rule(rule: Rule) -> Drawing:
    """A rule as `tilescope explain` shows it.

    >>> from tilescope.rule import RULES
    >>> print(draw_rule(RULES["box-range"]).parts[0].text)
    Every box extent is 1 to 256 elements.
    """
    facts = [("severity", _SEVERITY[rule.severity])]
    if rule.code is not None:
        facts.append(("the chip answers", f"error {rule.code}, {FAULTS[rule.code].fault}"))
    if rule.subjects:
        facts.append(("speaks of", ", ".join(_SUBJECT.get(subject, subject) for subject in rule.subjects)))
    if rule.architectures:
        facts.append(("architectures", ", ".join(rule.architectures)))
    facts.append(("basis", "measured on a card" if rule.basis == "measured" else "from the documents"))
    facts.append(("source", rule.source))
    parts: list[Part] = [Paragraph(rule.demand), Table(tuple(facts))]
    if rule.passing is not None and rule.failing is not None:
        said = [f"{each.found}; {each.limit}. {each.fix}" for each in demonstrated(rule, rule.failing)]
        examples = (*_examples(rule.passing, rule.failing), *(("", each) for each in said))
        parts.append(Table(examples, title="Examples"))
    return Drawing(rule.name, tuple(parts))


def _examples(passing: Example, failing: Example) -> tuple[tuple[str, str], ...]:
    """The two examples: what they share, and what sets them apart."""
    if isinstance(passing, str) or isinstance(failing, str):
        return ("keeps it", str(passing)), ("breaks it", str(failing))
    keeps, breaks = _apart(passing, failing)
    shared = {name: value for name, value in passing.items() if failing.get(name) == value}
    both = (("both", _shown(shared)),) if shared else ()
    return *both, ("keeps it", keeps), ("breaks it", breaks)


def _apart(passing: Mapping[str, Any], failing: Mapping[str, Any]) -> tuple[str, str]:
    """The arguments in which two examples differ."""
    names = [name for name in {**passing, **failing} if passing.get(name) != failing.get(name)]
    return _shown({name: passing[name] for name in names if name in passing}), _shown(
        {name: failing[name] for name in names if name in failing}
    )


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={shortened(repr(value), 60)}`" for name, value in arguments.items()) or "(left out)"
