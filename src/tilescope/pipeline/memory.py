"""The slots of a pipeline: who touched them last, whether that is finished, and whether the next access may begin.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.program import NONE
from tilescope.pipeline.state import Access, Clock, State

_MOST_ENDS = 64  # ways to know that one access is finished: barriers of a multicast commit, and later commits


class How(NamedTuple):
    """A way to reach memory: in words, as the subject of a sentence, and what lets others know that it is finished."""

    words: str
    subject: str
    finish: str = ""
    proxied: bool = True  # through the async proxy


_COPIED = "Expect its bytes on its barrier and wait for that phase first."
# fmt: off
HOW = {
    "generic":  How("threads", "{} (threads)", proxied=False),
    "cp.async": How("cp.async", "cp.async of {}", "Wait for its group or barrier first.", proxied=False),
    "tma":      How("TMA", "a TMA copy of {}", _COPIED),
    "bulk":     How("bulk copy", "a bulk copy of {}", _COPIED),
    "wgmma":    How("wgmma", "wgmma of {}", "Let wgmma.wait_group come before the release."),
    "tcgen05":  How("tcgen05", "{} (tcgen05)", "Let tcgen05.commit release the slot, not an arrival."),
    "store":    How("TMA store", "a TMA store of {}", "Let the issuing thread wait with cp.async.bulk.wait_group.read first."),
}
# fmt: on


def finish(state: State, key: int, place: int, value: int) -> None:
    """From now on whoever has `value` at `place` of its clock knows that the access is finished."""
    if key in state.uses:
        state.finished[key] = (*state.finished.get(key, ())[-_MOST_ENDS:], (place, value))


def _ordered(state: State, access: Access, clock: Clock | None) -> bool:
    """Whether the access is finished for whoever has this clock."""
    if clock is None:
        return False
    if access.key is None:
        return bool(clock[access.agent] >= access.time)
    return any(clock[place] >= value for place, value in state.finished.get(access.key, ()))


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
                _check_fences(state, slot, earlier, access, clock)
            keep = same_fill or not access.write
        if keep:
            kept.append(earlier)
        elif earlier.key is not None:
            state.uses[earlier.key] -= 1
            if not state.uses[earlier.key]:
                del state.uses[earlier.key]
                state.finished.pop(earlier.key, None)
    if not access.write:
        _check_content(state, slot, access.agent, tile)
    if access.key is not None:
        state.uses[access.key] = state.uses.get(access.key, 0) + 1
    state.accesses[slot] = (*kept, access)


def _check_content(state: State, slot: int, agent: int, tile: int | None) -> None:
    if not any(access.write for access in state.accesses[slot]):
        raise state.program.mistake("unfilled", agent=agent, slot=slot)
    held = state.content[slot]
    if tile is not None and held is not None and held != tile:
        raise state.program.mistake("stale", agent=agent, slot=slot, tile=tile, held=held)


def _race(state: State, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
    program = state.program
    barrier, phase = earlier.fill or (NONE, 0)
    if not access.write and barrier != NONE and state.phase[barrier] > phase:
        return program.mistake("early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
    first, second = program.agents[earlier.agent].name, program.agents[access.agent].name
    still = "" if earlier.key is None else " still"
    doing = f"{HOW[earlier.how].subject.format(first)}{still} {_verb(earlier)}"
    order = f"Let a barrier order {first} before {second}."
    return program.mistake(
        "race",
        slot=slot,
        agent=access.agent,
        agent_before=earlier.agent,
        done="written" if access.write else "read",
        how=HOW[access.how].words,
        doing=doing,
        finish=HOW[earlier.how].finish or order,
    )


def _verb(access: Access) -> str:
    return "writes" if access.write else "reads"


def _check_fences(state: State, slot: int, earlier: Access, access: Access, clock: Clock) -> None:
    """Refuse an access that is in order but lacks the fence that its kind needs."""

    def fenced(kind: str) -> bool:
        fences = state.fences.get((earlier.agent, kind), ())
        return any(earlier.time < fence <= clock[earlier.agent] for fence in fences)

    def seen_by(kind: str) -> bool:
        return _ordered(state, earlier, state.fence_clock.get((access.agent, kind)))

    def missing(fence: str, where: str) -> MistakeFoundError:
        return state.program.mistake(
            "fence", slot=slot, agent=access.agent, agent_before=earlier.agent, fence=fence, where=where, does=_verb(access),
            did="wrote" if earlier.write else "read", how=HOW[access.how].words, how_before=HOW[earlier.how].words,
        )  # fmt: skip

    how, other_agent = (earlier.how, access.how), earlier.agent != access.agent
    row = state.program.slots.row(slot)
    if row.space == "tmem":
        if how == ("tcgen05", "generic") and other_agent and not seen_by("tcgen05.after"):
            raise missing("tcgen05.fence::after_thread_sync", "behind the wait")
        if how == ("generic", "tcgen05") and other_agent and not fenced("tcgen05.before"):
            raise missing("tcgen05.fence::before_thread_sync", "before the arrival")
    elif HOW[access.how].proxied and not HOW[earlier.how].proxied and not fenced("proxy.async"):
        if earlier.how == "cp.async":
            if not seen_by("proxy.async"):
                raise missing("fence.proxy.async", "between the copy's end and the read")
            return
        error = missing("fence.proxy.async", "behind the access and before the barrier")
        if earlier.write:
            raise error
        key = error.mistake.rule, row.name, state.program.agents[earlier.agent].name
        state.warnings.setdefault(key, error.mistake)
