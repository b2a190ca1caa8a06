"""What a launch did, as the KernelRun that `Kernel.run` gives back: counts by instruction, copies, phases, findings."""

from __future__ import annotations

import numpy as np

from tilescope.arch import WARP_LANES, Arch
from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun
from tilescope.machine.observers.costs import Costs
from tilescope.machine.proof.described_pipeline import Recorded
from tilescope.machine.proof.naming import SharedVariable
from tilescope.machine.records import CopyRecord, PhaseRecord
from tilescope.machine.report.findings import findings_of
from tilescope.machine.report.run import BarrierPhase, InstructionCount, KernelCopy, KernelRun
from tilescope.machine.report.run_costs import copy_traffic, operand_reads, worst_access
from tilescope.sync.events import WaitingLanes


def run_of(launch: Launch, result: GridRun, notes: tuple[Violation, ...]) -> KernelRun:
    """The run of a launch that has ended; `notes` come after its findings."""
    _end_recording(launch, result)
    program = launch.program
    costs = Costs() if launch.costs is None else launch.costs  # of which nothing was counted
    costs.finish()
    instructions = _instruction_counts(launch, result, costs)
    run = KernelRun(
        entry=program.entry.name,
        outcome=result.outcome,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        blocks_run=result.finished_blocks,
        steps=launch.steps,
        inexact=tuple(sorted(launch.inexact)),
        findings=(*findings_of(launch, result), *notes),
        instructions=instructions,
        copies=tuple(_copy(launch, record) for record in launch.copies),
        barriers=tuple(_phase(launch, record) for record in launch.phases),
        maps=tuple(launch.maps),
        printed="".join(launch.printed),
        basis=Arch.named(launch.arch).basis,
        traffic=copy_traffic(costs, launch.maps),
        operands=operand_reads(costs, program),
    )
    object.__setattr__(run, "_recorded", _recorded(launch, result))
    return run


def _instruction_counts(launch: Launch, result: GridRun, costs: Costs) -> tuple[InstructionCount, ...]:
    """How often each instruction ran and what its accesses cost; approximate ones that ran are noted in the launch."""
    program = launch.program
    threads = np.cumsum(result.thread_counts)
    warps = np.cumsum(result.warp_counts)
    rows = []
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        shared = costs.wavefronts.tallies.get(pc)
        sectors = costs.sectors.tallies.get(pc)
        rows.append(
            InstructionCount(
                ptx_line=instruction.line,
                source_line=instruction.source_line,
                ptx_text=instruction.text,
                threads=int(threads[pc]),
                warps=int(warps[pc]),
                wavefronts=None if shared is None else shared.cost,
                least_wavefronts=None if shared is None else shared.least,
                sectors=None if sectors is None else sectors.cost,
                least_sectors=None if sectors is None else sectors.least,
                worst=None if shared is None else worst_access(shared),
            )
        )
        if pc in program.approximate and threads[pc]:
            launch.inexact.add(program.approximate[pc])
    return tuple(rows)


def _lines(launch: Launch, pc: int) -> tuple[int, str | None]:
    """The PTX line and the source line of an instruction."""
    instruction = launch.program.instructions[pc]
    if instruction is None:
        return 0, None
    return instruction.line, instruction.source_line


def _copy(launch: Launch, record: CopyRecord) -> KernelCopy:
    ptx_line, source_line = _lines(launch, record.pc)
    return KernelCopy(
        ptx_line=ptx_line,
        source_line=source_line,
        block=record.block,
        thread=record.lane % rounded_up(launch.block_threads, WARP_LANES),
        direction=record.kind,
        bytes=record.bytes,
        shared_address=record.shared_address,
        barrier=record.barrier,
        coords=record.coords,
        map_number=record.map_number,
        other_address=record.other_address,
    )


def _phase(launch: Launch, record: PhaseRecord) -> BarrierPhase:
    ptx_line, source_line = _lines(launch, record.pc)
    return BarrierPhase(
        address=record.address,
        block=record.block,
        number=record.number,
        arrivals=record.arrivals,
        bytes=record.bytes,
        ptx_line=ptx_line,
        source_line=source_line,
    )


def _end_recording(launch: Launch, result: GridRun) -> None:
    """Record who still waits, where the recorded cluster could not end."""
    recorder = launch.recorder
    if recorder is None or result.outcome != "hang":
        return
    for schedule in result.waiting:
        if schedule.cluster.first_block == recorder.first_block:
            spinning = [one.front.lanes for one in schedule.spinning]
            at_cluster = [WaitingLanes(one.pc - 1, one.lanes) for one in schedule.barriers.cluster_waiting]
            recorder.end(schedule.barriers.incomplete(), spinning, at_cluster)


def _recorded(launch: Launch, result: GridRun) -> Recorded:
    """What is kept for KernelRun.pipeline."""
    program = launch.program
    variables = [
        SharedVariable(variable.name, program.shared_offsets[variable.number], variable.size_bytes)
        for variable in program.shared_variables()
    ]
    return Recorded(program.entry.name, result.outcome, launch.recorder, tuple(program.instructions), tuple(variables))
