"""Many runs of a kernel: its mutants, seeds, shapes and configurations, each as a separate trial, on as many cores as an executor has.

    campaign(kernel, {"small": launch}, mutants=True, seeds=(None, 1), executor=pool)

A trial is sent as text and launch, so that executors of other processes and machines take it. A mutant survives if all of its runs finish
without an error among the findings.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel, Mutant
from tilescope.machine.launch.triton_host import TritonHost
from tilescope.reading import flag
from tilescope.sentence import counted

Launch = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""The arguments of `Kernel.run` by name, or a function that makes them: for arguments that one run changes, maps for example."""
Progress = Callable[[int, int], object]
_STEPS_BEYOND = 20  # a mutant may take this many times the steps of the right kernel …
_LEAST_STEPS = 100_000  # … and at least these
_KERNELS_KEPT = 8


class Future(Protocol):
    """The future that an executor returns."""

    def result(self) -> _Came:
        """The result of the call, once it is there."""


class Executor(Protocol):
    """concurrent.futures' executors, and Dask's client."""

    def submit(self, function: Callable[[_Task], _Came], task: _Task, /) -> Future:
        """Call a function, sooner or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a campaign, and its result."""

    kernel: str
    mutant: str | None  # None: the kernel itself
    launch: str
    seed: int | None
    outcome: str  # as of a run, or "refused": the text is no kernel
    errors: tuple[str, ...]  # rules of the findings that are errors
    is_equal: bool  # whether its arrays are those of the kernel itself

    @property
    def is_found(self) -> bool:
        """Whether a test that looks at findings would notice it."""
        return self.outcome != "finished" or bool(self.errors)


@dataclass(frozen=True, slots=True)
class Campaign:
    """All trials, in the order in which they were submitted."""

    trials: tuple[Trial, ...]

    @property
    def survivors(self) -> tuple[str, ...]:
        """The mutants that no trial has found."""
        detected = {(trial.kernel, trial.mutant) for trial in self.trials if trial.is_found}
        named = dict.fromkeys((trial.kernel, trial.mutant) for trial in self.trials if trial.mutant is not None)
        return tuple(f"{kernel}: {mutant}" for kernel, mutant in named if (kernel, mutant) not in detected)

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials of kernels themselves that did not finish, or have errors."""
        return tuple(trial for trial in self.trials if trial.mutant is None and trial.is_found)

    def __str__(self) -> str:
        """A table: every kernel and mutant, how many of its trials were found, and whether its arrays were others."""
        rows: dict[tuple[str, str | None], list[Trial]] = {}
        for trial in self.trials:
            rows.setdefault((trial.kernel, trial.mutant), []).append(trial)
        lines = [f"{'kernel':16}{'mutant':44}{'trials':>8}{'found':>8}{'other arrays':>14}"]
        for (kernel, mutant), trials in rows.items():
            found_count = sum(trial.is_found for trial in trials)
            others = sum(not trial.is_equal for trial in trials)
            mark = "  survived" if mutant is not None and not found_count else ""
            lines.append(f"{kernel:16}{mutant or '':44}{len(trials):8}{found_count:8}{others:14}{mark}")
        summary = f"{counted(len(self.trials), 'trial')}, {counted(len(self.survivors), 'mutant')} survived"
        return "\n".join([*lines, summary])


class _Task(NamedTuple):
    """A trial as it is sent to an executor."""

    ptx: str
    entry: str
    host: TritonHost | None
    changed_map: int | None
    launch: Launch
    seed: int | None
    max_steps: int | None
    names: tuple[str, str | None, str]  # kernel, mutant, launch


class _Came(NamedTuple):
    """The result of a task."""

    outcome: str
    errors: tuple[str, ...]
    steps: int
    digest: str  # of all arrays after the run


def campaign(
    kernel: Kernel | Mapping[str, Kernel],
    launches: Launch | Mapping[str, Launch],
    *,
    mutants: bool = False,
    seeds: Sequence[int | None] = (None,),
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Campaign:
    """Run kernels, with `mutants` also each with one thing changed, in every launch and with every seed.

    `kernel` is one kernel, or several by name: the configurations of an autotuner. `launches` are the arguments of `Kernel.run` by
    name, or several such launches by name: shapes. Arrays are copied for every trial. A function that makes the arguments serves
    where a copy does not: tensor maps hold addresses. `executor` is any of concurrent.futures, or Dask's client; None: trials run here,
    one after another. `progress` is called with the trials that are done, and all.

    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { .shared .b32 s[4]; bar.sync 0; ret; }")
    >>> print(campaign(kernel, {"grid": 2, "block": 64}, mutants=True))
    kernel          mutant                                        trials   found  other arrays
    k                                                                  1       0             0
    k               bar.sync removed, line 1                           1       0             0  survived
    2 trials, 1 mutant survived
    """
    kernels = {kernel.entry: kernel} if isinstance(kernel, Kernel) else dict(kernel)
    named = _named_launches(launches)
    right = [
        _task(configuration, (name, None, where), launch, seeds[0])
        for name, configuration in kernels.items()
        for where, launch in named.items()
    ]
    others = [
        _task(configuration, (name, None, where), launch, seed)
        for name, configuration in kernels.items()
        for where, launch in named.items()
        for seed in seeds[1:]
    ]
    counter = _Counter(progress)
    references = dict(zip([task.names for task in right], _results(right, executor, counter), strict=True))
    if flag("mutants", mutants):
        others += [
            task
            for name, configuration in kernels.items()
            for task in _mutant_tasks(name, configuration, named, seeds, references)
        ]
    counter.total = len(right) + len(others)
    outcomes = [*references.values(), *_results(others, executor, counter)]
    return Campaign(
        tuple(_trial(task, outcome, references) for task, outcome in zip([*right, *others], outcomes, strict=True))
    )


class _Counter:
    """Tells how many trials are done."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self.total = 0

    def add(self) -> None:
        """One more is done."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, max(self.total, self._done))


def _named_launches(launches: Launch | Mapping[str, Launch]) -> dict[str, Launch]:
    """Launches by name; a single one has none."""
    if callable(launches) or "grid" in launches:
        return {"": launches}
    return dict(launches)


def _task(kernel: Kernel, names: tuple[str, str | None, str], launch: Launch, seed: int | None) -> _Task:
    return _Task(kernel.ptx, kernel.entry, kernel.host, kernel.changed_map, launch, seed, None, names)


def _mutant_tasks(
    name: str,
    kernel: Kernel,
    launches: Mapping[str, Launch],
    seeds: Sequence[int | None],
    references: Mapping[tuple[str, str | None, str], _Came],
) -> Iterator[_Task]:
    """The trials of all mutants of a kernel."""
    mutant: Mutant
    for mutant in kernel.mutants():
        for where, launch in launches.items():
            steps = max(_LEAST_STEPS, _STEPS_BEYOND * references[name, None, where].steps)
            for seed in seeds:
                names = (name, mutant.name, where)
                map_argument = kernel.changed_map if mutant.map_argument is None else mutant.map_argument
                yield _Task(mutant.ptx, kernel.entry, kernel.host, map_argument, launch, seed, steps, names)


def _results(tasks: Sequence[_Task], executor: Executor | None, counter: _Counter) -> Iterator[_Came]:
    """The results of tasks, in order."""
    futures = None if executor is None else [executor.submit(run_task, task) for task in tasks]
    for number, task in enumerate(tasks):
        outcome = run_task(task) if futures is None else futures[number].result()
        counter.add()
        yield outcome


@lru_cache(maxsize=_KERNELS_KEPT)
def _kernel(ptx: str, entry: str) -> Kernel:
    return Kernel(ptx, entry)


def run_task(task: _Task) -> _Came:
    """Run one trial: here, or in the process of an executor."""
    arguments = task.launch() if callable(task.launch) else copy.deepcopy(dict(task.launch))
    options = {"advice": "none", **arguments, "seed": task.seed}
    if task.max_steps is not None:
        options["max_steps"] = task.max_steps
    try:
        kernel = copy.copy(_kernel(task.ptx, task.entry))
        kernel.host = task.host
        kernel.changed_map = task.changed_map
        run = kernel.run(**options)
    except RuleError as refusal:
        return _Came("refused", tuple(sorted({violation.rule for violation in refusal.violations})), 0, "")
    errors = tuple(sorted({finding.rule for finding in run.findings if finding.severity == "error"}))
    digest = hashlib.sha256()
    for placed in run.arrays:
        if placed is not None:
            digest.update(np.ascontiguousarray(placed.array).tobytes())
    return _Came(run.outcome, errors, run.steps, digest.hexdigest())


def _trial(task: _Task, came: _Came, references: Mapping[tuple[str, str | None, str], _Came]) -> Trial:
    name, mutant, where = task.names
    is_equal = came.digest == references[name, None, where].digest
    return Trial(
        kernel=name,
        mutant=mutant,
        launch=where,
        seed=task.seed,
        outcome=came.outcome,
        errors=came.errors,
        is_equal=is_equal,
    )
