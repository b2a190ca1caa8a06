"""Who added floats where: a sum of which several threads add a part depends on their order, which no document fixes.

The rule is cheap, not sharp: a word to which atomics of two different threads added floats is unordered, even where every
sum was exact, or a barrier stood between them. A loop around atom.cas adds as well, where floats are added in the kernel to what
it stores:

    atom.cas.b64 old, [sum], expected, %rd2;        %rd2 was made of add.f64
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilescope.machine.decoding.dataflow import made_of
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.program import Program
from tilescope.ptx.syntax import Instruction
from tilescope.sync.address import Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape
from tilescope.sync.events import Atomic

Adders = npt.NDArray[np.int64]  # by word: the thread that added last, counted from 1; 0 if there is none


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


def adds_floats(program: Program) -> bool:
    """Whether atomics of a program may add floats."""
    atomics = [
        instruction
        for instruction in program.instructions
        if instruction is not None and instruction.name in ("atom", "red")
    ]
    is_addition = any("add" in atomic.modifiers and not _FLOATS.isdisjoint(atomic.modifiers) for atomic in atomics)
    return is_addition or bool(program.fact(float_swaps))


def _adds_floats(instruction: Instruction) -> bool:
    return instruction.name in _ADDING and not _FLOATS.isdisjoint(instruction.modifiers)


class FloatAdds:
    """The last thread that added to each word; memory in proportion to the arrays that floats were added to."""

    def __init__(self, memory: GlobalMemory, grid: tuple[int, int, int], program: Program, inexact: set[str]) -> None:
        self._memory = memory
        self._grid = grid
        self._program = program
        self._inexact = inexact  # opcodes: gets those whose sums depend on the order of threads
        self._by_array: dict[tuple[int, int], Adders] = {}  # (address, bytes of a word)

    def copy(self) -> FloatAdds:
        """A copy, to continue with if the following accesses are undone."""
        copy = FloatAdds(self._memory, self._grid, self._program, self._inexact)
        copy._by_array = {key: adders.copy() for key, adders in self._by_array.items()}
        return copy

    def handlers(self, cluster: ClusterShape, starts: Sequence[BlockIndex] = ()) -> dict[type, Handler]:
        """What looks at the atomics of one cluster, or of blocks in lockstep that start at some places of the grid."""
        first_threads = self._first_threads(cluster, starts or (cluster.first_block,))
        lanes_of_start = cluster.lane_count // len(first_threads)
        in_shared: list[Adders] = []  # by two bytes of shared memory; made at the first addition

        def note(event: Atomic) -> None:
            instruction = self._program.instructions[event.pc]
            if not event.adds_floats or instruction is None or instruction.opcode in self._inexact:
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

    def _note_global(self, threads: Adders, addresses: Addresses, size_bytes: int) -> bool:
        """Note these additions; whether one is to a word to which another thread has added."""
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

    def _first_threads(self, cluster: ClusterShape, starts: Sequence[BlockIndex]) -> Adders:
        """Numbers of the first threads of clusters in their grid, from 1 on."""
        width, height, _ = self._grid
        numbers = [x + width * (y + height * z) for x, y, z in starts]
        return np.array(numbers, np.int64) * (cluster.lane_count // len(starts)) + 1


def _note(adders: Adders, words: Addresses, threads: Adders) -> bool:
    before = adders[words]
    adders[words] = threads
    is_of_another = (before != 0) & (before != threads)
    is_overwritten = adders[words] != threads  # by another lane of this instruction
    return bool(is_of_another.any() or is_overwritten.any())
