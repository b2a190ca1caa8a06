"""Changes that weaken synchronization: a barrier, wait, fence, commit or arrival removed, or a wait for less.

bar.sync 0;                                     removed
cp.async.wait_group 1;                          removed; or cp.async.wait_group 2
A: mbarrier.try_wait.parity.b64 p, [m], 0;      passes at once: p is true
   @!p bra A;                                   polls once: the branch back is removed

First each instruction is removed separately, then all instructions of a kind together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.machine.edits.change import Change, MutantKind
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.redundancy import find_redundant_fences
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Immediate, Instruction, Register


class RemovedKind(NamedTuple):
    """A kind of instructions that are removed: its plural for names, and the prefixes of its opcodes."""

    kind: MutantKind
    plural: str
    opcodes: tuple[str, ...]


REMOVED_KINDS = (
    RemovedKind(
        "wait",
        "waits",
        ("cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk.wait_group", "wgmma.wait_group", "tcgen05.wait"),
    ),
    RemovedKind("fence", "fences", ("fence.", "membar.")),
    RemovedKind("wgmma fence", "wgmma fences", ("wgmma.fence",)),
    RemovedKind("tcgen05 fence", "tcgen05 fences", ("tcgen05.fence",)),
    RemovedKind(
        "commit",
        "commits",
        ("cp.async.commit_group", "cp.async.bulk.commit_group", "wgmma.commit_group", "tcgen05.commit"),
    ),
    RemovedKind(
        "barrier",
        "barriers",
        (
            "bar.sync",
            "bar.cta.sync",
            "bar.arrive",
            "bar.cta.arrive",
            "bar.warp.sync",
            "barrier.sync",
            "barrier.cta.sync",
            "barrier.arrive",
            "barrier.cta.arrive",
            "barrier.cluster.",
        ),
    ),
    RemovedKind("arrival", "arrivals", ("mbarrier.arrive", "cp.async.mbarrier.arrive")),
)
_MAX_PENDING_GROUPS = {"wgmma": 7}  # the largest operand of wait_group, where the instruction has a limit


def removals(text: KernelText) -> Iterator[Change]:
    """Each instruction of the table removed separately, except redundant fences; then all of each kind."""
    redundant_starts = find_redundant_fences(text)
    for row in REMOVED_KINDS:
        removable = [
            instruction
            for instruction in text.instructions
            if instruction.opcode.startswith(row.opcodes) and _is_removable(instruction)
        ]
        for instruction in removable:
            if instruction.start in redundant_starts:
                continue
            edit = text.statement(instruction).removed()
            yield Change(row.kind, f"{instruction.opcode} removed", instruction, (edit,))
        if len(removable) > 1:
            edits = tuple(text.statement(instruction).removed() for instruction in removable)
            yield Change(row.kind, f"all {row.plural} removed", None, edits)
    yield from _remove_cluster_barriers(text)


def _is_removable(instruction: Instruction) -> bool:
    """Whether an instruction returns nothing: an arrival may return the token of a phase, which a wait needs."""
    return instruction.name != "mbarrier" or not isinstance(instruction.operands[0], Register)


def _remove_cluster_barriers(text: KernelText) -> Iterator[Change]:
    """Each arrival at the barrier of the cluster, removed together with the wait that follows it."""
    for function in text.functions:
        arrival = None
        for instruction in function.instructions or ():
            if instruction.opcode.startswith("barrier.cluster.arrive"):
                arrival = instruction
            elif instruction.opcode.startswith("barrier.cluster.wait") and arrival is not None:
                edits = (text.statement(arrival).removed(), text.statement(instruction).removed())
                yield Change("barrier", "barrier.cluster.arrive and wait removed", arrival, edits)
                arrival = None


def shorter_waits(text: KernelText) -> Iterator[Change]:
    """Each wait for groups, with one more group left pending."""
    for instruction in text.instructions:
        if "wait_group" not in instruction.modifiers:
            continue
        groups = instruction.operands[-1]
        if isinstance(groups, Immediate) and groups.value < _MAX_PENDING_GROUPS.get(instruction.name, groups.value + 1):
            edit = text.statement(instruction).with_operand(-1, str(groups.value + 1))
            description = f"{instruction.opcode} {groups.value} waits for one group less"
            yield Change("wait", description, instruction, (edit,))


def skipped_wait_loops(text: KernelText) -> Iterator[Change]:
    """Each loop that waits, with polls that pass at once or with a single poll; then all of them."""
    loops = [loop for loops in text.wait_loops.values() for loop in loops]
    polls = [poll for loop in loops for poll in loop.polls]
    branches = [loop.branches[0] for loop in loops if len(loop.branches) == 1]
    for poll in polls:
        yield Change("wait loop", f"{poll.opcode} passes at once", poll, (_pass_poll(text, poll),))
    for branch in branches:
        yield Change("wait loop", "a wait polls once", branch, (text.statement(branch).removed(),))
    if len(polls) > 1:
        edits = tuple(_pass_poll(text, poll) for poll in polls)
        yield Change("wait loop", "all waits for mbarriers pass at once", None, edits)
    if len(branches) > 1:
        edits = tuple(text.statement(branch).removed() for branch in branches)
        yield Change("wait loop", "all waits poll once", None, edits)


def _pass_poll(text: KernelText, poll: Instruction) -> Edit:
    """Replace a poll by an instruction that sets its result to true."""
    statement = text.statement(poll)
    guard = statement.head.rpartition(" ")[0]
    return statement.replaced(f"{guard} setp.eq.u32 {statement.operands[0]}, 0, 0;".lstrip())
