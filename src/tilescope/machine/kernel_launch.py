"""A launch of a kernel: read its arguments, run its grid, try fixes, and report the run.

`Kernel.run` documents each part of a request. Kernels load this module, and with it the emulator, at their first run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilescope.arch import Arch
from tilescope.machine.edits.barrier_advice import report_idle_barriers
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.mutations import replace_swizzle
from tilescope.machine.edits.remedy import try_remedies
from tilescope.machine.edits.second_run import run_again
from tilescope.machine.edits.trial import COPIED_BYTES, InitialState, launch_as_begun
from tilescope.machine.execution.launch_grid import BlockIndex, cluster_starts, run_grid
from tilescope.machine.launch.kernel_arguments import Argument, BoundArguments, Parameters
from tilescope.machine.launch.launch import Launch, place_variables
from tilescope.machine.launch.launch_shape import Extents, RequestedShape, read_extents, resolve_launch_shape
from tilescope.machine.launch.triton_host import TritonHost
from tilescope.machine.memory import Memory, contents_of
from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.observe import launch_detector
from tilescope.machine.observers.smem_watch import SmemWatch, announce_line, read_moment
from tilescope.machine.program import Program
from tilescope.machine.proof.recorder import Recorder
from tilescope.machine.report.launch_result import MemoryAfter, build_run, last_writers
from tilescope.machine.report.run import KernelRun
from tilescope.machine.run_arguments import ADVICE, Advice, Smem, read_smem
from tilescope.machine.stepping.recording import Replay
from tilescope.reading import entries, flag, integer, integers, known_name
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE
from tilescope.sentence import argument_said, by, format_value

_MOST_SECONDS = 1 << 32  # a century


class LaunchedKernel(NamedTuple):
    """What a launch needs of its kernel."""

    program: Program
    text: Callable[[], KernelText]  # for edits; fixes that were assembled once are cached in it for the next run
    target: Arch
    host: TritonHost | None
    changed_map: int | None  # the argument whose map is passed with another swizzle, in a mutant


class LaunchRequest(NamedTuple):
    """The arguments of `Kernel.run`, as they were given."""

    grid: int | Sequence[int]
    block: int | Sequence[int] | None
    args: Sequence[Argument]
    memory: Memory | None
    smem_bytes: int | None
    cluster: int | Sequence[int] | None
    arch: Any
    blocks: Sequence[Sequence[int]] | None
    seed: int | None
    max_steps: int
    max_seconds: float | None
    progress: Callable[[int], None] | None
    findings: bool
    record: bool
    advice: Advice | bool  # a bool is its former spelling
    smem: Smem | None


def launch_kernel(kernel: LaunchedKernel, request: LaunchRequest) -> KernelRun:
    """Run a kernel as requested, and report the run."""
    program = kernel.program
    findings = request.findings
    seed = None if request.seed is None else integer("seed", request.seed)
    card_arch = kernel.target if request.arch is None else Arch.named(request.arch)
    own_memory = _memory(request.memory)
    shape = resolve_launch_shape(program, card_arch, _complete_shape(kernel, request))
    watch = _watch(program, request.smem, shape.grid, findings=flag("findings", findings))
    parameters = Parameters(program, own_memory)
    bound = _bind_arguments(kernel, request, own_memory)
    parameters.fill(bound.values)
    launch = Launch(
        program=program if watch is None else announce_line(program, watch.moment),
        memory=contents_of(own_memory),
        grid=shape.grid,
        block=shape.block,
        cluster=shape.cluster,
        is_clustered=shape.is_clustered,
        smem_bytes=shape.smem_bytes,
        parameters=parameters.content,
        given_maps=parameters.given_maps,
        variable_addresses=place_variables(program, contents_of(own_memory)),
        arch=card_arch,
        random=None if seed is None else random.Random(seed),  # noqa: S311  # delays, not secrets
        max_steps=integer("max_steps", request.max_steps, 1),
        max_seconds=_seconds(request.max_seconds),
        progress=_progress(request.progress),
        detector=launch_detector(program, contents_of(own_memory)) if findings else None,
        costs=Costs() if findings else None,
        recorder=Recorder() if flag("record", request.record) else None,
    )
    blocks = _read_blocks(request.blocks, shape.grid)
    advice = known_name("advice", request.advice, ADVICE.values())
    untouched = launch.memory.copy_within(COPIED_BYTES) if findings else None
    initial = None if untouched is None else InitialState(untouched, seed, blocks)
    with np.errstate(all="ignore"):
        result = run_grid(launch, cluster_starts(launch, blocks), watch)
    smem = None if watch is None else watch.picture(launch)
    if initial is not None:
        run_again(launch, result, initial)
    if initial is not None and advice in ("fixes", "all"):
        try_remedies(kernel.text(), launch, result, initial)
    notes = report_idle_barriers(launch, result, initial) if advice in ("barriers", "all") else ()
    replay = None if initial is None else Replay(launch_as_begun(launch, program, initial), initial, program)
    after = MemoryAfter(parameters.arrays(bound.sources), last_writers(launch), smem, replay)
    return build_run(launch, result, notes, after)


def _complete_shape(kernel: LaunchedKernel, request: LaunchRequest) -> RequestedShape:
    """The shape of a launch; values that the call omits come from the kernel, if it specifies them."""
    grid, block, cluster, smem_bytes = request.grid, request.block, request.cluster, request.smem_bytes
    host = kernel.host
    if host is not None:
        grid = host.grid(read_extents("grid", grid))
        block = host.threads if block is None else block
        cluster = host.cluster if cluster is None else cluster
        smem_bytes = host.smem_bytes if smem_bytes is None else smem_bytes
    if block is None:
        block = kernel.program.entry.required_threads
    return RequestedShape(grid, block, cluster, 0 if smem_bytes is None else smem_bytes)


def _bind_arguments(kernel: LaunchedKernel, request: LaunchRequest, memory: Memory) -> BoundArguments:
    """The arguments of the PTX: those of the call, or what Triton's host makes of them."""
    args = request.args
    entry = kernel.program.entry
    if kernel.host is None:
        bound = BoundArguments(args, args)
    else:
        bound = kernel.host.bind(args, memory, read_extents("grid", request.grid), len(entry.parameters), entry.name)
    changed = kernel.changed_map
    if changed is None or changed >= len(bound.values):
        return bound
    values = [*bound.values]
    values[changed] = replace_swizzle(values[changed])
    return bound._replace(values=values)


def _memory(memory: object) -> Memory:
    if memory is None:
        return Memory()
    if isinstance(memory, Memory):
        return memory
    raise ARGUMENT_TYPE.error(
        argument="memory", found=format_value(memory), limit="a Memory", fix="Use ts.Memory(), and place arrays in it."
    )


def _progress(progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    if progress is None or callable(progress):
        return progress
    raise ARGUMENT_TYPE.error(
        argument="progress",
        found=format_value(progress),
        limit="a function of the steps so far",
        fix="Use progress=print.",
    )


def _seconds(max_seconds: object) -> float | None:
    if max_seconds is None:
        return None
    is_truth = isinstance(max_seconds, bool)
    if isinstance(max_seconds, int | float) and not is_truth and 0 < max_seconds < _MOST_SECONDS:
        return float(max_seconds)
    raise ARGUMENT_TYPE.error(
        argument="max_seconds",
        found=f"max_seconds = {format_value(max_seconds)}",
        limit="a positive number of seconds",
        fix="Use 2.0, for example.",
    )


def _watch(program: Program, smem: Smem | None, grid: Extents, *, findings: bool) -> SmemWatch | None:
    """The observer of a block's shared memory; None if the call requests no picture."""
    if smem is None:
        return None
    if not findings:
        raise ARGUMENT_RANGE.error(
            argument="smem",
            found="a picture of shared memory, and findings=False",
            limit="a run without findings does not know who wrote what",
            fix="Leave findings=False out.",
        )
    block, at = read_smem(smem)
    blocks = _read_blocks([block], grid)
    assert blocks is not None
    return SmemWatch(blocks[0], read_moment(program, at))


def _read_blocks(blocks: Sequence[Sequence[int]] | None, grid: Extents) -> list[BlockIndex] | None:
    """The blocks to run, inside the grid."""
    if blocks is None:
        return None
    listed = entries(blocks, prod(grid))
    if listed is None:
        raise ARGUMENT_TYPE.error(
            argument="blocks",
            found=format_value(blocks),
            limit="a sequence of blocks, each by its coordinates",
            fix=f"Use {argument_said('blocks', [(0, 0, 0)])}.",
        )
    block_indices = []
    for index in listed:
        coordinates = integers("blocks", index)
        x, y, z = (*coordinates, 0, 0, 0)[:3]
        is_inside = 0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2]
        if not 1 <= len(coordinates) <= 3 or not is_inside:
            raise ARGUMENT_RANGE.error(
                argument="blocks",
                found=f"block {coordinates}",
                limit=f"one to three coordinates of a block in a grid of {by(grid)} blocks",
                fix=f"Use {argument_said('blocks', [(0, 0, 0)])}.",
            )
        block_indices.append((x, y, z))
    return block_indices
