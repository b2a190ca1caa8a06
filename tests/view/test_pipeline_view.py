"""The timeline of a pipeline says which phase runs and which bytes are under way, in every block and up to a mistake."""

import pytest

import tilescope as ts
from tilescope import view
from tilescope.pipeline.description import Pipeline
from tilescope.view.grid import place_items

A, B = (ts.plan((mn, 64), "bf16").best for mn in (128, 256))
PIPELINES = {
    "one block": ts.plan_pipeline([A, B], stages=3, consumers=2),
    "a cluster": ts.plan_pipeline([A, B], stages=2, consumers=2, cluster=(2, 2)),
    "a pair": ts.plan_pipeline(ts.plan((128, 64), "bf16", arch="sm_100").best, stages=2, cta_group=2, cluster=2),
    "a late epilogue": ts.plan_pipeline(ts.plan_gemm(1024, 1024, 4096, "e4m3", arch="sm_100")),
}
RACE = {  # the consumer reads its slot while copies into the others are under way
    "name": "race",
    "barriers": {"full": {"stages": 3, "count": 1}},
    "slots": {"a": {"stages": 3, "bytes": 4096}},
    "roles": [
        {"name": "producer", "steps": [{"copy": f"a[{i}]", "bytes": 4096, "barrier": f"full[{i}]"} for i in range(3)]},
        {"name": "consumer", "threads": 128, "steps": [{"wait": "full[2]", "parity": 1}, {"read": ["a[1]"]}]},
    ],
}


def drawn(simulation, **options):
    """The timeline and its legend."""
    drawing = view.draw(simulation, **options)
    return drawing["timeline"], drawing["legend"]


def spans(grid, kind):
    """(name, first tick, the one behind the last, text) of the cells of a kind of lanes."""
    for row in grid.rows:
        if row.labels[0] == kind:
            for first, cell in place_items(row.cells):
                if cell.text:
                    yield row.labels[1], first, first + cell.span, cell.text


@pytest.mark.parametrize("name", PIPELINES)
def test_a_lane_shows_the_phases_of_its_own_barrier(name):
    simulation = ts.simulate(PIPELINES[name])
    blocks = simulation.pipeline.blocks
    for block in range(blocks):
        shown = list(spans(drawn(simulation, block=block)[0], "phase"))
        assert shown
        for barrier, first, behind, text in shown:
            title = f"{barrier} of block {block}" if blocks > 1 else barrier
            ends = [event.start for event in simulation.events if event.op == "phase" and event.barrier == title]
            for tick in (first, behind - 1):
                assert sum(end <= tick for end in ends) == int(text), (title, tick)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_bytes_in_flight_are_those_on_their_way_into_the_blocks_slots(name):
    simulation = ts.simulate(PIPELINES[name])
    for block in range(simulation.pipeline.blocks):
        own = f" of block {block}" if simulation.pipeline.blocks > 1 else ""
        flights = [
            event
            for event in simulation.events
            if event.op == "flight" and any(slot.endswith(own) for slot in event.slots)
        ]
        for _, first, _, text in spans(drawn(simulation, block=block)[0], "KiB in flight"):
            flying = sum(event.bytes for event in flights if event.start <= first < event.end)
            assert text == f"{flying / 1024:.3g}"


def test_copies_that_have_not_landed_are_drawn_up_to_the_mistake():
    simulation = ts.simulate(Pipeline.from_dict(RACE))
    assert simulation.mistake is not None
    grid, legend = drawn(simulation)
    flying = {name: first for name, first, _, text in spans(grid, "slot") if text == "▸"}
    issued = {event.slots[0]: event.start for event in simulation.events if event.op == "copy"}
    assert flying.items() <= issued.items()
    assert set(issued) - {"a[1]"} <= set(flying)  # that of the mistake has its mark instead
    assert "the mistake" in [entry.text for entry in legend.entries]


def test_the_title_says_which_ticks_are_drawn_and_every_wait_what_ended_it():
    simulation = ts.simulate(PIPELINES["a late epilogue"])
    ticks = max(event.end for event in simulation.events)
    assert f"64 of {ticks} nominal ticks" in drawn(simulation)[0].title
    waits = view.draw(simulation)["waits"]
    assert all(until for *_, until in waits.rows)
    assert [ticks for role, _, ticks, _ in waits.rows if role == "epilogue"] == ["from 3"]
    whole = ts.simulate(ts.plan_pipeline(A, stages=1, steps=1))
    assert drawn(whole)[0].title == f"Timeline ({max(event.end for event in whole.events)} nominal ticks)"


def test_the_legend_explains_what_is_drawn_and_nothing_else():
    cp_async = ts.plan((64, 64), "bf16", arch="sm_80").best
    grid, legend = drawn(ts.simulate(ts.plan_pipeline(cp_async, stages=3)))
    assert not any(text == "▸" for *_, text in spans(grid, "slot"))
    assert not any("in flight" in entry.text for entry in legend.entries)
    assert [row.labels[0] for row in grid.rows][-1] == "phase"
