"""The drawing of pipelines: what barriers need, and a timeline with roles, slots and barriers as lanes.

             0       8       16             role: an operation and its stage; slot: ▸ bytes in flight, then
role  tma    e0c0e1c1 full[0]                who reads them; phase: the number of a barrier's phase, in the
slot  a[0]     ───▸─── ──m──                 colour of its parity
phase full   ── 0 ─── ─── 1 ───
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.instances import Instance, instances_by_name
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.simulation import Event, Simulation
from tilescope.sentence import counted
from tilescope.view.drawing import Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.palette import Tint
from tilescope.view.step import Step as WalkStep

_SHOWN_TICKS = 64
_TIMELINE_PIXELS = 896  # of an SVG, for the ticks of a window that somebody asked for
_SHOWN_WAITS = 12
_SHOWN_ALIASES = 8
_ROLES_TOLD = 3  # with their numbers, where all have the same
_TICKS_PER_HEADER = 8
_PARITY_COLOUR = (6, 7)
_LETTER = {  # of operations
    "wait": "w",
    "tail": "w",
    "expect": "e",
    "copy": "c",
    "multiply": "m",
    "release": "r",
    "arrive": "a",
    "cp_arrive": "a",
    "commit": "k",
    "wait_group": "g",
    "fence": "f",
    "sync": "b",
    "cluster": "b",
    "bar_arrive": "b",
    "read": "l",
    "write": "s",
    "store": "t",
    "init": "i",
    "registers": "n",
    "poll": "p",
    "griddepcontrol": "p",
    "signal": "u",
}
_MEANING = {  # of letters that stand for more than one operation
    "w": "wait",
    "a": "arrive",
    "b": "barrier of threads",
    "p": "poll, or wait for the grid before",
}
_USES_SLOTS = ("multiply", "store", "read", "write")

Instances = Mapping[str, Instance]


class Span(NamedTuple):
    """What a lane shows from one tick to another."""

    start: int
    end: int  # behind the last
    cell: Cell


class Ticks(NamedTuple):
    """The ticks that a timeline shows, of all that the run of a block takes."""

    first: int
    end: int  # behind the last
    total: int

    @property
    def shown(self) -> int:
        """How many there are from the first to the end."""
        return self.end - self.first


class Lane(NamedTuple):
    """A row of the timeline: of what it is ("role", "slot", "phase"), and the names that share it."""

    kind: str
    names: tuple[str, ...]


Lanes = dict[Lane, list[Span]]


def draw_pipeline(pipeline: Pipeline) -> Drawing:
    """What a pipeline consists of: barriers, slots, and the steps of every role."""
    barriers = [{"barrier": row.name, "stages": row.stages, "init count": row.count} for row in pipeline.barriers]
    slots = [{"slot": row.name, "stages": row.stages, "bytes": row.bytes, "space": row.space} for row in pipeline.slots]
    flags = [{"flag in global memory": row.name, "stages": row.stages} for row in pipeline.flags]
    parts = {
        "barriers": Table.of(barriers, align="lrr"),
        "slots": Table.of(slots, align="lrrl"),
        "flags": Table.of(flags, align="lr"),
    }
    for role in pipeline.roles:
        many = f", {role.instances} instances" if role.instances > 1 else ""
        heading = f"{role.name}: {counted(role.threads, 'thread')}{many}"
        parts[f"role {role.name}"] = Table.of({heading: line} for line in _listed(role.steps, 0))
    blocks = f", {counted(pipeline.blocks, 'block')}" if pipeline.blocks > 1 else ""
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
            words = [f"{indent}{step.op} `{target}`", *(f"{name} {value}" for name, value in step.arguments.items())]
            condition = "" if step.when is None else f" where {step.when}"
            yield ", ".join(words) + condition


def draw_simulation(
    simulation: Simulation, *, block: int | None = None, ticks: tuple[int, int] | None = None
) -> Drawing:
    """The verdict, what every barrier needs, and the timeline of one block.

    `ticks` are the first tick that is drawn and how many; None draws the first, or the last before a mistake.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2)
    >>> draw_simulation(ts.simulate(pipeline)).title
    '128x64 bfloat16, 2 stages: proven'
    """
    mistake = simulation.mistake
    timeline = _BlockTimeline.of(simulation, block, ticks)
    return Drawing(
        f"{simulation.pipeline.name}: {simulation.verdict}",
        {
            "sentence": simulation.sentence,
            "limits": " ".join(simulation.limits) if mistake is None else "",
            "way": Table.numbered(() if mistake is None else mistake.way, "The way into it"),
            "barriers": _barriers(simulation),
            **(timeline.parts() if timeline.events else {}),
            "warnings": Table(((warning.subject, warning) for warning in simulation.warnings), title="Worth a look"),
            "aliasing": Table.numbered((f"{alias}." for alias in simulation.aliasing[:_SHOWN_ALIASES]), "Aliasing"),
        },
    )


def shown_ticks(simulation: Simulation, *, block: int | None = None, ticks: tuple[int, int] | None = None) -> Ticks:
    """The ticks that the drawing with these options shows.

    >>> import tilescope as ts
    >>> run = ts.simulate(ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2))
    >>> shown_ticks(run), shown_ticks(run, ticks=(70, 32))
    (Ticks(first=0, end=64, total=75), Ticks(first=43, end=75, total=75))
    """
    return _BlockTimeline.of(simulation, block, ticks).ticks


def walk_simulation(
    simulation: Simulation, *, block: int | None = None, ticks: tuple[int, int] | None = None
) -> Iterator[WalkStep]:
    """One tick after the other: what every role does in it, and what flies.

    >>> import tilescope as ts
    >>> run = ts.simulate(ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2))
    >>> [*walk_simulation(run)][2].sentence
    'tick 2: producer: sync 0; consumer: sync 0'
    """
    timeline = _BlockTimeline.of(simulation, block, ticks)
    if not timeline.events:
        return
    lanes = timeline.lanes()
    for tick in range(timeline.ticks.first, timeline.ticks.end):
        running = {lane: span for lane, spans in lanes.items() for span in spans if _runs_at(span, tick)}
        said = [f"{lane.names[0]}: {span.cell.title}" for lane, span in running.items() if lane.kind == "role"]
        links = [span.cell.link.split()[-1] for span in running.values()]
        yield WalkStep(" ".join(links), f"tick {tick}: {'; '.join(said) or 'no role runs'}")


class _BlockTimeline(NamedTuple):
    """What the timeline of a block shows."""

    events: list[Event]  # that run in its ticks, and the ends of all phases
    ticks: Ticks
    block: int
    instances: Instances
    subject: Instance | None  # of the mistake
    blocks: int  # of the pipeline
    is_window: bool  # whether somebody asked for these ticks

    @classmethod
    def of(cls, simulation: Simulation, block: int | None, ticks: tuple[int, int] | None) -> _BlockTimeline:
        """The timeline of a block; of that of the mistake, if nobody asks for one."""
        mistake = simulation.mistake
        instances = instances_by_name(simulation.pipeline)
        subject = None if mistake is None else instances.get(mistake.subject)
        if block is None:
            block = 0 if subject is None else subject.block
        events = _of_block(simulation.events, instances, block, at_end=mistake is not None)
        total = max((event.end for event in events), default=0)
        shown = _ticks(total, ticks, at_end=mistake is not None)
        return cls(
            events=_shown(events, shown),
            ticks=shown,
            block=block,
            instances=instances,
            subject=subject,
            blocks=simulation.pipeline.blocks,
            is_window=ticks is not None,
        )

    def lanes(self) -> Lanes:
        """Roles, slots and barriers, each with what it does."""
        arrivals = _arrivals(self.events)
        lanes: Lanes = {}
        for event in self.events:
            if event.op not in ("flight", "phase"):
                cell = _role_cell(event, self.instances, arrivals)
                lanes.setdefault(Lane("role", (event.role,)), []).append(Span(event.start, event.end, cell))
        lanes |= _slot_lanes(self.events, self.instances, arrivals)
        lanes |= _barrier_lanes(self.events, self.instances, self.block, self.ticks)
        return {
            lane: [_named(span, f"{number}.{span.start}") for span in spans if _is_seen(span, self.ticks)]
            for number, (lane, spans) in enumerate(lanes.items())
        }

    def parts(self) -> dict[str, Part]:
        """The timeline, its legend and its longest waits."""
        drawn = counted(self.ticks.total, "nominal tick")
        if self.ticks.shown < self.ticks.total:
            drawn = _window_words(self.ticks, drawn)
        title = f"Timeline, block {self.block} ({drawn})" if self.blocks > 1 else f"Timeline ({drawn})"
        grid = _timeline(self, title)
        return {"timeline": grid, "legend": _legend(self.events, grid), "waits": _waits(self.events, self.ticks)}


def _window_words(ticks: Ticks, all_ticks: str) -> str:
    """Which ticks are drawn, such as "the first 64 of 75 nominal ticks"."""
    if ticks.first == 0:
        return f"the first {ticks.shown} of {all_ticks}"
    if ticks.end == ticks.total:
        return f"the last {ticks.shown} of {all_ticks}"
    return f"{ticks.first} to {ticks.end - 1} of {all_ticks}"


def _ticks(total: int, asked: tuple[int, int] | None, *, at_end: bool) -> Ticks:
    """The ticks to draw: those that were asked for, moved into the run; else the first, or the last of a mistake."""
    first, count = asked or (total if at_end else 0, _SHOWN_TICKS)
    first = max(0, min(first, total - count))
    return Ticks(first, min(first + count, total), total)


def _is_seen(span: Span, ticks: Ticks) -> bool:
    return span.start < ticks.end and max(span.end, span.start + 1) > ticks.first


def _runs_at(span: Span, tick: int) -> bool:
    return span.start <= tick < max(span.end, span.start + 1)


def _named(span: Span, name: str) -> Span:
    """The span with a link of its own, behind those that it shares."""
    return span._replace(cell=replace(span.cell, link=f"{span.cell.link} {name}".strip()))


def _of_block(events: Sequence[Event], instances: Instances, block: int, *, at_end: bool) -> list[Event]:
    """The events of a block: what its roles do, what flies into its slots, and the phases of its barriers.

    Roles of the block are called by their own names, and slots of other blocks are left out.
    """
    own = []
    for event in (*events, *(_under_way(events) if at_end else ())):
        role = instances[event.role]
        slots = tuple(slot for slot in event.slots if instances[slot].block == block)
        subject = instances.get(event.barrier, role) if event.op in ("flight", "phase") else role
        if subject.block == block or (slots and event.op == "flight"):
            name = role.name if role.block == block else event.role
            is_as_named = (name, slots) == (event.role, event.slots)  # as all are in a pipeline of one block
            own.append(event if is_as_named else replace(event, role=name, slots=slots))
    return own


def _shown(events: list[Event], ticks: Ticks) -> list[Event]:
    """The events of these ticks; the ends of all phases are kept: they say which phase runs, and what ends a wait."""
    return [event for event in events if event.op == "phase" or (event.end >= ticks.first and event.start < ticks.end)]


class Arrival(NamedTuple):
    """What ends a phase of a barrier."""

    role: str
    said: str


Arrivals = Mapping[tuple[str, int], Arrival]  # by barrier and phase


def _arrivals(events: Iterable[Event]) -> Arrivals:
    """The arrival that ends each phase."""
    return {(event.barrier, event.phase): Arrival(event.role, event.said) for event in events if event.op == "phase"}


def _phase_link(barrier: str, phase: int) -> str:
    """The word that links a wait, the arrival that ends it, and the phase that ends."""
    return f"{barrier}/{phase}".replace(" ", "-")


def _ended_phase(event: Event, arrivals: Arrivals) -> str:
    """The link of the phase for whose end an event waits, or that it ends; empty for other events."""
    if event.op in ("wait", "tail"):
        is_ended = (event.barrier, event.phase - 1) in arrivals
        return _phase_link(event.barrier, event.phase - 1) if is_ended else ""
    ends = arrivals.get((event.barrier, event.phase)) == Arrival(event.role, event.said)
    return _phase_link(event.barrier, event.phase) if ends else ""


def _under_way(events: Sequence[Event]) -> Iterator[Event]:
    """The copies that have not landed when a run ends in a mistake, as flights up to its end."""
    landed = {(event.start, slot) for event in events if event.op == "flight" for slot in event.slots}
    last = max((event.end for event in events), default=0)
    for event in events:
        slots = tuple(slot for slot in event.slots if (event.start, slot) not in landed)
        if event.op == "copy" and event.barrier and slots:
            yield replace(event, op="flight", end=last, slots=slots)


def _barriers(simulation: Simulation) -> Table:
    size = "bytes in a phase and block" if simulation.pipeline.blocks > 1 else "bytes in a phase"
    seen = "need" if simulation.verdict == "proven" else "saw until then"
    records = [
        {
            "barrier": fact.name,
            "stages": fact.stages,
            "init": fact.count,
            size: ", ".join(map(str, fact.bytes[:1] if len(set(fact.bytes)) == 1 else fact.bytes)),
            "who arrives": _by_role(fact.arrivals),
            "first parity": _by_role(fact.parities),
        }
        for fact in simulation.barriers
    ]
    return Table.of(records, f"What the barriers {seen}", "lrrrll")


def _by_role(numbers: Sequence[tuple[str, int]]) -> str:
    """A number for each role; many that are alike are told once.

    >>> _by_role([("producer", 1), ("consumer", 0)]), _by_role([(f"warp {warp}", 0) for warp in range(8)])
    ('producer: 1, consumer: 0', 'each of 8 roles: 0')
    """
    if len(numbers) > _ROLES_TOLD and len({number for _, number in numbers}) == 1:
        return f"each of {len(numbers)} roles: {numbers[0][1]}"
    return ", ".join(f"{role}: {number}" for role, number in numbers)


def _timeline(timeline: _BlockTimeline, title: str) -> Grid:
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


def _role_cell(event: Event, instances: Instances, arrivals: Arrivals) -> Cell:
    """What a role does: its letter and the stage it touches, or the barrier for which it waits long."""
    touched = next((instances[name] for name in (event.barrier, *event.slots) if name in instances), None)
    ticks = event.end - event.start
    waits = event.op in ("wait", "tail", "stuck")
    text = _LETTER.get(event.op, "!")
    if waits and ticks > 3:
        text = "" if touched is None else touched.name
    elif touched is not None and touched.stage is not None:
        text += str(touched.stage)
    if event.op == "stuck":
        return Cell(text, "collision", "collision", event.said)
    colour: Tint = "unused"
    if waits and ticks > 1:
        colour = "gap"
    elif touched is not None:
        colour = touched.stage or 0
    return Cell(text, colour, title=_role_words(event, arrivals), link=_ended_phase(event, arrivals))


def _role_words(event: Event, arrivals: Arrivals) -> str:
    """What a role does; of a wait, what ends it."""
    ended = arrivals.get((event.barrier, event.phase - 1)) if event.op in ("wait", "tail") else None
    return event.said if ended is None else f"{event.said}, until {ended.role}: {ended.said}"


def _slot_lanes(events: list[Event], instances: Instances, arrivals: Arrivals) -> Lanes:
    """The fills and reads of slots; slots with the same ones share a lane."""
    spans: dict[Instance, list[Span]] = {}
    for event in events:
        if event.op != "flight" and event.op not in _USES_SLOTS:
            continue
        end = _end_of_use(event, events)
        for name in event.slots:
            slot = instances[name]
            if event.op == "flight":
                cell = Cell("▸", slot.stage or 0, title=event.said, link=_ended_phase(event, arrivals))
            else:
                cell = Cell(_LETTER[event.op], "fill", title=f"{event.role}: {event.said}")
            spans.setdefault(slot, []).append(Span(event.start, end, cell))
    sharing: dict[tuple[object, ...], list[Instance]] = {}  # slots by what their lanes look like
    for slot in sorted(spans, key=_slot_order):
        looks = tuple((span.start, span.end, span.cell.text) for span in spans[slot])
        sharing.setdefault(looks, []).append(slot)
    return {Lane("slot", tuple(slot.name for slot in slots)): spans[slots[0]] for slots in sharing.values()}


def _slot_order(slot: Instance) -> tuple[int, int, str]:
    """By stage, then by name; addresses in names are written without zeros before them, so a longer one is higher."""
    return slot.stage or 0, len(slot.name), slot.name


def _end_of_use(event: Event, events: list[Event]) -> int:
    """When an event no longer uses its slots: a multiplication or a store ends when it is waited for."""
    if event.op not in ("multiply", "store"):
        return event.end
    waits = (wait for wait in events if wait.op == "wait_group" and wait.role == event.role)
    return next((wait.end for wait in waits if wait.start >= event.end), event.end)


def _barrier_lanes(events: list[Event], instances: Instances, block: int, ticks: Ticks) -> Lanes:
    """The phases of every barrier of the block that is used, each up to the tick in which it ends."""
    used = {event.barrier for event in events if event.op != "phase" or ticks.first < event.start < ticks.end}
    own = [name for name in used if name in instances and instances[name].block == block]
    lanes: Lanes = {}
    for name in sorted(own, key=lambda name: (instances[name].row_name, instances[name].stage or 0)):
        barrier = instances[name]
        ends = sorted((event.start, event.phase) for event in events if event.op == "phase" and event.barrier == name)
        running = ends[-1][1] + 1 if ends else 0
        spans = lanes.setdefault(Lane("phase", (barrier.name,)), [])
        start = 0
        for end, phase in [*ends, (ticks.total, running)]:
            title = f"{barrier.name}, phase {phase}"
            if phase == running:
                title += ", runs on"
            if end > start:
                cell = Cell(str(phase), _PARITY_COLOUR[phase % 2], title=title, link=_phase_link(name, phase))
                spans.append(Span(start, end, cell))
            start = max(start, end)
    return lanes


def _legend(events: list[Event], timeline: Grid) -> Legend:
    operations = {event.op for event in events}
    letters = dict.fromkeys(letter for operation, letter in _LETTER.items() if operation in operations)
    meanings = {letter: operation for operation, letter in _LETTER.items()} | _MEANING
    entries = []
    if letters:
        said = ", ".join(f"{letter} {meanings[letter]}" for letter in letters)
        entries.append(Entry(f"{said}; the number is the stage", "unused", sample="c0"))
    if any(event.op in ("wait", "tail") and event.end - event.start > 1 for event in events):
        entries.append(Entry("a wait", "gap", sample="full[0]"))
    if any(event.op == "flight" and event.slots for event in events):
        entries.append(Entry("bytes in flight into a slot", 0, sample="▸"))
    users = [_LETTER[operation] for operation in _USES_SLOTS if operation in operations]
    if users:
        entries.append(Entry("the operation that uses a slot, until it is waited for", "fill", sample=users[0]))
    phases = {cell.colour for row in timeline.rows if row.labels[0] == "phase" for cell in row.cells if cell.text}
    for parity, colour in enumerate(_PARITY_COLOUR):
        if colour in phases:
            entries.append(Entry(f"a phase of a barrier by its number, parity {parity}", colour, sample=str(parity)))
    is_stuck = "stuck" in operations
    if is_stuck:
        entries.append(Entry("never passes", "collision", "collision", "full[0]"))
    rows = [row for row in timeline.rows if row.labels[0] != "role" or not is_stuck]
    mistakes = [cell.text for row in rows for cell in row.cells if cell.mark]
    if mistakes:
        entries.append(Entry("the mistake", "collision", "collision", mistakes[0]))
    return Legend(tuple(entries))


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


DRAWINGS = {Pipeline: draw_pipeline, Simulation: draw_simulation}
WALKS = {Simulation: walk_simulation}
