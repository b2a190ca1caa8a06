"""What each action does to the state of a run: an agent performs its next one, waits, or leaves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from tilescope.bits import ones
from tilescope.pipeline.mistake_kinds import NO_PEER
from tilescope.pipeline.wording import mistake_error
from tilescope.sentence import filled
from tilescope.sync.all_orders.action import NONE, Action
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.all_orders.pending_copies import Copies
from tilescope.sync.all_orders.slots import HOW
from tilescope.sync.role_clocks import Clocks
from tilescope.sync.thread_limits import WARPGROUP_THREADS


class Machine(Copies):
    """The state of a run that can go on: an agent performs its next action, or something under way lands."""

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.left[agent] and not self._late_arrivals(agent)
        if self.starts_late(agent):
            return False
        if action.op == "poll":
            return self.tx[action.barriers[0]] >= action.number
        if action.op == "griddepcontrol":
            return action.choice == "launch" or self.program.earlier[agent] or self._grid_before_has_ended()
        if action.waits:
            return self.phase[action.barriers[0]] & 1 != action.number
        if action.meets and action.choice != "wait" and self._late_arrivals(agent):
            return False
        if action.meets:
            standing = self.standing.get((agent, action.barriers[0]))
            if standing is None or (action.choice != "wait" and standing.place != self.pc[agent]):
                return True  # it has not arrived yet
            return self.phase[action.barriers[0]] > standing.phase
        if action.op == "registers":
            return self.register_need(agent, action) <= self.pool[self.program.agents[agent].home]
        return True

    def _grid_before_has_ended(self) -> bool:
        return self.phase[self.program.grid] > 0 or not any(self.program.earlier)

    def starts_late(self, agent: int) -> bool:
        """Whether an agent has to wait for the grid before, which does not let this one start sooner."""
        is_first = self.pc[agent] == 0 and self.program.starts_late and not self.program.earlier[agent]
        return is_first and not self._grid_before_has_ended()

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended, self.sent = [], []
        self.order.begin(agent)
        if self.program.starts_late and not self.program.earlier[agent] and self.pc[agent] == 0:
            self.order.meets(self.program.grid, agent)
        self.actions_done += 1
        if action is None:
            self._leave_work(agent)
            self.leave(agent)
            self._leave_memory(self.program.agents[agent].home)
        elif action.mask:
            raise self._mask_mistake(agent, action)
        elif self._do(agent, action):
            self.pc[agent] += 1
            self.next_action[agent] = next(self.sources[agent], None)

    def _do(self, agent: int, action: Action) -> bool:
        """Change the state as an action says; whether it is over: a meeting takes two, arriving and leaving."""
        if action.op in _MEETINGS:
            return self._meet_threads(agent, action)
        _DOING[action.op](self, agent, action)
        return True

    def _wait(self, agent: int, action: Action) -> None:
        self.pass_wait(action.barriers[0], agent)

    def _close_group(self, agent: int, action: Action) -> None:
        """A commit closes the group that is open; that of tcgen05 names a barrier instead."""
        if not action.choice:
            self._commit(agent, action)
            return
        self.groups[agent, action.choice] = (*self._groups(agent, action.choice), ())

    def _fence(self, agent: int, action: Action) -> None:
        if action.choice == "mbarrier_init":
            self.order.shows_init(agent)
            return
        own = {access.key for access in chain(*self.accesses) if self._is_by_own_threads(access, agent)}
        self.order.fences(agent, action.choice, chain(*self.accesses), own)

    def _signal(self, agent: int, action: Action) -> None:
        self.signal(action.barriers[0], agent, action.times, action.step)

    def _poll(self, agent: int, action: Action) -> None:
        thresholds = self.program.thresholds.get(action.barriers[0], [])
        phase = thresholds.index(action.number) if action.number else NONE
        self.order.polls(action.barriers[0], phase, agent)

    def _depend_on_grid(self, agent: int, action: Action) -> None:
        if action.choice == "wait":
            self.order.meets(self.program.grid, agent)

    def register_need(self, agent: int, action: Action) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative where it gives some back."""
        threads = self.program.agents[agent].of.whole_threads(WARPGROUP_THREADS)
        return int((action.number - self.registers[agent]) * threads)

    def _take_registers(self, agent: int, action: Action) -> None:
        block = self.program.agents[agent].home
        need = self.register_need(agent, action)
        self.pool[block] -= need
        self.registers[agent] = action.number
        self.order.takes_registers(agent, block, need)
        self.ended.append(NONE)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        program = self.program
        blocks = program.pipeline.blocks
        beyond = [rank for rank in ones(action.mask) if rank >= blocks]
        every = (1 << blocks) - 1
        subjects = [
            *(program.barriers[number] for number in action.barriers),
            *(program.slots[number] for number in action.slots),
            program.agents[agent],
        ]
        return mistake_error(
            program,
            "mask",
            more=NO_PEER if action.op == "commit" else "",
            subject=subjects[0].title,
            op=action.op,
            agent=agent,
            mask=action.mask,
            beyond=", ".join(map(str, beyond)),
            blocks=blocks,
            works=action.mask & every or every,
        )

    def _leave_work(self, agent: int) -> None:
        """Stop where an agent leaves work behind that reads or writes its block's memory."""
        if any(self._groups(agent, "bulk")):
            raise mistake_error(self.program, "stores", agent=agent)
        if any(self._groups(agent, "wgmma")):
            raise mistake_error(self.program, "products", agent=agent, unit="wgmma", ended="wgmma.wait_group 0")
        if self.uncommitted.get(agent):
            ended = "a wait for the barrier of a tcgen05.commit"
            raise mistake_error(self.program, "products", agent=agent, unit="tcgen05.mma", ended=ended)
        if {*chain(*self._groups(agent, "cp.async"))} - {*self.heard_of.get(agent, ())}:
            title = self.program.agents[agent].title
            self.warn(mistake_error(self.program, "cp.async left", agent=agent).mistake, title, title)
        self._cover(agent)

    def _leave_memory(self, block: int) -> None:
        """Stop where all agents of a block have left, and its memory is still used: by other blocks, or by a copy without barrier."""
        if self.present[block]:
            return
        agents = [number for number, agent in enumerate(self.program.agents) if agent.home == block]
        for slot, accesses in zip(self.program.slots, self.accesses, strict=True):
            if slot.home != block or slot.of.space == "gmem":
                continue
            for access in accesses:
                is_untold = access.how in ("tma", "bulk") and access.fill is not None and access.fill[0] == NONE
                if not (is_untold or access.agent not in agents):
                    continue
                if not any(self.order.knows(access, agent) for agent in agents):
                    who = filled(HOW[access.how].subject, {"first": self.program.agents[access.agent].title})
                    raise self.exit_mistake(block, who, slot.title)

    def check_exits(self, clocks: Clocks) -> None:
        """After the run: whatever reached into a block certainly did so before that block left."""
        for block, place in clocks.unseen(clocks.remote):
            if place < self.agents:
                raise self.exit_mistake(block, self.program.agents[place].title, "one of its mbarriers")
            title = self.program.barriers[place - self.agents].title
            raise self.exit_mistake(block, f"a copy or an arrival for {title}", "it")
        for block, barrier in clocks.unseen_warps():
            title = self.program.barriers[barrier].title
            raise self.exit_mistake(block, f"the last warp that arrives at {title}", "it")
        for block, place in clocks.unseen(clocks.local):
            barrier = place - self.agents
            mistake = mistake_error(self.program, "arrival left", where=self._where(block), barrier=barrier).mistake
            self.warn(mistake, self.program.barriers[barrier].row_name, "")


_MEETINGS = ("sync", "bar_arrive", "cluster")
# what the other operations do
_DOING: dict[str, Callable[[Machine, int, Action], None]] = {
    "init": Machine._initialise,
    "wait": Machine._wait,
    "tail": Machine._wait,
    "expect": Machine._arrive,
    "arrive": Machine._arrive,
    "release": Machine._arrive,
    "copy": Machine._copy,
    "cp_arrive": Machine._cp_arrive,
    "read": Machine._touch,
    "write": Machine._touch,
    "multiply": Machine._touch,
    "store": Machine._touch,
    "commit": Machine._close_group,
    "wait_group": Machine._wait_group,
    "fence": Machine._fence,
    "signal": Machine._signal,
    "poll": Machine._poll,
    "griddepcontrol": Machine._depend_on_grid,
    "registers": Machine._take_registers,
}
