"""The drawing of the state of a run after a step: where warps are, registers, mbarriers, pending work, shared memory."""

from __future__ import annotations

from itertools import groupby

from tilescope.arch import WARP_LANES
from tilescope.machine.stepping.run_state import RunState, TmemAt, WarpPlace
from tilescope.sentence import listed, shorten
from tilescope.view.drawing import Drawing, Table
from tilescope.view.drawing_parts import Part
from tilescope.view.smem_view import smem_parts

_TEXT_CHARACTERS = 44  # of an instruction
_ROWS = 64  # of a table


def draw_run_state(state: RunState) -> Drawing:
    """The state as tables, and the shared memory of its block."""
    return Drawing(f"Step {state.step} of {state.steps}", state_parts(state))


def state_parts(state: RunState) -> dict[str, Part]:
    """What ran, then warps, registers of the thread, mbarriers, pending work and shared memory of the block."""
    parts: dict[str, Part] = {
        "step": describe_step(state),
        "warps": _warps(state),
        "registers": _registers(state),
        "local": _local(state),
        "mbarriers": _mbarriers(state),
        "pending": _pending(state),
    }
    if state.tmem is not None:
        parts["tensor memory"] = _tensor_memory(state.tmem)
    if state.smem is not None:
        parts |= smem_parts(state.smem)
    return parts


def describe_step(state: RunState) -> str:
    """The step in a sentence.

    >>> state = RunState(step=0, steps=37, is_whole=True, block=(0, 0, 0), thread=0, ran=None, warps=(), registers=(), mbarriers=(),
    ...     pending=(), smem=None)
    >>> describe_step(state)
    'Step 0 of 37: nothing has run.'
    """
    total = f"{state.steps}" if state.is_whole else f"the {state.steps} that were recorded"
    if state.ran is None:
        return f"Step {state.step} of {total}: nothing has run."
    ran = state.ran
    place = f"PTX line {ran.ptx_line}" if ran.source_line is None else f"{ran.source_line}, PTX line {ran.ptx_line}"
    return (
        f"Step {state.step} of {total}: threads {ran.threads} of block {ran.block} ran "
        f"`{shorten(ran.ptx_text, _TEXT_CHARACTERS)}` ({place})."
    )


def _place(source_line: str | None, ptx_line: int | None) -> str:
    if ptx_line is None:
        return ""
    return str(ptx_line) if source_line is None else f"{ptx_line} ({source_line})"


def _warps(state: RunState) -> Table:
    """A row for warps that follow each other and whose threads are at the same places."""
    records = []
    for _, group in groupby(_rows_of_warps(state), key=lambda row: row[1:]):
        rows = list(group)
        first, last = rows[0][0], rows[-1][0]
        _, threads, line, instruction, doing = rows[0]
        records.append(
            {
                "warp": str(first) if first == last else f"{first}-{last}",
                "lanes": threads,
                "PTX line": line,
                "instruction": instruction,
                "state": doing,
            }
        )
    return Table.of(records, f"Warps of block {state.block}", align="rllll", most=_ROWS, noun="rows")


def _rows_of_warps(state: RunState) -> list[tuple[int, str, str, str, str]]:
    """(warp, lanes, line, instruction, state) of each place, the lanes of a warp counted from 0."""
    return [
        (
            place.warp,
            _lanes(place),
            _place(place.source_line, place.ptx_line),
            f"`{shorten(place.ptx_text, _TEXT_CHARACTERS)}`" if place.ptx_text else "",
            f"waiting for {place.waits_for}" if place.waits_for else place.doing,
        )
        for place in state.warps
    ]


def _lanes(place: WarpPlace) -> str:
    """The threads of a place by their lanes: 32-47 of warp 1 are 0-15."""
    first = place.warp * WARP_LANES
    parts = [part.split("-") for part in place.threads.split(", ")]
    return ", ".join("-".join(str(int(number) - first) for number in part) for part in parts)


def _registers(state: RunState) -> Table:
    latest = sorted(state.registers, key=lambda register: -register.step)
    records = (
        {
            "register": register.name,
            "type": f".{register.type}",
            "value": register.value,
            "bits": f"{register.bits:#x}",
            "step": register.step,
            "PTX line": register.ptx_line,
        }
        for register in latest
    )
    title = f"Registers of thread {state.thread}, written last first"
    return Table.of(records, title, align="llrrrr", most=_ROWS, noun="registers")


def _local(state: RunState) -> Table:
    records = (
        {
            "local address": f"{stored.address:#x}",
            "bytes": stored.content,
            "step": stored.step,
            "PTX line": stored.ptx_line,
        }
        for stored in state.local
    )
    return Table.of(records, f"Local memory of thread {state.thread}", align="llrr", most=_ROWS, noun="stores")


def _tensor_memory(tmem: TmemAt) -> Table | str:
    """The writers of cells; the allocated columns are in the title."""
    ranges = [f"{first} to {first + count - 1}" for first, count in tmem.allocations]
    title = f"Tensor memory, columns {listed(ranges)} allocated" if ranges else "Tensor memory, no column allocated"
    if not tmem.writers:
        return f"{title}: not written."
    records = (
        {
            "PTX line": _place(writer.source_line, writer.ptx_line),
            "written by": f"`{shorten(writer.ptx_text, _TEXT_CHARACTERS)}`",
            "step": writer.step,
            "lanes": shorten(writer.lanes, _TEXT_CHARACTERS),
            "columns": shorten(writer.columns, _TEXT_CHARACTERS),
            "cells": writer.cells,
            "first value": f"{writer.first:#x}",
        }
        for writer in tmem.writers
    )
    return Table.of(records, title, align="llrllrr", most=_ROWS, noun="instructions")


def _mbarriers(state: RunState) -> Table:
    records = (
        {
            "mbarrier": f"{barrier.address:#x}",
            "phase": barrier.phase,
            "parity": barrier.parity,
            "arrivals missing": f"{barrier.pending} of {barrier.count}",
            "bytes missing": barrier.tx_bytes,
        }
        for barrier in state.mbarriers
    )
    return Table.of(records, "mbarriers", align="lrrrr", most=_ROWS, noun="mbarriers")


def _pending(state: RunState) -> Table:
    records = (
        {
            "pending": work.unit,
            "PTX line": _place(work.source_line, work.ptx_line),
            "issued at step": work.issued,
            "threads": work.threads,
            "bytes": "" if work.bytes is None else work.bytes,
            "shared address": "" if work.shared_address is None else f"{work.shared_address:#x}",
            "mbarrier": "" if work.barrier is None else f"{work.barrier:#x}",
        }
        for work in state.pending
    )
    return Table.of(records, "Pending", align="llrlrrr", most=_ROWS, noun="pieces of work")


DRAWINGS = {RunState: draw_run_state}
