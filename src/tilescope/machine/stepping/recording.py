"""The recorded steps of a launch, and the state after any of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.edits.trial import COPIED_BYTES, InitialState
from tilescope.machine.execution.launch_grid import MakesSchedules, cluster_starts, run_grid
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.last_writer import LastWriter
from tilescope.machine.observers.observe import launch_detector
from tilescope.machine.observers.smem_watch import rank_of
from tilescope.machine.program import Program
from tilescope.machine.stepping.block_state import BlockState, line_of, number_ranges, source_line_of, text_of
from tilescope.machine.stepping.cluster_log import ClusterLog
from tilescope.machine.stepping.run_state import (
    RunState,
    StepEvent,
    StepRan,
)
from tilescope.machine.stepping.step_recorder import Progress, StepRecorder, record_program
from tilescope.reading import integer, integers
from tilescope.rule import ARGUMENT_RANGE
from tilescope.sentence import by
from tilescope.sync.address import GLOBAL_START
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers

EVENTS_KEPT = 500


@dataclass(slots=True)
class Replay:
    """A launch that can be repeated: its steps are recorded when the first state is requested."""

    launch: Launch  # without its observers; its memory is the initial one
    initial: InitialState
    program: Program
    _recording: Recording | None = None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A run that was pickled has no replay: its program holds functions."""
        return type(None), ()

    def state(self, step: int, block: Sequence[int] | None, thread: int | None, progress: Progress | None) -> RunState:
        """The state after a step."""
        if self._recording is None:
            self._recording = self._record(progress)
        return self._recording.state(step, block, thread)

    def _record(self, progress: Progress | None) -> Recording:
        recorder = StepRecorder(progress)
        launch = self.run_again(record_program(self.program, recorder), recorder)
        recorder.end()
        return Recording(launch, recorder)

    def run_again(self, program: Program, recorder: MakesSchedules) -> Launch:
        """Make the launch again, on a copy of its initial memory, with a program that tells a recorder its steps."""
        memory = self.initial.memory.copy_within(COPIED_BYTES)
        assert memory is not None  # the copy was small enough before
        seed = self.initial.seed
        launch = replace(
            self.launch,
            program=program,
            memory=memory,
            random=None if seed is None else random.Random(seed),  # noqa: S311  # delays, not secrets
            detector=launch_detector(program, memory) if program.fact(_asks_detector) else None,
            copies=[],
            phases=[],
            maps=[],
            printed=[],
            inexact=set(),
            cut_edits={},
            _map_numbers={},
        )
        with np.errstate(all="ignore"):
            run_grid(launch, cluster_starts(launch, self.initial.blocks), recorder=recorder)
        return launch


def _asks_detector(program: Program) -> bool:
    """Whether a run depends on what the detector answers: stale values of flags, and tests of mbarriers that fail once."""
    if any(access is not None and access.is_flag_load for access in program.fact(decode_accesses)):
        return True
    named = [instruction for instruction in program.instructions if instruction is not None]
    return any(
        instruction.name == "mbarrier" and not {"try_wait", "test_wait"}.isdisjoint(instruction.modifiers)
        for instruction in named
    )


@dataclass(slots=True)
class Recording:
    """All steps of a launch. Steps are numbered from 1; the state after step 0 is the initial one."""

    launch: Launch
    recorder: StepRecorder
    _events: tuple[StepEvent, ...] | None = None

    def state(self, step: int, block: Sequence[int] | None = None, thread: int | None = None) -> RunState:
        """The state after a step, of a block and a thread: by default those that executed it."""
        steps = self.recorder.step
        number = integer("step", step)
        if not 0 <= number <= steps:
            end = "" if self.recorder.is_whole else "; the recording ended before the run did"
            raise ARGUMENT_RANGE.error(
                argument="step",
                found=f"step {number}",
                limit=f"steps 0 to {steps} were recorded{end}",
                fix=f"Use 0 to {steps}.",
            )
        active = self.recorder.log_of(max(number, 1))
        lanes = _lanes_that_ran(active, max(number, 1))
        shape = active.cluster.shape
        own_block = shape.block_index(int(shape.block_of_lane[lanes[0]]))
        chosen = own_block if block is None else self._read_block(block)
        log, rank = self._find_log(chosen)
        is_own = block is None or (log is active and rank == int(shape.block_of_lane[lanes[0]]))
        default_thread = int(lanes[0]) % shape.block_lanes if is_own else 0
        thread_number = default_thread if thread is None else self._read_thread(thread)
        parts = BlockState(self.launch, log, rank, number).parts(thread_number)
        state = RunState(
            step=number,
            steps=steps,
            is_whole=self.recorder.is_whole,
            block=chosen,
            thread=thread_number,
            ran=self._describe_step(active, number),
            warps=parts.warps,
            registers=parts.registers,
            mbarriers=parts.mbarriers,
            pending=parts.pending,
            smem=parts.smem,
            local=parts.local,
            tmem=parts.tmem,
            events=self._list_events(),
        )
        object.__setattr__(state, "_find_writer", lambda address: self._find_writer(log, rank, address, number))
        return state

    def _list_events(self) -> tuple[StepEvent, ...]:
        """The first EVENTS_KEPT events of the run, found once."""
        if self._events is None:
            events = sorted(event for log in self.recorder.logs for event in log.events())
            self._events = tuple(
                StepEvent(
                    step=step,
                    event=name,
                    ptx_line=line_of(self.launch.program.instructions[pc]),
                    source_line=source_line_of(self.launch.program.instructions[pc]),
                )
                for step, name, pc in events[:EVENTS_KEPT]
            )
        return self._events

    def _read_block(self, block: Sequence[int]) -> BlockIndex:
        coordinates = integers("block", block)
        x, y, z = (*coordinates, 0, 0, 0)[:3]
        grid = self.launch.grid
        if not 1 <= len(coordinates) <= 3 or not (0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2]):
            raise ARGUMENT_RANGE.error(
                argument="block",
                found=f"block {coordinates}",
                limit=f"one to three coordinates of a block in a grid of {by(grid)} blocks",
                fix="Use (0, 0, 0), for example.",
            )
        return x, y, z

    def _read_thread(self, thread: int) -> int:
        number = integer("thread", thread)
        threads = self.launch.block_threads
        if not 0 <= number < threads:
            raise ARGUMENT_RANGE.error(
                argument="thread",
                found=f"thread {number}",
                limit=f"a block has threads 0 to {threads - 1}",
                fix=f"Use 0 to {threads - 1}.",
            )
        return number

    def _find_log(self, block: BlockIndex) -> tuple[ClusterLog | None, int]:
        """The log of the cluster that has a block, and the block's rank; None if the cluster never started."""
        for log in self.recorder.logs:
            rank = rank_of(block, log.cluster.shape)
            if rank is not None:
                return log, rank
        return None, 0

    def _describe_step(self, log: ClusterLog, step: int) -> StepRan | None:
        if step == 0 or not log.steps:
            return None
        place = log.count_until(step) - 1
        instruction = self.launch.program.instructions[log.pcs[place]]
        lanes = log.lane_sets[log.sets[place]]
        shape = log.cluster.shape
        rank = int(shape.block_of_lane[lanes[0]])
        own_lanes = lanes[shape.block_of_lane[lanes] == rank]
        return StepRan(
            ptx_line=line_of(instruction),
            source_line=source_line_of(instruction),
            ptx_text=text_of(instruction),
            block=shape.block_index(rank),
            threads=number_ranges(own_lanes[shape.exists[own_lanes]] % shape.block_lanes),
        )

    def _find_writer(self, log: ClusterLog | None, rank: int, address: int, step: int) -> LastWriter | None:
        """Who wrote a byte of the block's shared memory, or of global memory."""
        if address >= GLOBAL_START or log is None:
            candidates = [(log, record) for log in self.recorder.logs if (record := log.memory.find(address, step))]
        else:
            record = log.shared.find(rank * log.cluster.shared_stride + address, step)
            candidates = [] if record is None else [(log, record)]
        if not candidates:
            return None
        writer, record = max(candidates, key=lambda pair: pair[1].step)
        instruction = self.launch.program.instructions[record.pc]
        shape = writer.cluster.shape
        writer_rank, thread = divmod(record.lane, shape.block_lanes)
        return LastWriter(
            ptx_line=line_of(instruction),
            source_line=source_line_of(instruction),
            ptx_text=text_of(instruction),
            block=shape.block_index(writer_rank),
            thread=thread,
        )


def _lanes_that_ran(log: ClusterLog, step: int) -> LaneNumbers:
    place = max(log.count_until(step) - 1, 0)
    return log.lane_sets[log.sets[place]] if log.steps else log.lane_sets[0]
