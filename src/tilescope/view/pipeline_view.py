"""The drawing of pipelines: what barriers need, and a timeline with roles, slots and barriers as lanes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from tilescope.errors import counted
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.simulation import BarrierFacts, Event, Simulation
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.palette import Mark, Tint
from tilescope.view.parts import Entry, Legend, Paragraph, Part, Table

_SHOWN_TICKS = 64
_SHOWN_WAITS = 12
_TICKS_PER_HEADER = 8
_PARITY_COLOUR = (6, 7)
_LETTER = {
    "expect": "e", "copy": "c", "arrive": "a", "release": "r", "multiply": "m", "read": "l", "write": "s", "store": "t",
    "cp_arrive": "a", "commit": "k", "wait_group": "g", "fence": "f", "sync": "b", "cluster": "b", "bar_arrive": "b", "init": "i",
    "registers": "n", "wait": "w", "tail": "w",
}  # fmt: skip
_MEANING = {
    "w": "wait", "e": "expect", "c": "copy", "m": "multiply", "r": "release", "a": "arrive", "k": "commit", "g": "wait_group",
    "f": "fence", "b": "barrier of threads", "l": "read", "s": "write", "t": "store", "i": "init", "n": "registers",
}  # fmt: skip


class _Span(NamedTuple):
    start: int
    end: int
    cell: Cell


def draw_pipeline(pipeline: Pipeline) -> Drawing:
    """What a pipeline consists of: barriers, slots, and the steps of every role."""
    blocks = f", {counted(pipeline.blocks, 'block')}" if pipeline.blocks > 1 else ""
    parts: list[Part] = [
        Table(
            tuple((barrier.name, str(barrier.stages), str(barrier.count)) for barrier in pipeline.barriers),
            ("barrier", "stages", "init count"), align="lrr",
        ),
        Table(
            tuple((slot.name, str(slot.stages), str(slot.bytes), slot.space) for slot in pipeline.slots),
            ("slot", "stages", "bytes", "space"), align="lrrl",
        ),
    ]  # fmt: skip
    for role in pipeline.roles:
        many = f", {role.instances} instances" if role.instances > 1 else ""
        rows = tuple((text,) for text in _listed(role.steps, 0))
        parts.append(Table(rows, (f"{role.name}: {counted(role.threads, 'thread')}{many}",)))
    return Drawing(f"{pipeline.name}{blocks}", tuple(parts))


def _listed(steps: Iterable[Step | Loop], depth: int) -> Iterable[str]:
    for step in steps:
        indent = "\u00a0" * 2 * depth
        if isinstance(step, Loop):
            start = "" if step.start == 0 else f" from {step.start}"
            yield f"{indent}for {step.counter}{start}, {step.count} times:"
            yield from _listed(step.steps, depth + 1)
        else:
            target = ", ".join(step.target) if isinstance(step.target, tuple) else step.target
            said = ", ".join(f"{name} {value}" for name, value in step.arguments.items())
            when = "" if step.when is None else f" where {step.when}"
            yield f"{indent}{step.op} `{target}`" + (f", {said}" if said else "") + when


def draw_simulation(found: Simulation, *, block: int | None = None) -> Drawing:
    """The verdict, what every barrier needs, and the timeline of one block.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2)
    >>> draw_simulation(ts.simulate(pipeline)).title
    '128x64 bfloat16, 2 stages: proven'
    """
    chosen = _block(found) if block is None else block
    parts: list[Part] = [Paragraph(found.sentence)]
    if found.mistake is not None and found.mistake.way:
        parts.append(Table.numbered(found.mistake.way, "The way into it"))
    if found.barriers:
        seen = "need" if found.verdict == "proven" else "saw until then"
        parts.append(_barriers(found.barriers, found.pipeline.blocks, f"What the barriers {seen}"))
    events = [_without_block(event, chosen, found.pipeline.blocks) for event in found.events]
    shown = _window([each for each in events if each is not None], at_end=found.mistake is not None)
    if shown:
        timeline = _timeline(shown, found, chosen)
        parts += [timeline, _legend(shown, timeline), *_waits(shown)]
    if found.warnings:
        parts.append(Table(tuple((warning.subject, str(warning)) for warning in found.warnings), title="Worth a look"))
    if found.aliasing:
        parts.append(Table.numbered((f"{each}." for each in found.aliasing[:8]), "Aliasing"))
    return Drawing(f"{found.pipeline.name}: {found.verdict}", tuple(parts))


def _block(found: Simulation) -> int:
    """The block to draw: that of the mistake, or the first."""
    if found.mistake is not None:
        _, of, number = found.mistake.subject.rpartition(" of block ")
        if of and number.isdecimal():
            return int(number)
    return 0


def _without_block(event: Event, block: int, blocks: int) -> Event | None:
    """An event of the block with its names shortened, or None for another block's."""
    if blocks == 1:
        return event
    suffix = f" of block {block}"
    own = event.role.endswith(suffix) if event.op not in ("flight", "phase") else event.barrier.endswith(suffix)
    if not own and not any(slot.endswith(suffix) for slot in event.slots if event.op == "flight"):
        return None
    slots = tuple(slot.removesuffix(suffix) for slot in event.slots if slot.endswith(suffix))
    role, said, barrier = event.role.removesuffix(suffix), event.said.replace(suffix, ""), event.barrier
    return replace(event, role=role, said=said, barrier=barrier.removesuffix(suffix), slots=slots)


def _barriers(facts: tuple[BarrierFacts, ...], blocks: int, title: str) -> Table:
    rows = []
    for fact in facts:
        alike = len(set(fact.bytes)) == 1
        sizes = str(fact.bytes[0]) if alike else ", ".join(map(str, fact.bytes))
        arrivals = ", ".join(f"{role}: {count}" for role, count in fact.arrivals)
        parities = ", ".join(f"{role}: {parity}" for role, parity in fact.parities)
        rows.append((fact.name, str(fact.stages), str(fact.count), sizes, arrivals, parities))
    size = "bytes in a phase" + (" and block" if blocks > 1 else "")
    headings = ("barrier", "stages", "init", size, "who arrives", "first parity")
    return Table(tuple(rows), headings, title=title, align="lrrrll")


def _window(events: list[Event], *, at_end: bool) -> list[Event]:
    """Events of the first ticks, or of the last where the run ends in a mistake, their times from 0 on."""
    if not events:
        return []
    last = max(each.end for each in events)
    low = max(0, last - _SHOWN_TICKS) if at_end else 0
    return [
        replace(event, start=max(event.start, low) - low, end=min(event.end, low + _SHOWN_TICKS) - low)
        for event in events
        if event.end >= low and event.start < low + _SHOWN_TICKS
    ]


def _timeline(events: list[Event], found: Simulation, block: int) -> Grid:
    """Roles, slots, barriers and bytes in flight over nominal ticks; the lane of a mistake ends in a mark."""
    ticks = max(event.end for event in events)
    lanes: list[tuple[str, str, list[_Span]]] = [
        (
            "role",
            role,
            [_role_span(each) for each in events if each.role == role and each.op not in ("flight", "phase")],
        )
        for role in dict.fromkeys(each.role for each in events if each.op not in ("flight", "phase"))
    ]
    lanes += [("slot", names, spans) for names, spans in _slot_lanes(events)]
    lanes += [("phase", name, spans) for name, spans in _barrier_lanes(events, ticks)]
    subject = "" if found.mistake is None else found.mistake.subject.partition(" of block ")[0]
    rows: list[Row] = []
    for kind, names, spans in lanes:
        cells = _lane(spans, ticks)
        ruled = bool(rows) and rows[-1].labels[0] != kind
        rows.append(Row((kind, names), _marked(cells) if subject in names.split(", ") else cells, ruled))
    if any(each.op == "flight" for each in events):
        rows.append(Row(("KiB in flight", ""), _in_flight(events, ticks), ruled=True))
    heads = [str(tick) if tick % _TICKS_PER_HEADER == 0 else "" for tick in range(ticks)]
    where = f", block {block}" if found.pipeline.blocks > 1 else ""
    return Grid(f"Timeline{where} (nominal ticks)", (Tier.of("", heads),), tuple(rows), ("", ""))


def _marked(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """A lane with its last event marked."""
    last = max((place for place, cell in enumerate(cells) if cell.text), default=0)
    return *cells[:last], replace(cells[last], colour="collision", mark="collision"), *cells[last + 1 :]


def _stage(name: str) -> int:
    """The stage in a name such as full[2]; 0 where it has none."""
    inside = name.partition("[")[2].partition("]")[0]
    return int(inside) if inside.isdecimal() else 0


def _role_span(event: Event) -> _Span:
    name = event.barrier or (event.slots[0] if event.slots else "")
    stage = str(_stage(name)) if "[" in name else ""
    letter = _LETTER.get(event.op, "!")
    long = event.end - event.start > 1
    mark: Mark = "collision" if event.op == "stuck" else ""
    colour: Tint = _stage(name) if name else "unused"
    if event.op == "stuck":
        colour = "collision"
    elif event.op in ("wait", "tail") and long:
        colour = "gap"
    text = name if event.op in ("stuck", "wait", "tail") and event.end - event.start > 3 else f"{letter}{stage}"
    return _Span(event.start, max(event.end, event.start + 1), Cell(text, colour, mark, event.said))


def _slot_lanes(events: list[Event]) -> list[tuple[str, list[_Span]]]:
    """Each slot's fills and reads; slots with the same ones share a lane."""
    spans: dict[str, list[_Span]] = {}
    for event in events:
        for slot in event.slots:
            if event.op == "flight":
                cell = Cell("▸", _stage(slot), title=event.said)
                spans.setdefault(slot, []).append(_Span(event.start, max(event.end, event.start + 1), cell))
            elif event.op in ("multiply", "read", "store", "write"):
                end = _finished(events, event)
                cell = Cell(_LETTER[event.op], "fill", title=f"{event.role}: {event.said}")
                spans.setdefault(slot, []).append(_Span(event.start, max(end, event.start + 1), cell))
    lanes: dict[tuple[tuple[int, int, str], ...], list[str]] = {}
    for slot, found in sorted(spans.items(), key=lambda each: (_stage(each[0]), each[0])):
        lanes.setdefault(tuple((each.start, each.end, each.cell.text) for each in found), []).append(slot)
    return [(", ".join(names), spans[names[0]]) for names in lanes.values()]


def _finished(events: list[Event], begun: Event) -> int:
    """When an access that ends later than it begins is waited for."""
    if begun.op not in ("multiply", "store"):
        return begun.end
    waits = (event for event in events if event.role == begun.role and event.op == "wait_group")
    return next((wait.end for wait in waits if wait.start >= begun.end), begun.end)


def _barrier_lanes(events: list[Event], ticks: int) -> list[tuple[str, list[_Span]]]:
    """The phases of every barrier, each up to the tick in which it ends."""
    names = sorted(
        {event.barrier for event in events if event.barrier}, key=lambda name: (name.partition("[")[0], _stage(name))
    )
    lanes = []
    for name in names:
        ends = sorted((each.start, each.phase) for each in events if each.op == "phase" and each.barrier == name)
        running = ends[-1][1] + 1 if ends else next((each.phase for each in events if each.barrier == name), 0)
        spans, start = [], 0
        for end, phase, said in [*((*each, "") for each in ends), (ticks, running, ", runs on")]:
            cell = Cell(str(phase), _PARITY_COLOUR[phase % 2], title=f"{name}, phase {phase}{said}")
            spans += [_Span(start, end, cell)] if end > start else []
            start = max(end, start)
        lanes.append((name, spans))
    return lanes


def _lane(spans: list[_Span], ticks: int) -> tuple[Cell, ...]:
    """Spans as cells side by side, with empty ones between; what overlaps begins where the one before ends."""
    cells, reached = [], 0
    for span in sorted(spans, key=lambda each: each[:2]):
        start, end = max(span.start, reached), min(span.end, ticks)
        if end <= start:
            continue
        if start > reached:
            cells.append(Cell(span=start - reached))
        cells.append(replace(span.cell, span=end - start))
        reached = end
    if reached < ticks:
        cells.append(Cell(span=ticks - reached))
    return tuple(cells)


def _in_flight(events: list[Event], ticks: int) -> tuple[Cell, ...]:
    flights = [event for event in events if event.op == "flight"]
    sizes = (sum(flight.bytes for flight in flights if flight.start <= tick < flight.end) for tick in range(ticks))
    cells = []
    for size, same in groupby(sizes):
        span = len([*same])
        cells.append(Cell(f"{size / 1024:.3g}", "unused", "", f"{size} bytes", span) if size else Cell(span=span))
    return tuple(cells)


def _legend(events: list[Event], timeline: Grid) -> Legend:
    ops = {event.op for event in events}
    used = {_LETTER[op] for op in ops if op in _LETTER}
    letters = ", ".join(f"{letter} {said}" for letter, said in _MEANING.items() if letter in used)
    entries = [Entry(f"{letters}; the number is the stage", "unused", sample="c0")] if letters else []
    if any(each.op in ("wait", "tail") and each.end - each.start > 1 for each in events):
        entries.append(Entry("a wait", "gap", sample="full[0]"))
    if "flight" in ops:
        entries.append(Entry("bytes in flight into a slot", 0, sample="▸"))
    if ops & {"multiply", "store"}:
        entries.append(Entry("read, until it is waited for", "fill", sample="m"))
    if "stuck" in ops:
        entries.append(Entry("never passes", "collision", "collision", "full[0]"))
    if any(cell.mark and cell.text.isdecimal() for row in timeline.rows for cell in row.cells):
        entries.append(Entry("the mistake", "collision", "collision", "!"))
    return Legend(tuple(entries))


def _waits(events: list[Event]) -> list[Part]:
    """The longest waits, and what ended each."""
    ends = {(event.barrier, event.phase): event for event in events if event.op == "phase"}
    waits = [each for each in events if each.op in ("wait", "tail", "stuck") and each.end - each.start > 1]
    rows = []
    for wait in sorted(waits, key=lambda each: (each.op != "stuck", each.start))[:_SHOWN_WAITS]:
        ended = ends.get((wait.barrier, wait.phase - 1)) if wait.op != "stuck" else None
        reason = "nothing: it never passes" if wait.op == "stuck" else f"{ended.role}: {ended.said}" if ended else ""
        rows.append((wait.role, wait.said, f"{wait.start}-{wait.end}", reason))
    more = (f"… {len(waits) - _SHOWN_WAITS} more",) if len(waits) > _SHOWN_WAITS else ()
    headings = ("role", "waits in", "ticks", "until")
    return [Table(tuple(rows), headings, title="Waits", align="llrl", notes=more)] if rows else []
