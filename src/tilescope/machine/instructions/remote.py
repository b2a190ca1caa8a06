"""Stores and reductions that arrive later, in the shared memory of a block of the cluster: st.async and red.async.

    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [a], %r1, [barrier];

The value is that of the moment; it is written at any time before the mbarrier, which is in the same block, has counted its
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.execution.pending import Work
from tilescope.machine.instructions.atomics import change_of, changed_words
from tilescope.machine.instructions.barrier_unit import BARRIER_BYTES, complete_bytes
from tilescope.machine.instructions.load_store import AddressOf
from tilescope.machine.instructions.mbarrier_instructions import decode_shared_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import DTYPE_OF_BITS, Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction
from tilescope.sentence import counted
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import AsyncStoreIssued, CopyCompleted

Write = Callable[[Cluster, LaneNumbers, Addresses, Values], None]

_REDUCTIONS: dict[str, tuple[str, ...]] = {
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
    "add": ("u32", "s32", "u64"),
}


class Delivery(NamedTuple):
    """Pending values: one row per lane, with the lane's target and mbarrier."""

    lanes: LaneNumbers
    addresses: Addresses
    barriers: Addresses
    values: Values

    @property
    def size_bytes(self) -> int:
        """Bytes of one lane."""
        columns: int = self.values.shape[1]
        return columns * self.values.dtype.itemsize

    def of(self, chosen: npt.NDArray[np.bool_]) -> Delivery:
        """The part of some lanes."""
        return Delivery(self.lanes[chosen], self.addresses[chosen], self.barriers[chosen], self.values[chosen])


def _st_async(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    addresses, barriers = _ends(assembler, instruction, words)
    count = words.vector()
    type_name = words.required(_types(32, 64), "type of 32 or 64 bits")
    words.done()
    elements = assembler.vector(instruction.operands[1])
    if len(elements) != count:
        raise RefusedError(f"{counted(count, 'register')} expected, not {len(elements)}")
    numbers = tuple(assembler.source(element, type_name) for element in elements)
    dtype = DTYPE_OF_BITS[BITS_OF_TYPE[type_name]]

    def write(cluster: Cluster, lanes: LaneNumbers, places: Addresses, values: Values) -> None:
        cluster.store("shared", lanes, places, values if count > 1 else values[:, 0])

    def store(cluster: Cluster, at: Lanes) -> None:
        values = cluster.stacked(numbers, at).astype(dtype)
        _issue(cluster, Delivery(cluster.lanes(at), addresses(cluster, at), barriers(cluster, at), values), write)

    return store


def _red_async(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    addresses, barriers = _ends(assembler, instruction, words)
    name = words.required(_REDUCTIONS, "operation")
    type_name = words.required(_REDUCTIONS[name], f"type that .{name} has")
    words.done()
    number = assembler.source(instruction.operands[1], type_name)
    dtype = DTYPE_OF_BITS[BITS_OF_TYPE[type_name]]
    change = change_of(name, type_name)

    def write(cluster: Cluster, lanes: LaneNumbers, places: Addresses, values: Values) -> None:
        old = cluster.load("shared", lanes, places, dtype)
        outcome = changed_words(change, change.in_shared, places, old, [values[:, 0]])
        cluster.store("shared", lanes[outcome.first], places[outcome.first], outcome.after)

    def reduce_words(cluster: Cluster, at: Lanes) -> None:
        values = cluster.stacked((number,), at).astype(dtype)
        _issue(cluster, Delivery(cluster.lanes(at), addresses(cluster, at), barriers(cluster, at), values), write)

    return reduce_words


def _types(*widths_bits: int) -> tuple[str, ...]:
    return tuple(name for name, bits in BITS_OF_TYPE.items() if bits in widths_bits)


def _ends(assembler: Assembler, instruction: Instruction, words: Words) -> tuple[AddressOf, AddressOf]:
    """Where the value goes, and the mbarrier that counts its bytes."""
    words.flag("async")
    if words.flag("release"):
        raise RefusedError(f"{instruction.opcode} writes global memory, which no architecture before sm_100 does")
    words.flag("mbarrier::complete_tx::bytes")
    space = words.space()
    words.without_effect()
    address, _, barrier = instruction.operands
    return (
        decode_shared_address(assembler, address, space),
        decode_shared_address(assembler, barrier, space),
    )


def _issue(cluster: Cluster, delivery: Delivery, write: Write) -> None:
    """One piece of work for all lanes that report to the same mbarrier. Addresses that are wrong fault at once."""
    cluster.require_shared(delivery.lanes, delivery.addresses, delivery.size_bytes)
    cluster.require_shared(delivery.lanes, delivery.barriers, BARRIER_BYTES)
    for barrier in np.unique(delivery.barriers).tolist():
        part = delivery.of(delivery.barriers == barrier)
        issue = AsyncStoreIssued(
            cluster.pc,
            part.lanes,
            cluster.shared_places(part.lanes, part.addresses),
            part.size_bytes,
            barrier,
            is_by_threads=True,
            reason="a store or reduction that arrives later",
        )
        cluster.emit(issue)
        cluster.pending.add(
            Work("load", cluster.pc, part.lanes, _make_delivery(cluster, part, write, issue), barrier=barrier)
        )


def _make_delivery(
    cluster: Cluster, delivery: Delivery, write: Write, issue: AsyncStoreIssued
) -> Callable[[LaneNumbers], None]:
    """What is done when the values arrive."""
    pc = cluster.pc

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        cluster.emit(CopyCompleted(pc, issue, delivery.size_bytes * len(lanes)))
        part = delivery.of(np.isin(delivery.lanes, lanes))
        write(cluster, part.lanes, part.addresses, part.values)
        complete_bytes(cluster, int(part.barriers[0]), int(lanes[0]), part.size_bytes * len(lanes))

    return perform


FAMILIES: dict[str, Decoder] = {"st.async": _st_async, "red.async": _red_async}
