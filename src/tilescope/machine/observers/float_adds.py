"""Who added floats where: a sum of which several threads add a part depends on their order, which no document fixes.

The rule is cheap, not sharp: a word to which atomics of two different threads added floats is unordered, even where every
sum was exact, or a barrier stood between them. A loop around atom.cas adds as well, where floats are added in the kernel to what
it stores:

    atom.cas.b64 old, [sum], expected, %rd2;        %rd2 was made of add.f64
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tilescope.machine.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, Addresses
from tilescope.machine.cluster import Cluster
from tilescope.machine.element_flow import made_of
from tilescope.machine.program import Program
from tilescope.machine.step import LaneNumbers
from tilescope.ptx.syntax import Instruction

Adders = npt.NDArray[np.int64]  # by word: the thread that added last, counted from 1; 0 where nobody did


_ADDING = ("add", "sub", "fma", "mad")
_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})


def float_swaps(program: Program) -> frozenset[int]:
    """The atom.cas of a program that store a sum of floats."""
    swaps = [pc for pc, one in enumerate(program.instructions) if one is not None and "cas" in one.modifiers]
    if not swaps:
        return frozenset()
    adding = [pc for pc, one in enumerate(program.instructions) if one is not None and _adds_floats(one)]
    sums = made_of(program, [number for pc in adding for number in program.targets[pc]])
    return frozenset(pc for pc in swaps if not sums.isdisjoint(program.registers_named[pc]))


def _adds_floats(instruction: Instruction) -> bool:
    return instruction.name in _ADDING and not _FLOATS.isdisjoint(instruction.modifiers)


class FloatAdds:
    """The last thread that added to each word; memory in proportion to the arrays that floats were added to."""

    def __init__(self) -> None:
        self._by_array: dict[tuple[int, int], Adders] = {}  # (address, bytes of a word)
        self._by_cluster: WeakKeyDictionary[Cluster, Adders] = WeakKeyDictionary()

    def meet_in_global(self, cluster: Cluster, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> bool:
        """Note these additions; whether one is to a word to which another thread has added."""
        meet = False
        while len(addresses):
            region = cluster.memory.region_at(int(addresses[0]))
            assert region is not None  # the addresses were read before
            key = (region.address, size_bytes)
            if key not in self._by_array:
                self._by_array[key] = np.zeros(len(region.content) // size_bytes + 1, np.int64)
            is_inside = (addresses >= region.address) & (addresses < region.end)
            words = (addresses[is_inside] - region.address) // size_bytes
            meet |= _note(self._by_array[key], words, _threads(cluster, lanes[is_inside]))
            addresses = addresses[~is_inside]
            lanes = lanes[~is_inside]
        return meet

    def meet_in_shared(self, cluster: Cluster, lanes: LaneNumbers, addresses: Addresses) -> bool:
        """The same for words of shared memory, told apart by their first two bytes."""
        if cluster not in self._by_cluster:
            self._by_cluster[cluster] = np.zeros(len(cluster.shared) // 2, np.int64)
        places = (addresses >> SHARED_RANK_SHIFT) * cluster.shared_stride + (addresses & SHARED_OFFSET_MASK)
        return _note(self._by_cluster[cluster], places // 2, _threads(cluster, lanes))


def _threads(cluster: Cluster, lanes: LaneNumbers) -> Adders:
    """Numbers of threads in their grid, from 1 on."""
    width, height, _ = cluster.launch.grid
    x, y, z = cluster.first_block
    return (x + width * (y + height * z)) * cluster.lane_count + lanes + 1


def _note(adders: Adders, words: Addresses, threads: Adders) -> bool:
    before = adders[words]
    adders[words] = threads
    is_of_another = (before != 0) & (before != threads)
    is_overwritten = adders[words] != threads  # by another lane of this instruction
    return bool(is_of_another.any() or is_overwritten.any())
