"""Accesses to slots: which of them meet, what a slot holds when it is read, and which fences are missing.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.pipeline.instances import Instance
from tilescope.pipeline.wording import mistake_error
from tilescope.sentence import filled
from tilescope.sync.all_orders.action import NONE, Action, Key
from tilescope.sync.all_orders.contents import Segment, gap, read
from tilescope.sync.all_orders.mistake import Mistake, MistakeFoundError
from tilescope.sync.all_orders.state import Groups, State
from tilescope.sync.happens_before import Access

_NO_GROUPS: Groups = ((),)


class How(NamedTuple):
    """A way to reach memory: in words, as the subject of a sentence, and what lets others know that it is finished."""

    words: str
    subject: str  # templates
    finish: str


class Fence(NamedTuple):
    """What two accesses need between them: the kind of a fence, its instruction, and where it stands."""

    kind: str
    instruction: str
    where: str
    by: str  # whose fence counts: that of the "first" agent, of the "second", or of "any" on the way
    between_agents: bool = False  # one agent alone needs none


# in these texts, {first} is the agent of an access and {second} that of the next one
_COPIED = "Expect the copy's bytes on its barrier, and wait for that phase first."
_ORDERED = "Put a barrier between: {first} arrives after its access, and {second} waits before its own."
_VERB = {True: "writes", False: "reads"}
_VERB_BEFORE = {True: "wrote", False: "read"}
HOW = {
    "generic": How("threads", "{first} (threads)", _ORDERED),
    "cp.async": How(
        "cp.async",
        "cp.async of {first}",
        "Commit its group and wait for it (cp.async.wait_group), or wait for its barrier first.",
    ),
    "tma": How("TMA", "a TMA copy of {first}", _COPIED),
    "bulk": How("bulk copy", "a bulk copy of {first}", _COPIED),
    "wgmma": How(
        "wgmma", "wgmma of {first}", "Commit its group and wait for it (wgmma.wait_group) before the release."
    ),
    "tcgen05": How(
        "tcgen05",
        "{first} (tcgen05)",
        "Wait for the barrier of a tcgen05.commit first: a thread's arrival does not wait for products.",
    ),
    "store": How(
        "TMA store",
        "a TMA store of {first}",
        "Let the thread that stores commit its group and wait with cp.async.bulk.wait_group.read first.",
    ),
}
_ASYNC = ("tma", "bulk", "wgmma", "tcgen05", "store")  # through the async proxy go TMA and the tensor cores
_OUT_OF_TENSOR_MEMORY = Fence(
    "tcgen05.after", "tcgen05.fence::after_thread_sync", "after the wait", "second", between_agents=True
)
_INTO_TENSOR_MEMORY = Fence(
    "tcgen05.before", "tcgen05.fence::before_thread_sync", "before the arrival", "first", between_agents=True
)
_THREADS_TO_ASYNC = Fence("proxy.async", "fence.proxy.async", "after the access and before the barrier", "any")
_CP_ASYNC_TO_ASYNC = Fence("proxy.async", "fence.proxy.async", "between the copy's end and the read", "any")
FENCES = {  # (space, first access, second)
    ("tmem", "tcgen05", "generic"): _OUT_OF_TENSOR_MEMORY,
    ("tmem", "generic", "tcgen05"): _INTO_TENSOR_MEMORY,
    **{("smem", "generic", how): _THREADS_TO_ASYNC for how in _ASYNC},
    **{("smem", "cp.async", how): _CP_ASYNC_TO_ASYNC for how in _ASYNC},
    **{("gmem", "generic", how): _THREADS_TO_ASYNC for how in ("tma", "bulk", "store")},
}


class Memory(State):
    """The state of a run whose slots are touched."""

    def _groups(self, agent: int, kind: str) -> Groups:
        return self.groups.get((agent, kind), _NO_GROUPS)

    def _key(self, agent: int, number: int) -> Key:
        return agent, self.pc[agent], number

    def _touch(self, agent: int, action: Action) -> None:
        """Touch slots: threads at once, a tensor core or a TMA store until a group or a commit is waited for."""
        if action.choice in ("wgmma", "tcgen05"):
            how = action.choice
        else:
            how = "store" if action.op == "store" else "generic"
        writes = action.op == "write"
        touched = [*((slot, writes) for slot in action.slots), *((slot, True) for slot in action.into)]
        for number, (slot, write) in enumerate(touched):
            self._require_memory(agent, slot)
            size = self.program.slots[slot].of.bytes or 1
            access = Access(self._key(agent, number), agent, write, how, 0, size)
            by_one_warp = how == "generic" and self.program.agents[agent].of.warps == 1
            self._begin(slot, access, ends_at_once=by_one_warp)
            if write:
                tile = action.tile if writes else None
                self.contents[slot] = (Segment(0, size, tile, (NONE, agent, NONE)),)
            else:
                self._require_content(slot, agent, action)
            if how == "store" and write:
                self.store_writes[access.key] = True
            if how != "generic":
                self._add_to_group(access)
            elif not by_one_warp:
                self.uncovered[agent] = (*self.uncovered.get(agent, ()), access.key)

    def _add_to_group(self, access: Access) -> None:
        """The access belongs to the group of its kind that is open."""
        group = access.agent, "bulk" if access.how == "store" else access.how
        *closed, opened = self._groups(*group)
        self.groups[group] = (*closed, (*opened, access.key))
        if access.how == "tcgen05":
            self.uncommitted[access.agent] = (*self.uncommitted.get(access.agent, ()), access.key)

    def _require_content(self, slot: int, agent: int, action: Action) -> None:
        """Stop where a slot does not hold what its reader means."""
        contents = self.contents[slot]
        program = self.program
        if not contents:
            raise mistake_error(program, "unfilled", agent=agent, slot=slot)
        size = program.slots[slot].of.bytes or 1
        missing = gap(contents, size)
        if missing is not None:
            first, end = missing
            raise mistake_error(
                program,
                "partial",
                agent=agent,
                slot=slot,
                size=size,
                first=first,
                last=end - 1,
                bytes=size - (end - first),
            )
        for part in contents:
            if None not in (action.tile, part.tile) and part.tile != action.tile:
                raise mistake_error(program, "stale", agent=agent, slot=slot, tile=action.tile, held=part.tile)
        self.contents[slot] = read(contents)

    def _begin(self, slot: int, access: Access, *, ends_at_once: bool) -> None:
        """Begin an access, or stop at the race that it makes."""
        kept: list[Access] = []
        for earlier in self.accesses[slot]:
            overlaps = earlier.start < access.end and access.start < earlier.end
            if overlaps and (earlier.write or access.write):
                keep = self._meet_access(slot, earlier, access)
            elif earlier.write or access.write or (earlier.agent, earlier.how) != (access.agent, access.how):
                keep = True
            else:
                keep = not self.order.knows(earlier, access.agent)
            is_unmet = earlier.key in self.unmet_stores.get(earlier.agent, ())  # only one of its warps knows the end
            if is_unmet or (keep and self.order.needs_later(earlier)):
                kept.append(earlier)
            else:
                self.order.forgets(earlier.key)
        self.accesses[slot] = (*kept, access)
        self.order.starts(access, ends_at_once=ends_at_once)

    def _meet_access(self, slot: int, earlier: Access, access: Access) -> bool:
        """Check an access against an earlier one that it conflicts with; whether the earlier one still matters."""
        covers = access.write and access.start <= earlier.start and earlier.end <= access.end
        if earlier.fill is not None and earlier.fill == access.fill:  # copies of one phase
            named_apart = None not in (earlier.tile, access.tile) and earlier.tile != access.tile
            if self.program.slots[slot].of.bytes:
                raise mistake_error(
                    self.program,
                    "overlap",
                    slot=slot,
                    agent=access.agent,
                    first=access.start,
                    last=access.end - 1,
                )
            if named_apart:
                raise mistake_error(self.program, "two tiles", slot=slot, agent=access.agent)
            return True
        own = earlier.agent == access.agent
        if own and earlier.how == access.how == "tcgen05":  # they run in order
            return not covers
        if own and earlier.how == access.how == "generic":  # its threads see what they did themselves
            return not covers
        if own and access.how in ("generic", "cp.async") and earlier.key in self.unmet_stores.get(access.agent, ()):
            raise self._race_of_warps(slot, earlier, access)
        if not self.order.knows(earlier, access.agent):
            raise self._race(slot, earlier, access)
        self._check_fence(slot, earlier, access)
        return not covers

    def _is_by_own_threads(self, access: Access, agent: int) -> bool:
        """Whether an agent's threads made an access, or waited for their cp.async: a fence of theirs counts for both.

        Every thread has then waited for its own copies. Those of other warps may still be under way.
        """
        waited_for = access.how == "cp.async" and access.key in self.uncovered.get(agent, ())
        return access.agent == agent and (access.how == "generic" or waited_for)

    def _race(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        program = self.program
        if earlier.key in self.uncovered.get(earlier.agent, ()):
            return self._race_of_warps(slot, earlier, access)
        if self.order.is_out_of_scope(earlier, access.agent):
            return mistake_error(
                program,
                "scope",
                agent=access.agent,
                agent_before=earlier.agent,
                slot=slot,
                does=_VERB[access.write],
                did=_VERB_BEFORE[earlier.write],
            )
        barrier, phase, _ = earlier.fill or (NONE, 0, NONE)
        if not access.write and barrier != NONE and self.last_pass.get((access.agent, barrier), 0) > phase:
            return mistake_error(program, "early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
        how = HOW[earlier.how]
        titles = {"first": program.agents[earlier.agent].title, "second": program.agents[access.agent].title}
        still = "" if earlier.how == "generic" else "still "
        return mistake_error(
            program,
            "race",
            slot=slot,
            agent=access.agent,
            agent_before=earlier.agent,
            done="written" if access.write else "read",
            how=HOW[access.how].words,
            how_before=earlier.how,
            doing=f"{filled(how.subject, titles)} {still}{_VERB[earlier.write]}",
            finish=filled(how.finish, titles),
        )

    def _race_of_warps(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        """A warp of a role goes on before the others know, or are done."""
        kinds = {"store": "store warps", "cp.async": "cp.async warps"}
        return mistake_error(
            self.program,
            kinds.get(earlier.how, "warps"),
            agent=access.agent,
            agent_before=earlier.agent,
            slot=slot,
            warps=self.program.agents[earlier.agent].of.warps,
            did=_VERB_BEFORE[earlier.write],
            does=_VERB[access.write],
            how=HOW[access.how].words,
        )

    def _check_fence(self, slot: int, earlier: Access, access: Access) -> None:
        """Refuse an access that is in order but lacks the fence that its kind needs; of a read before it, only warn."""
        program = self.program
        row = program.slots[slot].of
        fence = FENCES.get((row.space, earlier.how, access.how))
        if fence is None or (fence.between_agents and earlier.agent == access.agent):
            return
        by = {"first": (earlier.agent,), "second": (access.agent,), "any": None}[fence.by]
        if self.order.is_fenced(earlier, fence.kind, by, access.agent):
            return
        error = mistake_error(
            program,
            "fence",
            slot=slot,
            agent=access.agent,
            agent_before=earlier.agent,
            fence=fence.instruction,
            where=fence.where,
            does=_VERB[access.write],
            did=_VERB_BEFORE[earlier.write],
            how=HOW[access.how].words,
            how_before=HOW[earlier.how].words,
        )
        if earlier.write or fence.between_agents:
            raise error
        self.warn(error.mistake, row.name, program.agents[earlier.agent].title)

    def warn(self, mistake: Mistake, subject: str, by: str) -> None:
        """Keep a mistake as a warning, once for its subject and whoever makes it."""
        self.warnings.setdefault((mistake.rule, subject, by), mistake)

    def _require_memory(self, agent: int, slot: int) -> None:
        """Stop where an agent reaches for the memory of a block that has left; global memory stays."""
        reached = self.program.slots[slot]
        if reached.of.space != "gmem":
            self._require_present(reached.home, self.program.agents[agent].title, reached)

    def _require_present(self, block: int, who: str, reached: Instance) -> None:
        if not self.present[block]:
            raise self.exit_mistake(block, who, reached.title)

    def exit_mistake(self, block: int, who: str, what: str) -> MistakeFoundError:
        """Something reaches into a block that may have left."""
        return mistake_error(self.program, "left", where=self._where(block), who=who, what=what, block=block)

    def _where(self, block: int) -> str:
        grid, rank = divmod(block, self.program.pipeline.blocks)
        where = f"block {rank}" if self.program.pipeline.blocks > 1 else "the block"
        return f"{where} of the grid before" if grid else where
