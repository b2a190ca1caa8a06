"""Every cure that a rule knows has a button, and the button cures."""

import json
import random
from html import unescape

import pytest

import tilescope.cli
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
    if page.name in ("tensor-map", "load", "plan", "path", "gemm", "tensor-core", "tensor-memory")
]


def violations(form):
    try:
        return Sheet.of(form).answer.violations
    except RuleError as error:
        return error.violations


def changed_arguments(violation):
    """What a cure changes: the m and the k of one tile are two violations of one rule."""
    return tuple(violation.change or ())


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
                again = {(each.rule, each.argument, changed_arguments(each)) for each in violations(form_at(cure))}
                assert (violation.rule, violation.argument, changed_arguments(violation)) not in again, form.written


@pytest.mark.parametrize(
    ("path", "all_fixed"),
    [
        ("/tensor-map?box=128,300&dims=71,16", "/tensor-map?dims=71,16&strides_bytes=144&box=64,256"),
        ("/load?box=300,300&swizzle=32B", "/load?box=16,256&swizzle=32B"),
        ("/gemm?shape=100x60x33", "/gemm?shape=100x64x40"),
        ("/tensor-core?tile=100x60", "/tensor-core"),
    ],
)
def test_one_button_applies_all_fixes(client, path, all_fixed):
    page = unescape(client.get(path).text)
    assert f'<a class="button cure" href="{all_fixed}">Apply all</a>' in page
    assert not any(each.severity == "error" for each in violations(form_at(all_fixed)))


def test_all_fixes_of_a_map_are_those_of_the_command(capsys):
    form = form_at("/tensor-map?box=128,300&dims=71,16")
    tilescope.cli.run(
        ["check", "--fix", "--type", "bf16", "--dims", "71,16", "--box", "128,300", "--swizzle", "128B", "--json"]
    )
    fixed = json.loads(capsys.readouterr().out)
    (path,) = form.fixes(violations(form), None).values()
    assert form_at(path).written["box"] == ",".join(map(str, fixed["box"])) == "64,256"
    assert form_at(path).written["strides_bytes"] == ",".join(map(str, fixed["strides_bytes"])) == "144"


@pytest.mark.parametrize(
    "state",
    [
        "/banks",
        "/banks?tile=64x64&data_type=bf16&pattern=ldmatrix.x4&other=",
        "/banks?tile=128x64&data_type=bf16&major=MN&pattern=ldmatrix.x4&other=",
        "/banks?given=layout&text=Layout((64,64),16)&pattern=ldmatrix.x4",
    ],
)
def test_every_layout_that_serves_has_a_button_that_leads_to_it(state):
    form = form_at(state)
    answer = Sheet.of(form).answer
    search = answer.shown["search"]
    fixes = form.fixes((), answer)
    assert f"Apply: {search.best.label}" in fixes
    excess = {f"Apply: {found.label}": found.excess for found in (*search.found, search.hardware)}
    for label, path in fixes.items():
        applied = Sheet.of(form_at(path)).answer.value
        assert applied.excess == excess[label] < answer.value.excess


def test_a_layout_without_a_conflict_has_no_button():
    form = form_at("/banks?swizzle=xor:5,2,5")
    assert form.fixes((), Sheet.of(form).answer) == {}
