"""The mbarriers of a run: what each counts in its running phase, and who certainly knows that a phase has ended.

An operation is certain of its phase when the end of the phase before lies in its past. One that is not could have met
another phase in another order of the roles: it goes into the journal as an ambiguity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.memory import Clock, copied
from tilescope.pipeline.mistake import Mistake, MistakeFoundError, example, pipeline_rule
from tilescope.pipeline.program import Program

_LOAD = ({"copy": "a", "bytes": 4096, "barrier": "full"}, {"wait": "full", "parity": 0}, {"read": ["a"]})
ARRIVALS = pipeline_rule(
    "pipeline-arrivals", "As many arrivals come in a phase as the barrier counts: fewer never end it, more in one instruction fault.",
    example({"arrive": "full"}, {"wait": "full", "parity": 0}, barriers={"full": {"count": 2}}), basis="measured",
)  # fmt: skip
BYTES = pipeline_rule(
    "pipeline-bytes", "The bytes that a phase expects are those that its copies bring, and are expected before its last arrival.",
    example({"expect": "full", "bytes": 8192}, *_LOAD), basis="measured",
)  # fmt: skip
INIT = pipeline_rule(
    "pipeline-init", "A barrier is initialised, and known to be, before it is used; across blocks with fence.mbarrier_init.",
    example({"init": ["full"]}, others=(({"arrive": "full"},),)),
)  # fmt: skip


class Note(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int


class Ambiguity(NamedTuple):
    """An operation that could meet another phase than it met."""

    op: str  # arrive, wait, late, early
    barrier: int
    phase: int
    agent: int


class Journal:
    """What a run notes for those who drive it: ambiguities, and what ended in the last action."""

    def __init__(self) -> None:
        self.ambiguities: list[Ambiguity] = []
        self.ended: list[int] = []  # barriers; NONE stands for meetings of threads and registers
        self.early: Mistake | None = None  # a phase that ends with a piece of a copy, though not in this run

    def clone(self) -> Journal:
        """An independent copy."""
        other = copied(self)
        other.ended = []
        return other


class Barriers:
    """The state of every barrier instance; `place` of a clock for barrier b is agents + b."""

    def __init__(self, program: Program, journal: Journal, zero: Clock) -> None:
        self.program, self.journal = program, journal
        self.agents = len(program.agents)
        many = program.barrier_count if program.pipeline.barriers else 0
        self.expected = [program.barrier(number).count for number in range(many)]
        self.pending = list(self.expected)
        self.tx = [0] * many
        self.phase = [0] * many
        self.gathered: list[Clock | None] = [None] * many  # what those who counted in the running phase know together
        self.released: list[Clock] = [zero] * many  # the same of the phase before
        self.raised: list[tuple[tuple[int, int], ...]] = [()] * many  # (agent, time) of what no arrival covers yet
        self.passed: list[tuple[tuple[int, int], ...]] = [()] * many  # waits that passed in the running phase
        self.notes: list[tuple[Note, ...]] = [()] * many
        self.first_notes: list[tuple[Note, ...]] = [()] * many  # of phase 0
        self.arrivers: list[tuple[int, ...]] = [()] * many  # agents that have ever arrived
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): phase in which its last wait passed
        self.initialised: list[tuple[int, int] | None] = [None] * many
        self.init_fences: list[tuple[int, ...]] = [()] * self.agents

    def clone(self, journal: Journal) -> Barriers:
        """An independent copy; clocks are shared."""
        other = copied(self)
        other.journal = journal
        return other

    def pass_wait(self, barrier: int, agent: int, clock: Clock, time: int) -> None:
        """A wait passes: the agent knows all that those who ended the phase before knew."""
        self.require_initialised(barrier, agent, clock)
        phase = self.phase[barrier]
        if phase >= 2 and clock[self.agents + barrier] < phase - 1:
            self.journal.ambiguities.append(Ambiguity("wait", barrier, phase, agent))
        if phase:
            np.maximum(clock, self.released[barrier], out=clock)
        self.passed[barrier] = (*self.passed[barrier], (agent, time))
        self.last_pass[agent, barrier] = phase

    def count(
        self, barrier: int, agent: int, clock: Clock, time: int, *,
        arrivals: int = 0, tx: int = 0, more: int = 0, raises: bool = False, dropped: int = 0, lands: bool = False, covers: bool = True,
    ) -> int:  # fmt: skip
        """Count an operation on a barrier; the phase that it met."""
        self.require_initialised(barrier, agent, clock)
        phase, place = self.phase[barrier], self.agents + barrier
        if clock[place] < phase:
            self.journal.ambiguities.append(Ambiguity("arrive", barrier, phase, agent))
        op = "bytes" if lands else "more" if more else "expect" if tx else "arrive"
        amount = -tx if lands else tx or more or arrivals
        self.notes[barrier] = (*self.notes[barrier], Note(op, agent, amount))
        if tx and not lands and arrivals:
            self.notes[barrier] = (*self.notes[barrier], Note("arrive", agent, arrivals))
        if arrivals and agent not in self.arrivers[barrier]:
            self.arrivers[barrier] = (*self.arrivers[barrier], agent)
        self.pending[barrier] += more - arrivals
        if lands and self.pending[barrier] == 0 and 0 < self.tx[barrier] < -tx:
            self.journal.early = self.journal.early or self._ends_with_a_piece(barrier, -tx)
        self.tx[barrier] += tx
        self.expected[barrier] -= dropped
        if self.pending[barrier] < 0:
            raise MistakeFoundError(self._too_many(barrier))
        if not -TX_END_BYTES < self.tx[barrier] < TX_END_BYTES:
            raise MistakeFoundError(self._too_many_bytes(barrier))
        if raises or more:
            self.raised[barrier] = (*self.raised[barrier], (agent, time))
        elif arrivals and covers and self.raised[barrier]:
            self.raised[barrier] = tuple(each for each in self.raised[barrier] if clock[each[0]] < each[1])
        gathered = self.gathered[barrier]
        self.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)
        if self.pending[barrier] == 0 and self.tx[barrier] == 0:
            self._end_phase(barrier, None if lands else clock)
        return phase

    def _end_phase(self, barrier: int, clock: Clock | None) -> None:
        """The next phase begins; `clock` is that of the agent whose own action ended this one."""
        phase, place = self.phase[barrier], self.agents + barrier
        gathered = self.gathered[barrier]
        assert gathered is not None
        if self.raised[barrier]:
            self.journal.ambiguities.append(Ambiguity("early", barrier, phase, self.raised[barrier][0][0]))
        for waiter, time in self.passed[barrier]:
            if gathered[waiter] < time:
                self.journal.ambiguities.append(Ambiguity("late", barrier, phase, waiter))
        alone = clock is not None and bool((gathered <= clock).all())  # nothing else was needed: the agent knows
        released = gathered.copy()
        np.maximum(released, self.released[barrier], out=released)
        released[place] = phase + 1
        if alone and clock is not None:
            clock[place] = phase + 1
        self.released[barrier] = released
        self.gathered[barrier] = None
        self.phase[barrier] = phase + 1
        self.pending[barrier] = self.expected[barrier]
        self.raised[barrier] = self.passed[barrier] = ()
        if phase == 0:
            self.first_notes[barrier] = self.notes[barrier]
        self.notes[barrier] = ()
        self.journal.ended.append(barrier)

    def require_initialised(self, barrier: int, agent: int, clock: Clock) -> None:
        """Stop where an agent cannot know that a barrier is initialised."""
        if not self.program.initialises:
            return
        made = self.initialised[barrier]
        name, who = self.program.barrier_name(barrier), self.program.agents[agent]
        if made is None or clock[made[0]] < made[1]:
            raise MistakeFoundError(Mistake(
                "pipeline-init", "undefined", name, f"{who.name} uses {name} without knowing that it is initialised",
                "it may count on old bytes", "Put a sync (cluster sync for other blocks) between init and the first use.",
            ))  # fmt: skip
        if self.program.agents[made[0]].rank != who.rank and not any(
            made[1] < fence <= clock[made[0]] for fence in self.init_fences[made[0]]
        ):
            raise MistakeFoundError(Mistake(
                "pipeline-init", "undefined", name, f"{who.name} uses {name}, initialised in another block without fence.mbarrier_init",
                "it may count on old bytes", "Put fence.mbarrier_init.release.cluster between init and the cluster barrier.",
            ))  # fmt: skip

    def _too_many(self, barrier: int) -> Mistake:
        name, phase = self.program.barrier_name(barrier), self.phase[barrier]
        came = sum(note.amount for note in self.notes[barrier] if note.op == "arrive")
        names = list(
            dict.fromkeys(self.program.agents[note.agent].name for note in self.notes[barrier] if note.op == "arrive")
        )
        count = self.expected[barrier]
        waiting = f", {self.tx[barrier]} bytes still missing" if self.tx[barrier] else ""
        return Mistake(
            "pipeline-arrivals", "launch failure", name,
            f"{name} counts {count} and {came} arrivals come in phase {phase} ({', '.join(names)}{waiting})",
            "launch failure (719), or a phase that ends too soon where single arrivals bring them",
            f"Initialise it with {came}, or let {came - count} fewer arrive.",
        )  # fmt: skip

    def _ends_with_a_piece(self, barrier: int, size: int) -> Mistake:
        name, tx = self.program.barrier_name(barrier), self.tx[barrier]
        return Mistake(
            "pipeline-bytes", "race", name, f"{name}, phase {self.phase[barrier]} ends when {tx} of the {size} bytes of a copy have landed",
            "a copy's bytes count piece by piece, and whoever waits reads old bytes",
            "Expect the bytes of all copies of the phase before its last arrival.",
        )  # fmt: skip

    def _too_many_bytes(self, barrier: int) -> Mistake:
        name = self.program.barrier_name(barrier)
        return Mistake(
            "pipeline-bytes", "launch failure", name, f"{name}, phase {self.phase[barrier]} has {self.tx[barrier]} bytes outstanding",
            f"a barrier counts up to {TX_END_BYTES - 1}: launch failure (719)", "Spread the copies over more stages or barriers.",
        )  # fmt: skip
