"""A suite: cases drawn by a seed, what tilescope says of each, and what the card does.

    draw(random, arch) ──▶ case ──┬── predict(case) ───────▶ Outcome ──┐
                                  └── run(device, cases) ──▶ Outcome ──┴── equal, or the first difference in words

A case is plain data (JSON), so that it can be sent to a child process and kept in a capture. An outcome is bytes, or
how the attempt ended where it gave none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilescope.errors import RuleError, shortened

if TYPE_CHECKING:
    from tilescope.gpu.device import Device

Case: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: bytes, or how it ended instead ("error 715", "no answer in 20 s")."""

    data: bytes = b""
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """One thing that is verified."""

    name: str
    about: str  # what is compared, for the list of suites
    draw: Callable[[random.Random, str], Case]  # one case for an architecture such as "sm_90"
    predict: Callable[[Case], Outcome]
    run: Callable[[Device, list[Case]], list[bytes]]  # in a child process
    differs: Callable[[Case, bytes, bytes], str]  # the first difference in words: what the card gave, what we say
    kernels: tuple[str, ...] = ()  # files that `run` launches from
    count: int = 2000  # cases, unless told otherwise
    together: int = 250  # cases that one call of `run` takes
    feature: str = "tma"  # what an architecture must have (see arch.py)
    children: int = 1  # processes side by side: more where most cases kill theirs
    seconds_at_most: float = 120.0  # that one call of `run` may take

    def cases(self, count: int, seed: int, arch: str) -> list[Case]:
        """The first `count` cases of a seed: each has a generator of its own, so case 7 is the same in any count."""
        return [self.draw(random.Random(f"{seed} {self.name} {number}"), arch) for number in range(count)]  # noqa: S311

    def difference(self, case: Case, found: Outcome, expected: Outcome) -> str:
        """How the card's outcome differs from ours, in words; empty where they are equal."""
        if found == expected:
            return ""
        if found.ended or expected.ended:
            return f"card: {found.ended or 'done'}, ours: {expected.ended or 'done'}; case {shortened(str(case), 300)}"
        return self.differs(case, found.data, expected.data)


def in_groups(
    cases: Sequence[Case], kind: Callable[[Case], str], run: Callable[[str, list[Case]], list[bytes]]
) -> list[bytes]:
    """The results of cases that `run` takes one kind at a time, in the order of the cases."""
    results: dict[int, bytes] = {}
    kinds: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        kinds.setdefault(kind(case), []).append(number)
    for name, numbers in kinds.items():
        results |= dict(zip(numbers, run(name, [cases[number] for number in numbers]), strict=True))
    return [results[number] for number in range(len(cases))]


def is_executed(case: Case, predict: Callable[[Case], Outcome]) -> bool:
    """Whether tilescope says that the chip executes it; what it refuses belongs to the suite of faults."""
    try:
        predict(case)
    except RuleError:
        return False
    return True


def bytes_differ(found: bytes, expected: bytes, where: str = "shared memory") -> str:
    """The first byte in which two images differ, with its line and chunk; trailing bytes that one lacks count.

    >>> bytes_differ(bytes(200), bytes(144) + b"1" + bytes(55))
    '1 byte of shared memory differs, at 0x90 (line 1, chunk 1): card 0x00, ours 0x31'
    """
    length = max(len(found), len(expected))
    one, other = (np.frombuffer(each.ljust(length, b"\xee"), np.uint8) for each in (found, expected))
    wrong = np.flatnonzero(one != other)
    if not wrong.size:
        return f"the bytes of {where} are equal, the span of them that was written is not"
    place = int(wrong[0])
    counted = "1 byte" if len(wrong) == 1 else f"{len(wrong)} bytes"
    verb, first = ("differs", "at") if len(wrong) == 1 else ("differ", "first at")
    line, chunk = place // 128, place // 16 % 8
    return (
        f"{counted} of {where} {verb}, {first} {place:#x} (line {line}, chunk {chunk}): "
        f"card 0x{one[place]:02x}, ours 0x{other[place]:02x}"
    )
