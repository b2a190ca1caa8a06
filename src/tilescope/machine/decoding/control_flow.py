"""The control flow of a program: where branches lead, where their paths join again, and the instructions between.

    @p bra skip;      a branch of some threads
    bar.sync 0;       in the divergent region of the branch: other threads of the warp go round it
skip:                 the paths join here: the immediate post-dominator of the branch
    bar.sync 0;       behind the join: all threads come here

Everything is computed on first use: a program without a divergent barrier needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.machine.instructions.control import Branch, Call, Exit, IndexedBranch, Return
from tilescope.machine.program import Program

_NO_EFFECT = frozenset({"bra", "ret", "exit", "mov", "cvta"})


class ControlFlow:
    """Paths through a program, by instruction. `end` is the return of a function."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.end = len(program.steps)
        self._next = [self._find_next(pc) for pc in range(self.end)]
        self._joins: list[int | None] | None = None
        self._regions: dict[int, frozenset[int]] = {}

    def _find_next(self, pc: int) -> tuple[int, ...]:
        """Where an instruction may lead; a call leads to what follows it."""
        turn = self._program.turns[pc]
        instruction = self._program.instructions[pc]
        fallthrough = (pc + 1,) if self._program.guards[pc] is not None else ()
        if isinstance(turn, Branch):
            return (turn.target, *fallthrough)
        if isinstance(turn, IndexedBranch):
            return (*dict.fromkeys(turn.targets), *fallthrough)
        if isinstance(turn, Return | Exit):
            return (self.end, *fallthrough)
        if instruction is not None and instruction.name in ("trap", "brkpt") and instruction.guard is None:
            return ()
        return (pc + 1,)

    def next_of(self, branch: int, outcome: int) -> int:
        """Where a branch led: `outcome` is the target of brx, or whether the guard held."""
        turn = self._program.turns[branch]
        if isinstance(turn, IndexedBranch):
            return turn.targets[outcome]
        return self._next[branch][0] if outcome else branch + 1

    def is_between(self, branch: int, pc: int) -> bool:
        """Whether an instruction is in the divergent region of a branch: behind it, and before its paths join."""
        if branch == pc:
            return True
        if branch not in self._regions:
            self._regions[branch] = self._find_reachable(self._next[branch], self.join_of(branch), returns=False)
        return pc in self._regions[branch]

    def find_reachable(self, starts: Iterable[int], barred: int | None) -> frozenset[int]:
        """The instructions that can be reached without passing one of them: in called functions, and behind calls of the own one."""
        return self._find_reachable(starts, barred, returns=True)

    def _find_reachable(self, starts: Iterable[int], barred: int | None, *, returns: bool) -> frozenset[int]:
        waiting = [pc for pc in starts if pc not in (barred, self.end)]
        reachable = set(waiting)
        while waiting:
            pc = waiting.pop()
            turn = self._program.turns[pc]
            targets: tuple[int, ...] = ()
            if isinstance(turn, Call):
                targets = tuple(called.start for called in turn.functions)
            elif isinstance(turn, Return) and returns:
                targets = self._find_callers(pc)
            for other in (*self._next[pc], *targets):
                if other not in reachable and other not in (barred, self.end):
                    reachable.add(other)
                    waiting.append(other)
        return frozenset(reachable)

    def _find_callers(self, pc: int) -> tuple[int, ...]:
        """The instructions behind the calls of the function that contains an instruction."""
        start = max(start for start in self._program.functions.values() if start <= pc)
        calls = ((place, turn) for place, turn in enumerate(self._program.turns) if isinstance(turn, Call))
        return tuple(place + 1 for place, call in calls if any(called.start == start for called in call.functions))

    def find_first(self, pcs: list[int]) -> int:
        """The instruction, of several in the order of the text, from which the others can be reached, and not the reverse."""
        reachable = {pc: self.find_reachable(self._next[pc], None) for pc in pcs}
        for pc in pcs:
            if not any(pc in reachable[other] and other not in reachable[pc] for other in pcs if other != pc):
                return pc
        return pcs[0]

    def find_tail(self, start: int) -> list[int]:
        """The instructions with an effect from here to the end of the thread, as long as there is one path only."""
        tail = []
        seen = set()
        pc = start
        while pc != self.end and pc not in seen:
            seen.add(pc)
            instruction = self._program.instructions[pc]
            if instruction is not None and instruction.name not in _NO_EFFECT:
                tail.append(pc)
            if len(self._next[pc]) != 1:
                break
            pc = self._next[pc][0]
        return tail

    def join_of(self, branch: int) -> int | None:
        """The instruction where all paths of a branch join again, `end` if they only do so there; None: they never end."""
        if self._joins is None:
            self._joins = self._find_joins()
        return self._joins[branch]

    def _find_joins(self) -> list[int | None]:
        """The immediate post-dominator of every instruction (Cooper, Harvey and Kennedy, on the reversed graph)."""
        before: list[list[int]] = [[] for _ in range(self.end + 1)]
        for pc, following in enumerate(self._next):
            for other in following:
                before[other].append(pc)
        order = _postorder(self.end, before)
        number = {pc: place for place, pc in enumerate(order)}
        joins: list[int | None] = [None] * (self.end + 1)
        joins[self.end] = self.end
        is_changed = True
        while is_changed:
            is_changed = False
            for pc in reversed(order[:-1]):
                join: int | None = None
                for other in self._next[pc]:
                    if joins[other] is not None:
                        join = other if join is None else _common(join, other, joins, number)
                if joins[pc] != join:
                    joins[pc] = join
                    is_changed = True
        return joins


def _postorder(start: int, edges: list[list[int]]) -> list[int]:
    """The nodes that can be reached from one, each behind those that it leads to."""
    order = []
    seen = {start}
    path = [(start, iter(edges[start]))]
    while path:
        node, left = path[-1]
        following = next((other for other in left if other not in seen), None)
        if following is None:
            path.pop()
            order.append(node)
        else:
            seen.add(following)
            path.append((following, iter(edges[following])))
    return order


def _common(one: int, other: int, joins: list[int | None], number: dict[int, int]) -> int:
    """The nearest instruction that both must pass."""
    while one != other:
        if number[one] < number[other]:
            step = joins[one]
            assert step is not None
            one = step
        else:
            step = joins[other]
            assert step is not None
            other = step
    return one
