"""Which atomics depend on the order of threads, which no document fixes: sums of floats, exchanges, and values that atomics return.

    atom.add.u32 place, [count], 1;        each thread gets a place of its own …
    st.u32       [out+place], value;       … and which one it gets decides what memory holds

The rule is cheap, not sharp: a word that such atomics of two different threads changed is unordered, even where every sum was
exact, or a barrier stood between them. A returned value counts if it, or something made of it, is stored or chooses where to
store; a value that is only compared does not: a lock, or a block that asks whether it is the last. A loop around atom.cas adds
as well, where floats are added in the kernel to what it stores:

    atom.cas.b64 old, [sum], expected, %rd2;        %rd2 was made of add.f64
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilescope.machine.decoding.dataflow import find_computed_exchanges, find_stored_registers, made_of
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.program import Program
from tilescope.ptx.syntax import Instruction
from tilescope.sync.address import Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape
from tilescope.sync.events import Atomic

Changers = npt.NDArray[np.int64]  # by word: the thread that changed it last, counted from 1; 0 if there is none


_ADDING = ("add", "sub", "fma", "mad")
_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})


def float_swaps(program: Program) -> frozenset[int]:
    """The atom.cas of a program that store a sum of floats."""
    swaps = [
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None and "cas" in instruction.modifiers
    ]
    if not swaps:
        return frozenset()
    adding = [
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None and _adds_floats(instruction)
    ]
    sums = made_of(program, [number for pc in adding for number in program.targets[pc]])
    return frozenset(pc for pc in swaps if not sums.isdisjoint(program.registers_named[pc]))


def ordered_atomics(program: Program) -> frozenset[int]:
    """The atomics of a program whose effect depends on the order of the threads that execute them."""
    additions = [
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None
        and instruction.name in ("atom", "red")
        and "add" in instruction.modifiers
        and not _FLOATS.isdisjoint(instruction.modifiers)
    ]
    return frozenset(additions) | float_swaps(program) | stored_returns(program) | find_computed_exchanges(program)


def stored_returns(program: Program) -> frozenset[int]:
    """The atom of a program whose returned value reaches memory, as data or in an address."""
    stored = program.fact(find_stored_registers)
    return frozenset(
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None and instruction.name == "atom" and not stored.isdisjoint(program.targets[pc])
    )


def _adds_floats(instruction: Instruction) -> bool:
    return instruction.name in _ADDING and not _FLOATS.isdisjoint(instruction.modifiers)


class AtomicOrder:
    """The last thread that changed each word by such an atomic; memory in proportion to the arrays of these words."""

    def __init__(self, memory: GlobalMemory, grid: tuple[int, int, int], program: Program, inexact: set[str]) -> None:
        self._memory = memory
        self._grid = grid
        self._program = program
        self._ordered = program.fact(ordered_atomics)
        self._inexact = inexact  # opcodes: gets those that depend on the order of threads
        self._by_array: dict[tuple[int, int], Changers] = {}  # (address, bytes of a word)

    def copy(self) -> AtomicOrder:
        """A copy, to continue with if the following accesses are undone."""
        copy = AtomicOrder(self._memory, self._grid, self._program, self._inexact)
        copy._by_array = {key: changers.copy() for key, changers in self._by_array.items()}
        return copy

    def handlers(self, cluster: ClusterShape, starts: Sequence[BlockIndex] = ()) -> dict[type, Handler]:
        """What looks at the atomics of one cluster, or of blocks in lockstep that start at some places of the grid."""
        first_threads = self._first_threads(cluster, starts or (cluster.first_block,))
        lanes_of_start = cluster.lane_count // len(first_threads)
        in_shared: list[Changers] = []  # by two bytes of shared memory; made at the first atomic

        def note(event: Atomic) -> None:
            instruction = self._program.instructions[event.pc]
            if event.pc not in self._ordered or instruction is None or instruction.opcode in self._inexact:
                return
            lanes = event.word_lanes
            threads = first_threads[lanes // lanes_of_start] + lanes % lanes_of_start
            if event.space == "shared":
                if not in_shared:
                    in_shared.append(np.zeros(cluster.blocks * cluster.shared_stride // 2, np.int64))
                meet = _note(in_shared[0], event.word_places // 2, threads)
            else:
                meet = self._note_global(threads, event.word_addresses, event.word_bytes)
            if meet:
                self._inexact.add(instruction.opcode)

        return {Atomic: note}

    def _note_global(self, threads: Changers, addresses: Addresses, size_bytes: int) -> bool:
        """Note these atomics; whether one is on a word that another thread has changed."""
        meet = False
        while len(addresses):
            region = self._memory.region_at(int(addresses[0]))
            assert region is not None  # the addresses were read before
            key = (region.address, size_bytes)
            if key not in self._by_array:
                self._by_array[key] = np.zeros(len(region.content) // size_bytes + 1, np.int64)
            is_inside = (addresses >= region.address) & (addresses < region.end)
            words = (addresses[is_inside] - region.address) // size_bytes
            meet |= _note(self._by_array[key], words, threads[is_inside])
            addresses = addresses[~is_inside]
            threads = threads[~is_inside]
        return meet

    def _first_threads(self, cluster: ClusterShape, starts: Sequence[BlockIndex]) -> Changers:
        """Numbers of the first threads of clusters in their grid, from 1 on."""
        width, height, _ = self._grid
        numbers = [x + width * (y + height * z) for x, y, z in starts]
        return np.array(numbers, np.int64) * (cluster.lane_count // len(starts)) + 1


def _note(changers: Changers, words: Addresses, threads: Changers) -> bool:
    before = changers[words]
    changers[words] = threads
    is_of_another = (before != 0) & (before != threads)
    is_overwritten = changers[words] != threads  # by another lane of this instruction
    return bool(is_of_another.any() or is_overwritten.any())
