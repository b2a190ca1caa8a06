"""Accesses to slots: which of them conflict, what a slot holds when it is read, and which fences are missing.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

Two accesses to the same bytes, one of them a write, conflict. If the end of the first does not happen-before the second,
they are a data race in some order of the roles, even if not in this one. If it does, accesses through different proxies
still need a fence between them; `tilescope.sync.proxies` has the table.
"""

from __future__ import annotations

from tilescope.sync.all_orders.contents import Segment, find_gap, mark_read
from tilescope.sync.all_orders.mistake import Fact, MistakeFoundError
from tilescope.sync.all_orders.state import Groups, State
from tilescope.sync.happens_before import NONE, Access, Key
from tilescope.sync.proxies import find_fence_rule
from tilescope.sync.role_events import SlotAccess, Store

_NO_GROUPS: Groups = ((),)


def _verb(access: Access) -> str:
    return "write" if access.write else "read"


class SlotAccesses(State):
    """The state of a run whose slots are accessed."""

    def _groups(self, agent: int, kind: str) -> Groups:
        return self.groups.get((agent, kind), _NO_GROUPS)

    def _key(self, agent: int, number: int) -> Key:
        return agent, self.pc[agent], number

    def _access_slots(self, agent: int, action: SlotAccess) -> None:
        """Access slots: threads at once, a tensor core or a TMA store until a group or a commit is waited for."""
        how = action.how
        writes = isinstance(action, Store)
        accessed = [*((slot, writes) for slot in action.slots), *((slot, True) for slot in action.into)]
        for number, (slot, write) in enumerate(accessed):
            self._require_memory(agent, slot)
            size = self.program.slots[slot].bytes or 1
            access = Access(self._key(agent, number), agent, write, how, 0, size)
            is_by_one_warp = how == "generic" and self.program.agents[agent].warps == 1
            self._begin_access(slot, access, ends_at_once=is_by_one_warp)
            if write:
                tile = action.tile if writes else None
                self.contents[slot] = (Segment(0, size, tile, (NONE, agent, NONE)),)
            else:
                self._require_content(slot, agent, action.tile)
            if how == "store" and write:
                self.store_writes[access.key] = True
            if how != "generic":
                self._add_to_group(access)
            elif not is_by_one_warp:
                self.unsynced[agent] = (*self.unsynced.get(agent, ()), access.key)

    def _add_to_group(self, access: Access) -> None:
        """Add an access to the open group of its kind."""
        group = access.agent, "bulk" if access.how == "store" else access.how
        *closed, opened = self._groups(*group)
        self.groups[group] = (*closed, (*opened, access.key))
        if access.how == "tcgen05":
            self.uncommitted[access.agent] = (*self.uncommitted.get(access.agent, ()), access.key)

    def _require_content(self, slot: int, agent: int, tile: int | None) -> None:
        """Stop if a slot does not hold what its reader expects."""
        contents = self.contents[slot]
        if not contents:
            raise MistakeFoundError("unfilled", agent=agent, slot=slot)
        size = self.program.slots[slot].bytes or 1
        gap = find_gap(contents, size)
        if gap is not None:
            first, end = gap
            raise MistakeFoundError(
                "partial", agent=agent, slot=slot, size=size, first=first, last=end - 1, bytes=size - (end - first)
            )
        for part in contents:
            if None not in (tile, part.tile) and part.tile != tile:
                raise MistakeFoundError("stale", agent=agent, slot=slot, tile=tile, held=part.tile)
        self.contents[slot] = mark_read(contents)

    def _begin_access(self, slot: int, access: Access, *, ends_at_once: bool) -> None:
        """Begin an access, or stop at the data race that it makes."""
        remaining: list[Access] = []
        for earlier in self.accesses[slot]:
            overlaps = earlier.start < access.end and access.start < earlier.end
            if overlaps and (earlier.write or access.write):
                keep = self._check_conflict(slot, earlier, access)
            elif earlier.write or access.write or (earlier.agent, earlier.how) != (access.agent, access.how):
                keep = True
            else:
                keep = not self.ordering.is_ordered(earlier, access.agent)
            # only one of its warps has waited for its end
            is_unsynced = earlier.key in self.unsynced_stores.get(earlier.agent, ())
            if is_unsynced or (keep and self.ordering.must_keep(earlier)):
                remaining.append(earlier)
            else:
                self.ordering.forget_access(earlier.key)
        self.accesses[slot] = (*remaining, access)
        self.ordering.begin_access(access, ends_at_once=ends_at_once)

    def _check_conflict(self, slot: int, earlier: Access, access: Access) -> bool:
        """Check an access against an earlier one that it conflicts with; whether the earlier one still matters."""
        covers = access.write and access.start <= earlier.start and earlier.end <= access.end
        if earlier.fill is not None and earlier.fill == access.fill:  # copies of one phase
            self._check_copies_of_phase(slot, earlier, access)
            return True
        is_own = earlier.agent == access.agent
        if is_own and earlier.how == access.how == "tcgen05":  # they run in order
            return not covers
        if is_own and earlier.how == access.how == "generic":  # its threads see what they did themselves
            return not covers
        is_by_threads = access.how in ("generic", "cp.async")
        if is_own and is_by_threads and earlier.key in self.unsynced_stores.get(access.agent, ()):
            raise self._race_of_warps(slot, earlier, access)
        if not self.ordering.is_ordered(earlier, access.agent) and not self._has_its_values(slot, earlier, access):
            raise self._race(slot, earlier, access)
        self._check_fence(slot, earlier, access)
        return not covers

    def _has_its_values(self, slot: int, earlier: Access, access: Access) -> bool:
        """Whether threads free tensor memory after a load of it has completed: a load that has its values needs no more than that."""
        is_freed = self.program.slots[slot].space == "tmem" and access.how == "generic"
        is_load = earlier.how == "generic" and not earlier.write
        return is_freed and is_load and self.ordering.is_ordered_out_of_scope(earlier, access.agent)

    def _check_copies_of_phase(self, slot: int, earlier: Access, access: Access) -> None:
        """Stop if two copies of one phase fill the same bytes, or two tiles."""
        if self.program.slots[slot].bytes:
            raise MistakeFoundError("overlap", slot=slot, agent=access.agent, first=access.start, last=access.end - 1)
        if None not in (earlier.tile, access.tile) and earlier.tile != access.tile:
            raise MistakeFoundError("two tiles", slot=slot, agent=access.agent)

    def _is_by_own_threads(self, access: Access, agent: int) -> bool:
        """Whether an agent's threads made an access, or waited for their cp.async: a fence of theirs covers both.

        Every thread has then waited for its own copies. Those of other warps may still be pending.
        """
        is_waited_for = access.how == "cp.async" and access.key in self.unsynced.get(agent, ())
        return access.agent == agent and (access.how == "generic" or is_waited_for)

    def _race(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        """The mistake of two accesses of which the first does not happen-before the second."""
        if earlier.key in self.unsynced.get(earlier.agent, ()):
            return self._race_of_warps(slot, earlier, access)
        if self.ordering.is_ordered_out_of_scope(earlier, access.agent):
            return MistakeFoundError("scope", **_pair_facts(slot, earlier, access))
        barrier, phase, _ = earlier.fill or (NONE, 0, NONE)
        if not access.write and barrier != NONE and self.last_pass.get((access.agent, barrier), 0) > phase:
            return MistakeFoundError("early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
        return MistakeFoundError("race", **_pair_facts(slot, earlier, access))

    def _race_of_warps(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        """A warp of a role goes on before the others have finished."""
        kinds = {"store": "store warps", "cp.async": "cp.async warps"}
        return MistakeFoundError(
            kinds.get(earlier.how, "warps"),
            **_pair_facts(slot, earlier, access),
            warps=self.program.agents[earlier.agent].warps,
        )

    def _check_fence(self, slot: int, earlier: Access, access: Access) -> None:
        """Stop at an access that is ordered but lacks the fence that its proxy needs; keep a mistake that is only a note."""
        row = self.program.slots[slot]
        rule = find_fence_rule(row.space, earlier.how, access.how, first_writes=earlier.write)
        if rule is None or (rule.between_agents and earlier.agent == access.agent):
            return
        by = {"first": (earlier.agent,), "second": (access.agent,), "any": None}[rule.fence.by]
        if self.ordering.is_fenced(earlier, rule.fence.kind, by, access.agent):
            return
        error = MistakeFoundError("fence", **_pair_facts(slot, earlier, access), fence=rule.fence.instruction)
        if rule.severity == "error":
            raise error
        self.warn(error, row.name, earlier.agent)

    def warn(self, error: MistakeFoundError, subject: str, agent: int) -> None:
        """Keep a mistake as a warning, once for its subject and the agent that makes it."""
        self.warnings.setdefault((error.kind, subject, agent), error)

    def _require_memory(self, agent: int, slot: int) -> None:
        """Stop if an agent accesses the memory of a block that has exited; global memory stays."""
        accessed = self.program.slots[slot]
        if accessed.space != "gmem":
            self._require_present(accessed.home, by="role", agent=agent, slot=slot)

    def _require_present(self, block: int, **access: Fact) -> None:
        if not self.present[block]:
            raise exit_mistake(block, **access)


def _pair_facts(slot: int, earlier: Access, access: Access) -> dict[str, Fact]:
    """Who accesses a slot now, and who did before."""
    return {
        "slot": slot,
        "agent": access.agent,
        "agent_before": earlier.agent,
        "access": _verb(access),
        "access_before": _verb(earlier),
        "how": access.how,
        "how_before": earlier.how,
    }


def exit_mistake(block: int, **access: Fact) -> MistakeFoundError:
    """A block may have exited when something accesses it.

    `by` names the kind of actor: a role, a copy, an arrival, an access (`how`), a landing, or the last warp of an
    arrival. `agent`, `barrier` and `slot` identify it and its target.
    """
    return MistakeFoundError("left", block=block, **access)
