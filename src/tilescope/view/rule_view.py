"""The drawing of a rule: its demand, where it holds, and its two examples with what tilescope says to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilescope.errors import shortened
from tilescope.tensor_map.demonstration import demonstrated
from tilescope.tensor_map.rule import Rule
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Table

_SEVERITY = {
    "error": "error: what breaks it is refused",
    "warning": "warning: what breaks it is accepted, but wrong or forbidden by the documents",
    "note": "note: advice",
}
_SUBJECT = {"tiled": "tiled maps", "im2col": "im2col maps", "wide": "im2col-wide maps", "instruction": "copies"}


def draw_rule(rule: Rule) -> Drawing:
    """A rule as `tilescope explain` shows it.

    >>> from tilescope.tensor_map import RULES
    >>> print(draw_rule(RULES["box-range"]).parts[0].text)
    Every box extent is 1 to 256 elements.
    """
    facts = (
        ("severity", _SEVERITY[rule.severity]),
        ("speaks of", ", ".join(_SUBJECT.get(subject, subject) for subject in rule.subjects)),
        ("architectures", ", ".join(rule.architectures)),
        ("basis", "measured on a card" if rule.basis == "measured" else "from the documents"),
        ("source", rule.source),
    )
    keeps, breaks = _apart(rule.passing, rule.failing)
    said = [f"{each.found}; {each.limit}. {each.fix}" for each in demonstrated(rule, rule.failing)]
    examples = (("keeps it", keeps), ("breaks it", breaks), *(("", each) for each in said))
    shared = {name: value for name, value in rule.passing.items() if rule.failing.get(name) == value}
    if shared:
        examples = (("both", _shown(shared)), *examples)
    return Drawing(rule.name, (Paragraph(rule.demand), Table(facts), Table(examples, title="Examples")))


def _apart(passing: Mapping[str, Any], failing: Mapping[str, Any]) -> tuple[str, str]:
    """The arguments in which two examples differ."""
    names = [name for name in {**passing, **failing} if passing.get(name) != failing.get(name)]
    return _shown({name: passing[name] for name in names if name in passing}), _shown(
        {name: failing[name] for name in names if name in failing}
    )


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={shortened(repr(value), 60)}`" for name, value in arguments.items()) or "(left out)"
