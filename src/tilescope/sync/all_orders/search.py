"""Running a role program: once against a nominal clock, and in every order if that must decide.

    Run(program)()           one order, with vector clocks: the first mistake, or none in any order whose phases are the same
    search(program, 1000)    breadth-first over all orders, up to 1000 states: the mistake with the shortest path into it

Times are nominal: an action takes a tick, a copy lands six ticks after its issue, a tensor core is busy for four. They
make a timeline readable and choose one order of many; no verdict rests on them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from tilescope.sync.all_orders.interpreter import Interpreter
from tilescope.sync.all_orders.mistake import BlockedAgent, MistakeFoundError
from tilescope.sync.all_orders.state import PendingOperation
from tilescope.sync.all_orders.stuck_diagnosis import check_deadlock
from tilescope.sync.happens_before import NONE, Key
from tilescope.sync.one_order import OneOrder
from tilescope.sync.role_clocks import RoleClocks
from tilescope.sync.role_events import Action, Fence, GroupCommit, GroupWait, MbarrierWait, TmemWork, WgmmaIssued
from tilescope.sync.role_program import RoleProgram

COPY_TICKS = 6
MULTIPLY_TICKS = 4
MAX_ACTIONS = 20_000_000
_KEPT_MARKS = 3_000  # at the beginning of a long run, and as many at its end
_AT_LAST = 1 << 40  # ticks: after everything else
_NO_KEY: Key = (NONE, NONE, NONE)

Done: TypeAlias = Action | PendingOperation | None  # an action, what landed, or None for an exit


MarkKind = Literal["action", "flight", "phase", "stuck"]


class Mark(NamedTuple):
    """A piece of a timeline: what an agent did from tick to tick; pending copies name the agent that issued them."""

    start: int
    end: int
    agent: int
    kind: MarkKind
    done: Action | PendingOperation
    barrier: int = NONE
    phase: int = NONE


class Due(NamedTuple):
    """What comes next in a run: at equal ticks, in the order in which it was scheduled."""

    tick: int
    order: int
    agent: int  # NONE: something lands
    pending: Key


class Run:
    """One run against the nominal clock; `slow` agents and late landings act when nothing else can."""

    def __init__(self, program: RoleProgram, *, slow: int | None = None, copy_ticks: int = COPY_TICKS) -> None:
        self.clocks = RoleClocks(program)
        self.state = Interpreter(program, self.clocks)
        self.slow = slow
        self.copy_ticks = copy_ticks  # from issue to landing
        self.first_marks: list[Mark] = []
        self.last_marks: deque[Mark] = deque(maxlen=_KEPT_MARKS)
        self.waiting: dict[int, int] = {}  # agent: since when
        self.order = count(self.state.agents)
        # a heap; empty at the end, unless that was beyond MAX_ACTIONS
        self.queue = [Due(0, agent, agent, _NO_KEY) for agent in range(self.state.agents)]
        self.parked: dict[int, list[int]] = {}  # barrier, or NONE: agents that wait
        self.busy_until = [0] * self.state.agents
        self.parities: dict[tuple[int, int], int] = {}  # barrier and agent: the parity of its first wait
        self.tick = 0
        self.mistake: MistakeFoundError | None = None  # at which the run ended

    def __call__(self) -> MistakeFoundError | None:
        """Run to the end, or to the first mistake."""
        state = self.state
        try:
            while self.queue:
                due = heapq.heappop(self.queue)
                self.tick = due.tick
                if due.agent == NONE:
                    self._land(state.outstanding[due.pending])
                else:
                    self.act(due.agent)
                if state.actions_done > MAX_ACTIONS:
                    return None
            check_deadlock(state)
            for barrier in range(state.mbarriers):
                self.clocks.check_open_phase(barrier, state.phase[barrier], state.pending[barrier], state.tx[barrier])
            self.clocks.check_registers()
            state.check_exits(self.clocks)
        except MistakeFoundError as error:
            for agent, action in state.find_blocked():  # waits that never pass, up to the end of the run
                since = self.waiting.get(agent, self.tick)
                barrier, phase = self._running_phase(action)
                self._add_mark(Mark(since, self.tick + COPY_TICKS, agent, "stuck", action, barrier, phase))
            self.mistake = error
            return error
        return None

    def marks(self) -> list[Mark]:
        """The timeline in order of time: of a long run its beginning and its end."""
        return sorted([*self.first_marks, *self.last_marks], key=lambda mark: (mark.start, mark.agent))

    def _add_mark(self, mark: Mark) -> None:
        if len(self.first_marks) < _KEPT_MARKS:
            self.first_marks.append(mark)
        else:
            self.last_marks.append(mark)

    def _schedule(self, ticks: int, agent: int, pending: Key = _NO_KEY) -> None:
        """Let an agent act, or something land, after that many ticks."""
        tick = self.tick + (_AT_LAST if agent == self.slow else ticks)
        heapq.heappush(self.queue, Due(tick, next(self.order), agent, pending))

    def act(self, agent: int) -> None:
        """Let an agent do its next action, or wait for it."""
        state = self.state
        action = state.current(agent)
        place = state.pc[agent]
        duration = 1
        barrier, phase = self._running_phase(action)
        if isinstance(action, MbarrierWait):
            self.parities.setdefault((barrier, agent), action.parity)
        if not state.is_enabled(agent):
            assert action is not None
            waited_for = state.program.grid if state.starts_late(agent) else action.barrier
            self.parked.setdefault(waited_for, []).append(agent)
            self.waiting.setdefault(agent, self.tick)
            return
        state.perform(agent)
        for key in state.issued:
            self._schedule(self._ticks(state.outstanding[key]), NONE, key)
        if action is not None:
            if isinstance(action, WgmmaIssued | TmemWork):
                self.busy_until[agent] = max(self.busy_until[agent], self.tick) + MULTIPLY_TICKS
            elif isinstance(action, GroupWait) and action.unit == "wgmma" and not action.newest:
                duration = max(1, self.busy_until[agent] - self.tick)
            if state.pc[agent] == place:  # it has arrived at a barrier of threads, and waits there
                self.waiting.setdefault(agent, self.tick)
            else:
                since = self.waiting.pop(agent, self.tick)
                self._add_mark(Mark(since, self.tick + duration, agent, "action", action, barrier, phase))
        self._wake(agent, action)
        if not state.exited[agent]:
            self._schedule(duration, agent)

    def _running_phase(self, action: Action | None) -> tuple[int, int]:
        """The mbarrier of an action and its running phase."""
        barrier = NONE if action is None else action.barrier
        return (barrier, self.state.phase[barrier]) if 0 <= barrier < self.state.mbarriers else (NONE, NONE)

    def _ticks(self, operation: PendingOperation) -> int:
        """How long an operation is pending."""
        return self.copy_ticks if operation.kind == "copy" else MULTIPLY_TICKS

    def _land(self, operation: PendingOperation) -> None:
        start = self.tick - self._ticks(operation)
        phase = self.state.phase[operation.barrier]
        self._add_mark(Mark(start, self.tick, operation.agent, "flight", operation, operation.barrier, phase))
        self.state.land(operation)
        self._wake(operation.agent, operation)

    def _wake(self, agent: int, cause: Done) -> None:
        """Let those go on who waited for what just ended, and mark which phase that was."""
        state = self.state
        for barrier in dict.fromkeys(state.ended):
            if 0 <= barrier < state.mbarriers and cause is not None:
                self._add_mark(Mark(self.tick, self.tick, agent, "phase", cause, barrier, state.phase[barrier] - 1))
            for waiting in self.parked.pop(barrier, ()):
                self._schedule(0, waiting)


class Move(NamedTuple):
    """A step of a path: an agent acts, or something lands (agent NONE)."""

    agent: int
    done: Done


class Found(NamedTuple):
    """The result of a search: the first mistake with the shortest path into it, the states, and whether those were all."""

    mistake: MistakeFoundError | None
    states: int
    is_complete: bool
    path: tuple[Move, ...] = ()
    blocked: tuple[BlockedAgent, ...] = ()  # in a deadlock: waits that never pass


_Path: TypeAlias = tuple["_Path", Move] | None  # the path before, and the last move


def search(program: RoleProgram, max_states: int) -> Found:
    """The first mistake in the orders of all actions and landings, shortest first."""
    state = Interpreter(program, OneOrder())
    seen = {_key(state)}
    queue: deque[tuple[Interpreter, _Path]] = deque([(state, None)])
    while queue:
        state, path = queue.popleft()
        acting = state
        longer = path
        try:
            moves = _moves(state)
            if not moves:
                check_deadlock(state)
            for move in moves:
                acting = state.clone()
                longer = (path, move)
                if isinstance(move.done, PendingOperation):
                    acting.land(move.done)
                else:
                    acting.perform(move.agent)
                key = _key(acting)
                if key not in seen:
                    if len(seen) >= max_states:
                        return Found(None, len(seen), is_complete=False)
                    seen.add(key)
                    queue.append((acting, longer))
        except MistakeFoundError as error:
            mistake = (acting.torn_copy if error.outcome == "race" else None) or error
            blocked = tuple(state.find_blocked()) if mistake.outcome == "hang" else ()
            return Found(mistake, len(seen), is_complete=False, path=_unwind(longer), blocked=blocked)
    return Found(None, len(seen), is_complete=True)


def _one_order(state: Interpreter) -> OneOrder:
    """The order of a state that is searched."""
    assert isinstance(state.ordering, OneOrder)
    return state.ordering


def _key(state: Interpreter) -> Hashable:
    """Equal for two states if the same may come after both: a search visits only one of them."""
    return state.key(), _one_order(state).key()


def _unwind(path: _Path) -> tuple[Move, ...]:
    """The moves of a path, from its beginning."""
    moves: list[Move] = []
    while path is not None:
        path, move = path
        moves.append(move)
    return tuple(reversed(moves))


def _moves(state: Interpreter) -> list[Move]:
    """All that can happen next: agents with their actions, and landings.

    A single move if its position among the others makes no difference: a fence, the end of a group, and an agent that
    exits (the earlier it exits, the more accesses can reach an exited block), unless the exit ends one of its accesses.
    """
    moves: list[Move] = []
    for agent in filter(state.is_enabled, range(state.agents)):
        action = state.current(agent)
        if action is None:
            changes_nothing = agent not in state.unsynced
        else:
            changes_nothing = isinstance(action, Fence | GroupCommit)
        if changes_nothing and agent not in _one_order(state).ends_with_step:
            return [Move(agent, action)]
        moves.append(Move(agent, action))
    landings = [*filter(state.can_land, state.outstanding.values())]
    pieces = [  # of copies whose first bytes leave their barrier's count at 0 before the last have come
        operation._replace(size_bytes=state.tx[operation.barrier])
        for operation in landings
        if operation.kind == "copy" and 0 < state.tx[operation.barrier] < operation.size_bytes
    ]
    return moves + [Move(NONE, operation) for operation in (*landings, *pieces)]
