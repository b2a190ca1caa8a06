"""Subscribes the observers of a launch to the events of a cluster that begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.access_decoder import cell_bytes, decode_accesses
from tilescope.machine.decoding.control_flow import ControlFlow
from tilescope.machine.decoding.dataflow import find_decisions, stores_of_sums
from tilescope.machine.decoding.independent_blocks import do_threads_work_alone
from tilescope.machine.execution.collective import Collective, names_all_lanes
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.smem_watch import SmemWatch
from tilescope.machine.observers.store_log import ChangedLoads
from tilescope.machine.observers.tile_use import TileUse
from tilescope.machine.program import Program
from tilescope.machine.schedule import Gathering
from tilescope.ptx.syntax import Instruction
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.detector.context import LaunchDetector, ProgramFacts
from tilescope.sync.detector.control_paths import CollectiveKind
from tilescope.sync.detector.detector import ClusterDetector
from tilescope.sync.detector.race import How
from tilescope.sync.memory_scope import GPU

_TENSOR_OPERATIONS: dict[str, How] = {
    "alloc": "tcgen05.alloc",
    "ld": "tcgen05.ld",
    "st": "tcgen05.st",
    "mma": "tcgen05.mma",
    "cp": "tcgen05.cp",
    "shift": "tcgen05.shift",
    "commit": "tcgen05.commit",
}


def launch_detector(program: Program, memory: GlobalMemory) -> LaunchDetector:
    """What the detectors of all clusters of a launch share."""
    return LaunchDetector(program.fact(_find_facts), memory)


def _find_facts(program: Program) -> ProgramFacts:
    operations: dict[int, How] = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name == "tcgen05":
            named = [word for word in instruction.modifiers if word in _TENSOR_OPERATIONS]
            if named:
                operations[pc] = _TENSOR_OPERATIONS[named[0]]
    accesses = program.fact(decode_accesses)
    scopes = _find_scopes(accesses)
    return ProgramFacts(
        accesses=accesses,
        may_defer_releases=scopes is None and program.fact(do_threads_work_alone),
        has_flag_loads=any(access is not None and access.is_flag_load for access in accesses),
        tensor_operations=operations,
        map_edits=_tensormap_pcs(program, "replace"),
        map_copies=_tensormap_pcs(program, "cp_fenceproxy"),
        scopes=scopes,
        decisions=find_decisions(program, [pc for pc, access in enumerate(accesses) if access and access.is_flag_load]),
        stores_of_sums=stores_of_sums(program),
        has_remote_arrivals=any(_may_be_remote(instruction) for instruction in program.instructions),
        shared_cell_bytes=cell_bytes(program, "shared"),
        global_cell_bytes=cell_bytes(program, "global"),
        has_branches=_has_branches(program),
        collectives=_find_collectives(program),
        partial_masks=_find_partial_masks(program),
        control=lambda: program.fact(ControlFlow),
    )


def _has_branches(program: Program) -> bool:
    """Whether some threads may take a branch, return or skip a barrier while others do not."""
    is_guarded = any(guard is not None for guard in program.guards)
    return is_guarded or any(
        instruction is not None and instruction.name == "brx" for instruction in program.instructions
    )


def _find_collectives(program: Program) -> dict[int, CollectiveKind]:
    """The instructions that need all threads of a warp, or those of a mask."""
    kinds: dict[int, CollectiveKind] = {}
    for pc, turn in enumerate(program.turns):
        instruction = program.instructions[pc]
        if instruction is None or not isinstance(turn, Gathering):
            continue
        if isinstance(turn, Collective):
            kinds[pc] = "aligned" if turn.mask is None else "mask"
        else:
            kinds[pc] = "barrier" if instruction.name in ("bar", "barrier") else "aligned"
    return kinds


def _find_partial_masks(program: Program) -> frozenset[int]:
    """The instructions with a mask that may leave out lanes."""
    return frozenset(
        pc
        for pc, turn in enumerate(program.turns)
        if isinstance(turn, Collective) and turn.mask is not None and not names_all_lanes(program, turn.mask)
    )


def _tensormap_pcs(program: Program, action: str) -> frozenset[int]:
    """The instructions that edit a tensor map, or copy one."""
    return frozenset(
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None and instruction.name == "tensormap" and action in instruction.modifiers
    )


def _may_be_remote(instruction: Instruction | None) -> bool:
    """Whether an instruction may arrive at an mbarrier of another block."""
    if instruction is None or instruction.name != "mbarrier":
        return False
    words = set(instruction.modifiers)
    return not words.isdisjoint({"arrive", "arrive_drop"}) and words.isdisjoint({"shared", "shared::cta"})


def _find_scopes(accesses: Sequence[AccessSemantics | None]) -> npt.NDArray[np.int8] | None:
    """The scope of each strong access; None if all are .gpu or wider."""
    strong = [access.scope if access is not None and access.is_strong else GPU for access in accesses]
    return None if min(strong, default=GPU) == GPU else np.array(strong, np.int8)


def _has_tiles(program: Program) -> bool:
    """Whether TMA or a tensor core reads or writes shared memory."""
    named = [instruction for instruction in program.instructions if instruction is not None]
    return any(
        instruction.name in ("wgmma", "tcgen05") or (instruction.name == "cp" and "tensor" in instruction.modifiers)
        for instruction in named
    )


def observe(cluster: Cluster, watch: SmemWatch | None = None) -> None:
    """Let the observers of its launch, and a watch, listen to a cluster, from its first event on."""
    launch = cluster.launch
    bus = cluster.bus
    if launch.atomic_order is not None:
        bus.subscribe(launch.atomic_order.handlers(cluster.shape))
    recorder = launch.take_recorder()
    if recorder is not None:
        bus.subscribe(recorder.handlers(cluster.shape))
    if launch.array_ends is not None:
        bus.subscribe(launch.array_ends.handlers(cluster.shape))
    if launch.costs is not None:
        bus.subscribe(launch.costs.handlers(cluster.shape))
        if cluster.program.fact(_has_tiles):
            launch.costs.has_tiles = True
            bus.subscribe(TileUse(launch.costs, cluster.shape, cluster.program).handlers())
    if launch.detector is not None:
        detector = ClusterDetector(cluster.shape, launch.detector)
        bus.answer_by(detector)
        bus.subscribe(detector.handlers())
        if launch.store_log is not None:
            bus.answer_by(ChangedLoads(detector, launch.store_log, cluster.shape))
            bus.subscribe(launch.store_log.handlers(cluster.shape))
        if watch is not None:
            bus.subscribe(watch.handlers(cluster, detector.context))
        cluster.accesses = launch.detector.program.accesses
    elif bus.is_heard:
        cluster.accesses = cluster.program.fact(decode_accesses)
