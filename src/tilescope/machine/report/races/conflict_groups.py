"""Which conflicts make one finding: unrolled copies of one mistake, and conflicts that one fix removes.

st.shared at ring.cu:8       16 pairs of instructions of a loop that is unrolled four times: the same two source lines
ld.shared at ring.cu:12      a barrier before ring.cu:12 removes them all, and those at ring.cu:14 with them: one finding
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.decoding.dataflow import overwrites
from tilescope.machine.program import Program
from tilescope.machine.report.races.race_rules import severity_of
from tilescope.sync.detector.race import Conflict

ConflictGroup = list[Conflict]


class FindingGroup(NamedTuple):
    """The conflicts of a finding, and the groups of conflicts at other places that the same fix removes."""

    own: ConflictGroup
    others: list[ConflictGroup]


def group_conflicts(program: Program, conflicts: Iterable[Conflict]) -> list[ConflictGroup]:
    """Conflicts by the mistake and the source lines of their two accesses, in the order of detection."""
    groups: dict[tuple[object, ...], ConflictGroup] = {}
    for conflict in conflicts:
        groups.setdefault(_source_key(program, conflict), []).append(conflict)
    return [*groups.values()]


def _source_key(program: Program, conflict: Conflict) -> tuple[object, ...]:
    """Equal for conflicts that make one finding: the same source lines, and the same accesses.

    A loop that is unrolled four times has four stores, and another one four loads: 16 pairs of instructions, one mistake.
    """
    if conflict.mistake == "dead barrier":  # whichever instruction uses it, the init is what is missing
        return conflict.mistake, conflict.address, None if conflict.before is None else conflict.before.pc
    instructions = [program.instructions[pc] for pc in conflict.pcs if pc is not None]
    sources = [None if instruction is None else instruction.source_line for instruction in instructions]
    if None in sources:
        return conflict.mistake, *conflict.pcs, conflict.now.how, conflict.space
    before = None if conflict.before is None else conflict.before.how
    is_one_store = conflict.before is conflict.now
    is_lost = conflict.mistake == "race" and is_lost_update(program, conflict)
    return conflict.mistake, is_one_store, is_lost, before, conflict.now.how, conflict.space, *sources


def merge_fixed_together(groups: Sequence[ConflictGroup]) -> list[FindingGroup]:
    """One finding for all groups that the same tested edits fix: the first error, with the others behind it."""
    fixed: dict[object, list[ConflictGroup]] = {}
    for group in groups:
        remedy = group[0].remedy
        key: object = id(group) if remedy is None else (remedy.insertions, remedy.corrections)
        fixed.setdefault(key, []).append(group)
    findings = []
    for together in fixed.values():
        first = min(together, key=_rank)
        findings.append(FindingGroup(first, [group for group in together if group is not first]))
    return findings


def _rank(group: ConflictGroup) -> tuple[bool, bool]:
    """Errors come first; a read of unwritten bytes is often the consequence of a data race."""
    return severity_of(group[0]) != "error", group[0].mistake == "unwritten"


def is_in_one_warp(conflict: Conflict) -> bool:
    """Whether lanes of one warp make both accesses."""
    before = conflict.before
    if before is None or before.lane is None or conflict.now.lane is None or conflict.is_between_clusters:
        return False
    return before.lane // WARP_LANES == conflict.now.lane // WARP_LANES


def is_lost_update(program: Program, conflict: Conflict) -> bool:
    """Whether both sides of a conflict belong to an update of a word: its load and its store, or its store twice.

        ld.shared.u32 x, [bin];
        add.u32       x, x, 1;        two threads load 7, both store 8
        st.shared.u32 [bin], x;

    A barrier would order the accesses, and still lose an update. Of a loop that is unrolled, the load of one copy and the store of
    another one belong to the same update of the source.
    """
    before = conflict.before
    if before is None or conflict.space == "registers" or "has_equal_stores" in conflict.facts:
        return False
    first, second = sorted((before.pc, conflict.now.pc))
    if _is_update(program, first, second):
        return True
    if first != second and not _is_one_line(program, first, second):
        return False
    return all(_belongs_to_update(program, pc) for pc in {first, second})


def _belongs_to_update(program: Program, pc: int) -> bool:
    """Whether an instruction is the load or the store of an update."""
    if _has_name(program, pc, "st"):
        return any(_is_update(program, load, pc) for load in range(pc))
    return any(_is_update(program, pc, store) for store in range(pc + 1, len(program.instructions)))


def _is_one_line(program: Program, first: int, second: int) -> bool:
    """Whether a compiler made two instructions of the same source line."""
    sources = [
        None if instruction is None else instruction.source
        for instruction in (program.instructions[first], program.instructions[second])
    ]
    return sources[0] is not None and sources[0] == sources[1]


def _has_name(program: Program, pc: int, name: str) -> bool:
    instruction = program.instructions[pc]
    return instruction is not None and instruction.name == name


def _is_update(program: Program, load: int, store: int) -> bool:
    """Whether one instruction loads a word, and another stores something made from it to the same address."""
    loaded = program.instructions[load]
    stored = program.instructions[store]
    if loaded is None or stored is None:  # the end of a body accesses nothing
        return False
    if (loaded.name, stored.name) != ("ld", "st") or loaded.operands[1] != stored.operands[0]:
        return False
    changed = set(program.targets[load])
    address = program.registers_named[load] - changed
    for pc in range(load + 1, store):
        targets = program.targets[pc]
        if not address.isdisjoint(targets):
            return False  # it is stored elsewhere
        named = changed & program.registers_named[pc]
        if named and all(overwrites(program, pc, register) for register in named):
            changed -= named  # a compiler uses the register again for something else
        elif named:
            changed.update(targets)
    return not changed.isdisjoint(program.registers_named[store])
