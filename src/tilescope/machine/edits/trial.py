"""A launch run again with a changed program, on memory as it was before: remedies and advice are tried this way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.observe import launch_detector
from tilescope.machine.program import Program
from tilescope.sync.cluster_shape import BlockIndex

COPIED_BYTES = 64 << 20  # a launch with more memory is not run again
STEPS_OF_A_TRIAL = 4  # times the steps of the run
STEPS_OF_ALL_TRIALS = 16  # times the steps of the run; short runs have SHORT_STEPS
SHORT_STEPS = 30_000
OTHER_SEEDS = (1, 2)  # a change has to hold in other orders of the threads too


class Before(NamedTuple):
    """What a launch began with: its memory, its seed, and the blocks that run."""

    memory: GlobalMemory
    seed: int | None
    blocks: Sequence[BlockIndex] | None


def steps_made(launch: Launch) -> int:
    """What a run has used up of its steps: its instructions, and what counts as some."""
    return launch.max_steps - launch.steps_left


def steps_of_all_trials(launch: Launch) -> int:
    """How many steps all trials of remedies may make together; reading an edited kernel counts one for each instruction."""
    return max(SHORT_STEPS, STEPS_OF_ALL_TRIALS * steps_made(launch))


def trial_launch(
    launch: Launch, program: Program, before: Before, seed: int | None, max_steps: int | None = None
) -> Launch:
    """The same launch of another program, on memory as it was, with findings and nothing else."""
    most = STEPS_OF_A_TRIAL * steps_made(launch) if max_steps is None else max_steps
    memory = before.memory.copied(COPIED_BYTES)
    assert memory is not None  # it is a copy itself
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
        max_steps=min(launch.max_steps, most),
        max_seconds=launch.max_seconds,
        begun=launch.begun,
        detector=launch_detector(program, memory),
    )
