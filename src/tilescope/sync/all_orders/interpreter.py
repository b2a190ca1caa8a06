"""The interpreter of role programs: an agent performs its next action, waits, or exits.

enabled(agent 1)?   "wait full[0], parity 0": only when phase 0 of the barrier has ended
perform(agent 0)    "arrive full[0]": counts on the barrier; the phase ends, and agent 1 is enabled
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from tilescope.sync.all_orders.mistake import BlockedAgent, MistakeFoundError
from tilescope.sync.all_orders.pending_copies import PendingCopies
from tilescope.sync.all_orders.slots import exit_mistake
from tilescope.sync.happens_before import NONE
from tilescope.sync.role_clocks import RoleClocks
from tilescope.sync.role_program import Action


class Interpreter(PendingCopies):
    """The state of a run that can go on: an agent performs its next action, or a pending operation lands."""

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.exited[agent] and not self._delayed_arrivals(agent)
        if self.starts_late(agent):
            return False
        if action.op == "poll":
            return self.tx[action.barriers[0]] >= action.number
        if action.op == "griddepcontrol":
            is_earlier = self.program.agents[agent].is_earlier
            return action.choice == "launch" or is_earlier or self._has_grid_before_ended()
        if action.is_wait:
            return self.phase[action.barriers[0]] & 1 != action.number
        if action.is_thread_wait and action.choice != "wait" and self._delayed_arrivals(agent):
            return False
        if action.is_thread_wait:
            arrival = self.thread_arrivals.get((agent, action.barriers[0]))
            if arrival is None or (action.choice != "wait" and arrival.place != self.pc[agent]):
                return True  # it has not arrived yet
            return self.phase[action.barriers[0]] > arrival.phase
        if action.op == "registers":
            return self.register_need(agent, action) <= self.pool[self.program.agents[agent].home]
        return True

    def find_blocked(self) -> list[BlockedAgent]:
        """Agents that cannot act, with the action that each waits to perform."""
        blocked = []
        for agent in range(self.agents):
            action = self.current(agent)
            if action is not None and not self.enabled(agent):
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
        elif action.mask:
            raise self._mask_mistake(agent, action)
        elif self._execute(agent, action):
            self.pc[agent] += 1
            self.next_action[agent] = next(self.later_actions[agent], None)

    def _execute(self, agent: int, action: Action) -> bool:
        """Change the state as an action says; whether it is over: waiting at a barrier of threads takes two."""
        if action.op in _THREAD_BARRIER_OPS:
            return self._synchronize_threads(agent, action)
        _HANDLERS[action.op](self, agent, action)
        return True

    def _wait(self, agent: int, action: Action) -> None:
        self.pass_wait(action.barriers[0], agent)

    def _close_group(self, agent: int, action: Action) -> None:
        """Close the open group; a commit of tcgen05 names a barrier instead."""
        if not action.choice:
            self._commit(agent, action)
            return
        self.groups[agent, action.choice] = (*self._groups(agent, action.choice), ())

    def _fence(self, agent: int, action: Action) -> None:
        if action.choice == "mbarrier_init":
            self.ordering.fence_inits(agent)
            return
        own = {access.key for access in chain(*self.accesses) if self._is_by_own_threads(access, agent)}
        self.ordering.fence(agent, action.choice, chain(*self.accesses), own)

    def _signal(self, agent: int, action: Action) -> None:
        self.signal(action.barriers[0], agent, action.times)

    def _poll(self, agent: int, action: Action) -> None:
        thresholds = self.program.thresholds.get(action.barriers[0], [])
        phase = thresholds.index(action.number) if action.number else NONE
        self.ordering.pass_poll(action.barriers[0], phase, agent)

    def _depend_on_grid(self, agent: int, action: Action) -> None:
        if action.choice == "wait":
            self.ordering.acquire(self.program.grid, agent)

    def register_need(self, agent: int, action: Action) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative if it gives some back."""
        threads = self.program.agents[agent].warpgroup_threads
        return int((action.number - self.registers[agent]) * threads)

    def _take_registers(self, agent: int, action: Action) -> None:
        block = self.program.agents[agent].home
        need = self.register_need(agent, action)
        self.pool[block] -= need
        self.registers[agent] = action.number
        self.ordering.take_registers(agent, block, need)
        self.ended.append(NONE)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        blocks = self.program.cluster_blocks
        every = (1 << blocks) - 1
        return MistakeFoundError(
            "mask",
            op=action.op,
            agent=agent,
            mask=action.mask,
            blocks=blocks,
            works=action.mask & every or every,
            barriers=action.barriers,
            slots=action.slots,
        )

    def _check_work_left(self, agent: int) -> None:
        """Stop if an agent exits while its own pending work reads or writes its block's memory."""
        if any(self._groups(agent, "bulk")):
            raise MistakeFoundError("stores", agent=agent)
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
            error = MistakeFoundError("arrival left", barrier=barrier, block=block)
            self.warn(error, self.program.barriers[barrier].name, NONE)


_THREAD_BARRIER_OPS = ("sync", "bar_arrive", "cluster")
# what carries out the other operations
_HANDLERS: dict[str, Callable[[Interpreter, int, Action], None]] = {
    "init": Interpreter._initialise,
    "wait": Interpreter._wait,
    "tail": Interpreter._wait,
    "expect": Interpreter._arrive,
    "arrive": Interpreter._arrive,
    "release": Interpreter._arrive,
    "copy": Interpreter._copy,
    "cp_arrive": Interpreter._arrive_after_copies,
    "read": Interpreter._access_slots,
    "write": Interpreter._access_slots,
    "multiply": Interpreter._access_slots,
    "store": Interpreter._access_slots,
    "commit": Interpreter._close_group,
    "wait_group": Interpreter._wait_group,
    "fence": Interpreter._fence,
    "signal": Interpreter._signal,
    "poll": Interpreter._poll,
    "griddepcontrol": Interpreter._depend_on_grid,
    "registers": Interpreter._take_registers,
}
