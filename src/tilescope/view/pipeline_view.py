"""The drawing of pipelines: what barriers need, and a timeline with roles, slots and barriers as lanes.

             0       8       16             role: an operation and its stage; slot: ▸ bytes in flight, then
role  tma    e0c0e1c1 full[0]                who reads them; phase: the number of a barrier's phase, in the
slot  a[0]     ───▸─── ──m──                 colour of its parity
phase full   ── 0 ─── ─── 1 ───
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.simulation import PROVEN, Simulation
from tilescope.sentence import counted
from tilescope.view.drawing import Drawing, Table
from tilescope.view.timeline import BlockTimeline
from tilescope.view.timeline_lanes import Ticks
from tilescope.view.walk_step import Step as WalkStep

_SHOWN_ALIASES = 8
_ROLES_TOLD = 3  # with their numbers, where all have the same


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
        parts[f"role {role.name}"] = Table.of({heading: line} for line in _list_steps(role.steps, 0))
    blocks = f", {counted(pipeline.blocks, 'block')}" if pipeline.blocks > 1 else ""
    return Drawing(f"{pipeline.name}{blocks}", parts)


def _list_steps(steps: Iterable[Step | Loop], depth: int) -> Iterable[str]:
    indent = "\u00a0" * 2 * depth
    for step in steps:
        if isinstance(step, Loop):
            start = "" if step.start == 0 else f" from {step.start}"
            yield f"{indent}for {step.counter}{start}, {step.count} times:"
            yield from _list_steps(step.steps, depth + 1)
        else:
            target = ", ".join(step.target) if isinstance(step.target, tuple) else step.target
            arguments = [f"{name} {value}" for name, value in step.arguments.items()]
            line = ", ".join([f"{indent}{step.op} `{target}`", *arguments])
            yield line if step.when is None else f"{line} where {step.when}"


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
    timeline = BlockTimeline.of(simulation, block, ticks)
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
    return BlockTimeline.of(simulation, block, ticks).ticks


def walk_simulation(
    simulation: Simulation, *, block: int | None = None, ticks: tuple[int, int] | None = None
) -> Iterator[WalkStep]:
    """One tick after the other: what every role does in it, and what flies.

    >>> import tilescope as ts
    >>> run = ts.simulate(ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2))
    >>> [*walk_simulation(run)][2].sentence
    'tick 2: producer: sync 0; consumer: sync 0'
    """
    timeline = BlockTimeline.of(simulation, block, ticks)
    if not timeline.events:
        return
    lanes = timeline.lanes()
    for tick in range(timeline.ticks.first, timeline.ticks.end):
        running = {lane: span for lane, spans in lanes.items() for span in spans if span.runs_at(tick)}
        states = [f"{lane.names[0]}: {span.cell.title}" for lane, span in running.items() if lane.kind == "role"]
        links = [span.cell.link.split()[-1] for span in running.values()]
        yield WalkStep(" ".join(links), f"tick {tick}: {'; '.join(states) or 'no role runs'}")


def _barriers(simulation: Simulation) -> Table:
    size = "bytes in a phase and block" if simulation.pipeline.blocks > 1 else "bytes in a phase"
    seen = "need" if simulation.verdict in PROVEN else "saw until then"
    records = [
        {
            "barrier": fact.name,
            "stages": fact.stages,
            "init": fact.count,
            size: _in_one_number(fact.bytes),
            "who arrives": _by_role(fact.arrivals),
            "first parity": _by_role(fact.parities),
        }
        for fact in simulation.barriers
    ]
    return Table.of(records, f"What the barriers {seen}", "lrrrll")


def _in_one_number(numbers: Sequence[int]) -> str:
    """A list of numbers; one number where all are equal.

    >>> _in_one_number((16384, 16384)), _in_one_number((16384, 64))
    ('16384', '16384, 64')
    """
    shown = numbers[:1] if len(set(numbers)) == 1 else numbers
    return ", ".join(map(str, shown))


def _by_role(numbers: Sequence[tuple[str, int]]) -> str:
    """A number for each role; equal numbers are printed once.

    >>> _by_role([("producer", 1), ("consumer", 0)]), _by_role([(f"warp {warp}", 0) for warp in range(8)])
    ('producer: 1, consumer: 0', 'each of 8 roles: 0')
    """
    if len(numbers) > _ROLES_TOLD and len({number for _, number in numbers}) == 1:
        return f"each of {len(numbers)} roles: {numbers[0][1]}"
    return ", ".join(f"{role}: {number}" for role, number in numbers)


DRAWINGS = {Pipeline: draw_pipeline, Simulation: draw_simulation}
WALKS = {Simulation: walk_simulation}
