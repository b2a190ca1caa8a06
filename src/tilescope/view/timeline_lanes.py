"""The lanes of a timeline: what every role, slot and barrier of a block does, from tick to tick.

The events of a simulation become spans, each with the cell that draws it:

    role  tma    expects bytes (ticks 0 to 1), copies (1 to 2), waits for full[0] (4 to 9) …
    slot  a[0]   bytes fly in (2 to 7), then a multiplication reads them (8 to 13)
    phase full   phase 0 (up to tick 7), phase 1 …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tilescope.pipeline.instances import Instance
from tilescope.pipeline.simulation import Event
from tilescope.view.drawing import Entry, Legend
from tilescope.view.grid import Cell, Grid
from tilescope.view.palette import Tint

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
_MEANING = {  # of letters with more than one operation
    "w": "wait",
    "a": "arrive",
    "b": "barrier of threads",
    "p": "poll, or wait for the grid before",
}
_USES_SLOTS = ("multiply", "store", "read", "write")

Instances = Mapping[str, Instance]


class Ticks(NamedTuple):
    """The ticks that a timeline shows, of all that the run of a block takes."""

    first: int
    end: int  # behind the last
    total: int

    @property
    def shown(self) -> int:
        """How many there are from the first to the end."""
        return self.end - self.first


class Span(NamedTuple):
    """What a lane shows from one tick to another."""

    start: int
    end: int  # behind the last
    cell: Cell

    def runs_at(self, tick: int) -> bool:
        """Whether it covers a tick; what takes no time is shown for one."""
        return self.start <= tick < max(self.end, self.start + 1)

    def is_seen(self, ticks: Ticks) -> bool:
        """Whether a part of it is in the drawn ticks."""
        return self.start < ticks.end and max(self.end, self.start + 1) > ticks.first


class Lane(NamedTuple):
    """A row of the timeline: of what it is ("role", "slot", "phase"), and the names that share it."""

    kind: str
    names: tuple[str, ...]


Lanes = dict[Lane, list[Span]]


def lanes_of(events: list[Event], instances: Instances, block: int, ticks: Ticks) -> Lanes:
    """Roles, then slots, then barriers of a block, each with what it does."""
    arrivals = _arrivals(events)
    lanes: Lanes = {}
    for event in events:
        if event.op not in ("flight", "phase"):
            cell = _role_cell(event, instances, arrivals)
            lanes.setdefault(Lane("role", (event.role,)), []).append(Span(event.start, event.end, cell))
    lanes |= _slot_lanes(events, instances, arrivals)
    lanes |= _barrier_lanes(events, instances, block, ticks)
    return lanes


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


def _role_cell(event: Event, instances: Instances, arrivals: Arrivals) -> Cell:
    """The action of a role: its letter and its stage, or the barrier of a long wait."""
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
    """The action of a role; for a wait, what ends it."""
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
    names = [name for name in used if name in instances and instances[name].block == block]
    lanes: Lanes = {}
    for name in sorted(names, key=lambda name: (instances[name].row_name, instances[name].stage or 0)):
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


def legend_of(events: list[Event], timeline: Grid) -> Legend:
    """What the letters, colours and marks of a timeline mean: those that it shows."""
    operations = {event.op for event in events}
    return Legend(
        (
            *_role_entries(events, operations),
            *_phase_entries(timeline),
            *_mistake_entries(timeline, is_stuck="stuck" in operations),
        )
    )


def _role_entries(events: list[Event], operations: set[str]) -> Iterator[Entry]:
    """What roles and slots show: letters, waits, flights, uses of a slot."""
    letters = dict.fromkeys(letter for operation, letter in _LETTER.items() if operation in operations)
    meanings = {letter: operation for operation, letter in _LETTER.items()} | _MEANING
    if letters:
        letter_meanings = ", ".join(f"{letter} {meanings[letter]}" for letter in letters)
        yield Entry(f"{letter_meanings}; the number is the stage", "unused", sample="c0")
    if any(event.op in ("wait", "tail") and event.end - event.start > 1 for event in events):
        yield Entry("a wait", "gap", sample="full[0]")
    if any(event.op == "flight" and event.slots for event in events):
        yield Entry("bytes in flight into a slot", 0, sample="▸")
    users = [_LETTER[operation] for operation in _USES_SLOTS if operation in operations]
    if users:
        yield Entry("the operation that uses a slot, until it is waited for", "fill", sample=users[0])


def _phase_entries(timeline: Grid) -> Iterator[Entry]:
    """The colours of phases, by parity."""
    phase_rows = [row for row in timeline.rows if row.labels[0] == "phase"]
    shown = {cell.colour for row in phase_rows for cell in row.cells if cell.text}
    for parity, colour in enumerate(_PARITY_COLOUR):
        if colour in shown:
            yield Entry(f"a phase of a barrier by its number, parity {parity}", colour, sample=str(parity))


def _mistake_entries(timeline: Grid, *, is_stuck: bool) -> Iterator[Entry]:
    """The marks of a mistake; for stuck roles, a separate entry explains their marks."""
    if is_stuck:
        yield Entry("never passes", "collision", "collision", "full[0]")
    rows = [row for row in timeline.rows if row.labels[0] != "role" or not is_stuck]
    marked = [cell.text for row in rows for cell in row.cells if cell.mark]
    if marked:
        yield Entry("the mistake", "collision", "collision", marked[0])
