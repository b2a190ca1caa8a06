"""Who waits where, when nobody can go on: one finding for every group of threads that waits for the same thing.

    spinning     a loop that polls an mbarrier or a word of memory, and sees nothing new
    barrier      bar.sync: how many came, and where the others are
    cluster      barrier.cluster.wait
    gathering    an instruction of the whole warp, to which some lanes do not come

Blocks that wait in the same way are counted, not repeated. An mbarrier that got a part of its arrivals or bytes comes
first: at a wrong count its users stop, and then those who wait for them stop at mbarriers to which nobody comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import Violation, Wording
from tilescope.machine.cluster import Cluster
from tilescope.machine.collective import Collective
from tilescope.machine.instructions.control import Branch
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun
from tilescope.machine.report.places import (
    array_named,
    block_of,
    function_of,
    instruction_named,
    line_facts,
    shared_named,
    threads_named,
    threads_of,
)
from tilescope.machine.report.remedy_words import of_what_ended
from tilescope.machine.schedule import Schedule
from tilescope.ptx.syntax import Address, Immediate, Instruction, Operand, Register, Variable
from tilescope.rule import ptx_example, rule
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, SHARED_WINDOW, Addresses, is_in_window
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers
from tilescope.sync.mbarrier import Mbarrier

_GROUPS_NAMED = 20
_CLUSTERS_READ = 200
_PLACES_NAMED = 3
_WORDS_OF_A_FRONT = 4  # different words that the lanes of one front poll: one finding for each of the first few

HANG = rule(
    "run-hang",
    "Every wait of a kernel ends: threads reach their barriers, and mbarriers get their bytes and arrivals.",
    argument="{where}",
    found="{where}: {who} {what}",
    limit="nothing that is under way can end this wait",
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
WARP = HANG.worded(
    found="{where}: {who} cannot go on without the other lanes of the instruction, which do not reach it[[; {others}]]",
    fix="Let all lanes that the instruction names reach it, or name only those that do.",
)
MBARRIER = HANG.worded(
    found="{where}: {who} cannot pass the mbarrier at {address:#x}[[ ({variable})]][[ with {parity}]], which is in {state}",
)
NO_MBARRIER = HANG.worded(
    found="{where}: {who} cannot pass the mbarrier at {address:#x}[[ ({variable})]], which nobody initialised",
    fix="Initialise it with mbarrier.init in one thread, and put a barrier before other threads use it.",
)
WORD = HANG.worded(
    found="{where}: {who} cannot leave a loop that polls the word at {address:#x}[[ ({owner})]], which stays {word:#x}",
    fix="Let a thread that still runs write the word, or launch the blocks that do.",
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


class Wait(NamedTuple):
    """Threads of one block that wait at one instruction for one thing."""

    wording: Wording
    pc: int
    where: str
    block: BlockIndex
    threads: str
    facts: dict[str, Any]
    is_partly_served: bool = False  # an mbarrier that got some of its arrivals or bytes, but not all

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for waits of several blocks that make one finding."""
        return self.wording, self.where, self.threads, tuple(self.facts.items())


def hang_findings(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    """A finding for every wait that cannot end; equal waits of several blocks are one."""
    schedules = result.waiting
    waits: dict[tuple[object, ...], list[Wait]] = {}
    for schedule in schedules[:_CLUSTERS_READ]:
        for wait in waits_of(schedule):
            waits.setdefault(wait.key, []).append(wait)
    groups = list(waits.values())
    if result.cure is None:
        groups.sort(key=lambda equal: not equal[0].is_partly_served)
    findings = [_violation(launch, result, equal) for equal in groups[:_GROUPS_NAMED]]
    unnamed = groups[_GROUPS_NAMED:]
    more = len(unnamed) + max(len(schedules) - _CLUSTERS_READ, 0)
    if more:
        pcs = [equal[0].pc for equal in unnamed]
        findings.append(MORE.violation(groups=more, **line_facts(schedules[0].cluster.program, *pcs)))
    return tuple(findings)


def _violation(launch: Launch, result: GridRun, equal: list[Wait]) -> Violation:
    first = equal[0]
    who = f"{first.threads} of block {first.block}"
    others = len(equal) - 1
    if others:
        who += " and of another block" if others == 1 else f" and of {others} other blocks"
    return of_what_ended(first.wording, launch, result, {"where": first.where, "who": who, **first.facts})


def waits_of(schedule: Schedule) -> Iterator[Wait]:
    """What the threads of one cluster wait for."""
    standing = _Standing(schedule)
    for spinning in schedule.spinning:
        yield from _spins(standing, spinning.front.pc, spinning.front.lanes)
    yield from _block_barriers(standing)
    yield from _cluster_barrier(standing)
    for pc, lanes in schedule.gathering.items():
        yield from _gathering(standing, pc, lanes)


class StuckPoll(NamedTuple):
    """A poll that does not pass, by its pc, and the shared address of the mbarrier that it asks."""

    pc: int
    address: int


def stuck_polls(schedule: Schedule) -> Iterator[StuckPoll]:
    """The polls of mbarriers that the threads of a cluster cannot pass."""
    for wait in waits_of(schedule):
        if wait.wording is MBARRIER:
            yield StuckPoll(wait.pc, wait.facts["address"])


class _Standing:
    """Where every lane of a cluster stands."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.cluster: Cluster = schedule.cluster
        self.pc = np.full(self.cluster.lane_count, -1, np.intp)  # -1: it has ended, or never was
        for front in [*schedule.ready, *[spinning.front for spinning in schedule.spinning]]:
            self.pc[front.lanes] = front.pc
        for pc, lanes in schedule.gathering.items():
            self.pc[lanes] = pc
        waiting = [*schedule.barriers.cluster_waiting]
        for barrier in schedule.barriers.named.values():
            waiting.extend(barrier.waiting)
        for one in waiting:
            self.pc[one.lanes] = one.pc - 1  # `pc` is the instruction after the barrier

    def place(self, pc: int) -> str:
        return instruction_named(self.cluster.program, pc)

    def by_block(self, lanes: LaneNumbers) -> list[tuple[int, LaneNumbers]]:
        """(rank, its lanes) of lanes of several blocks."""
        ranks = self.cluster.block_of_lane[lanes]
        return [(rank, lanes[ranks == rank]) for rank in np.unique(ranks).tolist()]

    def wait(self, wording: Wording, pc: int, lanes: LaneNumbers, **facts: Any) -> Wait:
        """A wait of lanes of one block."""
        cluster = self.cluster
        block = block_of(cluster, int(cluster.block_of_lane[lanes[0]]))
        all_facts = {**line_facts(cluster.program, pc), **facts}
        return Wait(wording, pc, self.place(pc), block, threads_named(threads_of(cluster, lanes)), all_facts)

    def whereabouts(self, lanes: LaneNumbers, own_rank: int) -> str:
        """Where the lanes are that a wait is for."""
        parts = []
        for rank, own in self.by_block(lanes):
            block = "" if rank == own_rank else f" of block {block_of(self.cluster, rank)}"
            for pc in np.unique(self.pc[own]).tolist():
                here = own[self.pc[own] == pc]
                named = threads_named(threads_of(self.cluster, here)) + block
                is_one = len(here) == 1
                if pc < 0:
                    parts.append(f"{named} {'has' if is_one else 'have'} ended")
                else:
                    parts.append(f"{named} {'is' if is_one else 'are'} at {self.place(pc)}")
        places = parts[:_PLACES_NAMED]
        if len(parts) > _PLACES_NAMED:
            places.append("others are elsewhere")
        return ", ".join(places)


def _block_barriers(standing: _Standing) -> Iterator[Wait]:
    cluster = standing.cluster
    for (rank, number), barrier in standing.schedule.barriers.named.items():
        own = np.flatnonzero(cluster.exists & (cluster.block_of_lane == rank))
        expected = barrier.expected
        if expected is None:
            expected = int(cluster.live[own].sum())
        here = [one.lanes for one in barrier.waiting]
        elsewhere = np.setdiff1d(own, np.concatenate([np.zeros(0, np.intp), *here]))
        others = standing.whereabouts(elsewhere, rank) or "the block has no other threads"
        for pc in sorted({one.pc for one in barrier.waiting}):
            lanes = np.sort(np.concatenate([one.lanes for one in barrier.waiting if one.pc == pc]))
            yield standing.wait(
                BARRIER, pc - 1, lanes, number=number, arrived=barrier.arrived, expected=expected, others=others
            )


def _cluster_barrier(standing: _Standing) -> Iterator[Wait]:
    cluster = standing.cluster
    barriers = standing.schedule.barriers
    is_missing = cluster.live & (barriers.cluster_arrived == 0)
    expected = int(cluster.live.sum())
    arrived = expected - int(is_missing.sum())
    for one in barriers.cluster_waiting:
        for rank, lanes in standing.by_block(one.lanes):
            others = standing.whereabouts(np.flatnonzero(is_missing), rank)
            yield standing.wait(CLUSTER_BARRIER, one.pc - 1, lanes, arrived=arrived, expected=expected, others=others)


def _gathering(standing: _Standing, pc: int, lanes: LaneNumbers) -> Iterator[Wait]:
    cluster = standing.cluster
    turn = cluster.program.turns[pc]
    if not isinstance(turn, Collective):
        return
    wanted = _wanted(cluster, turn, lanes)
    wanted[lanes] = False
    wanted &= cluster.live
    for rank, own in standing.by_block(lanes):
        missing = np.flatnonzero(wanted & (cluster.block_of_lane == rank))
        yield standing.wait(WARP, pc, own, others=standing.whereabouts(missing, rank))


def _wanted(cluster: Cluster, turn: Collective, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
    """The lanes that an instruction of a warp or warpgroup waits for."""
    wanted = np.zeros(cluster.lane_count, np.bool_)
    if turn.mask is None:
        group_of_lane = cluster.grouping(turn.group_lanes).of_lane
        return np.isin(group_of_lane, group_of_lane[lanes])
    masks = cluster.registers[turn.mask][lanes].astype(np.int64)
    is_named = (masks[:, None] >> np.arange(WARP_LANES)) & 1 == 1
    named = lanes[:, None] // WARP_LANES * WARP_LANES + np.arange(WARP_LANES)
    wanted[named[is_named]] = True
    return wanted


class _Poll(NamedTuple):
    """The instruction of a loop that reads what may change, and the operand with its address."""

    pc: int
    instruction: Instruction
    address: Address
    is_mbarrier: bool


def _spins(standing: _Standing, start: int, lanes: LaneNumbers) -> Iterator[Wait]:
    """What a front that goes round a loop waits for."""
    cluster = standing.cluster
    waiting = cluster.program.instructions[start]
    if waiting is not None and waiting.name == "tcgen05":
        for rank, own in standing.by_block(lanes):
            book = cluster.tensor_memory.books[rank]
            yield standing.wait(COLUMNS, start, own, taken=int(book.allocated.sum()))
        return
    poll = _poll(cluster, start)
    addresses = None if poll is None else _addresses(cluster, poll, lanes)
    if poll is None or addresses is None:
        for _, own in standing.by_block(lanes):
            yield standing.wait(LOOP, start, own)
        return
    for address in np.unique(addresses)[:_WORDS_OF_A_FRONT].tolist():
        for _, own in standing.by_block(lanes[addresses == address]):
            if poll.is_mbarrier:
                yield _mbarrier_wait(standing, poll, own, address)
            else:
                yield _word_wait(standing, poll, own, address)


def _poll(cluster: Cluster, start: int) -> _Poll | None:
    """The wait of an mbarrier, or else the last load or atomic, between the start of a loop and its branch back."""
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
        address = next((one for one in instruction.operands if isinstance(one, Address)), None)
        if address is not None:
            poll = _Poll(pc, instruction, address, is_mbarrier)
    return poll


def _addresses(cluster: Cluster, poll: _Poll, lanes: LaneNumbers) -> Addresses | None:
    """The addresses that lanes poll; those of shared memory without their window."""
    base = poll.address.base
    if isinstance(base, Variable):
        offset = cluster.program.shared_offsets.get(base.number)
        if offset is None:
            return None
        held = (cluster.block_of_lane[lanes] << SHARED_RANK_SHIFT) + offset
    else:
        values = _values(cluster, poll, base, lanes)
        if values is None:
            return None
        held = values
    addresses = held + poll.address.offset
    return np.where(is_in_window("shared", addresses), addresses - SHARED_WINDOW, addresses)


def _values(cluster: Cluster, poll: _Poll, operand: Operand, lanes: LaneNumbers) -> npt.NDArray[np.int64] | None:
    if isinstance(operand, Immediate):
        return np.full(len(lanes), operand.value, np.int64)
    if not isinstance(operand, Register):
        return None
    program = cluster.program
    number = program.register_numbers.get((function_of(program, poll.pc), operand.number))
    if number is None:
        return None
    return cluster.registers[number][lanes].astype(np.int64)


def _mbarrier_wait(standing: _Standing, poll: _Poll, lanes: LaneNumbers, address: int) -> Wait:
    cluster = standing.cluster
    variable = shared_named(cluster, address)
    barrier = cluster.mbarriers.get(address)
    if barrier is None:
        return standing.wait(NO_MBARRIER, poll.pc, lanes, address=address, variable=variable)
    wait = standing.wait(
        MBARRIER,
        poll.pc,
        lanes,
        address=address,
        variable=variable,
        parity=_parity(cluster, poll, lanes),
        state=barrier.state,
        fix=_mbarrier_fix(barrier),
    )
    return wait._replace(is_partly_served=not _is_untouched(barrier))


def _mbarrier_fix(barrier: Mbarrier) -> str:
    """What to compare, from what the running phase still waits for."""
    if _is_untouched(barrier):
        return "Nobody has arrived in this phase: check the parity of the wait, and who should arrive."
    if not barrier.tx_bytes:
        return "Compare the count of mbarrier.init with the arrivals."
    if not barrier.pending:
        return "Compare the bytes of expect_tx with those of the copies."
    return "Compare the count of mbarrier.init with the arrivals, and the bytes of expect_tx with those of the copies."


def _is_untouched(barrier: Mbarrier) -> bool:
    """Whether the running phase has got nothing yet."""
    return barrier.pending == barrier.count and not barrier.tx_bytes


def _parity(cluster: Cluster, poll: _Poll, lanes: LaneNumbers) -> str | None:
    """The parity that a wait names; None if its lanes name different ones."""
    if "parity" not in poll.instruction.modifiers:
        return None
    position = poll.instruction.operands.index(poll.address)
    values = _values(cluster, poll, poll.instruction.operands[position + 1], lanes)
    if values is None or len(np.unique(values)) > 1:
        return None
    return f"parity {int(values[0]) & 1}"


def _word_wait(standing: _Standing, poll: _Poll, lanes: LaneNumbers, address: int) -> Wait:
    cluster = standing.cluster
    region = cluster.memory.region_at(address)
    owner: str | None
    if region is not None:
        owner = array_named(cluster.launch, region)
        start = address - region.address
        word = int.from_bytes(region.content[start : start + 4].tobytes(), "little")
    elif 0 <= address < cluster.blocks << SHARED_RANK_SHIFT:
        owner = shared_named(cluster, address)
        content = cluster.shared_bytes(address >> SHARED_RANK_SHIFT)
        start = address & SHARED_OFFSET_MASK
        word = int.from_bytes(content[start : start + 4].tobytes(), "little")
    else:  # the thread's own memory, or the loop has changed the register since
        return standing.wait(LOOP, poll.pc, lanes)
    return standing.wait(WORD, poll.pc, lanes, address=address, owner=owner, word=word)
