"""Subscribes the observers of a launch to the events of a cluster that begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.access_decoder import cell_bytes, decode_accesses
from tilescope.machine.decoding.dataflow import find_decisions, stores_of_sums
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.smem_watch import SmemWatch
from tilescope.machine.observers.store_log import ChangedLoads
from tilescope.machine.observers.tile_use import TileUse
from tilescope.machine.program import Program
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.detector.context import LaunchDetector, ProgramFacts
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
    return ProgramFacts(
        accesses=accesses,
        has_flag_loads=any(access is not None and access.is_flag_load for access in accesses),
        tensor_operations=operations,
        scopes=_find_scopes(accesses),
        decisions=find_decisions(program, [pc for pc, access in enumerate(accesses) if access and access.is_flag_load]),
        stores_of_sums=stores_of_sums(program),
        shared_cell_bytes=cell_bytes(program, "shared"),
        global_cell_bytes=cell_bytes(program, "global"),
    )


def _find_scopes(accesses: Sequence[AccessSemantics | None]) -> npt.NDArray[np.int8] | None:
    """The scope of each strong access; None if all are .gpu or wider."""
    strong = [access.scope if access is not None and access.is_strong else GPU for access in accesses]
    return None if min(strong, default=GPU) == GPU else np.array(strong, np.int8)


def _has_tiles(program: Program) -> bool:
    """Whether TMA or a tensor core reads or writes shared memory."""
    named = [one for one in program.instructions if one is not None]
    return any(one.name in ("wgmma", "tcgen05") or (one.name == "cp" and "tensor" in one.modifiers) for one in named)


def observe(cluster: Cluster, watch: SmemWatch | None = None) -> None:
    """Let the observers of its launch, and a watch, listen to a cluster, from its first event on."""
    launch = cluster.launch
    bus = cluster.bus
    if launch.float_adds is not None:
        bus.subscribe(launch.float_adds.handlers(cluster.shape))
    recorder = launch.take_recorder()
    if recorder is not None:
        bus.subscribe(recorder.handlers(cluster.shape))
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
