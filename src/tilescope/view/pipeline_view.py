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

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.instances import Instance, instances_by_name
from tilescope.pipeline.simulation import Event, Simulation
from tilescope.sentence import counted
from tilescope.view.drawing import Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import Cell, Grid, Row, Tier, holding
from tilescope.view.palette import Tint

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
    "p": ("poll, or wait for the grid before", "poll", "griddepcontrol"),
    "u": ("signal", "signal"),
}
_LETTER = {operation: letter for letter, (_, *operations) in _LETTERS.items() for operation in operations}

Instances = Mapping[str, Instance]

Span = tuple[int, int, Cell]  # the first tick, the one behind the last, and what they show
Lanes = dict[tuple[str, tuple[str, ...]], list[Span]]  # by kind and names


def draw_pipeline(pipeline: Pipeline) -> Drawing:
    """What a pipeline consists of: barriers, slots, and the steps of every role."""
    barriers = [{"barrier": row.name, "stages": row.stages, "init count": row.count} for row in pipeline.barriers]
    slots = [{"slot": row.name, "stages": row.stages, "bytes": row.bytes, "space": row.space} for row in pipeline.slots]
    flags = [{"flag in global memory": row.name, "stages": row.stages} for row in pipeline.flags]
    parts = [Table.of(barriers, align="lrr"), Table.of(slots, align="lrrl"), Table.of(flags, align="lr")]
    for role in pipeline.roles:
        many = f", {role.instances} instances" if role.instances > 1 else ""
        heading = f"{role.name}: {counted(role.threads, 'thread')}{many}"
        parts.append(Table.of({heading: line} for line in _listed(role.steps, 0)))
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
    instances = instances_by_name(simulation.pipeline)
    subject = None if mistake is None else instances.get(mistake.subject)
    if block is None:
        block = 0 if subject is None else subject.block
    events, ticks = _shown(simulation.events, instances, block, at_end=mistake is not None)
    timeline: list[Part] = []
    if events:
        part = f"{'the first' if mistake is None else 'the last'} {_SHOWN_TICKS} of " if ticks > _SHOWN_TICKS else ""
        drawn = f"{part}{counted(ticks, 'nominal tick')}"
        title = f"Timeline{f', block {block}' if blocks > 1 else ''} ({drawn})"
        grid = _timeline(events, instances, title, block, subject)
        timeline = [grid, _legend(events, grid), _waits(events)]
    return Drawing(
        f"{simulation.pipeline.name}: {simulation.verdict}",
        [
            simulation.sentence,
            *([" ".join(simulation.limits)] if mistake is None and simulation.limits else []),
            Table.numbered(() if mistake is None else mistake.way, "The way into it"),
            _barriers(simulation),
            *timeline,
            Table(((warning.subject, warning) for warning in simulation.warnings), title="Worth a look"),
            Table.numbered((f"{alias}." for alias in simulation.aliasing[:_SHOWN_ALIASES]), "Aliasing"),
        ],
    )


def _shown(events: Sequence[Event], instances: Instances, block: int, *, at_end: bool) -> tuple[list[Event], int]:
    """The events of a block: what its roles do, what flies into its slots, and the phases of its barriers; and all ticks.

    Those of the first ticks, or of the last if the run ends in a mistake, their times from 0 on. The ends of phases
    before and after are kept, at the edges: they say which phase runs, and what ends a wait.
    """
    own = []
    for event in (*events, *(_under_way(events) if at_end else ())):
        role, slots = instances[event.role], tuple(slot for slot in event.slots if instances[slot].block == block)
        subject = instances.get(event.barrier, role) if event.op in ("flight", "phase") else role
        if subject.block == block or (slots and event.op == "flight"):
            own.append((event, role.name if role.block == block else event.role, slots))
    ticks = max((event.end for event, *_ in own), default=0)
    low = max(0, ticks - _SHOWN_TICKS) if at_end else 0
    high = low + _SHOWN_TICKS
    shown = []
    for event, name, slots in own:
        if event.op == "phase" or (event.end >= low and event.start < high):
            start, end = (min(max(tick, low), high) - low for tick in (event.start, event.end))
            shown.append(replace(event, start=start, end=end, role=name, slots=slots))
    return shown, ticks


def _under_way(events: Sequence[Event]) -> Iterator[Event]:
    """The copies that have not landed when a run ends in a mistake, as flights up to its end."""
    landed = {(event.start, slot) for event in events if event.op == "flight" for slot in event.slots}
    last = max((event.end for event in events), default=0)
    for event in events:
        slots = tuple(slot for slot in event.slots if (event.start, slot) not in landed)
        if event.op == "copy" and event.barrier and slots:
            yield replace(event, op="flight", end=last, slots=slots)


def _barriers(simulation: Simulation) -> Table:
    size = "bytes in a phase" + (" and block" if simulation.pipeline.blocks > 1 else "")
    seen = "need" if simulation.verdict == "proven" else "saw until then"
    records = [
        {
            "barrier": fact.name,
            "stages": fact.stages,
            "init": fact.count,
            size: ", ".join(map(str, fact.bytes[:1] if len(set(fact.bytes)) == 1 else fact.bytes)),
            "who arrives": ", ".join(f"{role}: {number}" for role, number in fact.arrivals),
            "first parity": ", ".join(f"{role}: {number}" for role, number in fact.parities),
        }
        for fact in simulation.barriers
    ]
    return Table.of(records, f"What the barriers {seen}", "lrrrll")


def _timeline(events: list[Event], instances: Instances, title: str, block: int, subject: Instance | None) -> Grid:
    """Roles, slots, barriers and bytes in flight over nominal ticks; the lane of a mistake's subject ends in a mark."""
    ticks = max(event.end for event in events)
    lanes: Lanes = {}
    for event in events:
        if event.op not in ("flight", "phase"):
            lanes.setdefault(("role", (event.role,)), []).append((event.start, event.end, _role_cell(event, instances)))
    lanes |= _slot_lanes(events, instances) | _barrier_lanes(events, instances, block, ticks)
    rows: list[Row] = []
    for (kind, names), spans in lanes.items():
        cells = _lane(spans, ticks)
        if subject is not None and subject.name in names:
            last = max((place for place, cell in enumerate(cells) if cell.text), default=0)
            cells[last] = replace(cells[last], colour="collision", mark="collision")
        rows.append(Row((kind, ", ".join(names)), tuple(cells), ruled=bool(rows) and rows[-1].labels[0] != kind))
    flights = [event for event in events if event.op == "flight" and event.slots]
    sizes = [sum(event.bytes for event in flights if event.start <= tick < event.end) for tick in range(ticks)]
    in_flight = [
        Cell(f"{size / 1024:.3g}", "unused", title=f"{size} bytes", span=len([*run]))
        if size
        else Cell(span=len([*run]))
        for size, run in groupby(sizes)
    ]
    rows += [Row(("KiB in flight", ""), tuple(in_flight), ruled=True)] if flights else []
    heads = [str(tick) if tick % _TICKS_PER_HEADER == 0 else "" for tick in range(ticks)]
    return Grid(title, (Tier.of("", heads),), tuple(rows), ("", ""))


def _lane(spans: list[Span], ticks: int) -> list[Cell]:
    """Spans as cells side by side, with empty ones between; what overlaps begins where the one before ends."""
    cells, reached = [], 0
    for start, end, cell in [*sorted(spans, key=lambda span: span[:2]), (ticks, ticks, Cell())]:
        first, last = max(start, reached), min(max(end, start + 1), ticks)
        cells += [Cell(span=first - reached)] if reached < first else []
        cells += [replace(cell, span=last - first)] if first < last else []
        reached = max(reached, first, last)
    return cells


def _role_cell(event: Event, instances: Instances) -> Cell:
    touched = [instances[name] for name in (event.barrier, *event.slots) if name in instances][:1]
    name, stage = (touched[0].name, touched[0].stage) if touched else ("", None)
    ticks, waits = event.end - event.start, event.op in ("wait", "tail", "stuck")
    text = name if waits and ticks > 3 else _LETTER.get(event.op, "!") + ("" if stage is None else str(stage))
    if event.op == "stuck":
        return Cell(text, "collision", "collision", event.said)
    colour: Tint = "gap" if waits and ticks > 1 else (stage or 0) if touched else "unused"
    return Cell(text, colour, title=event.said)


def _slot_lanes(events: list[Event], instances: Instances) -> Lanes:
    """The fills and reads of slots; slots with the same ones share a lane."""
    spans: dict[Instance, list[Span]] = {}
    for event in events:
        end, flies = event.end, event.op == "flight"
        if event.op in ("multiply", "store"):  # ends when it is waited for
            waits = (wait for wait in events if wait.op == "wait_group" and wait.role == event.role)
            end = next((wait.end for wait in waits if wait.start >= end), end)
        touches = flies or event.op in ("multiply", "read", "store", "write")
        for slot in map(instances.__getitem__, event.slots if touches else ()):
            filling = Cell("▸", slot.stage or 0, title=event.said)
            cell = filling if flies else Cell(_LETTER[event.op], "fill", title=f"{event.role}: {event.said}")
            spans.setdefault(slot, []).append((event.start, end, cell))
    lanes: dict[tuple[object, ...], list[Instance]] = {}
    for slot in sorted(spans, key=lambda slot: (slot.stage or 0, slot.name)):
        lanes.setdefault(tuple((start, end, cell.text) for start, end, cell in spans[slot]), []).append(slot)
    return {("slot", tuple(slot.name for slot in slots)): spans[slots[0]] for slots in lanes.values()}


def _barrier_lanes(events: list[Event], instances: Instances, block: int, ticks: int) -> Lanes:
    """The phases of every barrier of the block that is used, each up to the tick in which it ends."""
    used = {event.barrier for event in events if event.op != "phase" or 0 < event.start < ticks} & {*instances}
    lanes: Lanes = {}
    own = (title for title in used if instances[title].block == block)
    for title in sorted(own, key=lambda title: (instances[title].row_name, instances[title].stage or 0)):
        barrier = instances[title]
        ends = sorted((event.start, event.phase) for event in events if (event.op, event.barrier) == ("phase", title))
        last = ends[-1][1] + 1 if ends else 0
        spans, start = lanes.setdefault(("phase", (barrier.name,)), []), 0
        for end, phase in [*ends, (ticks, last)]:
            said = f"{barrier.name}, phase {phase}{', runs on' if phase == last else ''}"
            spans += [(start, end, Cell(str(phase), _PARITY_COLOUR[phase % 2], title=said))] if end > start else []
            start = max(start, end)
    return lanes


def _legend(events: list[Event], timeline: Grid) -> Legend:
    operations = {event.op for event in events}
    letters = ", ".join(f"{letter} {said}" for letter, (said, *named) in _LETTERS.items() if operations & {*named})
    waits = any(event.op in ("wait", "tail") and event.end - event.start > 1 for event in events)
    flies = any(event.op == "flight" and event.slots for event in events)
    users = [_LETTER[operation] for operation in ("multiply", "store", "read", "write") if operation in operations]
    mistake = [
        cell.text
        for row in timeline.rows
        if row.labels[0] != "role" or "stuck" not in operations
        for cell in row.cells
        if cell.mark
    ]
    entries = {
        Entry(f"{letters}; the number is the stage", "unused", sample="c0"): letters,
        Entry("a wait", "gap", sample="full[0]"): waits,
        Entry("bytes in flight into a slot", 0, sample="▸"): flies,
        Entry("the operation that uses a slot, until it is waited for", "fill", sample="".join(users[:1])): users,
        Entry("never passes", "collision", "collision", "full[0]"): "stuck" in operations,
        Entry("the mistake", "collision", "collision", "".join(mistake[:1])): mistake,
    }
    return Legend(tuple(holding(entries)))


def _waits(events: list[Event]) -> Table:
    """The longest waits, and what ended each."""
    ends = {(event.barrier, event.phase): event for event in events if event.op == "phase"}
    waits = [event for event in events if event.op in ("wait", "tail", "stuck") and event.end - event.start > 1]
    rows = []
    for wait in sorted(waits, key=lambda wait: (wait.op != "stuck", wait.start)):
        ended = ends.get((wait.barrier, wait.phase - 1))
        reason = "nothing: it never passes" if wait.op == "stuck" else f"{ended.role}: {ended.said}" if ended else ""
        cut = ended is not None and ended.start == _SHOWN_TICKS
        ticks = f"from {wait.start}" if cut else f"{wait.start}-{wait.end}"
        rows.append({"role": wait.role, "waits in": wait.said, "ticks": ticks, "until": reason})
    return Table.of(rows, "Waits", "llrl", most=_SHOWN_WAITS, noun="waits")
