"""Steps that repeat with stages in turn, as a loop.

wait full[0] 0, wait full[1] 0, wait full[0] 1, wait full[1] 1     ──▶   {loop = "i", count = 4, steps = [
                                                                            {wait = "full[i % 2]", parity = "i / 2 % 2"}]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilescope.pipeline.expression import reference
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Loop, Step

COUNTER = "i"
_LEAST_ROUNDS = 3
_LONGEST_ROUND = 64  # steps
_COUNTED = ("parity", "tile")  # numbers that may change from round to round


class _Turn(NamedTuple):
    """How a stage goes round: (first + step * i) % stages."""

    first: int
    step: int
    stages: int

    @property
    def counted(self) -> str:
        """The stage, before it is taken modulo the stages."""
        stage = COUNTER if self.step == 1 else f"{self.step} * {COUNTER}"
        return stage if self.first == 0 else f"({stage} + {self.first})"

    def rounds(self, number: int) -> int:
        """The number of iterations when the counter has a value."""
        return (self.first + self.step * number) // self.stages


class _Form(NamedTuple):
    """A step without its numbers: what it has in common with the same step of another round."""

    op: str
    names: tuple[str, ...]
    arguments: tuple[tuple[str, Written], ...]
    barrier: str
    at: str


def fold_steps(steps: Sequence[Step], stages: Mapping[str, int]) -> tuple[Step | Loop, ...]:
    """The same steps, with loops where they repeat; `stages` are those of barriers and slots, by name.

    >>> steps = [Step("wait", f"full[{n % 2}]", {"parity": n // 2 % 2}) for n in range(6)]
    >>> (loop,) = fold_steps(steps, {"full": 2})
    >>> loop.count, [step.plain() for step in loop.steps]
    (6, [{'wait': 'full[i % 2]', 'parity': 'i / 2 % 2'}])
    """
    numbers: dict[_Form, int] = {}
    forms = [numbers.setdefault(_form(step), len(numbers)) for step in steps]
    result: list[Step | Loop] = []
    place = 0
    while place < len(steps):
        longest = _longest_loop(steps, forms, place, stages)
        if longest is None:
            result.append(steps[place])
            place += 1
        else:
            loop, length = longest
            result.append(loop)
            place += length
    return tuple(result)


def _name_of(target: object) -> str:
    """The name of a barrier or slot without its stage; numbers of barriers as they are."""
    return target.partition("[")[0] if isinstance(target, str) else str(target)


def _form(step: Step) -> _Form:
    names = (_name_of(target) for target in step.targets)
    arguments = tuple(
        (name, "" if name in _COUNTED else value) for name, value in step.arguments.items() if name != "barrier"
    )
    barrier = str(step.arguments.get("barrier", "")).partition("[")[0]
    return _Form(step.op, tuple(names), arguments, barrier, step.at)


def _longest_loop(
    steps: Sequence[Step], forms: Sequence[int], place: int, stages: Mapping[str, int]
) -> tuple[Loop, int] | None:
    """The loop that begins at a step and covers most of the following steps, and how many it covers."""
    best: tuple[Loop, int] | None = None
    for length in range(1, min(_LONGEST_ROUND, (len(steps) - place) // _LEAST_ROUNDS) + 1):
        if forms[place] != forms[place + length]:
            continue
        rounds = _rounds(forms, place, length)
        if rounds < _LEAST_ROUNDS or (best is not None and rounds * length <= best[1]):
            continue
        loop = _loop(
            [steps[place + length * number : place + length * (number + 1)] for number in range(rounds)], stages
        )
        if loop is not None:
            best = (loop, rounds * length)
    return best


def _rounds(forms: Sequence[int], place: int, length: int) -> int:
    """How often the forms of a round come one after another."""
    first = forms[place : place + length]
    rounds = 1
    while forms[place + rounds * length : place + (rounds + 1) * length] == first:
        rounds += 1
    return rounds


def _loop(rounds: Sequence[Sequence[Step]], stages: Mapping[str, int]) -> Loop | None:
    """The loop of some rounds; None where their numbers follow no rule."""
    steps = []
    for same in zip(*rounds, strict=True):
        step = _general(same, stages)
        if step is None:
            return None
        steps.append(step)
    return Loop(COUNTER, len(rounds), tuple(steps))


def _general(same: Sequence[Step], stages: Mapping[str, int]) -> Step | None:
    """One step for all rounds."""
    first = same[0]
    if all(step == first for step in same):
        return first
    turns: list[_Turn] = []
    targets: list[Written] = []
    for column in zip(*(step.targets for step in same), strict=True):
        target = _reference([str(entry) for entry in column], stages, turns)
        if target is None:
            return None
        targets.append(target if isinstance(column[0], str) else column[0])
    arguments = dict(first.arguments)
    if "barrier" in arguments:
        barrier = _reference([str(step.arguments["barrier"]) for step in same], stages, turns)
        if barrier is None:
            return None
        arguments["barrier"] = barrier
    for name in _COUNTED:
        if name in arguments:
            values = [step.arguments[name] for step in same]
            number = _number([value for value in values if isinstance(value, int)], turns, is_parity=name == "parity")
            if number is None:
                return None
            arguments[name] = number
    if isinstance(first.target, tuple):
        return replace(first, target=tuple(map(str, targets)), arguments=arguments)
    return replace(first, target=targets[0], arguments=arguments)


def _reference(written: Sequence[str], stages: Mapping[str, int], turns: list[_Turn]) -> str | None:
    """A reference for all rounds; how its stage goes round is noted."""
    if all(entry == written[0] for entry in written):
        return written[0]
    name, _ = reference("reference", written[0])
    indices = [int(reference("reference", entry)[1]) for entry in written]
    count = stages.get(name, 1)
    turn = _Turn(indices[0], (indices[1] - indices[0]) % count, count)
    if any((turn.first + turn.step * number) % count != index for number, index in enumerate(indices)):
        return None
    turns.append(turn)
    return f"{name}[{turn.counted} % {count}]"


def _number(values: Sequence[int], turns: Sequence[_Turn], *, is_parity: bool) -> Written | None:
    """A parity or a tile for all rounds: the same, or counted by the rounds of a stage, or by the rounds of the loop."""
    first = values[0]
    if all(value == first for value in values):
        return first
    for turn in (*turns, _Turn(0, 1, 1)):
        round_number = f"{turn.counted} / {turn.stages}" if turn.stages > 1 else turn.counted
        rounds = [turn.rounds(number) for number in range(len(values))]
        if is_parity:
            flip = (first ^ rounds[0]) & 1
            if all((count & 1) ^ flip == value for count, value in zip(rounds, values, strict=True)):
                return f"{round_number} % 2 ^ 1" if flip else f"{round_number} % 2"
        elif all(count - rounds[0] == value - first for count, value in zip(rounds, values, strict=True)):
            offset = first - rounds[0]
            sign = "-" if offset < 0 else "+"
            return round_number if offset == 0 else f"{round_number} {sign} {abs(offset)}"
    return None
