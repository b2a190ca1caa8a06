"""Notes about reads of shared memory that leave the array or the tile in which they begin."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.errors import Violation
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.array_ends import ArrayEnds, PastEnd
from tilescope.machine.report.places import (
    line_facts,
    name_in_program,
    name_instruction,
    name_line,
    shared_variable,
    thread_index,
)
from tilescope.rule import ptx_example, rule
from tilescope.sentence import Facts

PAST_ARRAY = rule(
    "run-array-end",
    "A read of shared memory stays in the array, or in the tile of a copy, in which it begins.",
    argument="{where}",
    found="at {at} {who} reads shared address {address:#x}[[ ({variable})]], outside {array}, in which its address begins",
    limit="it gets the bytes of another array",
    fix="Check the index, or the step of the descriptor, against the size of the array.",
    source="the declarations of the kernel, and the copies of this run",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-array-end.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-array-end.fail.ptx')}).run(1, 64).findings",
)
PAST_TILE = PAST_ARRAY.worded(
    found="at {at} {who} reads shared address {address:#x}[[ ({variable})]], past the end of the tile that the copy at {array} writes",
    limit="it gets the bytes of another tile",
    fix="Check the step of the descriptor against the width of the tile: there may be one step of K too many.",
)


def report_array_ends(launch: Launch, ends: ArrayEnds) -> Iterator[Violation]:
    """A note for each source line that reads beyond its array or tile; without lines, for each instruction."""
    program = launch.program
    reported: set[tuple[object, ...]] = set()
    for past in ends.found.values():
        lines = line_facts(program, past.pc)
        key = (lines["source_lines"] or past.pc, past.operand, past.array)
        if key in reported:
            continue
        reported.add(key)
        facts: Facts = {
            "where": name_instruction(program, past.pc),
            "at": name_line(program, past.pc),
            "who": _name_reader(launch, past),
            "address": past.address,
            "variable": shared_variable(program, past.address),
            "block": past.block,
            **lines,
        }
        if past.array is not None:
            yield PAST_ARRAY.violation(**facts, array=name_in_program(past.array.name))
        elif past.tile_pc is not None:
            yield PAST_TILE.violation(**facts, array=name_instruction(program, past.tile_pc))


def _name_reader(launch: Launch, past: PastEnd) -> str:
    """The thread that loads, or the operand of a tensor core."""
    if past.lane is None:
        return f"operand {past.operand} of block {past.block}"
    return f"thread {thread_index(launch, past.lane % launch.block_lanes)} of block {past.block}"
