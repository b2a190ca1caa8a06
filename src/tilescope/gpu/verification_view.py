"""A verification drawn: the card, and a table of suites with the first difference of each in words."""

from __future__ import annotations

from tilescope.errors import counted
from tilescope.gpu.verification import Verification
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table

_HEADINGS = ("suite", "cases", "equal", "seconds", "first difference")


def draw_verification(verification: Verification) -> Drawing:
    """The table that `tilescope verify` prints."""
    rows = tuple(
        (suite.suite, str(suite.cases), str(suite.equal), f"{suite.seconds:.1f}", suite.difference or "none")
        for suite in verification.suites
    )
    parts: list[Part] = [Table(rows, _HEADINGS, align="lrrrl"), Paragraph(_conclusion(verification))]
    if verification.left_out:
        names = ", ".join(verification.left_out)
        parts.append(Paragraph(f"Left out: {verification.arch} does not have what {names} needs."))
    where = f"{verification.card}, driver {verification.driver}, CUDA {verification.cuda}, {verification.date}"
    how = "a capture of" if verification.replayed else "on"
    return Drawing(f"tilescope held against the hardware, {how} {where}, seed {verification.seed}", tuple(parts))


def _conclusion(verification: Verification) -> str:
    cases = sum(suite.cases for suite in verification.suites)
    wrong = cases - sum(each.equal for each in verification.suites)
    if not wrong:
        return f"The card did what tilescope says in all {counted(cases, 'case')}."
    return f"The card did something else in {wrong} of {counted(cases, 'case')}."
