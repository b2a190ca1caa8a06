"""Corrections of barrier operands that may let a hanging or faulting kernel finish: what `remedy` tries, the likeliest first.

mbarrier.arrive.expect_tx.shared.b64 _, [full], 4112;      4096 bytes, as many as the copies delivered
mbarrier.try_wait.parity.shared.b64 p, [empty], 0;         the other parity
mbarrier.init.shared.b64 [empty], 129;                     128 arrivals, as many as there were
bar.sync 1, 128;                                           64 threads, as many as arrived

A compiler unrolls a source line to several instructions, which are corrected together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.operand_changes import add_to_last_operand, flip_parity
from tilescope.machine.edits.slot_stride import RegisterDefinitions
from tilescope.machine.edits.stronger_operands import barrier_threads, equal_barriers
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.hang import stuck_bars, stuck_polls
from tilescope.machine.report.places import find_function
from tilescope.machine.report.races.race_report import WrongBytes
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Instruction
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import WARPGROUP_LANES
from tilescope.sync.detector.context import PhaseBytes
from tilescope.sync.detector.race import Conflict, Correction, Mistake
from tilescope.sync.mbarrier import Mbarrier

Corrections = tuple[Correction, ...]
WAIT_MISTAKES: frozenset[Mistake] = frozenset({"copy wait", "refill", "phase overtaken", "phase skipped"})


class StuckBarrier(NamedTuple):
    """An mbarrier whose phase does not complete, or that got too many arrivals, and the pc of its init."""

    state: Mbarrier
    init: int


class StuckBar(NamedTuple):
    """A bar.sync that some threads cannot pass, by its pc, and how many threads arrived."""

    pc: int
    arrived: int


class Stuck(NamedTuple):
    """The barriers that a run hangs or faults at: the polls that do not pass, phases with wrong byte counts, and bar.sync."""

    polls: tuple[int, ...]
    barriers: tuple[StuckBarrier, ...]
    phases: tuple[PhaseBytes, ...]
    addresses: tuple[int, ...]  # of the mbarriers
    bars: tuple[StuckBar, ...]


def find_stuck_barriers(launch: Launch, result: GridRun, wrong: WrongBytes) -> Stuck | None:
    """The barriers that a run hangs or faults at, and mbarriers that counted wrong bytes; None if there are none."""
    phases = [barrier.bytes for barrier in (*wrong.spilled, *wrong.stuck)]
    polls: list[int] = []
    addresses: list[int] = []
    bars: list[StuckBar] = []
    is_fault = result.fault is not None and result.fault.missing_bytes is not None
    if result.outcome == "hang":
        for poll in stuck_polls(result.waiting[0]):
            polls.append(poll.pc)
            addresses.append(poll.address)
        bars = [StuckBar(*bar) for bar in stuck_bars(result.waiting[0])]
    elif is_fault:
        assert result.fault is not None
        assert result.fault.address is not None  # the mbarrier that got too many arrivals
        addresses.append(result.fault.address)
    if not (addresses or phases or bars):
        return None
    barriers: list[StuckBarrier] = []
    if addresses:
        cluster = result.waiting[0 if result.outcome == "hang" else -1].cluster
        for address in addresses:
            init = _find_init(launch, cluster, address)
            if init is not None:
                barriers.append(StuckBarrier(cluster.mbarriers[address], init))
    return Stuck(
        polls=tuple(dict.fromkeys(polls)),
        barriers=tuple(dict.fromkeys(barriers)),
        phases=tuple(dict.fromkeys(phases)),
        addresses=tuple(addresses),
        bars=tuple(dict.fromkeys(bars)),
    )


def _find_init(launch: Launch, cluster: Cluster, address: int) -> int | None:
    """The pc of the mbarrier.init that made the mbarrier at an address; None if no instruction did."""
    if launch.detector is None:
        return None
    mbarriers = launch.detector.running[cluster.first_block].mbarriers.at
    init = None if address not in mbarriers else mbarriers[address].init
    return None if init is None else init.pc


def find_corrections(
    launch: Launch, text: KernelText, stuck: Stuck | None, errors: Sequence[Conflict]
) -> Iterator[Corrections]:
    """Corrections that could fix a run, each once."""
    numbers = _MbarrierNumbers(launch, text)
    polls = numbers.polls_before([error.now.pc for error in errors if error.mistake in WAIT_MISTAKES])
    if stuck is None:
        possible = numbers.flip_parities(polls)
    else:
        possible = _corrections_of_stuck(numbers, stuck, polls)
    yield from dict.fromkeys(possible)


def _corrections_of_stuck(numbers: _MbarrierNumbers, stuck: Stuck, polls: Sequence[int]) -> Iterator[Corrections]:
    yield from numbers.count_actual_threads(stuck.bars)
    yield from numbers.expect_delivered_bytes(stuck.phases)
    yield from numbers.flip_parities(stuck.polls)
    yield from numbers.flip_parities(polls)
    yield from numbers.count_actual_arrivals(stuck.barriers)
    yield from numbers.change_counts_by_one(stuck.barriers)
    yield from numbers.flip_parities(numbers.polls)
    yield from numbers.count_threads(stuck.barriers)


class _MbarrierNumbers:
    """The mbarrier instructions of a kernel, by pc, and the numbers that may replace theirs."""

    def __init__(self, launch: Launch, text: KernelText) -> None:
        self._program: Program = launch.program
        self._text = text
        self._block_threads = launch.block_threads
        self._mbarriers = {
            pc: instruction
            for pc, instruction in enumerate(self._program.instructions)
            if instruction is not None and instruction.name == "mbarrier"
        }
        self.polls = [pc for pc, instruction in self._mbarriers.items() if "parity" in instruction.modifiers]
        self._inits = [pc for pc, instruction in self._mbarriers.items() if instruction.modifiers[0] == "init"]
        definitions = {function.name: RegisterDefinitions(function) for function in text.functions}
        self._constants = {
            pc: definitions[find_function(self._program, pc)].constant(instruction.operands[-1])
            for pc, instruction in self._mbarriers.items()
        }

    def polls_before(self, pcs: Sequence[int]) -> list[int]:
        """For each instruction the poll itself, or the last poll before it in its function."""
        polls = []
        for pc in dict.fromkeys(pcs):
            start = self._program.functions[find_function(self._program, pc)]
            polls += [poll for poll in self.polls if start <= poll <= pc][-1:]
        return polls

    def count_actual_threads(self, bars: Sequence[StuckBar]) -> Iterator[Corrections]:
        """bar.sync for as many threads as arrived in this phase, or in this phase and the one before, or for the whole block."""
        for bar in bars:
            instruction = self._instruction(bar.pc)
            threads = barrier_threads(instruction)
            if threads is None:
                continue
            pcs = equal_barriers(self._program.instructions, instruction)
            for count in dict.fromkeys((bar.arrived, threads + bar.arrived, self._block_threads)):
                if count != threads and count % WARP_LANES == 0 and count <= self._block_threads:
                    yield tuple(self._replace_threads(pc, count) for pc in pcs)

    def _replace_threads(self, pc: int, threads: int) -> Correction:
        edit = self._text.statement(self._instruction(pc)).with_operand(1, str(threads))
        return _make_correction(counted(threads, "thread"), pc, edit)

    def expect_delivered_bytes(self, phases: Sequence[PhaseBytes]) -> Iterator[Corrections]:
        """expect_tx with the bytes that the copies delivered: one source line at a time, then all of them."""
        difference_of_pc: dict[int, int] = {}
        for phase in phases:
            difference = phase.came - phase.expected
            expects = [pc for pc in sorted(phase.pcs) if "expect_tx" in self._instruction(pc).modifiers]
            for pc in expects:
                yield self._change_bytes(dict.fromkeys(self._find_copies(pc), difference))
            if len(expects) == 1:
                difference_of_pc[expects[0]] = difference
        yield self._change_bytes(difference_of_pc)

    def _change_bytes(self, difference_of_pc: dict[int, int]) -> Corrections:
        return tuple(self._add(pc, difference, "byte") for pc, difference in difference_of_pc.items())

    def flip_parities(self, polls: Sequence[int]) -> Iterator[Corrections]:
        """The other parity in all polls of a source line, then in each single poll; polls by token have no parity."""
        polls = [pc for pc in polls if pc in self.polls]
        for pc in polls:
            yield tuple(self._flip_parity(poll) for poll in self._find_copies(pc))
        for pc in polls:
            yield (self._flip_parity(pc),)

    def count_actual_arrivals(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with the arrivals of the pending phase, if some but not all threads arrived."""
        for barrier in barriers:
            if 0 < barrier.state.pending < barrier.state.count:
                yield from self._change_counts(barrier, -barrier.state.pending)

    def change_counts_by_one(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with one arrival more or less."""
        for barrier in barriers:
            yield from self._change_counts(barrier, 1)
            if barrier.state.count > 1:
                yield from self._change_counts(barrier, -1)

    def count_threads(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with one arrival for each thread of a warp, of a warpgroup, of the block."""
        for barrier in barriers:
            for count in dict.fromkeys((WARP_LANES, WARPGROUP_LANES, self._block_threads)):
                if count != barrier.state.count:
                    yield from self._change_counts(barrier, count - barrier.state.count)

    def _change_counts(self, barrier: StuckBarrier, difference: int) -> Iterator[Corrections]:
        """The same difference for the inits of a source line, for this init only, for all inits with the same count."""
        yield tuple(self._add(pc, difference, "arrival") for pc in self._find_copies(barrier.init))
        yield (self._add(barrier.init, difference, "arrival"),)
        equal = [pc for pc in self._inits if self._constants[pc] == self._constants[barrier.init]]
        yield tuple(self._add(pc, difference, "arrival") for pc in equal)

    def _add(self, pc: int, difference: int, noun: str) -> Correction:
        constant = self._constants[pc]
        if constant is not None:
            number = counted(constant + difference, noun)
        else:
            number = f"{counted(abs(difference), noun)} {'more' if difference > 0 else 'less'}"
        return _make_correction(number, pc, add_to_last_operand(self._text, self._instruction(pc), difference))

    def _flip_parity(self, pc: int) -> Correction:
        return _make_correction("the other parity", pc, flip_parity(self._text, self._instruction(pc)))

    def _find_copies(self, pc: int) -> list[int]:
        """The instructions with the same opcode that a compiler made of the same source line."""
        source = self._instruction(pc).source
        if source is None:
            return [pc]
        opcode = self._instruction(pc).opcode
        return [
            other
            for other, instruction in self._mbarriers.items()
            if instruction.source == source and instruction.opcode == opcode
        ]

    def _instruction(self, pc: int) -> Instruction:
        instruction = self._program.instructions[pc]
        assert instruction is not None  # the implicit return at the end of a body has no operands
        return instruction


def _make_correction(number: str, pc: int, edit: Edit) -> Correction:
    return Correction(number, pc, edit.text.rstrip("\n"), edit.start, edit.end)
