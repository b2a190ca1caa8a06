"""What is wrong with a run: its fault, its hang, or the end of its budget, with the instruction and the threads.

There is one rule for each error number that CUDA returns for a fault. If a rule of tilescope's own explains the fault, the
finding names it.
"""

from __future__ import annotations

import numpy as np

from tilescope.errors import Violation
from tilescope.machine.fault import KernelFaultError
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun
from tilescope.machine.report.cost_findings import cost_findings
from tilescope.machine.report.hang import hang_findings
from tilescope.machine.report.map_edit_findings import map_edit_findings
from tilescope.machine.report.places import (
    block_of,
    instruction_named,
    line_facts,
    shared_variable,
    thread_index,
    threads_named,
    threads_of,
    where_it_lies,
)
from tilescope.machine.report.race_report import byte_findings, order_findings
from tilescope.machine.report.race_rules import COPY_WAIT, CP_ASYNC, RACE, REFILL
from tilescope.machine.report.remedy_words import of_what_ended
from tilescope.machine.report.ring_notes import ring_notes
from tilescope.machine.report.swizzle_findings import swizzle_findings
from tilescope.machine.report.tmem_report import TENSOR_ORDER
from tilescope.machine.schedule import Schedule
from tilescope.rule import Rule, ptx_example, rule
from tilescope.sync.address import SHARED_OFFSET_MASK
from tilescope.tma.transfer import SMEM_EXTENT

_PLACES_NAMED = 4
_CAUSES_OF_A_HANG = frozenset({COPY_WAIT.name, REFILL.name, RACE.name, CP_ASYNC.name, TENSOR_ORDER.name})
_SEVERITIES = ("error", "warning", "note")
_SOURCE = "an H200, driver 580.159.04, CUDA 13.0"
_FOUND = "{where}: {who}: {reason}[[, {lies}]]"

OUT_OF_BOUNDS = rule(
    "run-out-of-bounds",
    "Every access of a kernel lies in an array, in its own local memory or in the shared memory of its cluster.",
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
    "The chip can execute every instruction with the operands that it gets.",
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
    "An access lies at a multiple of its size.",
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
    fix="Look at what led the thread there.[[ Rule {rule_name} says more.]]",
    source=_SOURCE,
    basis="measured",
    code=719,
    passing=f"ts.Kernel({ptx_example('run-launch-failure.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-launch-failure.fail.ptx')}).run(1, 32).findings",
)
TOO_MANY_ARRIVALS = FAILURE.worded(
    found="{where}: {who}: {reason}, at the mbarrier at {address:#x}[[ ({variable})]]",
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
FAULT_RULES: dict[int, Rule] = {
    row.code: row
    for row in (OUT_OF_BOUNDS, ASSERTION, ILLEGAL_OPERATION, MISALIGNED, WRONG_SPACE, FAILURE)
    if row.code is not None
}


def findings_of(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    """What is wrong with a run: what ended it, what nothing orders, what costs more than it must; errors first.

    A thread that cannot go on, or that arms an mbarrier which still waits for a copy, is often the victim of two accesses that
    nothing orders: a missing wait lets a slot be freed too early. So findings about such accesses come first.
    """
    byte_errors = tuple(byte_findings(launch, result))
    ending = _ending(launch, result)
    unordered = order_findings(launch)
    is_victim = result.outcome == "hang" or (result.fault is not None and result.fault.missing_bytes is not None)
    causes = tuple(finding for finding in unordered if is_victim and finding.rule in _CAUSES_OF_A_HANG)
    first = (*byte_errors, *causes, *ending) if is_victim else (*ending, *byte_errors)
    findings = (
        *first,
        *(finding for finding in unordered if finding not in causes),
        *map_edit_findings(launch),
        *swizzle_findings(launch),
        *cost_findings(launch, is_finished=result.outcome == "finished"),
        *(ring_notes(launch) if result.outcome == "finished" else ()),
    )
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _ending(launch: Launch, result: GridRun) -> tuple[Violation, ...]:
    if result.fault is not None:
        return (_fault_finding(launch, result, result.fault),)
    if result.outcome == "hang":
        return hang_findings(launch, result)
    if result.outcome == "stopped":
        return (_stopped_finding(launch, result.waiting[-1]),)
    return ()


def _fault_finding(launch: Launch, result: GridRun, fault: KernelFaultError) -> Violation:
    cluster = result.waiting[-1].cluster
    if fault.lane is None:
        who = f"block {block_of(cluster, 0)}"
    else:
        rank, thread = divmod(fault.lane, cluster.block_lanes)
        who = f"thread {thread_index(launch, thread)} of block {block_of(cluster, rank)}"
    lies = None
    variable = None
    if fault.is_global and fault.address is not None:
        lies = where_it_lies(launch, fault.address)
    wording = FAULT_RULES[fault.code].wording
    if fault.missing_bytes is not None and fault.address is not None:
        variable = shared_variable(launch.program, fault.address & SHARED_OFFSET_MASK)
        wording = ARMED_AGAIN if fault.missing_bytes else TOO_MANY_ARRIVALS
    if fault.rule == SMEM_EXTENT.name:
        wording = BOX_BEYOND_SMEM
    if fault.fix is not None:
        wording = wording.worded(fix=fault.fix)
    facts = {
        "where": instruction_named(launch.program, cluster.pc),
        **line_facts(launch.program, cluster.pc),
        "who": who,
        "reason": fault.reason,
        "lies": lies,
        "code": fault.code,
        "rule_name": fault.rule,
        "address": fault.address,
        "variable": variable,
        "missing_bytes": fault.missing_bytes,
    }
    return of_what_ended(wording, launch, result, facts)


def _stopped_finding(launch: Launch, schedule: Schedule) -> Violation:
    """Where the threads stood in the cluster that ran last."""
    cluster = schedule.cluster
    parts = []
    fronts = sorted(schedule.ready, key=lambda front: front.pc)
    for front in fronts:
        place = instruction_named(launch.program, front.pc)
        ranks = cluster.block_of_lane[front.lanes]
        for rank in np.unique(ranks).tolist():
            threads = threads_named(threads_of(cluster, front.lanes[ranks == rank]))
            parts.append(f"{threads} of block {block_of(cluster, rank)} at {place}")
    named = parts[:_PLACES_NAMED]
    if len(parts) > _PLACES_NAMED:
        named.append("others elsewhere")
    if not named:
        named.append(f"block {block_of(cluster, 0)} has just started")
    lines = line_facts(launch.program, *[front.pc for front in fronts])
    standing = ", ".join(named)
    if launch.is_out_of_time:
        return OUT_OF_TIME.violation(steps=launch.steps, standing=standing, max_seconds=launch.max_seconds, **lines)
    steps = launch.max_steps - launch.steps_left
    return STOPPED.violation(steps=steps, standing=standing, max_steps=launch.max_steps, **lines)
