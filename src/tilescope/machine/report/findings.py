"""All findings of a run: its fault, deadlock or exceeded budget, then data races, tensor maps, swizzles and costs.

Each error number that CUDA returns for a fault has a rule. If another rule explains the fault, the finding names that rule.

tensormap.replace writes a field of a few bits of a tensor map, and reports nothing if the value does not fit:

    global_stride 120      the map stores strides as multiples of 16: it gets 112, and every row is read from a wrong address
    box_dim 300            the map stores 8 bits: it gets a box of 44

Triton emits such an edit for a descriptor that a kernel creates over rows whose stride is not a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilescope.errors import Violation
from tilescope.machine.execution.fault import KernelFaultError
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.costs import Costs
from tilescope.machine.report.array_findings import report_array_ends
from tilescope.machine.report.cost_findings import report_costs
from tilescope.machine.report.hang import report_hang, waited_barriers
from tilescope.machine.report.one_mistake import merge_findings
from tilescope.machine.report.places import (
    NULL,
    block_index_of,
    describe_address,
    line_facts,
    name_instruction,
    name_line,
    name_threads,
    shared_variable,
    thread_index,
    thread_numbers,
)
from tilescope.machine.report.races.async_rules import COPY_WAIT, CP_ASYNC, REFILL
from tilescope.machine.report.races.convergence_report import CONVERGENCE
from tilescope.machine.report.races.mbarrier_rules import BARRIER_MISUSE
from tilescope.machine.report.races.race_report import report_races, report_wrong_bytes
from tilescope.machine.report.races.race_rules import RACE
from tilescope.machine.report.races.tmem_report import TENSOR_ORDER
from tilescope.machine.report.remedy_report import report_ending
from tilescope.machine.report.ring_notes import report_unwrapped_rings
from tilescope.machine.report.swizzle_findings import report_swizzles
from tilescope.machine.schedule import Schedule
from tilescope.rule import Rule, ptx_example, rule
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RESERVED_BYTES
from tilescope.tensor_map.replacement import KEPT_VALUES, REPLACE_FIELDS
from tilescope.tma.transfer import SMEM_EXTENT

_PLACES_NAMED = 4
_CAUSES_OF_A_HANG = frozenset({COPY_WAIT.name, REFILL.name, RACE.name, CP_ASYNC.name, TENSOR_ORDER.name})
_SEVERITIES = ("error", "warning", "note")
_MAP = "[np.frombuffer(ts.TensorMap('u32', (64, 64), (256,), (4, 4)).encode(), 'u1').copy()]"
_SOURCE = "an H200, driver 580.159.04, CUDA 13.0"
_FOUND = "{where}: [[{who}: ]]{reason}[[, {lies}]]"

OUT_OF_BOUNDS = rule(
    "run-out-of-bounds",
    "Every access of a kernel is within an array, its own local memory or the shared memory of its cluster.",
    argument="{where}",
    found=_FOUND,
    limit="an access outside of them is error {code}, illegal memory access",
    fix="Compare the index with the extent before the access, or give the kernel a larger array.[[ Rule {rule_name} says more.]]",
    source=_SOURCE,
    basis="measured",
    code=700,
    passing=f"ts.Kernel({ptx_example('run-out-of-bounds.pass.ptx')}).run(1, 32, [np.zeros(1, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-out-of-bounds.fail.ptx')}).run(1, 32, [np.zeros(1, np.uint32)]).findings",
)
NULL_POINTER = OUT_OF_BOUNDS.worded(
    fix="Pass an array for this pointer, or test the pointer before the access.",
)
DYNAMIC_SMEM = OUT_OF_BOUNDS.worded(
    limit="the launch has {smem_bytes:byte} of dynamic shared memory[[, and this access needs {needed_bytes:byte}]]: error {code}, "
    "illegal memory access",
    fix="Launch with[[ at least {needed_bytes:byte} of]] dynamic shared memory: --smem {size} on the command line, smem_bytes={size} "
    "in Python.",
)
MORE_DYNAMIC_SMEM = DYNAMIC_SMEM.worded(
    fix="Compare the index with the extent before the access, or launch with at least {needed_bytes:byte} of dynamic shared "
    "memory: --smem {size} on the command line, smem_bytes={size} in Python.",
)
BOX_BEYOND_SMEM = OUT_OF_BOUNDS.worded(
    fix="Use a smaller box in the tensor map, or give the block more shared memory.",
)
ASSERTION = rule(
    "run-assert",
    "The assertions of a kernel hold.",
    argument="{where}",
    found=_FOUND,
    limit="an assertion that fails is error {code}, device-side assert",
    fix="Look at what the assertion compares; printf shows it.",
    source="CUDA C++ Programming Guide, Assertion",
    code=710,
    passing=f"ts.Kernel({ptx_example('run-assert.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-assert.fail.ptx')}).run(1, 32).findings",
)
ILLEGAL_OPERATION = rule(
    "run-illegal-instruction",
    "The chip can execute every instruction with its operands.",
    argument="{where}",
    found=_FOUND,
    limit="the chip answers with error {code}, illegal instruction",
    fix="Change the operands of the instruction.[[ Rule {rule_name} says how.]]",
    source=_SOURCE,
    basis="measured",
    code=715,
    passing=f"ts.Kernel({ptx_example('run-illegal-instruction.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-illegal-instruction.fail.ptx')}).run(1, 32).findings",
)
MISALIGNED = rule(
    "run-misaligned",
    "The address of an access is a multiple of its size.",
    argument="{where}",
    found=_FOUND,
    limit="a misaligned access is error {code}, misaligned address",
    fix="Align the address, or use a narrower access.[[ Rule {rule_name} says more.]]",
    source=_SOURCE,
    basis="measured",
    code=716,
    passing=f"ts.Kernel({ptx_example('run-misaligned.pass.ptx')}).run(1, 32, [np.zeros(1, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-misaligned.fail.ptx')}).run(1, 32, [np.zeros(1, np.uint32)]).findings",
)
WRONG_SPACE = rule(
    "run-address-space",
    "cp.async reads global memory, not an address of shared, local or parameter memory.",
    argument="{where}",
    found=_FOUND,
    limit="any other source is error {code}, operation not supported on global/shared address space",
    fix="Pass the copy an address of global memory, or a source size of 0 if there is nothing to read.",
    source=_SOURCE,
    basis="measured",
    code=717,
    passing=f"ts.Kernel({ptx_example('run-address-space.ptx')}).run(1, 32, [np.zeros(1, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-address-space.ptx')}).run(1, 32, [0x7E0000000800]).findings",
)
FAILURE = rule(
    "run-launch-failure",
    "No thread reaches a trap, a branch beyond its table, or an operation that an mbarrier cannot count.",
    argument="{where}",
    found=_FOUND,
    limit="the chip answers with error {code}, unspecified launch failure",
    fix="Find out why the thread reached it.[[ Rule {rule_name} says more.]]",
    source=_SOURCE,
    basis="measured",
    code=719,
    passing=f"ts.Kernel({ptx_example('run-launch-failure.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-launch-failure.fail.ptx')}).run(1, 32).findings",
)
TOO_MANY_ARRIVALS = FAILURE.worded(
    found="{where}: [[{who}: ]]{reason}, at the mbarrier at {address:#x}[[ ({variable})]]",
    fix="Let only as many threads arrive in a phase as mbarrier.init says, or raise its count.",
)
ARMED_AGAIN = TOO_MANY_ARRIVALS.worded(
    limit="its phase still waits for {missing_bytes:byte} of copies; the chip answers with error {code}, unspecified launch failure",
    fix="Let the readers of this phase arrive at a second mbarrier when they are done, and wait for that one before this arrival. "
    "If the kernel does so already, check the parity of the wait: it changes with every phase, over the whole kernel.",
)
STOPPED = rule(
    "run-stopped",
    "A run ends within max_steps.",
    argument="max_steps",
    found="after {steps:step} threads still run: {standing}",
    limit="max_steps = {max_steps}",
    fix="Raise max_steps, launch fewer blocks, or give the loop an end.",
    source="the call: an instruction that many threads run together is one step",
    passing=f"ts.Kernel({ptx_example('run-stopped.pass.ptx')}).run(1, 32, max_steps=1000).findings",
    failing=f"ts.Kernel({ptx_example('run-stopped.fail.ptx')}).run(1, 32, max_steps=1000).findings",
)
OUT_OF_TIME = STOPPED.worded(
    argument="max_seconds",
    limit="max_seconds = {max_seconds}",
    fix="Raise max_seconds, launch fewer blocks, or give the loop an end.",
)
MAP_EDIT = rule(
    "run-map-edit",
    "Values that tensormap.replace writes into a map fit into the field: strides are multiples of 16 bytes, boxes "
    "have 1 to 256 elements.",
    argument="{field}",
    found="at {where} {field}[[{place}]] = {value} is written into a tensor map, which stores {kept}",
    limit="{keeps}; the instruction reports nothing, and copies go by what the map keeps",
    fix="Use {instead}[[: {how}]].",
    source='PTX ISA, "tensormap.replace"',
    passing=f"ts.Kernel({ptx_example('run-map-edit.pass.ptx')}).run(1, 1, {_MAP}).findings",
    failing=f"ts.Kernel({ptx_example('run-map-edit.fail.ptx')}).run(1, 1, {_MAP}).findings",
)
FAULT_RULES: dict[int, Rule] = {
    row.code: row
    for row in (OUT_OF_BOUNDS, ASSERTION, ILLEGAL_OPERATION, MISALIGNED, WRONG_SPACE, FAILURE)
    if row.code is not None
}


def collect_findings(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    """The findings of a run: how it ended, data races, costs; errors first, and of those of a finished run divergent barriers.

    A thread that hangs, or that arms an mbarrier with a pending copy, is often the victim of a data race: a missing wait frees
    a slot too early. So such data races come first.
    """
    byte_errors = tuple(report_wrong_bytes(launch, result))
    ending = _report_outcome(launch, result)
    if launch.after_polls is not None and result.after_polls is not None:
        ending += _report_outcome(launch.after_polls, result.after_polls)
    races = report_races(launch)
    is_victim = result.outcome == "hang" or (result.fault is not None and result.fault.missing_bytes is not None)
    causes = tuple(finding for finding in races if is_victim and finding.rule in _CAUSES_OF_A_HANG)
    first = (*byte_errors, *causes, *ending) if is_victim else (*ending, *byte_errors)
    findings = (
        *first,
        *(finding for finding in races if finding not in causes),
        *_report_map_edits(launch),
        *_report_accesses(launch, is_finished=result.outcome == "finished"),
    )
    if result.outcome == "finished":
        findings = tuple(sorted(findings, key=lambda finding: finding.rule != CONVERGENCE.name))
    if len(findings) > 1:
        findings = tuple(merge_findings(findings))
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _report_map_edits(launch: Launch) -> Iterator[Violation]:
    """A finding for each tensormap.replace whose value does not fit into the field of the map."""
    for edit in launch.cut_edits.values():
        row = KEPT_VALUES[edit.field]
        yield MAP_EDIT.violation(
            where=name_instruction(launch.program, edit.pc),
            field=edit.field,
            place=f"[{edit.ordinal}]" if REPLACE_FIELDS[edit.field].ordinals else None,
            value=edit.value,
            kept=edit.kept,
            keeps=row.limit,
            instead=row.nearest(edit.value),
            how=row.how,
            **line_facts(launch.program, edit.pc),
        )


def _report_accesses(launch: Launch, *, is_finished: bool) -> Iterator[Violation]:
    """Findings about swizzles, costs and rings; their modules are entered only if the run has such accesses."""
    costs = launch.costs
    if costs is not None and (costs.tiles.misfits or costs.operands.reads):
        yield from report_swizzles(launch)
    if costs is not None and (costs.operands.mismatches or _has_excess(costs)):
        yield from report_costs(launch, is_finished=is_finished)
    if launch.array_ends is not None and launch.array_ends.found:
        yield from report_array_ends(launch, launch.array_ends)
    if is_finished and launch.copies:
        yield from report_unwrapped_rings(launch)


def _has_excess(costs: Costs) -> bool:
    """Whether an instruction took more wavefronts or sectors than necessary."""
    tallies = (*costs.wavefronts.tallies.values(), *costs.sectors.tallies.values())
    return any(tally.cost > tally.least for tally in tallies)


def _report_outcome(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    if _has_misused_barrier(launch, result):
        return ()
    if result.fault is not None:
        return (_report_fault(launch, result, result.fault),)
    if result.outcome == "hang":
        return report_hang(launch, result)
    if result.outcome == "stopped":
        return (_report_stop(launch, result.waiting[-1]),)
    return ()


def _has_misused_barrier(launch: Launch, result: GridRun) -> bool:
    """Whether a fault or a hang is at an mbarrier that another finding is about: operations on it are not defined."""
    if launch.detector is None or result.outcome not in ("hang", "fault"):
        return False
    conflicts = launch.detector.conflicts.found.values()
    misused = {conflict.address for conflict in conflicts if conflict.mistake in BARRIER_MISUSE}
    if not misused:
        return False
    if result.fault is not None:
        address = result.fault.address if result.fault.code == FAILURE.code else None
        return address is not None and result.waiting[-1].cluster.shape.place(address) in misused
    return any(
        schedule.cluster.shape.place(address) in misused
        for schedule in result.waiting
        for address in waited_barriers(schedule)
    )


def _report_fault(launch: Launch, result: GridRun, fault: KernelFaultError) -> Violation:
    cluster = result.waiting[-1].cluster
    if fault.lane is None:
        who = f"block {block_index_of(cluster, 0)}"
    else:
        rank, thread = divmod(fault.lane, cluster.block_lanes)
        who = f"thread {thread_index(launch, thread)} of block {block_index_of(cluster, rank)}"
    place = None
    variable = None
    if fault.is_global and fault.address is not None:
        place = describe_address(launch, fault.address)
    wording = FAULT_RULES[fault.code].wording
    if fault.missing_bytes is not None and fault.address is not None:
        variable = shared_variable(launch.program, fault.address & SHARED_OFFSET_MASK)
        wording = ARMED_AGAIN if fault.missing_bytes else TOO_MANY_ARRIVALS
    if fault.rule == SMEM_EXTENT.name:
        wording = BOX_BEYOND_SMEM
    if wording is OUT_OF_BOUNDS.wording and place == NULL:
        wording = NULL_POINTER
    if fault.fix is not None:
        wording = wording.worded(fix=fault.fix)
    missing_smem = _find_missing_smem(launch, fault)
    if missing_smem is not None:
        is_index = missing_smem["smem_bytes"] and missing_smem["needed_bytes"] is not None
        wording = MORE_DYNAMIC_SMEM if is_index else DYNAMIC_SMEM
    facts = {
        "where": name_instruction(launch.program, cluster.pc),
        **line_facts(launch.program, cluster.pc),
        "who": who,
        "reason": fault.reason,
        "lies": place,
        "code": fault.code,
        "rule_name": fault.rule,
        "address": fault.address,
        "variable": variable,
        "missing_bytes": fault.missing_bytes,
        **(missing_smem or {}),
        "short": {"where": name_line(launch.program, cluster.pc), "who": None, "lies": None},
    }
    return report_ending(wording, launch, result, facts)


def _find_missing_smem(launch: Launch, fault: KernelFaultError) -> dict[str, object] | None:
    """The dynamic shared memory of a launch, and what a faulting access needs; None if more of it would not help."""
    program = launch.program
    has_dynamic = any(variable.size_bytes is None for variable in program.shared_variables())
    if not has_dynamic or fault.shared_end is None:
        return None
    needed_bytes: int | None = fault.shared_end - program.dynamic_shared_offset
    if fault.shared_end - SHARED_RESERVED_BYTES > launch.arch.smem_per_block_bytes:
        needed_bytes = None  # a wild address, which no launch can reach
        if launch.smem_bytes:
            return None
    size = "N" if needed_bytes is None else needed_bytes
    return {"smem_bytes": launch.smem_bytes, "needed_bytes": needed_bytes, "size": size}


def _report_stop(launch: Launch, schedule: Schedule) -> Violation:
    """A finding about an exceeded budget: where the threads of the last cluster are."""
    cluster = schedule.cluster
    parts = []
    fronts = sorted(schedule.ready, key=lambda front: front.pc)
    for front in fronts:
        place = name_instruction(launch.program, front.pc)
        ranks = cluster.block_of_lane[front.lanes]
        for rank in np.unique(ranks).tolist():
            threads = name_threads(thread_numbers(cluster, front.lanes[ranks == rank]))
            parts.append(f"{threads} of block {block_index_of(cluster, rank)} at {place}")
    places = parts[:_PLACES_NAMED]
    if len(parts) > _PLACES_NAMED:
        places.append("others elsewhere")
    if not places:
        places.append(f"block {block_index_of(cluster, 0)} has just started")
    lines = line_facts(launch.program, *[front.pc for front in fronts])
    standing = ", ".join(places)
    if launch.is_out_of_time:
        return OUT_OF_TIME.violation(steps=launch.steps, standing=standing, max_seconds=launch.max_seconds, **lines)
    steps = launch.max_steps - launch.steps_left
    return STOPPED.violation(steps=steps, standing=standing, max_steps=launch.max_steps, **lines)
