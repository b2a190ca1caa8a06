"""Reports of data races and missing synchronization: one finding for each pair of source lines, with the number of occurrences.

attention.py:41, PTX line 310 (ld.shared.b32 …): thread 40 of block (0, 0, 0) reads shared address 0x480 (tile+128), which
thread 8 writes at attention.py:38, PTX line 290 (st.shared.b32 …); nothing orders the two
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation, Wording
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.element import Element, array_element, tile_element
from tilescope.machine.report.places import (
    block_index_of,
    line_facts,
    name_array,
    name_instruction,
    name_line,
    name_owner,
    shared_variable,
    thread_index,
)
from tilescope.machine.report.races.conflict_groups import (
    FindingGroup,
    group_conflicts,
    is_in_one_warp,
    is_lost_update,
    merge_fixed_together,
)
from tilescope.machine.report.races.convergence_report import CONVERGENCE_WORDINGS, describe_convergence
from tilescope.machine.report.races.mbarrier_rules import ROUNDED_BYTES, SPILLED_BYTES, STUCK_BYTES
from tilescope.machine.report.races.race_rules import LOST_UPDATE, RACE, wording_of
from tilescope.machine.report.races.tmem_report import (
    BY_WARP,
    FINISH,
    TENSOR_END_REMEDY,
    TENSOR_LEFT,
    TENSOR_UNIT_VERB,
    TENSOR_UNITS,
    TENSOR_VERB,
    name_columns,
    name_tensor_cell,
)
from tilescope.machine.report.remedy_report import FINDING_GONE, report_ending, report_remedy, report_untried
from tilescope.sentence import Facts, counted, listed
from tilescope.swizzle.mode import CHUNK_BYTES
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import block_index
from tilescope.sync.detector.context import BarrierBytes, PhaseBytes
from tilescope.sync.detector.race import Conflict, How, Side
from tilescope.tma.bulk_copy import bulk_bytes

_RACE = RACE.wording
_LINES_NAMED = 6
_VERB: dict[How, str] = {
    "read": "reads",
    "write": "writes",
    "atomic": "changes",
    "cp.async": "copies by cp.async to",
    "copy": "copies to",
    "bulk store": "stores from",
    "wgmma": "multiplies from",
    "init": "initialises",
    "inval": "invalidates",
    "arrival": "uses",
    "wait": "waits for",
    **TENSOR_VERB,
}
_UNIT_NAMES: dict[How, str] = {
    "copy": "a bulk or tensor copy",
    "wgmma": "a wgmma",
    "bulk store": "a bulk or tensor store",
    **TENSOR_UNITS,
}
_UNIT_VERB: dict[How, str] = {
    "copy": "writes",
    "wgmma": "reads",
    "bulk store": "reads",
    "cp.async": "copies by cp.async",
    **TENSOR_UNIT_VERB,
}
_VERB_IN_GLOBAL_MEMORY: dict[How, str] = {"copy": "copies from", "bulk store": "stores to"}
_UNIT_VERB_IN_GLOBAL_MEMORY: dict[How, str] = {"copy": "reads", "bulk store": "writes"}
_LEFT: dict[How, str] = {
    "copy": "the copy at {where} may still write its shared memory",
    "bulk store": "the store at {where} may still read its shared memory",
    "wgmma": "the product at {where} may still read its shared memory",
    "cp.async": "the copy at {where} may still write its shared memory",
    "read": "another block may still read its shared memory at {where}",
    "write": "another block may still write its shared memory at {where}",
    "atomic": "another block may still change its shared memory at {where}",
    "arrival": "another block may still use one of its mbarriers at {where}",
    **TENSOR_LEFT,
}
_END_REMEDY: dict[How, str] = {
    "copy": "Wait for the mbarrier of the copy before the block ends, or do not issue it.",
    "bulk store": "Use cp.async.bulk.commit_group and cp.async.bulk.wait_group.read before the block ends.",
    "wgmma": "Use wgmma.commit_group and wgmma.wait_group 0 before the block ends.",
    "cp.async": "Use cp.async.wait_all before the block ends.",
    **TENSOR_END_REMEDY,
}
_CLUSTER_REMEDY = "Put barrier.cluster.arrive and barrier.cluster.wait before the end of the block."


class WrongBytes(NamedTuple):
    """Mbarriers with wrong bytes: `spilled` into the next phase, or `stuck` in a phase that cannot complete."""

    spilled: list[BarrierBytes]
    stuck: list[BarrierBytes]


def find_wrong_bytes(launch: Launch, result: GridRun) -> WrongBytes:
    """Phases that completed while a copy was pending; in clusters that hang, also phases that cannot complete."""
    if launch.detector is None:
        return WrongBytes([], [])
    spilled = [*launch.detector.spilled]
    stuck: list[BarrierBytes] = []
    hanging = result.waiting if result.outcome == "hang" else []
    for schedule in hanging:
        cluster = schedule.cluster
        detector = launch.detector.running[cluster.first_block]
        awaited = {work.barrier for work in cluster.works}
        for address, barrier in detector.mbarriers.at.items():
            block = block_index_of(cluster, address >> SHARED_RANK_SHIFT)
            offset = address & SHARED_OFFSET_MASK
            if barrier.spilled is not None:
                spilled.append(BarrierBytes(offset, block, barrier.spilled))
            elif barrier.expected_bytes != barrier.came_bytes and address not in awaited:
                phase = PhaseBytes(barrier.expected_bytes, barrier.came_bytes, frozenset(barrier.byte_pcs))
                stuck.append(BarrierBytes(offset, block, phase))
    return WrongBytes(spilled, stuck)


def report_wrong_bytes(launch: Launch, result: GridRun) -> Iterator[Violation]:
    """Mbarriers that got more or fewer bytes than they expect; equal ones of several blocks make one finding."""
    wrong = find_wrong_bytes(launch, result)
    yield from _report_bytes(launch, result, SPILLED_BYTES, wrong.spilled)
    yield from _report_bytes(launch, result, STUCK_BYTES, wrong.stuck)


def _report_bytes(
    launch: Launch, result: GridRun, wording: Wording, barriers: Sequence[BarrierBytes]
) -> Iterator[Violation]:
    """A finding for the mbarriers that a source line arms with the same bytes: the first as the example, the others counted."""
    groups: dict[tuple[object, ...], list[BarrierBytes]] = {}
    for barrier in barriers:
        lines = line_facts(launch.program, *sorted(barrier.bytes.pcs))
        key = (lines["source_lines"] or lines["ptx_lines"], barrier.bytes.expected, barrier.bytes.came)
        groups.setdefault(key, []).append(barrier)
    for first, *others in groups.values():
        variable = shared_variable(launch.program, first.offset)
        facts = {
            "where": f"shared address {first.offset:#x}" + ("" if variable is None else f" ({variable})"),
            "block": first.block,
            "others": len(others),
            "expected": first.bytes.expected,
            "came": first.bytes.came,
            **line_facts(launch.program, *sorted(set().union(first.bytes.pcs, *(other.bytes.pcs for other in others)))),
        }
        told = wording
        if wording is STUCK_BYTES and _is_rounded_copy(launch.program, first.bytes):
            told = ROUNDED_BYTES
            facts["rounded_up"] = rounded_up(first.bytes.expected, CHUNK_BYTES)
        yield report_ending(told, launch, result, facts)


def _is_rounded_copy(program: Program, phase: PhaseBytes) -> bool:
    """Whether the bytes that are missing are those that a bulk copy drops: the end of a size that is no multiple of 16."""
    if phase.came == phase.expected or phase.came != bulk_bytes(phase.expected):
        return False
    copies = {one.name for one in program.instructions if one is not None and {"async", "bulk"} & {*one.modifiers}}
    return "cp" in copies and "st" not in copies  # st.async delivers single words


def report_races(launch: Launch) -> tuple[Violation, ...]:
    """The data races of a run and its missing waits and fences, in the order of detection; equal ones make one finding."""
    if launch.detector is None:
        return ()
    groups = merge_fixed_together(group_conflicts(launch.program, launch.detector.reported_conflicts()))
    return tuple(_report_group(launch, group) for group in groups)


class _SideText(NamedTuple):
    """One side of a conflict in a message: subject and verb."""

    who: str
    verb: str


def _report_group(launch: Launch, group: FindingGroup) -> Violation:
    """A finding about equal conflicts: the first one as the example, and the number of occurrences of all."""
    conflict = group.own[0]
    facts: Facts = _describe_conflict(launch, conflict) | _count_occurrences(launch, group)
    wording = wording_of(conflict)
    if wording is _RACE and is_lost_update(launch.program, conflict):
        wording = LOST_UPDATE
    if conflict.mistake == "stale read" and is_in_one_warp(conflict):
        wording = wording.worded(limit=_RACE.limit, fix=_RACE.fix)
    if conflict.remedy is not None:
        return report_remedy(wording, launch, conflict.remedy, FINDING_GONE, facts)
    return report_untried(wording, launch, facts) if conflict.is_untried else wording.violation(**facts)


def _count_occurrences(launch: Launch, group: FindingGroup) -> dict[str, object]:
    """The number of occurrences of equal conflicts, as a number and as text, and the lines of all.

    Conflicts at other places that the same fix removes are named by their lines.
    """
    times = sum(conflict.times for conflict in group.own)
    facts: dict[str, object] = {"times": times, "met": f"{times} times" if times > 1 else None}
    facts["conflicts"] = len(group.own)
    if len(group.own) > 1:
        noun = "instructions of this line" if group.own[0].before is None else "pairs of instructions of these lines"
        if group.own[0].mistake == "dead barrier":
            noun = "instructions"
        facts["met"] = f"{times} times by {len(group.own)} {noun}"
    poll_pc = group.own[0].facts.get("poll_pc")
    if poll_pc is not None:
        poll = f"where the poll at {name_line(launch.program, poll_pc)} passes at once"
        facts["met"] = poll if facts["met"] is None else f"{facts['met']}, {poll}"
    other_lines = _other_lines(launch, group)
    facts["others_gone"] = len(group.others) or None
    facts["other_lines"] = other_lines
    facts["also_at"] = _name_some(other_lines) if other_lines else None
    conflicts = [*group.own, *(conflict for other in group.others for conflict in other)]
    pcs = dict.fromkeys(
        pc for conflict in conflicts for pc in (*conflict.pcs, *_synchronizing_pcs(conflict)) if pc is not None
    )
    return facts | line_facts(launch.program, *pcs)


def _other_lines(launch: Launch, group: FindingGroup) -> tuple[str, ...]:
    """The lines of the other conflicts that the same fix removes, without those that the finding names anyway."""
    already_named = {name_line(launch.program, pc) for conflict in group.own for pc in conflict.pcs if pc is not None}
    lines: dict[str, None] = {}
    for conflict in itertools.chain.from_iterable(group.others):
        names = [name_line(launch.program, pc) for pc in conflict.pcs if pc is not None]
        lines.update(dict.fromkeys([name for name in names if name not in already_named] or names[:1]))
    return tuple(lines)


def _name_some(lines: Sequence[str]) -> str:
    """The first of some lines, and the number of the others."""
    names = list(lines[:_LINES_NAMED])
    if len(lines) > _LINES_NAMED:
        names.append(counted(len(lines) - _LINES_NAMED, "other line"))
    return listed(names)


def _synchronizing_pcs(conflict: Conflict) -> list[int]:
    """The instructions that order both accesses, but not enough."""
    return [conflict.facts[name] for name in ("arrival", "wait") if name in conflict.facts]


def _describe_conflict(launch: Launch, conflict: Conflict) -> dict[str, object]:
    if conflict.mistake in CONVERGENCE_WORDINGS:
        return describe_convergence(launch, conflict)
    now = conflict.now
    before = conflict.before
    where = name_instruction(launch.program, now.pc)
    facts: dict[str, object] = {
        **conflict.facts,
        "where": where,
        "at": name_line(launch.program, now.pc),
        "block": conflict.block,
    }
    if conflict.mistake == "narrow scope":
        facts["arrival_at"] = name_line(launch.program, conflict.facts["arrival"])
        facts["wait_at"] = name_line(launch.program, conflict.facts["wait"])
    if "last" in conflict.facts:
        facts["columns_named"] = name_columns(conflict.facts["first"], conflict.facts["last"])
    if conflict.mistake in ("block end", "copy left"):
        facts["subject"] = _LEFT[now.how].format(where=where)
        facts["remedy"] = _END_REMEDY.get(now.how, _CLUSTER_REMEDY)
        facts["short"] = {"subject": _LEFT[now.how].format(where=facts["at"]), "met": None}
        return facts
    facts["who"] = _name_actor(launch, conflict, now)
    facts["does"] = _VERB[now.how]
    if conflict.space == "global":
        facts["does"] = _VERB_IN_GLOBAL_MEMORY.get(now.how, _VERB[now.how])
    element = _find_element(launch, conflict)
    facts["what"] = _name_bytes(launch, conflict, element)
    facts["element"] = None if element is None else element.facts
    facts["address"] = conflict.address
    short: dict[str, object] = {"met": None, "what": _name_thing(launch, conflict, element)}
    if now.lane is not None:
        short["who"] = f"a {_name_kind(now)}"
    facts["short"] = short
    if before is None or (conflict.mistake == "race" and before is now):
        return facts
    other = _describe_earlier(launch, conflict, before)
    short["before_where"] = name_line(launch.program, before.pc)
    if "cluster" not in conflict.facts and before.how not in _UNIT_NAMES:
        is_same = before.lane == now.lane and _name_kind(before) == _name_kind(now)
        short["before_who"] = f"{'the same' if is_same else 'another'} {_name_kind(before)}"
    facts["before_who"] = other.who
    facts["did"] = other.verb
    facts["before_where"] = name_instruction(launch.program, before.pc)
    facts["remedy"] = _choose_barrier(launch, conflict, before)
    facts["finish"] = FINISH.get(before.how)
    facts["extra"] = " (of wgmma: after wgmma.wait_group)" if before.how == "wgmma" else ""
    return facts


def _name_actor(launch: Launch, conflict: Conflict, side: Side) -> str:
    if side.lane is None:
        return _UNIT_NAMES[side.how]
    thread = thread_index(launch, side.lane % launch.block_lanes)
    name = f"thread {thread} of block {conflict.block}"
    return f"the warp of {name}" if side.how in BY_WARP else name


def _name_kind(side: Side) -> str:
    return "warp" if side.how in BY_WARP else "thread"


def _describe_earlier(launch: Launch, conflict: Conflict, before: Side) -> _SideText:
    verb = _UNIT_VERB.get(before.how, _VERB[before.how])
    if conflict.space == "global":
        verb = _UNIT_VERB_IN_GLOBAL_MEMORY.get(before.how, verb)
    if "cluster" in conflict.facts:
        return _SideText("another block", verb)
    if before.how in _UNIT_NAMES:
        return _SideText(_UNIT_NAMES[before.how], verb)
    assert before.lane is not None
    rank, thread = divmod(before.lane, launch.block_lanes)
    name = f"thread {thread_index(launch, thread)}"
    if before.how in BY_WARP:
        name = f"the warp of {name}"
    if conflict.now.lane is not None and conflict.now.lane // launch.block_lanes != rank:
        name += f" of the block with rank {rank} in the cluster"
    return _SideText(name, verb)


def _find_element(launch: Launch, conflict: Conflict) -> Element | None:
    """The element of a tile or an array that both accesses reach; None if neither a map nor an array determines it."""
    if conflict.space == "shared":
        return tile_element(launch, conflict) if launch.copies else None
    address = conflict.address
    region = None if address is None else launch.memory.region_at(address)
    if address is None or region is None or launch.detector is None or region.array.dtype.itemsize == 1:
        return None
    return array_element(launch, region, address, launch.detector.memory.cell_bytes)


def _name_bytes(launch: Launch, conflict: Conflict, element: Element | None) -> str | None:
    """Name the bytes that both accesses reach."""
    address = conflict.address
    if address is None:
        return None
    if conflict.space == "tensor":
        return name_tensor_cell(address)
    if conflict.space == "global":
        region = launch.memory.region_at(address)
        if region is None:
            return f"global address {address:#x}"
        byte = f"byte {address - region.address}"
        return f"{byte} of {name_array(launch, region)}" if element is None else f"{element.name} ({byte})"
    rank, offset = divmod(address, launch.shared_stride)
    names = [shared_variable(launch.program, offset), None if element is None else element.name]
    joined = ": ".join(name for name in names if name is not None)
    place = f"shared address {offset:#x} ({joined})" if joined else f"shared address {offset:#x}"
    own_rank = None if conflict.now.lane is None else conflict.now.lane // launch.block_lanes
    if own_rank is None or own_rank == rank:
        return place
    return f"{place} of block {block_index((0, 0, 0), launch.cluster, rank)} of the cluster"


def _name_thing(launch: Launch, conflict: Conflict, element: Element | None) -> str | None:
    """The variable, element or argument that holds the bytes, without its address; the memory space if it has no name."""
    address = conflict.address
    if address is None:
        return None
    if conflict.space == "tensor":
        return name_tensor_cell(address)
    name = None if element is None else element.name
    if conflict.space == "global":
        region = launch.memory.region_at(address)
        owner = None if region is None else name_owner(launch, region)
        return name or owner or "global memory"
    return shared_variable(launch.program, address % launch.shared_stride) or name or "shared memory"


def _choose_barrier(launch: Launch, conflict: Conflict, before: Side) -> str:
    """The narrowest barrier that both threads can reach."""
    if "cluster" in conflict.facts:
        return "a release by one block and an acquire by the other (a flag with st.release and ld.acquire)"
    if before.lane is None or conflict.now.lane is None:
        return "a barrier"
    if is_in_one_warp(conflict):
        return "bar.warp.sync (__syncwarp)"
    if before.lane // launch.block_lanes == conflict.now.lane // launch.block_lanes:
        return "bar.sync (__syncthreads)"
    return "barrier.cluster.arrive and barrier.cluster.wait"
