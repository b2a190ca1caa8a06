"""Deadlocks: one finding for each group of threads that waits for the same thing, when no thread can make progress.

    spinning     a loop that polls an mbarrier or a word of memory, which no longer changes
    barrier      bar.sync: how many threads arrived, and where the others are
    cluster      barrier.cluster.wait

Equal waits of several blocks are counted, not repeated. An mbarrier that got some of its arrivals or bytes comes first: a wrong
count stops its users, and then other threads wait for those users at mbarriers that get no arrival at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import Violation, Wording
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.instructions.control import Branch
from tilescope.machine.launch.launch import Launch
from tilescope.machine.report.places import (
    block_index_of,
    find_function,
    line_facts,
    name_array,
    name_instruction,
    name_line,
    name_shared_address,
    name_threads,
    thread_numbers,
)
from tilescope.machine.report.remedy_report import report_ending
from tilescope.machine.schedule import Schedule
from tilescope.ptx.syntax import Address, Immediate, Instruction, Operand, Register, Variable
from tilescope.rule import ptx_example, rule
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, SHARED_WINDOW, Addresses, is_in_window
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers
from tilescope.sync.stuck_waits import Lack, PhaseProgress, split_waits

_GROUPS_NAMED = 20
_CLUSTERS_READ = 200
_PLACES_NAMED = 3
_WORDS_OF_A_FRONT = 4  # words polled by the lanes of one front that get a finding each

HANG = rule(
    "run-hang",
    "Every wait of a kernel completes: threads reach their barriers, and mbarriers receive their bytes and arrivals.",
    argument="{where}",
    found="{where}: {who} {what}",
    limit="no running thread and no pending copy can end this wait",
    fix="{fix}",
    source="PTX ISA, bar, mbarrier, barrier.cluster; a card waits without end",
    passing=f"ts.Kernel({ptx_example('run-hang.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-hang.fail.ptx')}).run(1, 32).findings",
)
BARRIER = HANG.worded(
    found="{where}: {who} cannot pass barrier {number}, which {arrived} of {expected:thread} have reached[[; {others}]]",
    fix="Let every thread of the barrier reach it, or pass it the number of threads that do.",
)
CLUSTER_BARRIER = HANG.worded(
    found="{where}: {who} cannot pass the barrier of the cluster, which {arrived} of {expected:thread} have reached[[; {others}]]",
    fix="Let every thread of the cluster arrive.",
)
MBARRIER = HANG.worded(
    found="{where}: {who} cannot pass the mbarrier at {address:#x}[[ ({variable})]][[ with {parity}]], which is in {state}",
)
NO_MBARRIER = HANG.worded(
    found="{where}: {who} cannot pass the mbarrier at {address:#x}[[ ({variable})]], which was not initialized",
    fix="Initialise it with mbarrier.init in one thread, and put a barrier before other threads use it.",
)
WORD = HANG.worded(
    found="{where}: {who} cannot leave a loop that polls the word at {address:#x}[[ ({owner})]], which stays {word:#x}",
    fix="Let a thread that still runs write the word, or launch the blocks that do.",
)
NOT_RESIDENT = HANG.worded(
    found=(
        "{where}: {who} cannot leave a loop that polls the word at {address:#x}[[ ({owner})]], which stays {word:#x};"
        " {unstarted:block} of the grid cannot become resident"
    ),
    limit="{resident:block} that wait take all room on {sms} SMs ({counted}), and the others start only when one of them ends",
    fix="Launch at most {resident:block}, or let a block wait only for blocks with smaller numbers.",
)
COLUMNS = HANG.worded(
    found="{where}: {who} cannot allocate columns of tensor memory, of which the block holds {taken} of 512 already",
    fix="Free columns with tcgen05.dealloc before they are allocated again, or allocate fewer.",
)
LOOP = HANG.worded(
    found="{where}: {who} cannot leave a loop that reads nothing that another thread could change",
    fix="Give the loop an exit that its own threads can reach.",
)
MORE = HANG.worded(
    argument="kernel",
    found="{groups} more groups of threads wait",
    fix="Fix the waits above first.",
)


_FIX_OF_LACK: dict[Lack, str] = {
    "everything": "Nobody has arrived in this phase: check the parity of the wait, and who should arrive.",
    "arrivals": "Compare the count of mbarrier.init with the arrivals.",
    "bytes": "Compare the bytes of expect_tx with those of the copies.",
    "arrivals and bytes": "Compare the count of mbarrier.init with the arrivals, and the bytes of expect_tx with those of the copies.",
}


class Wait(NamedTuple):
    """Threads of one block that wait at one instruction for one thing."""

    wording: Wording
    pc: int
    where: str
    block: BlockIndex
    threads: str
    facts: dict[str, object]
    is_partly_complete: bool = False  # an mbarrier that received some, but not all, of its arrivals or bytes

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for waits of several blocks that make one finding."""
        return self.wording, self.where, self.threads, tuple(self.facts.items())


def report_hang(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    """A finding for each wait that cannot end; equal waits of several blocks make one finding."""
    schedules = result.waiting
    waits: dict[tuple[object, ...], list[Wait]] = {}
    for schedule in schedules[:_CLUSTERS_READ]:
        for wait in find_waits(schedule):
            waits.setdefault(wait.key, []).append(wait)
    groups = list(waits.values())
    if result.remedy is None:
        stuck = split_waits(groups, lambda equal: not equal[0].is_partly_complete)
        groups = [*stuck.causes, *stuck.consequences]
    findings = [_report_wait(launch, result, equal) for equal in groups[:_GROUPS_NAMED]]
    omitted = groups[_GROUPS_NAMED:]
    more = len(omitted) + max(len(schedules) - _CLUSTERS_READ, 0)
    if more:
        pcs = [equal[0].pc for equal in omitted]
        findings.append(MORE.violation(groups=more, **line_facts(schedules[0].cluster.program, *pcs)))
    return tuple(findings)


def _report_wait(launch: Launch, result: GridRun, equal: list[Wait]) -> Violation:
    first = equal[0]
    wording = first.wording
    facts = first.facts
    residency = launch.residency
    if wording is WORD and residency is not None and result.unstarted_blocks:
        wording = NOT_RESIDENT
        resident = residency.blocks // launch.cluster_blocks * launch.cluster_blocks
        registers = residency.registers
        counted = "registers are not known, and not counted" if registers is None else f"{registers} registers a thread"
        facts = {**facts, "unstarted": result.unstarted_blocks, "resident": resident, "sms": residency.sms}
        facts["counted"] = counted
    who = f"{first.threads} of block {first.block}"
    others = len(equal) - 1
    if others:
        who += " and of another block" if others == 1 else f" and of {others} other blocks"
    short = {"where": name_line(launch.program, first.pc), "who": "a thread", "others": None}
    return report_ending(wording, launch, result, {"where": first.where, "who": who, **facts, "short": short})


def find_waits(schedule: Schedule) -> Iterator[Wait]:
    """The waits of the threads of one cluster."""
    positions = _LanePositions(schedule)
    for spinning in schedule.spinning:
        yield from _find_spin_waits(positions, spinning.front.pc, spinning.front.lanes)
    yield from _find_block_barrier_waits(positions)
    yield from _find_cluster_barrier_waits(positions)


class StuckPoll(NamedTuple):
    """A poll that does not pass, by its pc, and the shared address of its mbarrier."""

    pc: int
    address: int


def stuck_polls(schedule: Schedule) -> Iterator[StuckPoll]:
    """The polls of mbarriers that the threads of a cluster cannot pass."""
    for wait in find_waits(schedule):
        address = wait.facts.get("address")
        if wait.wording is MBARRIER and isinstance(address, int):
            yield StuckPoll(wait.pc, address)


def waited_barriers(schedule: Schedule) -> Iterator[int]:
    """The shared addresses of the mbarriers that the threads of a cluster cannot pass, initialised or not."""
    for wait in find_waits(schedule):
        address = wait.facts.get("address")
        if wait.wording in (MBARRIER, NO_MBARRIER) and isinstance(address, int):
            yield address


def stuck_bars(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """(pc, threads that arrived) of each barrier of a block that threads of a cluster cannot pass."""
    for wait in find_waits(schedule):
        arrived = wait.facts.get("arrived")
        if wait.wording is BARRIER and isinstance(arrived, int):
            yield wait.pc, arrived


class _LanePositions:
    """The instruction at which each lane of a cluster waits."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.cluster: Cluster = schedule.cluster
        self.pc = np.full(self.cluster.lane_count, -1, np.intp)  # -1: the lane has exited, or does not exist
        for front in [*schedule.ready, *[spinning.front for spinning in schedule.spinning]]:
            self.pc[front.lanes] = front.pc
        waiting = [*schedule.barriers.cluster_waiting]
        for barrier in schedule.barriers.named.values():
            waiting.extend(barrier.waiting)
        for arrival in waiting:
            self.pc[arrival.lanes] = arrival.pc - 1  # `pc` is the instruction after the barrier

    def name_place(self, pc: int) -> str:
        return name_instruction(self.cluster.program, pc)

    def by_block(self, lanes: LaneNumbers) -> list[tuple[int, LaneNumbers]]:
        """(rank, lanes) of each block that the lanes belong to."""
        ranks = self.cluster.block_of_lane[lanes]
        return [(rank, lanes[ranks == rank]) for rank in np.unique(ranks).tolist()]

    def wait(self, wording: Wording, pc: int, lanes: LaneNumbers, **facts: object) -> Wait:
        """A wait of lanes of one block."""
        cluster = self.cluster
        block = block_index_of(cluster, int(cluster.block_of_lane[lanes[0]]))
        all_facts = {**line_facts(cluster.program, pc), **facts}
        return Wait(wording, pc, self.name_place(pc), block, name_threads(thread_numbers(cluster, lanes)), all_facts)

    def describe_positions(self, lanes: LaneNumbers, own_rank: int) -> str:
        """Where the lanes are that a wait needs."""
        parts = []
        for rank, block_lanes in self.by_block(lanes):
            block = "" if rank == own_rank else f" of block {block_index_of(self.cluster, rank)}"
            for pc in np.unique(self.pc[block_lanes]).tolist():
                here = block_lanes[self.pc[block_lanes] == pc]
                threads = name_threads(thread_numbers(self.cluster, here)) + block
                is_single = len(here) == 1
                if pc < 0:
                    parts.append(f"{threads} {'has' if is_single else 'have'} ended")
                else:
                    parts.append(f"{threads} {'is' if is_single else 'are'} at {self.name_place(pc)}")
        places = parts[:_PLACES_NAMED]
        if len(parts) > _PLACES_NAMED:
            places.append("others are elsewhere")
        return ", ".join(places)


def _find_block_barrier_waits(positions: _LanePositions) -> Iterator[Wait]:
    cluster = positions.cluster
    for (rank, number), barrier in positions.schedule.barriers.named.items():
        block_lanes = np.flatnonzero(cluster.exists & (cluster.block_of_lane == rank))
        expected = barrier.expected
        if expected is None:
            expected = int(cluster.live[block_lanes].sum())
        arrived_lanes = [arrival.lanes for arrival in barrier.waiting]
        elsewhere = np.setdiff1d(block_lanes, np.concatenate([np.zeros(0, np.intp), *arrived_lanes]))
        others = positions.describe_positions(elsewhere, rank) or "the block has no other threads"
        for pc in sorted({arrival.pc for arrival in barrier.waiting}):
            lanes = np.sort(np.concatenate([arrival.lanes for arrival in barrier.waiting if arrival.pc == pc]))
            yield positions.wait(
                BARRIER, pc - 1, lanes, number=number, arrived=barrier.arrived, expected=expected, others=others
            )


def _find_cluster_barrier_waits(positions: _LanePositions) -> Iterator[Wait]:
    cluster = positions.cluster
    barriers = positions.schedule.barriers
    is_missing = cluster.live & (barriers.cluster_arrived == 0)
    expected = int(cluster.live.sum())
    arrived = expected - int(is_missing.sum())
    for arrival in barriers.cluster_waiting:
        for rank, lanes in positions.by_block(arrival.lanes):
            others = positions.describe_positions(np.flatnonzero(is_missing), rank)
            yield positions.wait(
                CLUSTER_BARRIER, arrival.pc - 1, lanes, arrived=arrived, expected=expected, others=others
            )


class _Poll(NamedTuple):
    """The instruction of a loop that polls memory, and the operand with its address."""

    pc: int
    instruction: Instruction
    address: Address
    is_mbarrier: bool


def _find_spin_waits(positions: _LanePositions, start: int, lanes: LaneNumbers) -> Iterator[Wait]:
    """The waits of a front that spins in a loop."""
    cluster = positions.cluster
    instruction = cluster.program.instructions[start]
    if instruction is not None and instruction.name == "tcgen05":
        for rank, block_lanes in positions.by_block(lanes):
            book = cluster.tensor_memory.books[rank]
            yield positions.wait(COLUMNS, start, block_lanes, taken=int(book.allocated.sum()))
        return
    poll = _find_poll(cluster, start)
    addresses = None if poll is None else _polled_addresses(cluster, poll, lanes)
    if poll is None or addresses is None:
        for _, block_lanes in positions.by_block(lanes):
            yield positions.wait(LOOP, start, block_lanes)
        return
    for address in np.unique(addresses)[:_WORDS_OF_A_FRONT].tolist():
        for _, block_lanes in positions.by_block(lanes[addresses == address]):
            if poll.is_mbarrier:
                yield _mbarrier_wait(positions, poll, block_lanes, address)
            else:
                yield _word_wait(positions, poll, block_lanes, address)


def _find_poll(cluster: Cluster, start: int) -> _Poll | None:
    """The poll of a loop: its mbarrier wait, or else its last load or atomic."""
    program = cluster.program
    end = start
    while end < len(program.turns):
        turn = program.turns[end]
        if isinstance(turn, Branch) and turn.target == start:
            break
        end += 1
    poll: _Poll | None = None
    for pc in range(start, min(end + 1, len(program.turns))):
        instruction = program.instructions[pc]
        if instruction is None or instruction.name not in ("mbarrier", "ld", "atom"):
            continue
        is_mbarrier = instruction.name == "mbarrier"
        if is_mbarrier and not {"test_wait", "try_wait"} & set(instruction.modifiers):
            continue
        if poll is not None and poll.is_mbarrier and not is_mbarrier:
            continue
        address = next((operand for operand in instruction.operands if isinstance(operand, Address)), None)
        if address is not None:
            poll = _Poll(pc, instruction, address, is_mbarrier)
    return poll


def _polled_addresses(cluster: Cluster, poll: _Poll, lanes: LaneNumbers) -> Addresses | None:
    """The addresses that lanes poll; shared addresses without their window."""
    base = poll.address.base
    if isinstance(base, Variable):
        offset = cluster.program.shared_offsets.get(base.number)
        if offset is None:
            return None
        start = (cluster.block_of_lane[lanes] << SHARED_RANK_SHIFT) + offset
    else:
        values = _read_operand(cluster, poll, base, lanes)
        if values is None:
            return None
        start = values
    addresses = start + poll.address.offset
    return np.where(is_in_window("shared", addresses), addresses - SHARED_WINDOW, addresses)


def _read_operand(cluster: Cluster, poll: _Poll, operand: Operand, lanes: LaneNumbers) -> npt.NDArray[np.int64] | None:
    if isinstance(operand, Immediate):
        return np.full(len(lanes), operand.value, np.int64)
    if not isinstance(operand, Register):
        return None
    program = cluster.program
    number = program.register_numbers.get((find_function(program, poll.pc), operand.number))
    if number is None:
        return None
    return cluster.registers[number][lanes].astype(np.int64)


def _mbarrier_wait(positions: _LanePositions, poll: _Poll, lanes: LaneNumbers, address: int) -> Wait:
    cluster = positions.cluster
    variable = name_shared_address(cluster, address)
    barrier = cluster.mbarriers.get(address)
    if barrier is None:
        return positions.wait(NO_MBARRIER, poll.pc, lanes, address=address, variable=variable)
    progress = PhaseProgress.of(barrier)
    wait = positions.wait(
        MBARRIER,
        poll.pc,
        lanes,
        address=address,
        variable=variable,
        parity=_name_parity(cluster, poll, lanes),
        state=barrier.state,
        fix=_FIX_OF_LACK[progress.lack],
    )
    return wait._replace(is_partly_complete=progress.is_partly_complete)


def _name_parity(cluster: Cluster, poll: _Poll, lanes: LaneNumbers) -> str | None:
    """The parity of a wait; None if its lanes wait for different ones."""
    if "parity" not in poll.instruction.modifiers:
        return None
    position = poll.instruction.operands.index(poll.address)
    values = _read_operand(cluster, poll, poll.instruction.operands[position + 1], lanes)
    if values is None or len(np.unique(values)) > 1:
        return None
    return f"parity {int(values[0]) & 1}"


def _word_wait(positions: _LanePositions, poll: _Poll, lanes: LaneNumbers, address: int) -> Wait:
    cluster = positions.cluster
    region = cluster.memory.region_at(address)
    owner: str | None
    if region is not None:
        owner = name_array(cluster.launch, region)
        start = address - region.address
        word = int.from_bytes(region.content[start : start + 4].tobytes(), "little")
    elif 0 <= address < cluster.blocks << SHARED_RANK_SHIFT:
        owner = name_shared_address(cluster, address)
        content = cluster.shared_bytes(address >> SHARED_RANK_SHIFT)
        start = address & SHARED_OFFSET_MASK
        word = int.from_bytes(content[start : start + 4].tobytes(), "little")
    else:  # local memory, or the loop has changed the register since
        return positions.wait(LOOP, poll.pc, lanes)
    return positions.wait(WORD, poll.pc, lanes, address=address, owner=owner, word=word)
