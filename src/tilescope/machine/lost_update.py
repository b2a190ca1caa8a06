"""Threads that load one word, change it and store it: a barrier would order the accesses, and still lose changes.

ld.shared.u32 x, [bin];
add.u32       x, x, 1;        two threads load 7, both store 8
st.shared.u32 [bin], x;
"""

from __future__ import annotations

from tilescope.machine.program import Program
from tilescope.sync.detector.race import Conflict


def is_lost_update(program: Program, conflict: Conflict) -> bool:
    """Whether both sides of a conflict belong to such an update of a word: its load and its store, or its store twice."""
    before = conflict.before
    if before is None or conflict.space == "registers":
        return False
    first, store = sorted((before.pc, conflict.now.pc))
    if first < store:
        return _is_update(program, first, store)
    return any(_is_update(program, load, store) for load in range(store))


def _is_update(program: Program, load: int, store: int) -> bool:
    """Whether one instruction loads a word, and another stores something made from it to the same address."""
    loaded = program.instructions[load]
    stored = program.instructions[store]
    if loaded is None or stored is None:  # the end of a body touches nothing
        return False
    if (loaded.name, stored.name) != ("ld", "st") or loaded.operands[1] != stored.operands[0]:
        return False
    changed = set(program.targets[load])
    address = program.registers_named[load] - changed
    for pc in range(load + 1, store):
        if not address.isdisjoint(program.targets[pc]):
            return False  # it is stored elsewhere
        if not changed.isdisjoint(program.registers_named[pc]):
            changed.update(program.targets[pc])
    return not changed.isdisjoint(program.registers_named[store])
