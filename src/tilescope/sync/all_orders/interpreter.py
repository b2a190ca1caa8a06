"""The interpreter of role programs: an agent performs its next action, waits, or exits.

is_enabled(agent 1)?   "wait full[0], parity 0": only when phase 0 of the barrier has ended
perform(agent 0)    "arrive full[0]": counts on the barrier; the phase ends, and agent 1 is enabled
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from tilescope.sync.all_orders.mistake import BlockedAgent, MistakeFoundError
from tilescope.sync.all_orders.pending_copies import PendingCopies
from tilescope.sync.all_orders.slots import exit_mistake
from tilescope.sync.happens_before import NONE
from tilescope.sync.proxies import PROXY_ASYNC
from tilescope.sync.role_clocks import RoleClocks
from tilescope.sync.role_events import (
    Action,
    BulkStoreIssued,
    ClusterWait,
    CopyIssued,
    CpAsyncArriveIssued,
    CpAsyncIssued,
    FlagAdd,
    FlagPoll,
    GridDependency,
    GroupCommit,
    GroupWait,
    Load,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    ProxyFence,
    RegisterRequest,
    Store,
    ThreadBarrier,
    TmemCommit,
    TmemFence,
    TmemWork,
    WgmmaIssued,
)


class Interpreter(PendingCopies):
    """The state of a run that can go on: an agent performs its next action, or a pending operation lands."""

    def is_enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.exited[agent] and not self._delayed_arrivals(agent)
        if self.starts_late(agent):
            return False
        match action:
            case MbarrierWait(parity=parity):
                return self.phase[action.barriers[0]] & 1 != parity
            case ThreadBarrier(waits=True):
                return self._can_synchronize(agent, action)
            case FlagPoll(value=value):
                return self.tx[action.barriers[0]] >= value
            case GridDependency(waits=True):
                return self.program.agents[agent].is_earlier or self._has_grid_before_ended()
            case RegisterRequest():
                return self.register_need(agent, action) <= self.pool[self.program.agents[agent].home]
        return True

    def _can_synchronize(self, agent: int, action: ThreadBarrier) -> bool:
        """Whether an agent can arrive at a barrier of threads at which it waits, or pass it."""
        is_wait_alone = isinstance(action, ClusterWait)
        if not is_wait_alone and self._delayed_arrivals(agent):
            return False
        arrival = self.thread_arrivals.get((agent, action.barriers[0]))
        if arrival is None or (not is_wait_alone and arrival.place != self.pc[agent]):
            return True  # it has not arrived yet
        return self.phase[action.barriers[0]] > arrival.phase

    def find_blocked(self) -> list[BlockedAgent]:
        """Agents that cannot act, with the action that each waits to perform."""
        blocked = []
        for agent in range(self.agents):
            action = self.current(agent)
            if action is not None and not self.is_enabled(agent):
                blocked.append(BlockedAgent(agent, action))
        return blocked

    def _has_grid_before_ended(self) -> bool:
        return self.phase[self.program.grid] > 0 or not any(agent.is_earlier for agent in self.program.agents)

    def starts_late(self, agent: int) -> bool:
        """Whether an agent has to wait for the grid before, which does not let this one start sooner."""
        if not self.program.starts_late:
            return False
        return self._starts_after_grid(agent) and not self._has_grid_before_ended()

    def _starts_after_grid(self, agent: int) -> bool:
        """Whether an agent's next action is its first, and comes after the end of the grid before."""
        return self.pc[agent] == 0 and not self.program.agents[agent].is_earlier

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended, self.issued = [], []
        self.ordering.advance(agent)
        if self.program.starts_late and self._starts_after_grid(agent):
            self.ordering.acquire(self.program.grid, agent)
        self.actions_done += 1
        if action is None:
            self._check_work_left(agent)
            self.exit(agent)
            self._check_memory_left(self.program.agents[agent].home)
        elif action.mask_beyond:
            raise self._mask_mistake(agent, action)
        elif self._execute(agent, action):
            self.pc[agent] += 1
            self.next_action[agent] = next(self.later_actions[agent], None)

    def _execute(self, agent: int, action: Action) -> bool:
        """Change the state as an action requires. False if it has not completed: waiting at a barrier of threads takes two moves."""
        if isinstance(action, ThreadBarrier):
            return self._synchronize_threads(agent, action)
        _HANDLERS[type(action)](self, agent, action)
        return True

    def _wait(self, agent: int, action: MbarrierWait) -> None:
        self.pass_wait(action.barriers[0], agent)

    def _close_group(self, agent: int, action: GroupCommit) -> None:
        self.groups[agent, action.unit] = (*self._groups(agent, action.unit), ())

    def _fence_inits(self, agent: int, _: MbarrierInitFence) -> None:
        self.ordering.fence_inits(agent)

    def _fence_proxies(self, agent: int, _: ProxyFence) -> None:
        self._fence_accesses(agent, PROXY_ASYNC.kind)

    def _fence_tensor_memory(self, agent: int, action: TmemFence) -> None:
        self._fence_accesses(agent, action.kind)

    def _fence_accesses(self, agent: int, kind: str) -> None:
        own_keys = {access.key for access in chain(*self.accesses) if self._is_by_own_threads(access, agent)}
        self.ordering.fence(agent, kind, chain(*self.accesses), own_keys)

    def _signal(self, agent: int, action: FlagAdd) -> None:
        self.signal(action.barriers[0], agent, action.amount)

    def _poll(self, agent: int, action: FlagPoll) -> None:
        thresholds = self.program.thresholds.get(action.barriers[0], [])
        phase = thresholds.index(action.value) if action.value else NONE
        self.ordering.pass_poll(action.barriers[0], phase, agent)

    def _depend_on_grid(self, agent: int, action: GridDependency) -> None:
        if action.waits:
            self.ordering.acquire(self.program.grid, agent)

    def register_need(self, agent: int, action: RegisterRequest) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative if it gives some back."""
        threads = self.program.agents[agent].warpgroup_threads
        return (action.registers - self.registers[agent]) * threads

    def _take_registers(self, agent: int, action: RegisterRequest) -> None:
        block = self.program.agents[agent].home
        need = self.register_need(agent, action)
        self.pool[block] -= need
        self.registers[agent] = action.registers
        self.ordering.take_registers(agent, block, need)
        self.ended.append(NONE)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        blocks = self.program.cluster_blocks
        every = (1 << blocks) - 1
        error = MistakeFoundError(
            "mask",
            agent=agent,
            mask=action.mask_beyond,
            blocks=blocks,
            works=action.mask_beyond & every or every,
            barriers=action.barriers,
            slots=action.slots,
        )
        error.action = action
        return error

    def _check_work_left(self, agent: int) -> None:
        """Stop if an agent exits while its own pending work reads or writes its block's memory."""
        if any(self._groups(agent, "bulk")):
            error = MistakeFoundError("stores", agent=agent)
            if not self.program.is_measured:
                raise error
            self.warn(error, "", agent)
        if any(self._groups(agent, "wgmma")):
            raise MistakeFoundError("products", agent=agent, unit="wgmma")
        if self.uncommitted.get(agent):
            raise MistakeFoundError("products", agent=agent, unit="tcgen05.mma")
        if {*chain(*self._groups(agent, "cp.async"))} - {*self.signalled_copies.get(agent, ())}:
            self.warn(MistakeFoundError("cp.async left", agent=agent), "", agent)
        self._synchronize_warps(agent)

    def _check_memory_left(self, block: int) -> None:
        """Stop if a block has exited, and other blocks or a copy without a barrier still access its memory."""
        if self.present[block]:
            return
        agents = [number for number, agent in enumerate(self.program.agents) if agent.home == block]
        for number, (slot, accesses) in enumerate(zip(self.program.slots, self.accesses, strict=True)):
            if slot.home != block or slot.space == "gmem":
                continue
            for access in accesses:
                has_no_barrier = access.how in ("tma", "bulk") and access.fill is not None and access.fill[0] == NONE
                if not (has_no_barrier or access.agent not in agents):
                    continue
                if not any(self.ordering.is_ordered(access, agent) for agent in agents):
                    raise exit_mistake(block, by="access", how=access.how, agent=access.agent, slot=number)

    def check_exits(self, clocks: RoleClocks) -> None:
        """After the run: every access to a block happens-before the exit of that block."""
        for block, column in clocks.find_unordered_exits(clocks.remote):
            if column < self.agents:
                raise exit_mistake(block, by="role", agent=column)
            raise exit_mistake(block, by="landing", barrier=column - self.agents)
        for block, barrier in clocks.find_delayed_exits():
            raise exit_mistake(block, by="last warp", barrier=barrier)
        for block, column in clocks.find_unordered_exits(clocks.local):
            barrier = column - self.agents
            kind = "copy left" if (block, barrier) in self.own_copies else "arrival left"
            error = MistakeFoundError(kind, barrier=barrier, block=block)
            self.warn(error, self.program.barriers[barrier].name, NONE)


# what carries out an event; barriers of threads are apart, because waiting there takes two moves
_HANDLERS: dict[type[Action], Callable[[Interpreter, int, Any], None]] = {
    MbarrierInit: Interpreter._initialise,
    MbarrierInval: Interpreter._invalidate,
    MbarrierWait: Interpreter._wait,
    MbarrierArrive: Interpreter._arrive,
    MbarrierExpect: Interpreter._expect,
    CopyIssued: Interpreter._copy,
    CpAsyncIssued: Interpreter._copy,
    CpAsyncArriveIssued: Interpreter._arrive_after_copies,
    Load: Interpreter._access_slots,
    Store: Interpreter._access_slots,
    WgmmaIssued: Interpreter._access_slots,
    TmemWork: Interpreter._access_slots,
    BulkStoreIssued: Interpreter._access_slots,
    TmemCommit: Interpreter._commit,
    GroupCommit: Interpreter._close_group,
    GroupWait: Interpreter._wait_group,
    ProxyFence: Interpreter._fence_proxies,
    TmemFence: Interpreter._fence_tensor_memory,
    MbarrierInitFence: Interpreter._fence_inits,
    FlagAdd: Interpreter._signal,
    FlagPoll: Interpreter._poll,
    GridDependency: Interpreter._depend_on_grid,
    RegisterRequest: Interpreter._take_registers,
}
