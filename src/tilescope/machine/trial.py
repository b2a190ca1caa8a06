"""A launch run again with a changed program, on memory as it was before: remedies and advice are tried this way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tilescope.machine.launch import Launch
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.order.witness import LaunchOrder
from tilescope.machine.program import Program
from tilescope.machine.records import BlockIndex

COPIED_BYTES = 64 << 20  # a launch with more memory is not run again
STEPS_OF_A_TRIAL = 4  # times the steps of the run
OTHER_SEEDS = (1, 2)  # a change has to hold in other orders of the threads too


class Before(NamedTuple):
    """What a launch began with: its memory, its seed, and the blocks that run."""

    memory: GlobalMemory
    seed: int | None
    blocks: Sequence[BlockIndex] | None


def trial_launch(launch: Launch, program: Program, before: Before, seed: int | None) -> Launch:
    """The same launch of another program, on memory as it was, with findings and nothing else."""
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
        max_steps=min(launch.max_steps, STEPS_OF_A_TRIAL * (launch.max_steps - launch.steps_left)),
        max_seconds=launch.max_seconds,
        begun=launch.begun,
        order=LaunchOrder(program, memory),
    )
