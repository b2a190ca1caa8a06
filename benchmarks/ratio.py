"""Time several works in one run and print their ratios to the first: medians of five rounds.

A round runs every work once, one after the other, so that other processes slow all of them alike. The
ratio is computed within each round, and the table has its median:

    a = Work("np.copyto", lambda: np.copyto(target, source))
    b = Work("swizzle", lambda: mode.swizzle(source, out=target), goal=1.1)
    print_ratios("256 MiB", a, b)

    256 MiB                        time    ratio     goal
    np.copyto                   40.2 ms     1.00
    swizzle                     43.1 ms     1.07     1.10

Every script also takes `--tiny`: one round at sizes that take a second or two. These times have no meaning; ./test only
checks that the script runs. If a package is missing, `needed` ends the script with a message, and `optional` prints one
so that the script can leave out the rows that need it.
"""

import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeVar

from tilescope.errors import DeviceError

Size = TypeVar("Size")

ROUNDS = 5
FAST_EXTRA = "pip install 'tilescope[fast]'"
PEERS = {"tensor_layouts": "pip install tensor-layouts", "pycute": "pip install --no-deps nvidia-cutlass"}


@dataclass(frozen=True)
class Work:
    """A function to time. Times are per unit: a call with 1000 accesses of one unit each has `units=1000`."""

    name: str
    call: Callable[[], object]
    units: float = 1.0  # units of the table that one call processes
    goal: float | None = None  # ratio to the first work
    goal_seconds: float | None = None  # for one unit


@dataclass(frozen=True)
class Timing:
    work: Work
    seconds: float  # median, for one unit
    ratio: float  # median of the rounds' ratios to the first work


def is_tiny() -> bool:
    """Whether the command line has --tiny."""
    return "--tiny" in sys.argv


def sized(full: Size, tiny: Size) -> Size:
    """The size to measure, or the small one of --tiny."""
    return tiny if is_tiny() else full


def run(main: Callable[..., None]) -> None:
    """Call `main` with the command line's arguments; without a card, exit with the error's message."""
    try:
        main(*(argument for argument in sys.argv[1:] if argument != "--tiny"))
    except DeviceError as error:
        end_for_want_of(str(error))


def needed(module: str, command: str) -> ModuleType:
    """The module. If it is missing, exit with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        end_for_want_of(f"{_missing(module, error)} is missing: {command}")


def optional(module: str, command: str) -> ModuleType | None:
    """The module, or None. If it is missing, print that its rows are left out, and the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"{_missing(module, error)} is missing, its rows are left out: {command}")
        return None


def _missing(module: str, error: ImportError) -> str:
    """The missing package: the module's own, or one that it imports."""
    return (error.name or module).partition(".")[0]


def end_for_want_of(reason: str) -> NoReturn:
    """Exit with one line that names what is missing."""
    sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(reason.split())}")


def timings(*works: Work, rounds: int = ROUNDS) -> list[Timing]:
    """Median time and ratio of each work; every work is called once beforehand, untimed."""
    if is_tiny():
        rounds = 1
    else:
        for work in works:
            work.call()
    seconds: list[list[float]] = [[] for _ in works]
    gc_was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for work, times in zip(works, seconds, strict=True):
                start = time.perf_counter()
                work.call()
                times.append((time.perf_counter() - start) / work.units)
    finally:
        if gc_was_enabled:
            gc.enable()
    return [
        Timing(
            work,
            statistics.median(times),
            statistics.median(each / first for each, first in zip(times, seconds[0], strict=True)),
        )
        for work, times in zip(works, seconds, strict=True)
    ]


def print_ratios(title: str, *works: Work, rounds: int = ROUNDS) -> list[Timing]:
    """Time the works and print a table under `title`, with ratios to the first work."""
    measured = timings(*works, rounds=rounds)
    width = max(len(title), *(len(work.name) for work in works)) + 2
    print(f"{title:{width}}{'time':>11}{'ratio':>9}{'goal':>11}")
    for each in measured:
        if each.work.goal_seconds is not None:
            goal = shown_time(each.work.goal_seconds)
        else:
            goal = "" if each.work.goal is None else f"{each.work.goal:.2f}"
        print(f"{each.work.name:{width}}{shown_time(each.seconds):>11}{each.ratio:9.2f}{goal:>11}".rstrip())
    print()
    return measured


def shown_time(seconds: float) -> str:
    """Three digits with the unit that fits: 40.2 ms, 351 ns."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
