"""The drawing of pipelines: what barriers need, and a timeline with roles, slots and barriers as lanes.

             0       8       16             role: an operation and its stage; slot: ▸ bytes in flight, then
role  tma    e0c0e1c1 full[0]                who reads them; phase: the number of a barrier's phase, in the
slot  a[0]     ───▸─── ──m──                 colour of its parity
phase full   ── 0 ─── ─── 1 ───
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from tilescope.errors import counted
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.simulation import Event, Simulation
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.palette import Tint
from tilescope.view.parts import Entry, Legend, Part, Table

_SHOWN_TICKS = 64
_SHOWN_WAITS = 12
_SHOWN_ALIASES = 8
_TICKS_PER_HEADER = 8
_PARITY_COLOUR = (6, 7)
_LETTERS = {  # of operations, and what they stand for
    "w": ("wait", "wait", "tail"),
    "e": ("expect", "expect"),
    "c": ("copy", "copy"),
    "m": ("multiply", "multiply"),
    "r": ("release", "release"),
    "a": ("arrive", "arrive", "cp_arrive"),
    "k": ("commit", "commit"),
    "g": ("wait_group", "wait_group"),
    "f": ("fence", "fence"),
    "b": ("barrier of threads", "sync", "cluster", "bar_arrive"),
    "l": ("read", "read"),
    "s": ("write", "write"),
    "t": ("store", "store"),
    "i": ("init", "init"),
    "n": ("registers", "registers"),
}
_LETTER = {operation: letter for letter, (_, *operations) in _LETTERS.items() for operation in operations}


class _Span(NamedTuple):
    """A cell of a lane, and the ticks that it covers."""

    start: int
    end: int
    cell: Cell

    @classmethod
    def of(cls, start: int, end: int, *cell: object) -> _Span:
        return cls(start, max(end, start + 1), Cell(*cell))  # type: ignore[arg-type]


Lane = tuple[str, str, list[_Span]]  # what it is of, its name, its spans


def draw_pipeline(pipeline: Pipeline) -> Drawing:
    """What a pipeline consists of: barriers, slots, and the steps of every role."""
    blocks = f", {counted(pipeline.blocks, 'block')}" if pipeline.blocks > 1 else ""
    barriers = [(barrier.name, barrier.stages, barrier.count) for barrier in pipeline.barriers]
    slots = [(slot.name, slot.stages, slot.bytes, slot.space) for slot in pipeline.slots]
    parts = [
        Table(barriers, ("barrier", "stages", "init count"), align="lrr"),
        Table(slots, ("slot", "stages", "bytes", "space"), align="lrrl"),
    ]
    for role in pipeline.roles:
        many = f", {role.instances} instances" if role.instances > 1 else ""
        heading = f"{role.name}: {counted(role.threads, 'thread')}{many}"
        parts.append(Table(([line] for line in _listed(role.steps, 0)), [heading]))
    return Drawing(f"{pipeline.name}{blocks}", parts)


def _listed(steps: Iterable[Step | Loop], depth: int) -> Iterable[str]:
    indent = "\u00a0" * 2 * depth
    for step in steps:
        if isinstance(step, Loop):
            start = "" if step.start == 0 else f" from {step.start}"
            yield f"{indent}for {step.counter}{start}, {step.count} times:"
            yield from _listed(step.steps, depth + 1)
        else:
            target = ", ".join(step.target) if isinstance(step.target, tuple) else step.target
            said = "".join(f", {name} {value}" for name, value in step.arguments.items())
            yield f"{indent}{step.op} `{target}`{said}" + ("" if step.when is None else f" where {step.when}")


def draw_simulation(simulation: Simulation, *, block: int | None = None) -> Drawing:
    """The verdict, what every barrier needs, and the timeline of one block.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2)
    >>> draw_simulation(ts.simulate(pipeline)).title
    '128x64 bfloat16, 2 stages: proven'
    """
    mistake, blocks = simulation.mistake, simulation.pipeline.blocks
    subject, _, of_block = ("" if mistake is None else mistake.subject).partition(" of block ")
    chosen = int(of_block or 0) if block is None else block  # that of the mistake, or the first
    events = _window(_of_block(simulation.events, chosen, blocks), at_end=mistake is not None)
    timeline: list[Part] = []
    if events:
        where = f", block {chosen}" if blocks > 1 else ""
        grid = _timeline(events, f"Timeline{where} (nominal ticks)", subject)
        timeline = [grid, _legend(events, grid), _waits(events)]
    parts = [
        simulation.sentence,
        Table.numbered(() if mistake is None else mistake.way, "The way into it"),
        _barriers(simulation),
        *timeline,
        Table(((warning.subject, warning) for warning in simulation.warnings), title="Worth a look"),
        Table.numbered((f"{alias}." for alias in simulation.aliasing[:_SHOWN_ALIASES]), "Aliasing"),
    ]
    return Drawing(f"{simulation.pipeline.name}: {simulation.verdict}", parts)


def _of_block(events: Iterable[Event], block: int, blocks: int) -> list[Event]:
    """The events of a block, their names without it."""
    if blocks == 1:
        return [*events]
    suffix, own = f" of block {block}", []
    for event in events:
        named = event.barrier if event.op in ("flight", "phase") else event.role
        slots = tuple(slot.removesuffix(suffix) for slot in event.slots if slot.endswith(suffix))
        if named.endswith(suffix) or (slots and event.op == "flight"):
            role, barrier = event.role.removesuffix(suffix), event.barrier.removesuffix(suffix)
            own.append(replace(event, role=role, barrier=barrier, slots=slots, said=event.said.replace(suffix, "")))
    return own


def _barriers(simulation: Simulation) -> Table:
    rows = []
    for fact in simulation.barriers:
        sizes = ", ".join(map(str, fact.bytes[:1] if len(set(fact.bytes)) == 1 else fact.bytes))
        arrivals, parities = (
            ", ".join(f"{role}: {number}" for role, number in numbers) for numbers in (fact.arrivals, fact.parities)
        )
        rows.append((fact.name, fact.stages, fact.count, sizes, arrivals, parities))
    size = "bytes in a phase" + (" and block" if simulation.pipeline.blocks > 1 else "")
    seen = "need" if simulation.verdict == "proven" else "saw until then"
    headings = ("barrier", "stages", "init", size, "who arrives", "first parity")
    return Table(rows, headings, f"What the barriers {seen}", "lrrrll")


def _window(events: list[Event], *, at_end: bool) -> list[Event]:
    """Events of the first ticks, or of the last if the run ends in a mistake, their times from 0 on."""
    last = max((event.end for event in events), default=0)
    low = max(0, last - _SHOWN_TICKS) if at_end else 0
    return [
        replace(event, start=max(event.start, low) - low, end=min(event.end, low + _SHOWN_TICKS) - low)
        for event in events
        if event.end >= low and event.start < low + _SHOWN_TICKS
    ]


def _timeline(events: list[Event], title: str, subject: str) -> Grid:
    """Roles, slots, barriers and bytes in flight over nominal ticks; the lane of a mistake's subject ends in a mark."""
    ticks = max(event.end for event in events)
    roles: dict[str, list[_Span]] = {}
    for event in events:
        if event.op not in ("flight", "phase"):
            roles.setdefault(event.role, []).append(_role_span(event))
    lanes: list[Lane] = [("role", role, spans) for role, spans in roles.items()]
    lanes += [*_slot_lanes(events), *_barrier_lanes(events, ticks)]
    flights = [event for event in events if event.op == "flight"]
    if flights:
        sizes = [sum(event.bytes for event in flights if event.start <= tick < event.end) for tick in range(ticks)]
        lanes.append(("KiB in flight", "", [*_runs_of_bytes(sizes)]))
    rows: list[Row] = []
    for kind, name, spans in lanes:
        cells = _lane(spans, ticks)
        if subject and subject in name.split(", "):
            last = max((place for place, cell in enumerate(cells) if cell.text), default=0)
            cells[last] = replace(cells[last], colour="collision", mark="collision")
        rows.append(Row((kind, name), tuple(cells), ruled=bool(rows) and rows[-1].labels[0] != kind))
    heads = [str(tick) if tick % _TICKS_PER_HEADER == 0 else "" for tick in range(ticks)]
    return Grid(title, (Tier.of("", heads),), tuple(rows), ("", ""))


def _stage(name: str) -> int:
    """The stage in a name such as full[2]; 0 if it has none."""
    inside = name.partition("[")[2].partition("]")[0]
    return int(inside) if inside.isdecimal() else 0


def _role_span(event: Event) -> _Span:
    name = event.barrier or (event.slots[0] if event.slots else "")
    ticks, waits = event.end - event.start, event.op in ("wait", "tail", "stuck")
    stage = str(_stage(name)) if "[" in name else ""
    text = name if waits and ticks > 3 else f"{_LETTER.get(event.op, '!')}{stage}"
    if event.op == "stuck":
        return _Span.of(event.start, event.end, text, "collision", "collision", event.said)
    colour: Tint = "gap" if waits and ticks > 1 else _stage(name) if name else "unused"
    return _Span.of(event.start, event.end, text, colour, "", event.said)


def _slot_lanes(events: list[Event]) -> list[Lane]:
    """The fills and reads of slots; slots with the same ones share a lane."""
    spans: dict[str, list[_Span]] = {}
    for event in events:
        for slot in event.slots:
            if event.op == "flight":
                span = _Span.of(event.start, event.end, "▸", _stage(slot), "", event.said)
                spans.setdefault(slot, []).append(span)
            elif event.op in ("multiply", "read", "store", "write"):
                title = f"{event.role}: {event.said}"
                span = _Span.of(event.start, _finished(events, event), _LETTER[event.op], "fill", "", title)
                spans.setdefault(slot, []).append(span)
    lanes: dict[tuple[tuple[int, int, str], ...], list[str]] = {}
    for slot in sorted(spans, key=lambda slot: (_stage(slot), slot)):
        lanes.setdefault(tuple((span.start, span.end, span.cell.text) for span in spans[slot]), []).append(slot)
    return [("slot", ", ".join(names), spans[names[0]]) for names in lanes.values()]


def _finished(events: list[Event], begun: Event) -> int:
    """When an access that ends later than it begins is waited for."""
    if begun.op not in ("multiply", "store"):
        return begun.end
    waits = (event for event in events if event.role == begun.role and event.op == "wait_group")
    return next((wait.end for wait in waits if wait.start >= begun.end), begun.end)


def _barrier_lanes(events: list[Event], ticks: int) -> list[Lane]:
    """The phases of every barrier, each up to the tick in which it ends."""
    phases: dict[str, list[tuple[int, int]]] = {}
    running: dict[str, int] = {}
    for event in events:
        if event.barrier:
            running.setdefault(event.barrier, event.phase)
            phases.setdefault(event.barrier, [])
            if event.op == "phase":
                phases[event.barrier].append((event.start, event.phase))
    lanes: list[Lane] = []
    for name in sorted(phases, key=lambda name: (name.partition("[")[0], _stage(name))):
        ends = sorted(phases[name])
        last = ends[-1][1] + 1 if ends else running[name]
        spans, start = [], 0
        for end, phase in [*ends, (ticks, last)]:
            runs_on = ", runs on" if phase == last else ""
            if end > start:
                title = f"{name}, phase {phase}{runs_on}"
                spans.append(_Span.of(start, end, str(phase), _PARITY_COLOUR[phase % 2], "", title))
                start = end
        lanes.append(("phase", name, spans))
    return lanes


def _runs_of_bytes(sizes: list[int]) -> Iterable[_Span]:
    """Bytes in flight, a span for each run of ticks with equally many."""
    start = 0
    for size, same in groupby(sizes):
        end = start + len([*same])
        if size:
            yield _Span.of(start, end, f"{size / 1024:.3g}", "unused", "", f"{size} bytes")
        start = end


def _lane(spans: list[_Span], ticks: int) -> list[Cell]:
    """Spans as cells side by side, with empty ones between; what overlaps begins where the one before ends."""
    cells, reached = [], 0
    for span in sorted(spans, key=lambda span: span[:2]):
        start, end = max(span.start, reached), min(span.end, ticks)
        if end > start:
            cells += [Cell(span=start - reached)] if start > reached else []
            cells.append(replace(span.cell, span=end - start))
            reached = end
    return [*cells, Cell(span=ticks - reached)] if reached < ticks else cells


def _legend(events: list[Event], timeline: Grid) -> Legend:
    operations = {event.op for event in events}
    letters = ", ".join(f"{letter} {said}" for letter, (said, *named) in _LETTERS.items() if operations & {*named})
    waits = any(event.op in ("wait", "tail") and event.end - event.start > 1 for event in events)
    mistake = any(cell.mark and cell.text.isdecimal() for row in timeline.rows for cell in row.cells)
    entries = {
        Entry(f"{letters}; the number is the stage", "unused", sample="c0"): letters,
        Entry("a wait", "gap", sample="full[0]"): waits,
        Entry("bytes in flight into a slot", 0, sample="▸"): "flight" in operations,
        Entry("read, until it is waited for", "fill", sample="m"): operations & {"multiply", "store"},
        Entry("never passes", "collision", "collision", "full[0]"): "stuck" in operations,
        Entry("the mistake", "collision", "collision", "!"): mistake,
    }
    return Legend(tuple(entry for entry, is_drawn in entries.items() if is_drawn))


def _waits(events: list[Event]) -> Table:
    """The longest waits, and what ended each."""
    ends = {(event.barrier, event.phase): event for event in events if event.op == "phase"}
    waits = [event for event in events if event.op in ("wait", "tail", "stuck") and event.end - event.start > 1]
    rows = []
    for wait in sorted(waits, key=lambda wait: (wait.op != "stuck", wait.start)):
        ended = ends.get((wait.barrier, wait.phase - 1))
        reason = "nothing: it never passes" if wait.op == "stuck" else f"{ended.role}: {ended.said}" if ended else ""
        rows.append((wait.role, wait.said, f"{wait.start}-{wait.end}", reason))
    headings = ("role", "waits in", "ticks", "until")
    return Table(rows, headings, "Waits", "llrl", most=_SHOWN_WAITS, noun="waits")
