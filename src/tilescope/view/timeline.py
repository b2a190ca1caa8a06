"""The timeline of a block: which ticks are drawn, its grid of lanes, its legend, and its longest waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from tilescope.pipeline.instances import Instance, instances_by_name
from tilescope.pipeline.simulation import Event, Simulation
from tilescope.sentence import counted
from tilescope.view.drawing import Part, Table
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.timeline_lanes import Instances, Lanes, Span, Ticks, lanes_of, legend_of

_SHOWN_TICKS = 64
_TIMELINE_PIXELS = 896  # of an SVG, for the ticks of a requested window
_SHOWN_WAITS = 12
_TICKS_PER_HEADER = 8


class BlockTimeline(NamedTuple):
    """What the timeline of a block shows."""

    events: list[Event]  # that run in its ticks, and the ends of all phases
    ticks: Ticks
    block: int
    instances: Instances
    subject: Instance | None  # of the mistake
    blocks: int  # of the pipeline
    is_window: bool  # whether these ticks were requested

    @classmethod
    def of(cls, simulation: Simulation, block: int | None, ticks: tuple[int, int] | None) -> BlockTimeline:
        """The timeline of a block: the requested one, or that of the mistake."""
        mistake = simulation.mistake
        instances = instances_by_name(simulation.pipeline)
        subject = None if mistake is None else instances.get(mistake.subject)
        if block is None:
            block = 0 if subject is None else subject.block
        events = _of_block(simulation.events, instances, block, at_end=mistake is not None)
        total = max((event.end for event in events), default=0)
        shown = _ticks(total, ticks, at_end=mistake is not None)
        return cls(
            events=_events_in(events, shown),
            ticks=shown,
            block=block,
            instances=instances,
            subject=subject,
            blocks=simulation.pipeline.blocks,
            is_window=ticks is not None,
        )

    def lanes(self) -> Lanes:
        """Roles, slots and barriers, each with what it does."""
        lanes = lanes_of(self.events, self.instances, self.block, self.ticks)
        return {
            lane: [_link_span(span, f"{number}.{span.start}") for span in spans if span.is_seen(self.ticks)]
            for number, (lane, spans) in enumerate(lanes.items())
        }

    def parts(self) -> dict[str, Part]:
        """The timeline, its legend and its longest waits."""
        drawn = counted(self.ticks.total, "nominal tick")
        if self.ticks.shown < self.ticks.total:
            drawn = _window_words(self.ticks, drawn)
        title = f"Timeline, block {self.block} ({drawn})" if self.blocks > 1 else f"Timeline ({drawn})"
        grid = _timeline(self, title)
        return {"timeline": grid, "legend": legend_of(self.events, grid), "waits": _waits(self.events, self.ticks)}


def _window_words(ticks: Ticks, all_ticks: str) -> str:
    """Which ticks are drawn, such as "the first 64 of 75 nominal ticks"."""
    if ticks.first == 0:
        return f"the first {ticks.shown} of {all_ticks}"
    if ticks.end == ticks.total:
        return f"the last {ticks.shown} of {all_ticks}"
    return f"{ticks.first} to {ticks.end - 1} of {all_ticks}"


def _ticks(total: int, asked: tuple[int, int] | None, *, at_end: bool) -> Ticks:
    """The ticks to draw: the requested ones, moved into the run; else the first, or the last of a mistake."""
    first, count = asked or (total if at_end else 0, _SHOWN_TICKS)
    first = max(0, min(first, total - count))
    return Ticks(first, min(first + count, total), total)


def _link_span(span: Span, name: str) -> Span:
    """The span with a separate link, after those that it shares."""
    return span._replace(cell=replace(span.cell, link=f"{span.cell.link} {name}".strip()))


def _of_block(events: Sequence[Event], instances: Instances, block: int, *, at_end: bool) -> list[Event]:
    """The events of a block: what its roles do, what flies into its slots, and the phases of its barriers.

    Roles of the block are called by their own names, and slots of other blocks are left out.
    """
    block_events = []
    under_way = _under_way(events) if at_end else ()
    for event in (*events, *under_way):
        role = instances[event.role]
        slots = tuple(slot for slot in event.slots if instances[slot].block == block)
        subject = instances.get(event.barrier, role) if event.op in ("flight", "phase") else role
        if subject.block == block or (slots and event.op == "flight"):
            name = role.name if role.block == block else event.role
            is_as_named = (name, slots) == (event.role, event.slots)  # as all are in a pipeline of one block
            block_events.append(event if is_as_named else replace(event, role=name, slots=slots))
    return block_events


def _events_in(events: list[Event], ticks: Ticks) -> list[Event]:
    """The events of these ticks, with the ends of all phases: they give the current phase, and the end of each wait."""
    return [event for event in events if event.op == "phase" or (event.end >= ticks.first and event.start < ticks.end)]


def _under_way(events: Sequence[Event]) -> Iterator[Event]:
    """The copies that have not landed when a run ends in a mistake, as flights up to its end."""
    landed = {(event.start, slot) for event in events if event.op == "flight" for slot in event.slots}
    last = max((event.end for event in events), default=0)
    for event in events:
        slots = tuple(slot for slot in event.slots if (event.start, slot) not in landed)
        if event.op == "copy" and event.barrier and slots:
            yield replace(event, op="flight", end=last, slots=slots)


def _timeline(timeline: BlockTimeline, title: str) -> Grid:
    """Roles, slots, barriers and bytes in flight over nominal ticks; the lane of a mistake's subject ends in a mark."""
    ticks = timeline.ticks
    subject = timeline.subject
    rows: list[Row] = []
    for lane, spans in timeline.lanes().items():
        cells = _cells(spans, ticks)
        if subject is not None and subject.name in lane.names:
            last = max((place for place, cell in enumerate(cells) if cell.text), default=0)
            cells[last] = replace(cells[last], colour="collision", mark="collision")
        starts_kind = bool(rows) and rows[-1].labels[0] != lane.kind
        rows.append(Row((lane.kind, ", ".join(lane.names)), tuple(cells), ruled=starts_kind))
    rows += _in_flight(timeline.events, ticks)
    heads = [_head(tick, ticks) for tick in range(ticks.first, ticks.end)]
    width = _TIMELINE_PIXELS / ticks.shown if timeline.is_window else None
    return Grid(title, (Tier.of("", heads),), tuple(rows), ("", ""), column_width=width)


def _head(tick: int, ticks: Ticks) -> str:
    """The number above a tick, where there is one: about eight in a timeline."""
    step = _TICKS_PER_HEADER * max(1, ticks.shown // _SHOWN_TICKS)
    return str(tick) if tick % step == 0 else ""


def _in_flight(events: list[Event], ticks: Ticks) -> list[Row]:
    """A row of the bytes that fly into slots at each tick; none if nothing does."""
    flights = [event for event in events if event.op == "flight" and event.slots]
    if not flights:
        return []
    sizes = [
        sum(event.bytes for event in flights if event.start <= tick < event.end)
        for tick in range(ticks.first, ticks.end)
    ]
    cells = []
    for size, run in groupby(sizes):
        span = len([*run])
        if size:
            cells.append(Cell(f"{size / 1024:.3g}", "unused", title=f"{size} bytes", span=span))
        else:
            cells.append(Cell(span=span))
    return [Row(("KiB in flight", ""), tuple(cells), ruled=True)]


def _cells(spans: list[Span], ticks: Ticks) -> list[Cell]:
    """Spans as cells side by side, with empty ones between; what overlaps begins where the one before ends."""
    cells: list[Cell] = []
    reached = ticks.first
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        first = max(span.start, reached)
        end = min(max(span.end, span.start + 1), ticks.end)
        if reached < first:
            cells.append(Cell(span=first - reached))
        if first < end:
            cells.append(replace(span.cell, span=end - first))
        reached = max(first, end)
    if reached < ticks.end:
        cells.append(Cell(span=ticks.end - reached))
    return cells


def _waits(events: list[Event], shown: Ticks) -> Table:
    """The longest waits, and what ended each."""
    ends = {(event.barrier, event.phase): event for event in events if event.op == "phase"}
    waits = [event for event in events if event.op in ("wait", "tail", "stuck") and event.end - event.start > 1]
    rows = []
    for wait in sorted(waits, key=lambda wait: (wait.op != "stuck", wait.start)):
        ended = ends.get((wait.barrier, wait.phase - 1))
        reason = "" if ended is None else f"{ended.role}: {ended.said}"
        if wait.op == "stuck":
            reason = "nothing: it never passes"
        ticks = f"{wait.start}-{wait.end}"
        if ended is not None and ended.start >= shown.end:  # behind what is drawn
            ticks = f"from {wait.start}"
        rows.append({"role": wait.role, "waits in": wait.said, "ticks": ticks, "until": reason})
    return Table.of(rows, "Waits", "llrl", most=_SHOWN_WAITS, noun="waits")
