"""The slots of a pipeline: who touched them last, whether that is finished, and whether the next access may begin.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.program import NONE, Clock
from tilescope.pipeline.state import Access, State

_MOST_ENDS = 64  # ways to know that one access is finished: barriers of a multicast commit, and later commits


class How(NamedTuple):
    """A way to reach memory: in words, as the subject of a sentence, and what lets others know that it is finished."""

    words: str
    subject: str
    finish: str


class Fence(NamedTuple):
    """What two accesses need between them: the kind of a fence, its instruction, and where it stands."""

    kind: str
    instruction: str
    where: str
    by: tuple[str, ...]  # whose fence counts: that of the first agent before its arrival, of the second behind its wait
    between_agents: bool = False  # one agent alone needs none


_COPIED = "Expect its bytes on its barrier and wait for that phase first."
_ORDERED = "Let a barrier order {first} before {second}."
# fmt: off
HOW = {
    "generic":  How("threads", "{first} (threads)", _ORDERED),
    "cp.async": How("cp.async", "cp.async of {first}", "Wait for its group or barrier first."),
    "tma":      How("TMA", "a TMA copy of {first}", _COPIED),
    "bulk":     How("bulk copy", "a bulk copy of {first}", _COPIED),
    "wgmma":    How("wgmma", "wgmma of {first}", "Let wgmma.wait_group come before the release."),
    "tcgen05":  How("tcgen05", "{first} (tcgen05)", "Let tcgen05.commit release the slot, not an arrival."),
    "store":    How("TMA store", "a TMA store of {first}", "Let the issuing thread wait with cp.async.bulk.wait_group.read first."),
}
_AFTER = Fence("tcgen05.after", "tcgen05.fence::after_thread_sync", "behind the wait", ("second",), between_agents=True)
_BEFORE = Fence("tcgen05.before", "tcgen05.fence::before_thread_sync", "before the arrival", ("first",), between_agents=True)
_WRITTEN = Fence("proxy.async", "fence.proxy.async", "behind the access and before the barrier", ("first",))
_LANDED = Fence("proxy.async", "fence.proxy.async", "between the copy's end and the read", ("first", "second"))
FENCES = {  # (space, first access, second): through the async proxy go TMA and the tensor cores
    ("tmem", "tcgen05", "generic"): _AFTER, ("tmem", "generic", "tcgen05"): _BEFORE,
    **{("smem", "generic", how): _WRITTEN for how in ("tma", "bulk", "wgmma", "tcgen05", "store")},
    **{("smem", "cp.async", how): _LANDED for how in ("tma", "bulk", "wgmma", "tcgen05", "store")},
}
# fmt: on


def finish(state: State, key: int, place: int, value: int) -> None:
    """From now on whoever has `value` at `place` of its clock knows that the access is finished."""
    if key in state.finished:
        state.finished[key] = (*state.finished[key][-_MOST_ENDS:], (place, value))


def _ordered(state: State, access: Access, clock: Clock | None) -> bool:
    """Whether the access is finished for whoever has this clock."""
    if clock is None:
        return False
    if access.key is None:
        return bool(clock[access.agent] >= access.time)
    return any(clock[place] >= value for place, value in state.finished[access.key])


def touch(state: State, slot: int, access: Access, clock: Clock, tile: int | None = None) -> None:
    """Begin an access, or stop at the race that it makes."""
    kept: list[Access] = []
    for earlier in state.accesses[slot]:
        if not (earlier.write or access.write):
            keep = earlier.agent != access.agent or not _ordered(state, earlier, clock)
        else:
            same_fill = earlier.write and access.write and earlier.fill is not None and earlier.fill == access.fill
            in_order = earlier.how == access.how == "tcgen05" and earlier.agent == access.agent
            if not same_fill and not in_order:
                if not _ordered(state, earlier, clock):
                    raise _race(state, slot, earlier, access)
                _check_fence(state, slot, earlier, access, clock)
            keep = same_fill or not access.write
        if keep:
            kept.append(earlier)
        elif earlier.key is not None:
            del state.finished[earlier.key]
    if not access.write:
        if not any(earlier.write for earlier in state.accesses[slot]):
            raise state.program.mistake("unfilled", agent=access.agent, slot=slot)
        held = state.content[slot]
        if tile is not None and held is not None and held != tile:
            raise state.program.mistake("stale", agent=access.agent, slot=slot, tile=tile, held=held)
    if access.key is not None:
        state.finished[access.key] = ()
    state.accesses[slot] = (*kept, access)


def _race(state: State, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
    program = state.program
    barrier, phase = earlier.fill or (NONE, 0)
    if not access.write and barrier != NONE and state.phase[barrier] > phase:
        return program.mistake("early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
    how, names = (
        HOW[earlier.how],
        {"first": program.agents[earlier.agent].title, "second": program.agents[access.agent].title},
    )
    return program.mistake(
        "race",
        slot=slot,
        agent=access.agent,
        agent_before=earlier.agent,
        done="written" if access.write else "read",
        how=HOW[access.how].words,
        doing=f"{how.subject.format(**names)}{'' if earlier.key is None else ' still'} {_verb(earlier)}",
        finish=how.finish.format(**names),
    )


def _verb(access: Access) -> str:
    return "writes" if access.write else "reads"


def _check_fence(state: State, slot: int, earlier: Access, access: Access, clock: Clock) -> None:
    """Refuse an access that is in order but lacks the fence that its kind needs; of a read before it, only warn."""
    program = state.program
    row = program.slots[slot].of
    fence = FENCES.get((row.space, earlier.how, access.how))
    if fence is None or (fence.between_agents and earlier.agent == access.agent):
        return
    times, seen = state.fences.get((earlier.agent, fence.kind), ()), state.fence_clock.get((access.agent, fence.kind))
    fenced = "first" in fence.by and any(earlier.time < time <= clock[earlier.agent] for time in times)
    if fenced or ("second" in fence.by and _ordered(state, earlier, seen)):
        return
    error = program.mistake(
        "fence", slot=slot, agent=access.agent, agent_before=earlier.agent, fence=fence.instruction, where=fence.where,
        does=_verb(access), did="wrote" if earlier.write else "read", how=HOW[access.how].words,
        how_before=HOW[earlier.how].words,
    )  # fmt: skip
    if earlier.write or fence.between_agents:
        raise error
    state.warnings.setdefault((error.mistake.rule, row.name, program.agents[earlier.agent].title), error.mistake)
