"""Former arguments of `emulate_mma`, an argument for each operand: one argument takes a value for both, or a pair."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import numpy.typing as npt

from tilescope.former_arguments import Replacement, warn_about_former
from tilescope.layout import Layout, Major
from tilescope.mma.product_scales import INCOMPLETE_SCALES, Scales
from tilescope.sentence import listed

_SCALES = Replacement(("scale_kind", "a_scales", "b_scales"), "scales=(kind, a_scales, b_scales)")
_MAJOR = Replacement(("a_major", "b_major"), "major=(a_major, b_major), or one for both")
_LAYOUT = Replacement(("a_layout", "b_layout"), "layout=(a_layout, b_layout), or one for both")


class FormerArguments(TypedDict, total=False):
    """Arguments that `scales`, `major` and `layout` replace."""

    scale_kind: Any
    a_scales: npt.ArrayLike | None
    b_scales: npt.ArrayLike | None
    a_major: Major
    b_major: Major
    a_layout: Layout | None
    b_layout: Layout | None


class OperandArguments(NamedTuple):
    """The arguments that have former spellings."""

    major: Major | tuple[Major, Major]
    layout: Layout | tuple[Layout | None, Layout | None] | None
    scales: Scales | None


def replace_former(present: OperandArguments, former: FormerArguments) -> OperandArguments:
    """The arguments, some of them in their former spelling, with a warning to the caller of `emulate_mma`."""
    warn_about_former("emulate_mma", former.keys(), (_SCALES, _MAJOR, _LAYOUT))
    major, layout, scales = present
    if not former.keys().isdisjoint(_MAJOR.former):
        _refuse_both("major", is_passed=major != "K")
        major = (former.get("a_major", "K"), former.get("b_major", "K"))
    if not former.keys().isdisjoint(_LAYOUT.former):
        _refuse_both("layout", is_passed=layout is not None)
        layout = (former.get("a_layout"), former.get("b_layout"))
    return OperandArguments(major, layout, _join_scales(scales, former))


def _refuse_both(name: str, *, is_passed: bool) -> None:
    if is_passed:
        raise TypeError(f"emulate_mma() got {name}, and a_{name} or b_{name}, which it replaces")


def _join_scales(scales: Scales | None, former: FormerArguments) -> Scales | None:
    """`scales`, or the triple made of its former spellings."""
    kind = former.get("scale_kind")
    a_scales = former.get("a_scales")
    b_scales = former.get("b_scales")
    named = zip(_SCALES.former, (kind, a_scales, b_scales), strict=True)
    passed = sorted(name for name, value in named if value is not None)
    if not passed:
        return scales
    if scales is not None or kind is None or a_scales is None or b_scales is None:
        raise INCOMPLETE_SCALES.error(passed=listed(passed))
    return kind, a_scales, b_scales
