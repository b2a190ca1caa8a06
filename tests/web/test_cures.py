"""Every cure that a rule knows has a button, and the button cures."""

import random

import pytest

from tilescope.errors import RuleError
from tilescope.web.form import filled_form
from tilescope.web.pages import PAGES, form_at
from tilescope.web.sheet import Sheet

# What a hand writes that breaks rules, by field.
WRITTEN = {
    "box": ["300,8", "128,8", "7,8", "0,4", "64,300"],
    "dims": ["72,16", "0,4", "65,3", "8589934592,2"],
    "strides_bytes": ["100", "144", "8", "1099511627776"],
    "element_strides": ["9,1", "2,2", "0,1"],
    "swizzle": ["32B", "64B", "128B", "none"],
    "interleave": ["16B", "32B"],
    "address": ["8", "0x4"],
    "data_type": ["f64", "u4", "16u4_align16b"],
    "oob_fill": ["nan"],
    "coords": ["3,3", "1,2,3"],
    "tile": ["100x60", "7x7", "128x1000"],
    "smem_address": ["0x8", "0x40"],
}
FORMS = [
    (page, chosen)
    for page in PAGES.values()
    for chosen in page.forms
    if page.name in ("tensor-map", "load", "plan", "path")
]


def violations(form):
    try:
        return Sheet.of(form).answer.violations
    except RuleError as error:
        return error.violations


@pytest.mark.slow
@pytest.mark.parametrize(("page", "chosen"), FORMS, ids=lambda value: getattr(value, "name", value))
def test_a_cure_has_a_button_and_cures(page, chosen):
    draw = random.Random(5)
    state = {} if page.chooser is None else {page.chooser.name: chosen}
    names = [field.name for field in filled_form(page, state).fields if field.name in WRITTEN]
    for _ in range(40):
        broken = draw.sample(names, min(len(names), draw.choice((1, 2))))
        form = filled_form(page, state | {name: draw.choice(WRITTEN[name]) for name in broken})
        for violation in violations(form):
            if violation.change:
                cure = form.cure(violation)
                assert cure is not None, (violation.rule, form.written)
                again = {(each.rule, each.argument) for each in violations(form_at(cure))}
                assert (violation.rule, violation.argument) not in again, form.written
