"""clusterlaunchcontrol: a running cluster takes over the work of one that has not begun (sm_100).

    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [mbarrier];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;

The response of 16 bytes arrives like a bulk copy. NVIDIA does not document its content; here it is the first block of
the cancelled cluster, and a word that says whether there is one. A request cancels the next cluster that has not
started. With a seed, some requests fail although clusters are left, as if those had just started elsewhere.
"""

from __future__ import annotations

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.pending import Work
from tilescope.machine.instructions.barrier_unit import BARRIER_BYTES, complete_bytes
from tilescope.machine.instructions.mbarrier_instructions import decode_shared_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Instruction
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import AsyncStoreIssued, CopyCompleted

_ANSWER_BYTES = 16
_IS_CANCELED = 3  # the word of the answer after x, y and z
_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}
_CHANCE = 0.7  # with a seed: that a request finds a cluster


def _cluster_launch_control(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    action = words.required(("try_cancel", "query_cancel"), "try_cancel or query_cancel")
    if action == "try_cancel":
        return _try_cancel(assembler, instruction, words)
    return _query_cancel(assembler, instruction, words)


def _try_cancel(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    words.required(("async",), ".async")
    space = words.space()
    words.required(("mbarrier::complete_tx::bytes",), ".mbarrier::complete_tx::bytes")
    to_all = words.flag("multicast::cluster::all")
    words.flag("b128")
    words.done()
    answers = decode_shared_address(assembler, instruction.operands[0], space)
    barriers = decode_shared_address(assembler, instruction.operands[1], space)

    def ask(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        cluster.launch.charge(len(lanes))
        for lane, answer, barrier in zip(
            lanes.tolist(), answers(cluster, at).tolist(), barriers(cluster, at).tolist(), strict=True
        ):
            words_of_answer = _answer(cluster)
            ranks = range(cluster.blocks) if to_all else [int(answer) >> SHARED_RANK_SHIFT]
            for rank in ranks:
                block_start = rank << SHARED_RANK_SHIFT
                target = block_start | int(answer) & SHARED_OFFSET_MASK
                _deliver(cluster, lane, target, block_start | int(barrier) & SHARED_OFFSET_MASK, words_of_answer)

    return ask


def _answer(cluster: Cluster) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The first block of a cluster that will not be started any more, or that there is none."""
    random = cluster.random
    is_unlucky = random is not None and random.random() > _CHANCE
    start = None if is_unlucky else cluster.launch.cancel_cluster()
    return np.array([0, 0, 0, 0] if start is None else [*start, 1], np.uint32)


def _deliver(
    cluster: Cluster, lane: int, target: int, barrier: int, answer: np.ndarray[tuple[int], np.dtype[np.uint32]]
) -> None:
    """Write the answer to one block, and tell its mbarrier."""
    pc = cluster.pc
    cluster.require_shared(np.array([lane]), np.array([target]), _ANSWER_BYTES)
    cluster.require_shared(np.array([lane]), np.array([barrier]), BARRIER_BYTES)
    issue = AsyncStoreIssued(
        pc,
        np.array([lane]),
        cluster.shared_places(np.array([lane]), np.array([target])),
        _ANSWER_BYTES,
        barrier,
        is_by_threads=False,
        reason="clusterlaunchcontrol",
    )
    cluster.emit(issue)

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        cluster.emit(CopyCompleted(pc, issue, _ANSWER_BYTES))
        rank, offset = cluster.split_shared(target)
        cluster.shared_bytes(rank)[offset : offset + _ANSWER_BYTES] = answer.view(np.uint8)
        complete_bytes(cluster, barrier, lane, _ANSWER_BYTES)

    cluster.pending.add(Work("load", pc, np.array([lane]), perform, barrier=barrier))


def _query_cancel(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    question = words.required(("is_canceled", "get_first_ctaid", *_AXES), "is_canceled or get_first_ctaid")
    words.vector()
    words.one_of(("pred", "b32"))
    words.flag("b128")
    words.done()
    target, operand = instruction.operands
    answer = assembler.source(operand, "b128")
    if question == "is_canceled":
        parts = [(assembler.written(target), _IS_CANCELED)]
    elif question in _AXES:
        parts = [(assembler.written(target), _AXES[question])]
    else:
        targets = [assembler.target(element) for element in assembler.vector(target)]
        parts = [(number, axis) for axis, number in enumerate(targets[: len(_AXES)]) if number is not None]
    if not parts:
        raise RefusedError("query_cancel without a register for its result")

    def query(cluster: Cluster, at: Lanes) -> None:
        answer_words = np.ascontiguousarray(cluster.registers[answer][at]).view(np.uint32)
        for number, word in parts:
            register = cluster.registers[number]
            register[at] = answer_words[:, word].astype(register.dtype)

    return query


FAMILIES: dict[str, Decoder] = {"clusterlaunchcontrol": _cluster_launch_control}
