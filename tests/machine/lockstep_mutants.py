"""Mutants of kernels run twice, in lockstep and one block after another: findings, places, results and last writers are equal.

A mutant has one line of its text changed: left out, doubled, exchanged with the next one; a number, a register, an offset or a guard is
another one. Its number decides which kernel it is of and what is changed, so that a difference can be looked at again. Only those
count as compared for which lockstep was tried.

    python tests/machine/lockstep_mutants.py             the first 100 mutants
    python tests/machine/lockstep_mutants.py 5000 2000   2000 of them from number 5000 on
    python tests/machine/lockstep_mutants.py 0 500 pairs only those of one kind of kernels: recorded, pairs, triton
"""

# ruff: noqa: ARG001, T201  changes take the same arguments; a script prints

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import kernel_recording
import numpy as np
from pair_kernels import Pairs, variant
from pair_table import TABLE

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.machine.decoding.independent_blocks import are_blocks_independent, may_follow_a_leader
from tilescope.machine.execution import launch_grid, lockstep

LARGER = Path(__file__).parents[2] / "benchmarks" / "kernels"
FEWEST_BLOCKS = 3
MAX_STEPS = 100_000
WRITERS = 60  # elements that are asked who wrote them last
NOT_RUN = {"triton_attention_backward", "mbarrier_forms"}  # they take minutes
TRITON_LAUNCHES = {"softmax": 16, "layer_norm": 16, "elementwise": 0, "reduction": 16}  # name: bytes of shared memory

_INSTRUCTION = re.compile(r"^\s*(@!?[%\w$]+\s+)?([a-z][a-z0-9_]*[.:a-z0-9_]*\s[^{}]*|ret|exit);")
_REGISTER = re.compile(r"%[a-z]+\d+\b")
_NUMBER = re.compile(r"(?<![\w.%+])(\d+)(?=\s*[;,\]])")
_ADDRESS = re.compile(r"\[([%\w$]+)(\+\d+)?\]")


@dataclass(frozen=True)
class Base:
    """A kernel whose text is changed, and its launch: a kernel and the most steps → the run and its arrays."""

    name: str
    text: str
    entry: str | None
    launch: Callable[[ts.Kernel, int], tuple[Any, list[np.ndarray]]]


class Mutant(NamedTuple):
    """A changed text, and what was changed."""

    base: Base
    change: str
    text: str


class Comparison(NamedTuple):
    """What became of a mutant: "left out", "refused", "not tried", "equal" or "different"; whether lockstep came to its end."""

    mutant: Mutant
    outcome: str
    has_ended: bool = False


def names() -> list[str]:
    """The kernels: recorded ones, right ones of pairs, and those of the benchmarks."""
    return [
        *[f"recorded {name}" for name in kernel_recording.NAMES if name not in NOT_RUN],
        *[f"pairs {pairs.name}" for pairs in TABLE],
        *[f"triton {name}" for name in TRITON_LAUNCHES],
    ]


@cache
def base(name: str) -> Base | None:
    """The kernel of a name; None if its blocks do not run in lockstep."""
    kind, own = name.split(" ")
    if kind == "recorded":
        launch = kernel_recording.recording(own).launch
        text = kernel_recording.PATHS[own].with_suffix(".ptx").read_text("utf-8")
        found = Base(name, text, launch["entry"], partial(_launch_recorded, own))
        is_alone = np.prod(launch["grid"]) < FEWEST_BLOCKS or launch.get("cluster")
    elif kind == "pairs":
        pairs = next(pairs for pairs in TABLE if pairs.name == own)
        found = Base(name, variant(pairs.text, None), None, partial(_launch_pairs, pairs))
        is_alone = pairs.cluster
    else:
        found = Base(name, (LARGER / f"{own}.ptx").read_text("utf-8"), None, partial(_launch_triton, own))
        is_alone = False
    if is_alone:
        return None
    program = read(found.text, found.entry).program
    return found if program.fact(are_blocks_independent) or program.fact(may_follow_a_leader) else None


def read(text: str, entry: str | None) -> ts.Kernel:
    """The kernel of a text."""
    return ts.Kernel(text) if entry is None else ts.Kernel(text, entry)


def _launch_recorded(name: str, kernel: ts.Kernel, max_steps: int) -> tuple[Any, list[np.ndarray]]:
    return kernel_recording.run_with(kernel, name, max_steps=max_steps, advice="none")


def _launch_pairs(pairs: Pairs, kernel: ts.Kernel, max_steps: int) -> tuple[Any, list[np.ndarray]]:
    memory = ts.Memory()
    case = pairs.make(np.random.default_rng(17))
    args = [argument(memory) if callable(argument) else argument for argument in case.args]
    grid = FEWEST_BLOCKS * pairs.grid
    return kernel.run(grid, pairs.block, args, memory=memory, max_steps=max_steps, advice="none"), [case.out]


def _launch_triton(name: str, kernel: ts.Kernel, max_steps: int) -> tuple[Any, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((6, 4096)).astype(np.float32)
    weights = rng.standard_normal(4096).astype(np.float32)
    zeros = np.zeros_like(rows)
    grid, arrays, numbers = {
        "softmax": (6, [rows, zeros], [4096]),
        "layer_norm": (6, [rows, zeros, weights, weights.copy()], [4096, 1e-5]),
        "elementwise": (24, [rows, rows.copy(), zeros], [rows.size]),
        "reduction": (6, [rows, np.zeros(1, np.float32)], [rows.size]),
    }[name]
    smem_bytes = TRITON_LAUNCHES[name]
    args = [*arrays, *numbers, 0, 0]
    return kernel.run(grid, 128, args, smem_bytes=smem_bytes, max_steps=max_steps, advice="none"), arrays


def mutant(number: int) -> Mutant:
    """The mutant of a number."""
    draw = random.Random(number)
    while True:
        chosen = base(draw.choice(names()))
        if chosen is None:
            continue
        lines = chosen.text.splitlines()
        places = [at for at, line in enumerate(lines) if _INSTRUCTION.match(line)]
        at = draw.choice(places)
        change = draw.choice(list(_CHANGES))
        changed = _CHANGES[change](draw, lines, at)
        if changed is not None and changed != lines:
            return Mutant(chosen, f"{change}, line {at + 1}", "\n".join(changed) + "\n")


def _replaced(lines: list[str], at: int, line: str) -> list[str]:
    return [*lines[:at], line, *lines[at + 1 :]]


def _left_out(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    return _replaced(lines, at, "")


def _doubled(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    return _replaced(lines, at, f"{lines[at]} {lines[at].strip()}")


def _exchanged(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    if at + 1 == len(lines) or not _INSTRUCTION.match(lines[at + 1]):
        return None
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


def _another_number(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    found = list(_NUMBER.finditer(lines[at]))
    if not found:
        return None
    match = draw.choice(found)
    value = int(match[1])
    value = draw.choice([value + 1, value * 2, max(value - 1, 0), value ^ 4, 0])
    return _replaced(lines, at, f"{lines[at][: match.start()]}{value}{lines[at][match.end() :]}")


def _another_register(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    found = list(_REGISTER.finditer(lines[at]))
    if not found:
        return None
    match = draw.choice(found)
    kind = match[0].rstrip("0123456789")
    others = {other for other in _REGISTER.findall("\n".join(lines)) if other.rstrip("0123456789") == kind}
    return _replaced(lines, at, lines[at][: match.start()] + draw.choice(sorted(others)) + lines[at][match.end() :])


def _another_offset(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    match = _ADDRESS.search(lines[at])
    if match is None:
        return None
    offset = int(match[2] or 0) + draw.choice([4, 8, 16, 128, 512])
    return _replaced(lines, at, f"{lines[at][: match.start()]}[{match[1]}+{offset}]{lines[at][match.end() :]}")


def _opposite_guard(draw: random.Random, lines: list[str], at: int) -> list[str] | None:
    line = lines[at]
    return _replaced(lines, at, line.replace("@!", "@", 1) if "@!" in line else line.replace("@", "@!", 1))


_CHANGES = {
    "left out": _left_out,
    "doubled": _doubled,
    "exchanged": _exchanged,
    "another number": _another_number,
    "another register": _another_register,
    "another offset": _another_offset,
    "the opposite guard": _opposite_guard,
}


def compare(changed: Mutant) -> Comparison:
    """Run a mutant in lockstep, and, where that was tried, one block after another."""
    launch = changed.base.launch
    try:
        kernel = read(changed.text, changed.base.entry)
        with _tries(is_allowed=True) as ends:
            together = everything(*launch(kernel, MAX_STEPS))
        if not ends:
            return Comparison(changed, "not tried")
        with _tries(is_allowed=False):
            alone = everything(*launch(kernel, MAX_STEPS))
    except RuleError:
        return Comparison(changed, "refused")
    return Comparison(changed, "equal" if together == alone else "different", any(ends))


def everything(run: Any, arrays: list[np.ndarray]) -> tuple[str, list[bytes], list[str], str]:
    """All that a run says, what it left in memory, who wrote it last, and what was recorded of the first cluster."""
    placed = [argument for argument in run.arrays if argument is not None]
    addresses = [one.address + offset for one in placed for offset in range(0, one.array.nbytes, 148)]
    writers = [repr(run.last_writer(address)) for address in addresses[:WRITERS]]
    told = json.dumps(run.to_dict(), default=str, sort_keys=True)
    recorder = run._recorded.log
    with np.printoptions(threshold=sys.maxsize):
        recorded = repr((recorder.rows, recorder.refused, recorder.global_memory, recorder.first_block))
    return told, [array.tobytes() for array in arrays], writers, recorded


@contextmanager
def _tries(*, is_allowed: bool) -> Iterator[list[bool]]:
    """Allow lockstep from the second block on, or never; a list of whether each try came to its end."""
    ends: list[bool] = []
    run, lead, may_run = launch_grid.run_in_lockstep, launch_grid.run_led_by_first, launch_grid.may_run_in_lockstep
    least, least_led = lockstep._LEAST_BLOCKS, lockstep._LEAST_BLOCKS_LED_BY_FIRST

    def noted(launch: Any) -> Any:
        found = run(launch)
        ends.append(found is not None)
        return found

    def noted_lead(launch: Any) -> Any:
        found = lead(launch)
        if found is not None or not launch.program.fact(are_blocks_independent):
            ends.append(found is not None)
        return found

    lockstep._LEAST_BLOCKS = lockstep._LEAST_BLOCKS_LED_BY_FIRST = 1
    launch_grid.run_in_lockstep, launch_grid.run_led_by_first = noted, noted_lead
    launch_grid.may_run_in_lockstep = may_run if is_allowed else lambda _: False
    try:
        yield ends
    finally:
        lockstep._LEAST_BLOCKS, lockstep._LEAST_BLOCKS_LED_BY_FIRST = least, least_led
        launch_grid.run_in_lockstep, launch_grid.run_led_by_first = run, lead
        launch_grid.may_run_in_lockstep = may_run


def main(first: int = 0, count: int = 100, kind: str = "") -> int:
    """Compare mutants, and print those that differ. The number of these."""
    compared = ended = different = 0
    for number in range(first, first + count):
        drawn = mutant(number)
        found = compare(drawn) if drawn.base.name.startswith(kind) else Comparison(drawn, "left out")
        compared += found.outcome in ("equal", "different")
        ended += found.has_ended
        if found.outcome == "different":
            different += 1
            print(f"{number}: {found.mutant.base.name}, {found.mutant.change}", flush=True)
        if number % 100 == 99 or number == first + count - 1:
            counts = f"{compared} compared, {ended} ended in lockstep, {different} differ"
            print(f"up to {number}: {counts}", flush=True)
    return different


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:3]), *sys.argv[3:4]) else 0)
