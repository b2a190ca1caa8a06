"""The state of one block after a step of a recorded launch: its warps, registers, memories and pending work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.smem_picture import SmemPicture
from tilescope.machine.observers.smem_watch import NOBODY, WrittenCells
from tilescope.machine.program import Program
from tilescope.machine.stepping.cluster_log import ClusterLog, Parked, shared_runs
from tilescope.machine.stepping.run_state import (
    Doing,
    LocalBytes,
    MbarrierAt,
    PendingWork,
    RegisterValue,
    TmemAt,
    TmemWriter,
    WarpPlace,
)
from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.ptx.syntax import Instruction, Register
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers

_FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


class BlockParts(NamedTuple):
    """The parts of a RunState that belong to one block."""

    warps: tuple[WarpPlace, ...]
    registers: tuple[RegisterValue, ...]
    mbarriers: tuple[MbarrierAt, ...]
    pending: tuple[PendingWork, ...]
    smem: SmemPicture | None
    local: tuple[LocalBytes, ...] = ()
    tmem: TmemAt | None = None


class BlockState:
    """The state of one block of a cluster after a step; `log` is None if the cluster never started."""

    def __init__(self, launch: Launch, log: ClusterLog | None, rank: int, step: int) -> None:
        self.launch = launch
        self.log = log
        self.rank = rank
        self.step = step
        self.count = 0 if log is None else log.count_until(step)

    def parts(self, thread: int) -> BlockParts:
        """The part of a RunState about the block and one of its threads."""
        log = self.log
        if log is None or (self.count == 0 and self.step > 0):
            return BlockParts(tuple(self._list_unstarted_warps()), (), (), (), None)
        return BlockParts(
            tuple(self._warps(log)),
            tuple(self._registers(log, self.rank * self.launch.block_lanes + thread)),
            tuple(self._mbarriers(log)),
            tuple(self._list_pending_work(log)),
            self._picture(log),
            tuple(self._local(log, self.rank * self.launch.block_lanes + thread)),
            self._tmem(log),
        )

    def _list_unstarted_warps(self) -> Iterator[WarpPlace]:
        threads = self.launch.block_threads
        for warp, first in enumerate(range(0, threads, WARP_LANES)):
            numbers = np.arange(first, min(first + WARP_LANES, threads))
            yield _warp_place(warp, numbers, None, "not started", "")

    def _warps(self, log: ClusterLog) -> Iterator[WarpPlace]:
        """Where the threads of each warp are: at the next instruction that they execute, or where they wait or ended."""
        following = log.find_next(self.count)
        latest = log.find_latest(self.count)
        reasons = {}
        for parked in log.parked_at(self.step):
            for lane in parked.lanes.tolist():
                reasons[lane] = parked
        shape = log.cluster.shape
        first = self.rank * shape.block_lanes
        for warp, warp_first in enumerate(range(0, shape.block_threads, WARP_LANES)):
            threads = range(warp_first, min(warp_first + WARP_LANES, shape.block_threads))
            places: dict[tuple[int, Doing, str], list[int]] = {}
            for thread in threads:
                place = _place_of(log, first + thread, following, latest, reasons.get(first + thread))
                places.setdefault(place, []).append(thread)
            for (pc, doing, waits_for), numbers in places.items():
                yield _warp_place(warp, np.array(numbers), self._instruction(pc), doing, waits_for)

    def _instruction(self, pc: int) -> Instruction | None:
        return None if pc < 0 else self.launch.program.instructions[pc]

    def _registers(self, log: ClusterLog, lane: int) -> Iterator[RegisterValue]:
        names = self.launch.program.fact(_name_registers)
        for written in log.registers_of(lane, self.step):
            register = names.get(written.number)
            if register is None:
                continue  # a value that the machine keeps for itself
            step_place = log.count_until(written.step) - 1
            yield RegisterValue(
                name=register.name,
                type=register.type,
                bits=int.from_bytes(written.content, "little"),
                value=describe_bits(register.type, written.content),
                step=written.step,
                ptx_line=line_of(self._instruction(log.pcs[step_place])),
            )

    def _local(self, log: ClusterLog, lane: int) -> Iterator[LocalBytes]:
        """What a lane has written to its local memory, by address."""
        first = lane * log.cluster.local_stride
        written = log.local.latest(first, first + log.cluster.program.local_bytes, self.step)
        for piece in sorted(written, key=lambda piece: (piece.start, piece.step)):
            yield LocalBytes(
                address=piece.start - first,
                content=piece.content.hex(),
                step=piece.step,
                ptx_line=line_of(self._instruction(piece.pc)),
            )

    def _tmem(self, log: ClusterLog) -> TmemAt | None:
        """The allocations of the block, and the cells that each instruction wrote last."""
        book = log.tmem.books_at(self.rank, self.step)
        if book is None:
            return None
        contents = log.tmem.at(self.rank, self.step)
        written = np.flatnonzero(contents.writes >= 0)
        pcs = np.array([write.pc for write in log.tmem.writes], np.int64)[contents.writes[written]]
        writers = []
        for pc in np.unique(pcs).tolist():
            cells = written[pcs == pc]
            instruction = self._instruction(pc)
            writers.append(
                TmemWriter(
                    ptx_line=line_of(instruction),
                    source_line=source_line_of(instruction),
                    ptx_text=text_of(instruction),
                    step=max(log.tmem.writes[number].step for number in np.unique(contents.writes[cells]).tolist()),
                    lanes=number_ranges(np.unique(cells // TMEM_COLUMNS)),
                    columns=number_ranges(np.unique(cells % TMEM_COLUMNS)),
                    cells=len(cells),
                    first=int(contents.cells[cells[0]]),
                )
            )
        return TmemAt(allocations=tuple(book.allocations), writers=tuple(writers))

    def _mbarriers(self, log: ClusterLog) -> Iterator[MbarrierAt]:
        for address, row in sorted(log.barriers_at(self.step).items()):
            if row.state is not None and address >> SHARED_RANK_SHIFT == self.rank:
                yield MbarrierAt(
                    address=address & SHARED_OFFSET_MASK,
                    phase=row.phase,
                    parity=row.state.phase,
                    count=row.state.count,
                    pending=row.state.pending,
                    tx_bytes=row.state.tx_bytes,
                )

    def _list_pending_work(self, log: ClusterLog) -> Iterator[PendingWork]:
        shape = log.cluster.shape
        for row in log.works_at(self.step):
            own_lanes = row.lanes[shape.block_of_lane[row.lanes] == self.rank]
            record = None if row.copy is None else row.copy.record
            is_here = record is not None and record.shared_address >> SHARED_RANK_SHIFT == self.rank
            if not len(own_lanes) and not is_here:
                continue
            instruction = self._instruction(row.work.pc)
            yield PendingWork(
                unit=row.work.kind,
                ptx_line=line_of(instruction),
                source_line=source_line_of(instruction),
                ptx_text=text_of(instruction),
                threads=number_ranges((own_lanes if len(own_lanes) else row.lanes) % shape.block_lanes),
                issued=row.issued,
                bytes=None if record is None else record.bytes,
                shared_address=None if record is None else record.shared_address & SHARED_OFFSET_MASK,
                barrier=None if row.work.barrier is None else row.work.barrier & SHARED_OFFSET_MASK,
                coords=None if record is None else record.coords,
            )

    def _picture(self, log: ClusterLog) -> SmemPicture:
        shape = log.cluster.shape
        contents = log.shared.at(self.step)
        block_cells = slice(self.rank * shape.shared_stride, self.rank * shape.shared_stride + shape.shared_end)
        pcs = np.append(log.shared.pcs(), NOBODY).astype(np.int64)[contents.records]
        pending = self._pending_writers(log, len(pcs))
        pcs = np.where(pending == NOBODY, pcs, pending)
        instructions = self.launch.program.instructions
        written = WrittenCells(
            instructions, pcs[block_cells], pending[block_cells] != NOBODY, contents.content[block_cells], 1
        )
        is_here = [
            record
            for step, record in log.loads
            if step <= self.step and record.shared_address >> SHARED_RANK_SHIFT == self.rank
        ]
        return SmemPicture(
            block=shape.block_index(self.rank),
            at=f"step {self.step + 1}",  # right before it runs
            times=1,
            came=1,
            bytes=shape.shared_end,
            writers=tuple(written.writers()),
            stretches=tuple(written.stretches()),
            tiles=tuple(written.tiles(is_here, self.launch.maps)),
            mbarriers=tuple(barrier.address for barrier in self._mbarriers(log)),
        )

    def _pending_writers(self, log: ClusterLog, size_bytes: int) -> npt.NDArray[np.int64]:
        """By byte of the cluster's shared memory: the pending copy that will write it, or NOBODY."""
        writers = np.full(size_bytes, NOBODY, np.int64)
        for row in log.works_at(self.step):
            if row.copy is not None and row.copy.record.kind == "load":
                for run in shared_runs(row.copy):
                    writers[run.starts[:, None] + np.arange(run.piece_bytes)] = row.work.pc
        return writers


def _place_of(
    log: ClusterLog,
    lane: int,
    following: npt.NDArray[np.int64],
    latest: npt.NDArray[np.int64],
    parked: Parked | None,
) -> tuple[int, Doing, str]:
    """Where a thread is, what it does, and what it waits for."""
    if parked is not None:
        return parked.pc, "waiting", parked.waits_for
    if following[lane] >= 0:
        return int(following[lane]), "ready", ""
    return int(latest[lane]), "stopped" if log.cluster.live[lane] else "exited", ""


def _warp_place(
    warp: int, threads: LaneNumbers, instruction: Instruction | None, doing: Doing, waits_for: str
) -> WarpPlace:
    return WarpPlace(
        warp=warp,
        threads=number_ranges(threads),
        ptx_line=None if instruction is None else instruction.line,
        source_line=source_line_of(instruction),
        ptx_text=text_of(instruction),
        doing=doing,
        waits_for=waits_for,
    )


def line_of(instruction: Instruction | None) -> int:
    """The line of an instruction in the PTX, 0 without one."""
    return 0 if instruction is None else instruction.line


def source_line_of(instruction: Instruction | None) -> str | None:
    """The line of the source that an instruction comes from, if it is known."""
    return None if instruction is None else instruction.source_line


def text_of(instruction: Instruction | None) -> str:
    """The text of an instruction, empty without one."""
    return "" if instruction is None else instruction.text


def _name_registers(program: Program) -> dict[int, Register]:
    """The registers of the text, by their numbers in the machine."""
    functions = program.module.functions
    return {
        number: functions[function].registers[index]
        for (function, index), number in program.register_numbers.items()
        if function in functions and 0 <= index < len(functions[function].registers)
    }


def describe_bits(type_name: str, content: bytes) -> str:
    r"""The value of a register by its declared type; untyped bits are an unsigned number.

    >>> describe_bits("f32", bytes.fromhex("0000803f")), describe_bits("s32", b"\xff" * 4), describe_bits("pred", b"\x01")
    ('1.0', '-1', 'true')
    """
    if type_name == "pred":
        return "true" if any(content) else "false"
    float_format = _FLOATS.get(type_name)
    if float_format is not None:
        return str(np.frombuffer(content, float_format)[0])
    return str(int.from_bytes(content, "little", signed=type_name.startswith("s")))


def number_ranges(numbers: npt.NDArray[np.integer]) -> str:
    """Numbers of threads, lanes or columns in short.

    >>> number_ranges(np.array([0, 1, 2, 3, 8, 16, 17]))
    '0-3, 8, 16-17'
    """
    ordered = sorted(numbers.tolist())
    breaks = [index for index, (number, following) in enumerate(pairwise(ordered), 1) if following != number + 1]
    parts = []
    for start, end in pairwise([0, *breaks, len(ordered)]):
        first, last = ordered[start], ordered[end - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(parts)
