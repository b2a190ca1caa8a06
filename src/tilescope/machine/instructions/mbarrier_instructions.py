"""mbarrier: init, inval, arrive, arrive_drop, expect_tx, complete_tx, test_wait, try_wait, pending_count.

Lanes of one warp at one barrier add up in one change; warps follow each other. A poll answers for what has happened when
it is executed: copies complete as late as allowed, so the first test fails while they are pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.instructions.barrier_unit import (
    BARRIER_BYTES,
    LanesAtBarrier,
    change,
    group_by_barrier,
    initialise,
    invalidate,
    test_phase,
)
from tilescope.machine.instructions.load_store import AddressOf, decode_address, space_of
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Instruction, Operand
from tilescope.sync.access_semantics import MbarrierSemantics
from tilescope.sync.address import SHARED_WINDOW, Addresses, Space, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import MbarrierArrive, MbarrierExpect
from tilescope.sync.mbarrier import Mbarrier
from tilescope.sync.memory_scope import CTA, SCOPE_OF_MODIFIER

Flags = npt.NDArray[np.bool_]
_ARRIVALS = ("arrive", "arrive_drop")
_BYTES = ("expect_tx", "complete_tx")
_WAITS = ("test_wait", "try_wait")
_ACTIONS = ("init", "inval", *_ARRIVALS, *_BYTES, *_WAITS, "pending_count")
_TOKEN_ZERO_BIT = 42  # what any other word has there is no part of a count


def decode_shared_address(assembler: Assembler, operand: Operand, space: Space) -> AddressOf:
    """A function that gives shared addresses, of [base+offset] in shared memory or by generic address.

    `[m]` of a shared variable is a shared address in every form: ptxas makes the same code with and without .shared.
    """
    addresses = decode_address(assembler, operand)
    own_space = space_of(assembler, operand, space)
    if own_space == "shared":
        return addresses
    if own_space != "generic":
        raise RefusedError(f"an address of shared memory is expected, not of .{own_space}")

    def own_addresses(cluster: Cluster, at: Lanes) -> Addresses:
        generic = addresses(cluster, at)
        is_outside = ~is_in_window("shared", generic)
        if is_outside.any():
            first = int(np.argmax(is_outside))
            reason = f"generic address {int(generic[first]):#x}, which is not in shared memory"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, int(cluster.lanes(at)[first]), int(generic[first]))
        return generic - SHARED_WINDOW

    return own_addresses


def _mbarrier(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    action = words.required(_ACTIONS, f"known action: {', '.join(_ACTIONS)}")
    if action in _ARRIVALS:
        return _arrive(assembler, instruction, words, is_drop=action == "arrive_drop")
    if action in _WAITS:
        return _wait(assembler, instruction, words)
    space = words.space()
    words.without_effect()
    words.flag("b64")
    words.done()
    operands = instruction.operands
    if action == "pending_count":
        return _pending_count(assembler, instruction)
    addresses = decode_shared_address(assembler, operands[0], space)
    if action == "inval":
        return _inval(addresses)
    number = assembler.source(operands[1], "u32")
    if action == "init":
        return _init(addresses, number)
    return _count_bytes(addresses, number, is_expected=action == "expect_tx")


def _init(addresses: AddressOf, count: int) -> Step:
    def init(cluster: Cluster, at: Lanes) -> None:
        counts = cluster.registers[count][at].tolist()
        cluster.launch.charge(len(counts))
        for lane, address, arrivals in zip(
            cluster.lanes(at).tolist(), addresses(cluster, at).tolist(), counts, strict=True
        ):
            initialise(cluster, address, arrivals, lane)

    return init


def _inval(addresses: AddressOf) -> Step:
    def inval(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at).tolist()
        cluster.launch.charge(len(lanes))
        for lane, address in zip(lanes, addresses(cluster, at).tolist(), strict=True):
            invalidate(cluster, address, lane)

    return inval


def _count_bytes(addresses: AddressOf, size: int, *, is_expected: bool) -> Step:
    """expect_tx and complete_tx, without an arrival."""

    def count(cluster: Cluster, at: Lanes) -> None:
        for group in _group_lanes(cluster, at, addresses):
            total = _sum_of(cluster, size, group.lanes)
            cluster.emit(MbarrierExpect(cluster.pc, group.lanes, group.address, total, is_completion=not is_expected))
            if is_expected:
                change(cluster, group.address, int(group.lanes[0]), _expect_bytes(total), expected_bytes=total)
            else:
                change(cluster, group.address, int(group.lanes[0]), _complete_bytes(total))

    return count


def _group_lanes(cluster: Cluster, at: Lanes, addresses: AddressOf) -> Iterator[LanesAtBarrier]:
    """Lanes by warp and barrier; an address outside shared memory is a fault before any event."""
    groups = group_by_barrier(cluster.lanes(at), addresses(cluster, at))
    cluster.launch.charge(len(groups))
    for group in groups:
        if group.address not in cluster.mbarriers:
            cluster.require_shared(group.lanes[:1], np.array([group.address]), BARRIER_BYTES)
        yield group


def _expect_bytes(size_bytes: int) -> Callable[[Mbarrier], Mbarrier]:
    return lambda state: state.expect_tx(size_bytes)


def _complete_bytes(size_bytes: int) -> Callable[[Mbarrier], Mbarrier]:
    return lambda state: state.complete_tx(size_bytes)


def _decode_semantics(instruction: Instruction) -> MbarrierSemantics:
    """The order of an arrival or a wait; without a scope it is that of the block."""
    scopes = [SCOPE_OF_MODIFIER[word] for word in instruction.modifiers if word in SCOPE_OF_MODIFIER]
    return MbarrierSemantics("relaxed" in instruction.modifiers, scopes[0] if scopes else CTA, names_scope=bool(scopes))


def _arrive(assembler: Assembler, instruction: Instruction, words: Words, *, is_drop: bool) -> Step:
    """mbarrier.arrive{.expect_tx | .noComplete} state, [barrier]{, count or bytes}."""
    semantics = _decode_semantics(instruction)
    has_bytes = words.flag("expect_tx")
    words.flag("noComplete")
    space = words.space()
    words.without_effect()
    words.flag("b64")
    words.done()
    operands = instruction.operands
    target = assembler.target(operands[0])
    addresses = decode_shared_address(assembler, operands[1], space)
    number = assembler.source(operands[2], "u32") if len(operands) > 2 else None
    if has_bytes and number is None:
        raise RefusedError("arrive.expect_tx needs the number of bytes that it expects")

    def arrive(cluster: Cluster, at: Lanes) -> None:
        for group in _group_lanes(cluster, at, addresses):
            token = _arrive_warp(cluster, group, number, has_bytes=has_bytes, is_drop=is_drop, semantics=semantics)
            if target is not None:
                cluster.registers[target][group.lanes] = np.uint64(token)

    return arrive


def _arrive_warp(
    cluster: Cluster,
    group: LanesAtBarrier,
    number: int | None,
    *,
    has_bytes: bool,
    is_drop: bool,
    semantics: MbarrierSemantics,
) -> int:
    """The arrivals of one warp at one barrier, and their token."""
    arrivals = len(group.lanes)
    size_bytes = 0
    if has_bytes and number is not None:
        size_bytes = _sum_of(cluster, number, group.lanes)
    elif number is not None:
        arrivals = _sum_of(cluster, number, group.lanes)
    next_state = _count_arrivals(arrivals, size_bytes, has_bytes=has_bytes, is_drop=is_drop)
    cluster.emit(MbarrierArrive(cluster.pc, group.lanes, group.address, arrivals, size_bytes, is_drop, semantics))
    return change(cluster, group.address, int(group.lanes[0]), next_state, expected_bytes=size_bytes)


def _count_arrivals(
    arrivals: int, size_bytes: int, *, has_bytes: bool, is_drop: bool
) -> Callable[[Mbarrier], Mbarrier]:
    """The state after a number of arrivals, with their bytes; none at all change nothing."""
    if arrivals == 0:
        return lambda state: state
    if is_drop:
        return lambda state: state.expect_tx(size_bytes).arrive_drop(arrivals)
    if has_bytes and arrivals == 1:
        return lambda state: state.arrive_expect_tx(size_bytes)
    return lambda state: state.expect_tx(size_bytes).arrive(arrivals)


def _sum_of(cluster: Cluster, register: int, lanes: LaneNumbers) -> int:
    return int(cluster.registers[register][lanes].astype(np.uint64).sum())


def _wait(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    """test_wait and try_wait, by the token of an arrival or by the parity of a phase. The time of a try_wait means nothing."""
    semantics = _decode_semantics(instruction)
    has_parity = words.flag("parity")
    space = words.space()
    words.without_effect()
    words.flag("b64")
    words.done()
    operands = instruction.operands
    target = assembler.target(operands[0])
    addresses = decode_shared_address(assembler, operands[1], space)
    phase = assembler.source(operands[2], "u32" if has_parity else "b64")
    phase_bit = 0 if has_parity else 63

    def wait(cluster: Cluster, at: Lanes) -> None:
        barriers = addresses(cluster, at)
        phase_words = cluster.registers[phase][at].astype(np.uint64)
        phases = phase_words >> np.uint64(phase_bit) & np.uint64(1)
        passed = _test_lanes(cluster, at, barriers, phases, semantics)
        if target is not None:
            cluster.registers[target][at] = passed

    return wait


def _test_lanes(
    cluster: Cluster, at: Lanes, addresses: Addresses, phases: Values, semantics: MbarrierSemantics
) -> Flags:
    """For each lane, whether the phase that it tests has completed."""
    questions = addresses * 2 + phases.astype(np.int64)
    lanes = cluster.lanes(at)
    if (questions == questions[0]).all():
        return test_phase(cluster, int(addresses[0]), lanes, parity=int(phases[0]), semantics=semantics)
    passed = np.zeros(len(addresses), np.bool_)
    is_open = np.ones(len(addresses), np.bool_)
    while is_open.any():
        first = int(np.argmax(is_open))
        is_asked = questions == questions[first]
        address = int(addresses[first])
        parity = int(phases[first])
        asking_lanes = lanes[is_asked]
        passed[is_asked] = test_phase(cluster, address, asking_lanes, parity=parity, semantics=semantics)
        is_open &= ~is_asked
        cluster.launch.charge(int(is_open.any()) + 1)
    return passed


def _pending_count(assembler: Assembler, instruction: Instruction) -> Step:
    """mbarrier.pending_count count, token: the arrivals that were missing before the one that gave the token."""
    target = assembler.written(instruction.operands[0])
    token = assembler.source(instruction.operands[1], "b64")

    def count(cluster: Cluster, at: Lanes) -> None:
        tokens = cluster.registers[token][at].astype(np.uint64) & ~np.uint64(1 << _TOKEN_ZERO_BIT)
        counts = [Mbarrier.decode_token(word).pending for word in tokens.tolist()]
        cluster.registers[target][at] = np.array(counts, np.uint32)

    return count


FAMILIES: dict[str, Decoder] = {"mbarrier": _mbarrier}
