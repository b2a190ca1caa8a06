"""The state of a running launch: shape, parameters and memory, laid out as the driver does.

parameters     the bytes of all arguments, each at its alignment
memory         arrays, and the variables of the module, placed in global memory
shared memory  0x400 reserved | static variables | dynamic memory at its alignment
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES, Arch
from tilescope.arithmetic import rounded_up
from tilescope.machine.execution.records import CopyRecord, CutEdit, PhaseRecord
from tilescope.machine.execution.residency import FEWEST_SMS, Residency, find_registers, find_residency
from tilescope.machine.execution.special import GRID_WORKSPACE, GRID_WORKSPACE_REGISTERS
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.array_ends import ArrayEnds, find_watched_reads
from tilescope.machine.observers.atomic_order import AtomicOrder, ordered_atomics
from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.store_log import StoreLog
from tilescope.machine.program import Program, find_code_addresses
from tilescope.machine.proof.recorder import Recorder
from tilescope.sync.address import BUFFER_ALIGNMENT_BYTES
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape
from tilescope.sync.detector.context import LaunchDetector
from tilescope.tensor_map import AnyMap, decode_tensor_map

WAITED_CYCLES = 100_000_000  # added to the clock when every thread waits; not a measure of time
MAPS_KEPT = 10_000
COPIED_BYTES_OF_A_STEP = 4096  # a larger copy counts as several steps
_GRID_WORKSPACE_BYTES = 8
PROGRESS_STEPS = 1024  # between two calls of `progress`
QUIET_JUMPS = 100  # clock jumps without progress after which a wait is a hang


class Versions(NamedTuple):
    """Counts of what changed in a cluster, and in global memory."""

    cluster: int
    memory: int


@dataclass(slots=True)
class Launch:
    """The state that the clusters of a grid share while they run."""

    program: Program
    memory: GlobalMemory
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    is_clustered: bool
    smem_bytes: int
    parameters: npt.NDArray[np.uint8]
    variable_addresses: dict[str, int]
    arch: Arch
    random: random.Random | None
    max_steps: int
    steps_left: int = field(init=False)
    steps: int = 0  # executed; starting clusters and large copies also count against `steps_left`
    multiprocessors: int = 132
    given_maps: dict[bytes, AnyMap] = field(
        default_factory=dict
    )  # arguments without a known encoding, by their placeholder bytes
    waited: int = 0  # cycles
    printed: list[str] = field(default_factory=list)
    printed_characters: int = 0
    inexact: set[str] = field(default_factory=set)  # executed opcodes whose result bits are not specified
    costs: Costs | None = None  # costs of memory accesses; None: not counted
    cut_edits: dict[int, CutEdit] = field(default_factory=dict)  # by pc
    atomic_order: AtomicOrder | None = field(
        init=False
    )  # None: no atomic of the kernel depends on the order of threads
    followers_differ: bool = False  # whether blocks that followed a leader did other things, each in its own way
    copies: list[CopyRecord] = field(default_factory=list)  # the first RECORDS_KEPT of them
    phases: list[PhaseRecord] = field(default_factory=list)
    array_ends: ArrayEnds | None = field(init=False)  # None: no read can leave an array of shared memory
    recorder: Recorder | None = None  # of the first cluster that runs
    maps: list[AnyMap] = field(default_factory=list)  # used by copies, in the order of their first use
    detector: LaunchDetector | None = None  # None: no findings are wanted
    after_polls: Launch | None = None  # a second run in which polls pass at once, if it did not finish
    late_pcs: tuple[int, ...] = ()  # polls that execute when nothing else can, in ascending order
    shared_pattern: int = 0  # the byte that fills shared memory before a block starts
    store_log: StoreLog | None = None  # of a second run that compares what threads store
    max_seconds: float | None = None  # CPU time of this thread: other load on the machine does not count
    begun: float = field(default_factory=time.thread_time)
    is_out_of_time: bool = False
    # `progress` is called with the steps executed; an exception that it raises ends the run.
    progress: Callable[[int], None] | None = None
    to_start: Iterator[tuple[int, int, int]] = field(
        default_factory=lambda: iter(())
    )  # first blocks of the clusters that have not started
    _is_recorder_taken: bool = False
    _map_numbers: dict[bytes, int] = field(default_factory=dict)
    _versions_seen: Versions | None = None
    _quiet_jumps: int = 0

    def __post_init__(self) -> None:
        self.steps_left = self.max_steps
        watched = None if self.detector is None else self.program.fact(find_watched_reads)
        self.array_ends = None if watched is None else ArrayEnds(watched)
        self.atomic_order = None
        if self.program.fact(ordered_atomics):
            self.atomic_order = AtomicOrder(self.memory, self.grid, self.program, self.inexact)

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def block_lanes(self) -> int:
        """Lanes of a block: its threads, padded to whole warps."""
        return rounded_up(self.block_threads, WARP_LANES)

    @property
    def shared_stride(self) -> int:
        """Bytes between the shared memories of neighbouring blocks in a cluster's array."""
        return rounded_up(self.shared_end, BUFFER_ALIGNMENT_BYTES)

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def residency(self) -> Residency | None:
        """The room for blocks on the card; None if the whole grid fits."""
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        if blocks <= FEWEST_SMS:
            return None
        registers = find_registers(self.program.entry, self.block_lanes)
        return find_residency(self.arch.name, self.block_lanes, self.shared_stride, blocks, registers)

    @property
    def shared_end(self) -> int:
        """End address of a block's shared memory within its window."""
        if self.smem_bytes:
            return self.program.dynamic_shared_offset + self.smem_bytes
        return self.program.static_shared_end

    def cluster_shape(self, first_block: BlockIndex) -> ClusterShape:
        """The shape of the cluster that begins at a block of the grid."""
        return ClusterShape(
            first_block, self.cluster, self.block_threads, self.block_lanes, self.shared_end, self.shared_stride
        )

    def row_of_blocks(self, first_block: BlockIndex, count: int) -> ClusterShape:
        """The shape of blocks without clusters that run in lockstep."""
        return ClusterShape(
            first_block, (count, 1, 1), self.block_threads, self.block_lanes, self.shared_end, self.shared_stride
        )

    def take_recorder(self) -> Recorder | None:
        """The recorder, for the first cluster that requests it."""
        if self._is_recorder_taken:
            return None
        self._is_recorder_taken = True
        return self.recorder

    def cancel_cluster(self) -> tuple[int, int, int] | None:
        """Cancel the next cluster and return its first block; None if all clusters have started."""
        return next(self.to_start, None)

    def count_steps(self, steps: int) -> None:
        """Count executed instructions; one that several threads execute together counts once."""
        self.steps += steps
        self.steps_left -= steps
        if self.max_seconds is not None and self.is_late():
            self.is_out_of_time = True
            self.steps_left = min(self.steps_left, 0)
        if self.progress is not None and self.steps // PROGRESS_STEPS > (self.steps - steps) // PROGRESS_STEPS:
            self.progress(self.steps)

    def is_late(self) -> bool:
        """Whether the run has used up `max_seconds`."""
        return self.max_seconds is not None and time.thread_time() - self.begun > self.max_seconds

    def clock(self) -> int:
        """The clock that %clock and %globaltimer read: it grows as the kernel runs."""
        return self.max_steps - self.steps_left + self.waited

    def pass_time(self, versions: Versions) -> bool:
        """Advance the clock when every thread waits; False after QUIET_JUMPS jumps without progress."""
        if versions != self._versions_seen:
            self._versions_seen = versions
            self._quiet_jumps = 0
        self._quiet_jumps += 1
        self.waited += WAITED_CYCLES
        return self._quiet_jumps <= QUIET_JUMPS

    def charge(self, actions: int, copied_bytes: int = 0) -> None:
        """Count the further actions of an instruction as steps; its first action is the step itself."""
        self.steps_left -= max(actions - 1, 0) + copied_bytes // COPIED_BYTES_OF_A_STEP

    def known_map(self, content: bytes) -> AnyMap | None:
        """The tensor map that 128 bytes encode, if a copy has used it."""
        number = self._map_numbers.get(content)
        return None if number is None else self.maps[number]

    def map_number(self, content: bytes) -> int:
        """The index in `maps` of the tensor map that 128 bytes encode; a RuleError if they encode none.

        Each map is decoded once. A kernel may edit maps in a loop: those beyond the first MAPS_KEPT share the last index.
        """
        number = self._map_numbers.get(content)
        if number is not None:
            return number
        tensor_map = self.given_maps.get(content)
        if tensor_map is None:
            tensor_map = decode_tensor_map(content)
        if len(self.maps) == MAPS_KEPT:
            self.maps[-1] = tensor_map
        else:
            self.maps.append(tensor_map)
            self._map_numbers[content] = len(self.maps) - 1
        return len(self.maps) - 1

    def forget_maps(self, first: int) -> None:
        """Forget the maps from an index on: the copies that used them are undone."""
        del self.maps[first:]
        self._map_numbers = {content: number for content, number in self._map_numbers.items() if number < first}


def place_variables(program: Program, memory: GlobalMemory) -> dict[str, int]:
    """Place the initialised .global and .const variables of a module in memory, and return their addresses.

    A kernel that uses the workspace of cooperative launches gets one: its size, and the word of the grid barrier.
    """
    variables = [variable for variable in program.module.variables.values() if variable.space in ("global", "const")]
    contents = {variable.name: np.zeros(max(variable.size_bytes or 0, 1), np.uint8) for variable in variables}
    addresses = {name: memory.place(content) for name, content in contents.items()}
    for variable in variables:
        if variable.initial is not None:
            contents[variable.name][: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        for offset, name in variable.addresses:
            pointer = contents[variable.name][offset : offset + 8].view(np.uint64)
            pointer += np.uint64(addresses[name] if name in addresses else program.fact(find_code_addresses)[name])
    if program.reads_special(GRID_WORKSPACE_REGISTERS):
        workspace = np.array([_GRID_WORKSPACE_BYTES, 0], np.uint32)
        addresses[GRID_WORKSPACE] = memory.place(workspace)
    return addresses
