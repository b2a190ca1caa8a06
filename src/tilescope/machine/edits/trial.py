"""A trial: the same launch with a changed program, on the initial memory. Remedies and advice are tested this way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.observe import launch_detector
from tilescope.machine.program import Program
from tilescope.sync.cluster_shape import BlockIndex

COPIED_BYTES = 64 << 20  # a launch with more memory gets no trials
STEPS_OF_ALL_TRIALS = 4  # times the steps of the run; short runs have SHORT_STEPS
SHORT_STEPS = 20_000
_STEPS_OF_A_ROUND = 4  # of releases of atomics that a walk looks at
OTHER_SEEDS = (1, 2)  # a change must also hold in other interleavings of the threads


class InitialState(NamedTuple):
    """The state before a launch: its memory, its seed, and the blocks that run."""

    memory: GlobalMemory
    seed: int | None
    blocks: Sequence[BlockIndex] | None


def used_steps(launch: Launch) -> int:
    """The steps that a run has used: its instructions, and the work that counts as instructions."""
    return launch.max_steps - launch.steps_left + walked_steps(launch)


def walked_steps(launch: Launch) -> int:
    """The steps that asking for releases of atomics counts as: of threads that ask one by one, it takes most of the time."""
    graph = None if launch.detector is None else launch.detector.releases
    return 0 if graph is None else graph.rounds_walked * _STEPS_OF_A_ROUND


def trial_step_budget(launch: Launch) -> int:
    """The step budget of all trials of a run together; assembling an edited kernel costs one step per instruction."""
    return max(SHORT_STEPS, STEPS_OF_ALL_TRIALS * used_steps(launch))


def make_trial(
    launch: Launch, program: Program, initial: InitialState, seed: int | None, max_steps: int, *, is_judged: bool = True
) -> Launch:
    """The same launch of another program, on a copy of the initial memory, with the race detector as its only observer.

    A user's limit in seconds does not hold here: the verdict of a trial does not depend on the machine.
    """
    memory = initial.memory.copy_within(COPIED_BYTES)
    assert memory is not None  # the copy was small enough before
    return Launch(
        program=program,
        memory=memory,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        is_clustered=launch.is_clustered,
        smem_bytes=launch.smem_bytes,
        parameters=launch.parameters,
        given_maps=launch.given_maps,
        variable_addresses=launch.variable_addresses,
        arch=launch.arch,
        random=None if seed is None else random.Random(seed),  # noqa: S311  # delays, not secrets
        max_steps=max(1, min(launch.max_steps, max_steps)),
        detector=launch_detector(program, memory) if is_judged else None,
    )


def launch_as_begun(launch: Launch, program: Program, initial: InitialState) -> Launch:
    """A launch that has ended as it was before it began, without its observers and what they found."""
    return replace(
        launch,
        program=program,
        memory=initial.memory,
        random=None,
        max_seconds=None,
        progress=None,
        costs=None,
        recorder=None,
        detector=None,
        after_polls=None,
        store_log=None,
        steps=0,
        waited=0,
        copies=[],
        phases=[],
        maps=[],
        printed=[],
        printed_characters=0,
        inexact=set(),
        cut_edits={},
        to_start=iter(()),
        is_out_of_time=False,
        _is_recorder_taken=False,
        _map_numbers={},
        _versions_seen=None,
        _quiet_jumps=0,
    )
