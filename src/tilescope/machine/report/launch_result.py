"""Builds the KernelRun that `Kernel.run` returns: counts by instruction, copies, barrier phases, findings, and the memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.machine.arithmetic import special_unit
from tilescope.machine.decoding.dataflow import find_stored_registers
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.execution.records import CopyRecord, PhaseRecord
from tilescope.machine.execution.special import ARBITRARY
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.last_writer import LastWriters
from tilescope.machine.observers.smem_picture import SmemPicture
from tilescope.machine.program import Program
from tilescope.machine.proof.naming import SharedVariable
from tilescope.machine.proof.recorded_run import Recorded
from tilescope.machine.report.findings import collect_findings
from tilescope.machine.report.run import ArgumentArray, BarrierPhase, InstructionCount, KernelCopy, KernelRun, Replay
from tilescope.machine.report.run_costs import copy_traffic, operand_reads, worst_access
from tilescope.ptx.syntax import SpecialRegister, nested_operands
from tilescope.sync.events import WaitingLanes


class MemoryAfter(NamedTuple):
    """The memory after a run: the arrays of the arguments, who wrote them last, a picture of shared memory, and how to run again."""

    arrays: tuple[ArgumentArray | None, ...]
    writers: LastWriters | None
    smem: SmemPicture | None
    replay: Replay | None


def build_run(launch: Launch, result: GridRun, notes: tuple[Violation, ...], after: MemoryAfter) -> KernelRun:
    """The run of a launch that has ended; `notes` come after its findings."""
    _record_waits(launch, result)
    program = launch.program
    costs = Costs() if launch.costs is None else launch.costs  # nothing was counted
    costs.finish()
    instructions = _count_instructions(launch, result, costs)
    run = KernelRun(
        entry=program.entry.name,
        outcome=result.outcome,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        blocks_run=result.finished_blocks,
        steps=launch.steps,
        inexact=tuple(sorted(launch.inexact)),
        assumed=() if launch.arch.name == special_unit.ARCH else _approximations(launch, result),
        findings=(*collect_findings(launch, result), *notes),
        instructions=instructions,
        copies=tuple(_make_copy(launch, record) for record in launch.copies),
        barriers=tuple(_make_phase(launch, record) for record in launch.phases),
        maps=tuple(launch.maps),
        printed="".join(launch.printed),
        basis=launch.arch.basis,
        traffic=copy_traffic(costs, launch.maps) if costs.traffic else (),
        operands=operand_reads(costs, program) if costs.operands.reads else (),
    )
    object.__setattr__(run, "_recorded", _keep_recording(launch, result))
    object.__setattr__(run, "arrays", after.arrays)
    object.__setattr__(run, "smem", after.smem)
    object.__setattr__(run, "_writers", after.writers)
    object.__setattr__(run, "_replay", after.replay)
    return run


def _count_instructions(launch: Launch, result: GridRun, costs: Costs) -> tuple[InstructionCount, ...]:
    """The executions of each instruction and the cost of its accesses; those of unknown bits that ran are noted in the launch."""
    program = launch.program
    threads = np.cumsum(result.thread_counts).tolist()
    warps = np.cumsum(result.warp_counts).tolist()
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
                threads=threads[pc],
                warps=warps[pc],
                wavefronts=None if shared is None else shared.cost,
                least_wavefronts=None if shared is None else shared.least,
                sectors=None if sectors is None else sectors.cost,
                least_sectors=None if sectors is None else sectors.least,
                worst=worst_access(shared) if shared is not None and shared.cost > shared.least else None,
            )
        )
        if program.approximate.get(pc) == "unknown" and threads[pc]:
            launch.inexact.add(instruction.opcode)
    for pc, names in program.fact(_stored_arbitrary_registers).items():
        if threads[pc]:
            launch.inexact |= names
    return tuple(rows)


def _stored_arbitrary_registers(program: Program) -> dict[int, frozenset[str]]:
    """By instruction: the special registers that it reads whose value is the card's choice and reaches memory."""
    found = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        read = {
            one.name
            for operand in instruction.operands
            for one in nested_operands(operand)
            if isinstance(one, SpecialRegister)
        }
        names = read & ARBITRARY
        if names and not program.fact(find_stored_registers).isdisjoint(program.targets[pc]):
            found[pc] = frozenset(names)
    return found


def _approximations(launch: Launch, result: GridRun) -> tuple[str, ...]:
    """The opcodes of approximate functions that ran, computed as the special function unit of an H200 does."""
    threads = np.cumsum(result.thread_counts)
    opcodes = {
        instruction.opcode
        for pc, exactness in launch.program.approximate.items()
        if exactness == "special unit" and threads[pc] and (instruction := launch.program.instructions[pc]) is not None
    }
    return tuple(sorted(opcodes))


def _lines(launch: Launch, pc: int) -> tuple[int, str | None]:
    """The PTX line and the source line of an instruction."""
    instruction = launch.program.instructions[pc]
    if instruction is None:
        return 0, None
    return instruction.line, instruction.source_line


def _make_copy(launch: Launch, record: CopyRecord) -> KernelCopy:
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


def _make_phase(launch: Launch, record: PhaseRecord) -> BarrierPhase:
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


def _record_waits(launch: Launch, result: GridRun) -> None:
    """Record the threads that still wait, if the recorded cluster hangs."""
    recorder = launch.recorder
    if recorder is None or result.outcome != "hang":
        return
    for schedule in result.waiting:
        if schedule.cluster.first_block == recorder.first_block:
            barriers = schedule.barriers
            spinning_lanes = [spinning.front.lanes for spinning in schedule.spinning]
            at_cluster = [WaitingLanes(arrival.pc - 1, arrival.lanes) for arrival in barriers.cluster_waiting]
            recorder.end(barriers.incomplete(), spinning_lanes, at_cluster)


def _keep_recording(launch: Launch, result: GridRun) -> Recorded:
    """The recording that KernelRun.pipeline needs."""
    program = launch.program
    variables = [
        SharedVariable(variable.name, program.shared_offsets[variable.number], variable.size_bytes)
        for variable in program.shared_variables()
    ]
    return Recorded(program.entry.name, result.outcome, launch.recorder, tuple(program.instructions), tuple(variables))


def last_writers(launch: Launch) -> LastWriters | None:
    """The last writers of a launch; None where its order was not kept."""
    if launch.detector is None:
        return None
    return LastWriters(
        tuple(launch.program.instructions),
        launch.detector.memory.last_writes(),
        tuple(launch.detector.first_blocks),
        launch.cluster,
        launch.block_lanes,
        launch.cluster_blocks * launch.block_lanes,
    )
