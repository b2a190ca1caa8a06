"""Subscribes the observers of a launch to the events of a cluster that begins."""

from __future__ import annotations

from tilescope.machine.access_semantics import cell_bytes, decode_accesses
from tilescope.machine.cluster import Cluster
from tilescope.machine.dataflow import stores_of_sums
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.smem_watch import SmemWatch
from tilescope.machine.program import Program
from tilescope.sync.detector.context import LaunchDetector, ProgramFacts
from tilescope.sync.detector.detector import ClusterDetector
from tilescope.sync.detector.race import How

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
    operations: dict[int, How] = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name == "tcgen05":
            named = [word for word in instruction.modifiers if word in _TENSOR_OPERATIONS]
            if named:
                operations[pc] = _TENSOR_OPERATIONS[named[0]]
    facts = ProgramFacts(
        accesses=decode_accesses(program),
        tensor_operations=operations,
        stores_of_sums=stores_of_sums(program),
        shared_cell_bytes=cell_bytes(program, "shared"),
        global_cell_bytes=cell_bytes(program, "global"),
    )
    return LaunchDetector(facts, memory)


def observe(cluster: Cluster, watch: SmemWatch | None = None) -> None:
    """Let the observers of its launch, and a watch, listen to a cluster, from its first event on."""
    launch = cluster.launch
    bus = cluster.bus
    bus.subscribe(launch.float_adds.handlers(cluster.shape))
    recorder = launch.take_recorder()
    if recorder is not None:
        bus.subscribe(recorder.handlers(cluster.shape))
    if launch.costs is not None:
        bus.subscribe(launch.costs.handlers(cluster.shape, cluster.program))
    if launch.detector is not None:
        detector = ClusterDetector(cluster.shape, launch.detector)
        bus.answer_by(detector)
        bus.subscribe(detector.handlers())
        if watch is not None:
            bus.subscribe(watch.handlers(cluster, detector.context))
        cluster.accesses = launch.detector.program.accesses
    elif bus.is_heard:
        cluster.accesses = decode_accesses(cluster.program)
