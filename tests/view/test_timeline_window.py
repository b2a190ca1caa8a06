"""A part of a timeline: which ticks are drawn, what a wait is linked with, and the walk over the ticks."""

import tilescope as ts
from tilescope.view import draw, walk
from tilescope.view.pipeline_view import shown_ticks

RUN = ts.simulate(ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2))


def row(grid, kind, name):
    return next(row for row in grid.rows if row.labels == (kind, name))


def test_a_window_keeps_the_numbers_of_its_ticks():
    grid = draw(RUN, ticks=(16, 32))["timeline"]
    assert grid.title == "Timeline (16 to 47 of 75 nominal ticks)"
    assert [header.text for header in grid.tiers[0].headers if header.text] == ["16", "24", "32", "40"]
    assert grid.columns == 32
    assert shown_ticks(RUN, ticks=(16, 32)) == (16, 48, 75)


def test_a_window_beyond_the_run_is_moved_into_it():
    assert shown_ticks(RUN, ticks=(9999, 32)) == (43, 75, 75)
    assert shown_ticks(RUN, ticks=(0, 512)) == (0, 75, 75)


def test_windows_beside_each_other_show_what_the_whole_shows():
    whole = draw(RUN, ticks=(0, 75))["timeline"]
    left, right = (draw(RUN, ticks=(first, 25))["timeline"] for first in (0, 25))

    def said(grid, name):
        return [cell.title for cell in row(grid, "role", name).cells for _ in range(cell.span)]

    for name in ("producer", "consumer"):
        assert said(whole, name)[:50] == said(left, name) + said(right, name)


def test_a_wait_is_linked_with_the_arrival_that_ends_it_and_with_the_phase(wording):
    """The consumer's first wait on full[0] ends when the first copy into a[0] has landed."""
    grid = draw(RUN)["timeline"]
    wait = next(cell for cell in row(grid, "role", "consumer").cells if cell.title.startswith("wait full[0], parity 0"))
    assert "wait full[0], parity 0, until producer" in wait.title
    assert "16384 bytes land in a[0], for full[0]" in wait.title
    wording("a wait is linked with the arrival that ends it and with the phase", wait.title)
    shared = wait.link.split()[0]
    linked = {
        (line.labels, cell.title)
        for line in grid.rows
        for cell in line.cells
        if shared in cell.link.split() and cell is not wait
    }
    assert linked == {
        (("slot", "a[0]"), "16384 bytes land in a[0], for full[0]"),
        (("phase", "full[0]"), "full[0], phase 0"),
    }


def test_a_release_is_linked_with_the_wait_that_it_ends():
    grid = draw(RUN)["timeline"]
    release = next(cell for cell in row(grid, "role", "consumer").cells if cell.title == "release empty[0]")
    shared = release.link.split()[0]
    waits = [cell.title for cell in row(grid, "role", "producer").cells if shared in cell.link.split()]
    (wait,) = waits
    assert wait.startswith("wait empty[0], parity 0, ")
    assert wait.endswith("consumer: release empty[0]")


def test_the_walk_has_a_step_for_every_tick_that_is_drawn(wording):
    grid = draw(RUN, ticks=(16, 32))["timeline"]
    words = {word for line in grid.rows for cell in line.cells for word in cell.link.split()}
    steps = walk(RUN, ticks=(16, 32))
    assert len(steps) == 32
    assert "tick 16: producer: wait empty[0], parity 0" in steps[0].sentence
    assert "until consumer: release empty[0]; consumer" in steps[0].sentence
    assert "release empty[0]" in steps[0].sentence
    wording("the walk has a step for every tick that is drawn", steps[0].sentence)
    assert all(word in words for step in steps for word in step.links.split())


def test_the_legend_names_the_phases_by_their_parity():
    texts = [entry.text for entry in draw(RUN)["legend"].entries]
    assert any(text.endswith("parity 0") for text in texts)
    assert any(text.endswith("parity 1") for text in texts)


def test_texts_that_do_not_fit_a_narrow_tick_are_left_out_of_the_svg():
    legend = 1
    assert draw(RUN, ticks=(0, 64)).svg().count(">c0</text>") > legend
    assert draw(RUN, ticks=(0, 75)).svg().count(">c0</text>") == legend
