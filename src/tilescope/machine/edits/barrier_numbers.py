"""Numbers of mbarriers that may be wrong where a kernel hangs or faults: what `remedy` tries, the likeliest first.

mbarrier.arrive.expect_tx.shared.b64 _, [full], 4112;      4096 bytes, as many as came
mbarrier.try_wait.parity.shared.b64 p, [empty], 0;         the other parity
mbarrier.init.shared.b64 [empty], 129;                     128 arrivals, as many as came

A compiler unrolls a line of the source to several instructions: these are corrected together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster
from tilescope.machine.edits.change import KernelText
from tilescope.machine.edits.operand_changes import last_operand_off_by, other_parity
from tilescope.machine.edits.slot_changes import Definitions
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun
from tilescope.machine.program import Program
from tilescope.machine.report.hang import stuck_polls
from tilescope.machine.report.places import function_of
from tilescope.machine.report.race_report import wrong_bytes
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Instruction
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import WARPGROUP_LANES
from tilescope.sync.detector.context import PhaseBytes
from tilescope.sync.detector.race import Conflict, Correction, Mistake
from tilescope.sync.mbarrier import Mbarrier

Corrections = tuple[Correction, ...]
MISTAKES_OF_WAITS: frozenset[Mistake] = frozenset({"copy wait", "refill", "phase overtaken", "phase skipped"})


class StuckBarrier(NamedTuple):
    """An mbarrier whose phase does not end, or that had an arrival too many; the pc of its init."""

    state: Mbarrier
    init: int


class Stuck(NamedTuple):
    """What a run that hangs or faults at an mbarrier leaves: the polls that do not pass, the mbarriers, and wrong bytes."""

    polls: tuple[int, ...]
    barriers: tuple[StuckBarrier, ...]
    phases: tuple[PhaseBytes, ...]
    addresses: tuple[int, ...]  # of the mbarriers
    is_fault: bool


def stuck_of(launch: Launch, result: GridRun) -> Stuck | None:
    """Where a run stands at mbarriers that it cannot pass, or whose bytes are wrong; None where it does not."""
    wrong = wrong_bytes(launch, result)
    phases = [one.bytes for one in (*wrong.spilled, *wrong.stuck)]
    polls: list[int] = []
    addresses: list[int] = []
    is_fault = result.fault is not None and result.fault.missing_bytes is not None
    if result.outcome == "hang":
        for poll in stuck_polls(result.waiting[0]):
            polls.append(poll.pc)
            addresses.append(poll.address)
    elif is_fault:
        assert result.fault is not None
        assert result.fault.address is not None  # the mbarrier that has too many arrivals
        addresses.append(result.fault.address)
    if not (addresses or phases):
        return None
    cluster = result.waiting[0 if result.outcome == "hang" else -1].cluster if addresses else None
    barriers = [] if cluster is None else [_stuck_barrier(cluster, address) for address in addresses]
    known = [one for one in barriers if one is not None]
    return Stuck(
        polls=tuple(dict.fromkeys(polls)),
        barriers=tuple(dict.fromkeys(known)),
        phases=tuple(dict.fromkeys(phases)),
        addresses=tuple(addresses),
        is_fault=is_fault,
    )


def _stuck_barrier(cluster: Cluster, address: int) -> StuckBarrier | None:
    """The mbarrier at an address; None where no instruction of the kernel made it."""
    detector = cluster.launch.detector
    known = {} if detector is None else detector.running[cluster.first_block].mbarriers.at
    made = None if address not in known else known[address].init
    return None if made is None else StuckBarrier(cluster.mbarriers[address], made.pc)


def corrections(
    launch: Launch, text: KernelText, stuck: Stuck | None, errors: Sequence[Conflict]
) -> Iterator[Corrections]:
    """Corrections that could cure a run, each once."""
    numbers = _Numbers(launch, text)
    waits = numbers.polls_before([one.now.pc for one in errors if one.mistake in MISTAKES_OF_WAITS])
    if stuck is None:
        tried = numbers.parities(waits)
    else:
        tried = _all_of(numbers, stuck, waits)
    yield from dict.fromkeys(tried)


def _all_of(numbers: _Numbers, stuck: Stuck, waits: Sequence[int]) -> Iterator[Corrections]:
    yield from numbers.bytes_that_came(stuck.phases)
    yield from numbers.parities(stuck.polls)
    yield from numbers.parities(waits)
    yield from numbers.counts_that_came(stuck.barriers)
    yield from numbers.counts_off_by_one(stuck.barriers)
    yield from numbers.parities(numbers.polls)
    if stuck.is_fault:
        yield from numbers.counts_of_threads(stuck.barriers)


class _Numbers:
    """The mbarrier instructions of a kernel, by pc, and what their numbers could be instead."""

    def __init__(self, launch: Launch, text: KernelText) -> None:
        self._program: Program = launch.program
        self._text = text
        self._block_threads = launch.block_threads
        found = [(pc, one) for pc, one in enumerate(self._program.instructions) if one is not None]
        self._mbarriers = {pc: one for pc, one in found if one.name == "mbarrier"}
        self.polls = [pc for pc, one in self._mbarriers.items() if "parity" in one.modifiers]
        self._inits = [pc for pc, one in self._mbarriers.items() if one.modifiers[0] == "init"]
        definitions = {function.name: Definitions(function) for function in text.functions}
        self._known = {
            pc: definitions[function_of(self._program, pc)].constant(one.operands[-1])
            for pc, one in self._mbarriers.items()
        }

    def polls_before(self, pcs: Sequence[int]) -> list[int]:
        """For every instruction the poll itself, or the last one that stands before it in its function."""
        found = []
        for pc in dict.fromkeys(pcs):
            start = self._program.functions[function_of(self._program, pc)]
            found += [poll for poll in self.polls if start <= poll <= pc][-1:]
        return found

    def bytes_that_came(self, phases: Sequence[PhaseBytes]) -> Iterator[Corrections]:
        """expect_tx with the bytes that came: line by line, then all of them."""
        every: dict[int, int] = {}
        for phase in phases:
            off = phase.came - phase.expected
            expects = [pc for pc in sorted(phase.pcs) if "expect_tx" in self._instruction(pc).modifiers]
            for pc in expects:
                yield self._bytes_off(dict.fromkeys(self._of_line(pc), off))
            if len(expects) == 1:
                every[expects[0]] = off
        yield self._bytes_off(every)

    def _bytes_off(self, off_of_pc: dict[int, int]) -> Corrections:
        return tuple(self._off_by(pc, off, "byte") for pc, off in off_of_pc.items())

    def parities(self, polls: Sequence[int]) -> Iterator[Corrections]:
        """The other parity: in all polls of a line of the source, then in each alone."""
        for pc in polls:
            yield tuple(self._flipped(one) for one in self._of_line(pc))
        for pc in polls:
            yield (self._flipped(pc),)

    def counts_that_came(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with as many arrivals as came, where some did and some did not."""
        for barrier in barriers:
            if 0 < barrier.state.pending < barrier.state.count:
                yield from self._counts(barrier, -barrier.state.pending)

    def counts_off_by_one(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with an arrival more or less."""
        for barrier in barriers:
            yield from self._counts(barrier, 1)
            if barrier.state.count > 1:
                yield from self._counts(barrier, -1)

    def counts_of_threads(self, barriers: Sequence[StuckBarrier]) -> Iterator[Corrections]:
        """mbarrier.init with an arrival of every thread of a warp, of a warpgroup, of the block."""
        for barrier in barriers:
            for count in dict.fromkeys((WARP_LANES, WARPGROUP_LANES, self._block_threads)):
                if count != barrier.state.count:
                    yield from self._counts(barrier, count - barrier.state.count)

    def _counts(self, barrier: StuckBarrier, off: int) -> Iterator[Corrections]:
        """Counts that are off by as much: of a line of the source, of this init, of all that count alike."""
        yield tuple(self._count_off(one, off) for one in self._of_line(barrier.init))
        yield (self._count_off(barrier.init, off),)
        alike = [pc for pc in self._inits if self._known[pc] == self._known[barrier.init]]
        yield tuple(self._count_off(one, off) for one in alike)

    def _count_off(self, pc: int, off: int) -> Correction:
        return self._off_by(pc, off, "arrival")

    def _off_by(self, pc: int, off: int, noun: str) -> Correction:
        instruction = self._instruction(pc)
        known = self._known[pc]
        if known is not None:
            number = counted(known + off, noun)
        else:
            number = f"{counted(abs(off), noun)} {'more' if off > 0 else 'less'}"
        return _correction(number, pc, last_operand_off_by(self._text, instruction, off))

    def _flipped(self, pc: int) -> Correction:
        return _correction("the other parity", pc, other_parity(self._text, self._instruction(pc)))

    def _of_line(self, pc: int) -> list[int]:
        """The instructions of one kind that a line of the source was unrolled to."""
        source = self._instruction(pc).source
        if source is None:
            return [pc]
        opcode = self._instruction(pc).opcode
        return [other for other, one in self._mbarriers.items() if one.source == source and one.opcode == opcode]

    def _instruction(self, pc: int) -> Instruction:
        found = self._program.instructions[pc]
        assert found is not None  # the return at the end of a body counts nothing
        return found


def _correction(number: str, pc: int, edit: Edit) -> Correction:
    return Correction(number, pc, edit.text.rstrip("\n"), edit.start, edit.end)
