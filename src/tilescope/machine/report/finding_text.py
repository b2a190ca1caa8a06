"""A finding as a report prints it: a headline, the rule, details on separate lines, and the fix.

    At PTX line 16 a thread reads s+128, which another thread writes at PTX line 15.
    Nothing on this path orders the two.
    instruction        PTX line 16 (ld.shared.u32 %r4, [s+128])
    thread             thread (0, 0, 0) of block (0, 0, 0)
    address            shared address 0x480 (s+128)
    other instruction  PTX line 15 (st.shared.u32 [%r2], %r1)
    by                 thread (32, 0, 0)
    fix                Put bar.sync 0; (__syncthreads()) before PTX line 16

The facts come from the values of the finding. A finding without a headline prints its `found` text, and the texts of
its instructions on separate lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilescope.errors import Violation
from tilescope.sentence import counted

_OTHERS_NAMED = 3
_DETAILS = (  # the label of a line, and the value that it prints
    ("instruction", "where"),
    ("thread", "who"),
    ("address", "what"),
    ("address", "lies"),
    ("other instruction", "before_where"),
    ("by", "before_who"),
    ("other threads", "others"),
    ("seen", "met"),
)
_INSTRUCTION = re.compile(r"(?P<place>.*\bPTX line \d+) \(.+\)")  # a place, and the text of its instruction


class Detail(NamedTuple):
    """One line of a finding: a label and its text."""

    label: str
    text: str


class FindingText(NamedTuple):
    """The sentences of a finding, and its details."""

    headline: str
    limit: str
    details: tuple[Detail, ...]
    fix: str


def describe_finding(finding: Violation) -> FindingText:
    """The sentences and details of a finding.

    >>> from tilescope.rule import Rule
    >>> facts = {"where": "PTX line 4 (ld.shared.u32 %r1, [s+128])", "who": "thread (0, 0, 0)", "reason": "no array lies there"}
    >>> wrong = Rule.named("run-out-of-bounds").violation(**facts, code=700, short={"where": "PTX line 4", "who": None})
    >>> describe_finding(wrong).headline, describe_finding(wrong).details[1].text
    ('PTX line 4: no array lies there.', 'thread (0, 0, 0)')
    """
    headline = finding.values.get("headline")
    details: list[Detail] = []
    if headline is not None:
        named = [(label, finding.values.get(name)) for label, name in _DETAILS]
        details = [Detail(label, text) for label, text in named if isinstance(text, str) and text]
    else:
        headline, details = _shorten(finding)
    details += _describe_others(finding.values.get("also", ()))
    return FindingText(_sentence(headline), _sentence(finding.limit), tuple(details), finding.fix)


def _describe_others(others: Sequence[Mapping[str, str]]) -> list[Detail]:
    """Other findings about the same mistake: the first of them, and the number of the rest.

    >>> _describe_others([{"rule": "run-hang", "found": "PTX line 9: a thread cannot pass the mbarrier"}])
    [Detail(label='also', text='run-hang: PTX line 9: a thread cannot pass the mbarrier')]
    """
    details = [Detail("also", f"{other['rule']}: {other['found']}") for other in others[:_OTHERS_NAMED]]
    if len(others) > _OTHERS_NAMED:
        details.append(Detail("also", counted(len(others) - _OTHERS_NAMED, "other finding")))
    return details


def _shorten(finding: Violation) -> tuple[str, list[Detail]]:
    """The text of a finding with places without instruction texts, and the instructions."""
    headline = finding.found
    details: list[Detail] = []
    for text in finding.values.values():
        instruction = _INSTRUCTION.fullmatch(text) if isinstance(text, str) else None
        if instruction is not None and text in headline:
            headline = headline.replace(text, instruction["place"])
            details.append(Detail("other instruction" if details else "instruction", text))
    return headline, details


def format_finding(finding: Violation) -> list[str]:
    r"""A finding as lines of text: the rule and the headline, then everything else, indented.

    >>> from tilescope.rule import Rule
    >>> print("\n".join(format_finding(Rule.named("missing-field").violation(kind="layout", missing=("shape",)))))
    missing-field: A layout without shape.
      Every field is needed.
      fix: Add shape.
    """
    text = describe_finding(finding)
    details = [f"{label}: {detail}" for label, detail in text.details]
    lines = [text.limit, *details, f"fix: {text.fix}"]
    return [f"{finding.rule}: {text.headline}", *(f"  {line}" for line in lines)]


def _sentence(text: str) -> str:
    """A sentence with a capital letter and a full stop; a name such as mm.py:12 keeps its case."""
    first_word, _, _ = text.partition(" ")
    if first_word.isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
