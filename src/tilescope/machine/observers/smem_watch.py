"""A picture of the shared memory of one block, taken when a line of the program runs, or at the end.

    --at 40          right before PTX line 40 runs
    --at 40:3        … for the third time
    --at mm.py:12    right before the first instruction of a source line runs
    --at mm.py:12:3  … for the third time

The third time is when the first thread comes to an instruction of the line for the third time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.machine.execution.records import CopyRecord
from tilescope.machine.observers.smem_picture import SmemPicture, SmemStretch, SmemTile, SmemWriter
from tilescope.reading import plain_int
from tilescope.rule import ptx_example, rule
from tilescope.sentence import format_value, shorten
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, SHARED_RESERVED_BYTES
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.epoch import PENDING, Stamps, epochs_of, pcs_of
from tilescope.sync.events import InstructionReached
from tilescope.tensor_map import AnyMap, TensorMap

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster
    from tilescope.machine.launch.launch import Launch
    from tilescope.machine.program import Program
    from tilescope.machine.step import Step
    from tilescope.ptx.syntax import Instruction
    from tilescope.sync.cluster_shape import ClusterShape, Lanes
    from tilescope.sync.detector.context import DetectorContext

_PLACE = re.compile(r"(?:(?P<file>[\d:]*[^\d:].*?):)?(?P<line>\d{1,9})(?::(?P<times>\d{1,9}))?")
_MOST_CHARACTERS = 5000  # a path has at most 4096
NOBODY = -1

SMEM_MOMENT = rule(
    "smem-moment",
    "A picture of shared memory is taken at a line with instructions, before one of its executions.",
    argument="smem",
    found="{at}",
    limit="a PTX line such as 40, or a source line such as mm.py:12; 40:3 is the third time that line 40 runs",
    fix="Name a line that has an instruction.",
    source="the command line",
    passing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 1, smem=((0, 0, 0), 8))",
    failing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 1, smem=((0, 0, 0), 'here'))",
)
NO_INSTRUCTION = SMEM_MOMENT.worded(
    found="{at}, a line without an instruction",
    limit="a line that has an instruction",
    fix="Use {nearest}, for example.",
)
NO_SOURCE = SMEM_MOMENT.worded(
    found="{at}, and no instruction comes from {file}",
    limit="a file that the PTX names in a .loc, or a PTX line",
    fix="Use a PTX line such as {first_line}, or compile with line numbers (nvcc -lineinfo).",
)


class Moment(NamedTuple):
    """A line as the user wrote it, its instructions, and which time it runs."""

    at: str | None
    pcs: frozenset[int]
    times: int


def read_moment(program: Program, at: str | int | None) -> Moment:
    """The moment that a text names; an error if the program has no such line."""
    if at is None:
        return Moment(None, frozenset(), 1)
    number = plain_int(at)
    written = at if number is None else format_value(number)
    match = None
    if isinstance(written, str) and len(written) <= _MOST_CHARACTERS:
        match = _PLACE.fullmatch(written)
    if match is None or match["times"] == "0":
        raise SMEM_MOMENT.error(at=format_value(at))
    line = int(match["line"])
    prefix = "" if match["file"] is None else f"{match['file']}:"
    pcs = frozenset(_pcs_of(program, match["file"], line))
    if not pcs:
        lines = sorted(_lines_of(program, match["file"]))
        if not lines:
            file = shorten(str(match["file"]), 40)
            raise NO_SOURCE.error(at=format_value(at), file=file, first_line=min(_lines_of(program, None)))
        nearest = min(lines, key=lambda other: abs(other - line))
        raise NO_INSTRUCTION.error(at=format_value(at), nearest=f"{prefix}{nearest}")
    return Moment(f"{prefix or 'PTX line '}{line}", pcs, int(match["times"] or 1))


def _pcs_of(program: Program, file: str | None, line: int) -> list[int]:
    """The instructions of a PTX line, or of a line of a file of the source."""
    if file is None:
        return [
            pc
            for pc, instruction in enumerate(program.instructions)
            if instruction is not None and instruction.line == line
        ]
    return [pc for pc, places in _source_places(program).items() if (file, line) in places]


def _lines_of(program: Program, file: str | None) -> set[int]:
    if file is None:
        return {instruction.line for instruction in program.instructions if instruction is not None}
    return {line for places in _source_places(program).values() for source_file, line in places if source_file == file}


def _source_places(program: Program) -> dict[int, set[tuple[str, int]]]:
    """(file, line) of every instruction, with those that it was inlined at; files by their path and by their name."""
    places: dict[int, set[tuple[str, int]]] = {}
    for pc, instruction in enumerate(program.instructions):
        source = None if instruction is None else instruction.source
        while source is not None:
            names = {source.file, source.file.replace("\\", "/").rpartition("/")[2]}
            places.setdefault(pc, set()).update((name, source.line) for name in names)
            source = source.inlined_at
    return places


@dataclass(slots=True)
class _Snapshot:
    """What is copied at the moment, before anything else happens."""

    stamps: Stamps
    content: npt.NDArray[np.uint8]
    mbarriers: tuple[int, ...]
    copies: tuple[CopyRecord, ...]


@dataclass(slots=True)
class SmemWatch:
    """Waits for a moment of one block."""

    block: BlockIndex
    moment: Moment
    came: int = 0  # how often a thread of the block reached an instruction of the line
    _cluster: Cluster | None = None  # that has the block
    _context: DetectorContext | None = None  # whose shadow memory has the writers
    _rank: int = 0
    _copies_before: int = 0
    _visits: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)  # by instruction: of every lane
    _snapshot: _Snapshot | None = None

    def handlers(self, cluster: Cluster, context: DetectorContext) -> dict[type, Handler]:
        """What looks at a cluster that begins, if it has the block."""
        rank = rank_of(self.block, cluster.shape)
        if rank is None:
            return {}
        self._cluster = cluster
        self._context = context
        self._rank = rank
        self._copies_before = len(cluster.launch.copies)
        return {InstructionReached: self._reach}

    def _reach(self, event: InstructionReached) -> None:
        """Threads are about to run an instruction."""
        pc = event.pc
        cluster = self._cluster
        if pc not in self.moment.pcs or cluster is None or self._snapshot is not None:
            return
        lanes = event.lanes
        block_lanes = lanes[cluster.block_of_lane[lanes] == self._rank]
        if not len(block_lanes):
            return
        visits = self._visits.setdefault(pc, np.zeros(cluster.lane_count, np.int64))
        visits[block_lanes] += 1
        self.came = max(self.came, int(visits[block_lanes].max()))
        if self.came >= self.moment.times:
            self._snapshot = self._take_snapshot(cluster)

    def _take_snapshot(self, cluster: Cluster) -> _Snapshot:
        """The block's memory as it is now."""
        context = self._context
        assert context is not None
        first = self._rank * cluster.shared_stride // context.cell_bytes
        cells = ceil_div(cluster.launch.shared_end, context.cell_bytes)
        barriers = sorted(
            address & SHARED_OFFSET_MASK for address in cluster.mbarriers if address >> SHARED_RANK_SHIFT == self._rank
        )
        return _Snapshot(
            context.shared.writes[first : first + cells].copy(),
            cluster.shared_bytes(self._rank).copy(),
            tuple(barriers),
            tuple(filter(self._is_tile, cluster.launch.copies[self._copies_before :])),
        )

    def _is_tile(self, record: CopyRecord) -> bool:
        """Whether a copy loaded a tile into the block."""
        assert self._cluster is not None
        is_own = rank_of(record.block, self._cluster.shape) is not None
        is_here = record.shared_address >> SHARED_RANK_SHIFT == self._rank
        return is_own and is_here and record.kind == "load" and record.coords is not None

    def picture(self, launch: Launch) -> SmemPicture | None:
        """The picture of the moment, or of the end if the moment was not reached; None for a block that did not start."""
        cluster = self._cluster
        if cluster is None:
            return None
        snapshot = self._take_snapshot(cluster) if self._snapshot is None else self._snapshot
        assert self._context is not None
        written = WrittenCells(
            launch.program.instructions,
            np.where(snapshot.stamps == 0, NOBODY, pcs_of(snapshot.stamps)),
            epochs_of(snapshot.stamps) == PENDING,
            snapshot.content,
            self._context.cell_bytes,
        )
        return SmemPicture(
            block=self.block,
            at=self.moment.at,
            times=self.moment.times,
            came=self.came,
            bytes=launch.shared_end,
            writers=tuple(written.writers()),
            stretches=tuple(written.stretches()),
            tiles=tuple(written.tiles(snapshot.copies, launch.maps)),
            mbarriers=snapshot.mbarriers,
        )


class WrittenCells:
    """Shared memory of a block, cell by cell, with writers that are lines of the program.

    `pcs` has the instruction that wrote each cell last, or NOBODY; `is_under_way` the cells that a pending copy will write.
    """

    def __init__(
        self,
        program_instructions: Sequence[Instruction | None],
        pcs: npt.NDArray[np.int64],
        is_under_way: npt.NDArray[np.bool_],
        content: npt.NDArray[np.uint8],
        cell_bytes: int,
    ) -> None:
        self._content = content
        self._is_under_way = is_under_way
        self._cell_bytes = cell_bytes
        self._pcs = pcs
        self._instructions: dict[str, list[Instruction]] = {}  # of each writer, by its line
        number_of_pc: dict[int, int] = {}
        for pc in np.unique(self._pcs[self._pcs != NOBODY]).tolist():
            instruction = program_instructions[pc]
            assert instruction is not None  # the return at the end of a body writes nothing
            line = instruction.line_name
            self._instructions.setdefault(line, []).append(instruction)
            number_of_pc[pc] = list(self._instructions).index(line)
        numbers = np.full(len(program_instructions) + 1, NOBODY)  # the last entry: no writer
        numbers[list(number_of_pc)] = list(number_of_pc.values())
        self._numbers: npt.NDArray[np.int64] = numbers[self._pcs]

    def writers(self) -> Iterator[SmemWriter]:
        """The lines, in the order of their first instruction."""
        for number, instructions in enumerate(self._instructions.values()):
            first = instructions[0]
            yield SmemWriter(
                source_line=first.source_line,
                ptx_lines=tuple(dict.fromkeys(instruction.line for instruction in instructions)),
                ptx_text=first.text,
                bytes=int((self._numbers == number).sum()) * self._cell_bytes,
            )

    def stretches(self) -> Iterator[SmemStretch]:
        """Adjacent cells with the same last writer, or none, from the first usable byte on."""
        numbers = self._numbers
        content = self._content
        is_under_way = self._is_under_way
        is_new = (numbers[1:] != numbers[:-1]) | (is_under_way[1:] != is_under_way[:-1])
        start = SHARED_RESERVED_BYTES // self._cell_bytes
        starts = [start, *(cell for cell in (np.flatnonzero(is_new) + 1).tolist() if cell > start)]
        for first, following in zip(starts, [*starts[1:], len(numbers)], strict=True):
            address = first * self._cell_bytes
            stretch = content[address : following * self._cell_bytes]
            if not len(stretch):
                continue
            is_written = numbers[first] != NOBODY
            yield SmemStretch(
                address=address,
                bytes=len(stretch),
                writer=int(numbers[first]) if is_written else None,
                is_under_way=bool(is_under_way[first]),
                content=stretch.tobytes().hex() if is_written else "",
            )

    def tiles(self, copies: Iterable[CopyRecord], maps: Sequence[AnyMap]) -> Iterator[SmemTile]:
        """The last box that each tensor copy loaded to each address, if any of its bytes is still there.

        Boxes of im2col maps are left out: which pixels they hold depends on offsets that the run does not record.
        """
        latest: dict[tuple[int, int], CopyRecord] = {}
        for record in copies:
            place = (record.pc, record.shared_address)
            latest.pop(place, None)  # the last entry is at the end
            latest[place] = record
        for record in latest.values():
            assert record.map_number is not None
            assert record.coords is not None
            tensor_map = maps[record.map_number]
            address = record.shared_address & SHARED_OFFSET_MASK
            cells = slice(address // self._cell_bytes, -(-(address + record.bytes) // self._cell_bytes))
            mine = np.flatnonzero(self._pcs[cells] == record.pc)
            if isinstance(tensor_map, TensorMap) and len(mine):
                writer = int(self._numbers[cells][mine[0]])
                yield SmemTile(address=address, writer=writer, coords=record.coords, tensor_map=tensor_map)


def rank_of(block: BlockIndex, cluster: ClusterShape) -> int | None:
    """The rank of a block in a cluster; None if the cluster does not have the block."""
    extents = cluster.extents
    x, y, z = (coord - first for coord, first in zip(block, cluster.first_block, strict=True))
    if not (0 <= x < extents[0] and 0 <= y < extents[1] and 0 <= z < extents[2]):
        return None
    return x + extents[0] * (y + extents[1] * z)


def announce_line(program: Program, moment: Moment) -> Program:
    """The program that emits an event before every step of a line; the schedule does so before turns."""
    steps = list(program.steps)
    for pc in moment.pcs:
        step = steps[pc]
        if step is not None:
            steps[pc] = _announce(program, pc, step)
    return replace(program, steps=steps)


def _announce(program: Program, pc: int, step: Step) -> Step:
    """A step that emits an event first, with the lanes whose guard holds."""
    instruction = program.instructions[pc]
    guard = None if instruction is None else instruction.guard
    number = None
    if guard is not None:
        functions = {start: name for name, start in program.functions.items() if start <= pc}
        number = program.register_numbers[functions[max(functions)], guard.register.number]

    def announce_and_take(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        if guard is not None and number is not None:
            lanes = lanes[cluster.registers[number][lanes].astype(np.bool_) ^ guard.is_negated]
        cluster.emit(InstructionReached(pc, lanes))
        step(cluster, at)

    return announce_and_take
