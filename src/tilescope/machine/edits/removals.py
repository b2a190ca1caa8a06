"""Instructions that order something, taken out one by one and all of a kind; waits that wait for less.

bar.sync 0;                                     removed
cp.async.wait_group 1;                          removed; or cp.async.wait_group 2
A: mbarrier.try_wait.parity.b64 p, [m], 0;      passes at once: p is true
   @!p bra A;                                   polls once: the branch back is removed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilescope.machine.edits.change import Change, KernelText, MutantKind
from tilescope.machine.edits.redundancy import redundant_fences
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Function, Immediate, Instruction, Label, Register


class RemovedKind(NamedTuple):
    """Instructions that are removed: how their opcodes begin, and what all of them are called."""

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
_LONGEST_WAIT_LOOP = 64  # instructions
_MOST_GROUPS = {"wgmma": 7}  # that a wait may leave under way, where the instruction has a limit
_POLLS = ("mbarrier.try_wait", "mbarrier.test_wait", "ld.volatile", "ld.relaxed", "ld.acquire")
_WORK = frozenset(
    {
        "st",
        "red",
        "atom",
        "cp",
        "wgmma",
        "mma",
        "wmma",
        "tcgen05",
        "ldmatrix",
        "stmatrix",
        "bar",
        "barrier",
        "mbarrier",
        "fence",
        "membar",
    }
    | {"call", "tensormap", "multimem", "setmaxnreg"}
)  # a loop with one of these does more than wait


class WaitLoop(NamedTuple):
    """A loop that does nothing but wait: the branches back, and the polls of mbarriers in it."""

    branches: tuple[Instruction, ...]
    polls: tuple[Instruction, ...]


def removals(text: KernelText) -> Iterator[Change]:
    """Every instruction of the table, removed alone, but for fences that are redundant; then all of each kind."""
    redundant = redundant_fences(text)
    for row in REMOVED_KINDS:
        found = [one for one in text.instructions if one.opcode.startswith(row.opcodes) and _is_removable(one)]
        for instruction in found:
            if instruction.start in redundant:
                continue
            edit = text.statement(instruction).removed()
            yield Change(row.kind, f"{instruction.opcode} removed", instruction, (edit,))
        if len(found) > 1:
            edits = tuple(text.statement(one).removed() for one in found)
            yield Change(row.kind, f"all {row.plural} removed", None, edits)
    yield from _cluster_barriers(text)


def _is_removable(instruction: Instruction) -> bool:
    """Whether no other instruction needs a result of it: an arrival may return the token of a phase."""
    return instruction.name != "mbarrier" or not isinstance(instruction.operands[0], Register)


def _cluster_barriers(text: KernelText) -> Iterator[Change]:
    """An arrival at the cluster's barrier together with the wait that follows it."""
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
    """Every wait for groups, with one more group left under way."""
    for instruction in text.instructions:
        if "wait_group" not in instruction.modifiers:
            continue
        groups = instruction.operands[-1]
        if isinstance(groups, Immediate) and groups.value < _MOST_GROUPS.get(instruction.name, groups.value + 1):
            edit = text.statement(instruction).with_operand(-1, str(groups.value + 1))
            what = f"{instruction.opcode} {groups.value} waits for one group less"
            yield Change("wait", what, instruction, (edit,))


def wait_loops(text: KernelText) -> Iterator[Change]:
    """Every loop that waits: its polls pass at once, or it polls once; then all of them."""
    loops = [loop for function in text.functions for loop in waiting(function)]
    polls = [poll for loop in loops for poll in loop.polls]
    branches = [loop.branches[0] for loop in loops if len(loop.branches) == 1]
    for poll in polls:
        yield Change("wait loop", f"{poll.opcode} passes at once", poll, (_passes(text, poll),))
    for branch in branches:
        yield Change("wait loop", "a wait polls once", branch, (text.statement(branch).removed(),))
    if len(polls) > 1:
        edits = tuple(_passes(text, poll) for poll in polls)
        yield Change("wait loop", "all waits for mbarriers pass at once", None, edits)
    if len(branches) > 1:
        edits = tuple(text.statement(branch).removed() for branch in branches)
        yield Change("wait loop", "all waits poll once", None, edits)


def _passes(text: KernelText, poll: Instruction) -> Edit:
    """Write the answer of a poll that passes in its place."""
    statement = text.statement(poll)
    guard = statement.head.rpartition(" ")[0]
    return statement.replaced(f"{guard} setp.eq.u32 {statement.operands[0]}, 0, 0;".lstrip())


def waiting(function: Function) -> Iterator[WaitLoop]:
    """The loops of a function that only wait: for an mbarrier, or for a flag in memory.

    >>> from tilescope.ptx import read_module
    >>> module = read_module('''.version 8.0 .target sm_90 .entry k() {
    ...     .reg .b32 %r; .reg .pred p; .shared .b64 full;
    ...     A: mbarrier.try_wait.parity.shared.b64 p, [full], 0;
    ...     @!p bra A; }''')
    >>> [branch.text for loop in waiting(module.functions["k"]) for branch in loop.branches]
    ['@!p bra A']
    """
    instructions = function.instructions or ()
    loops = _loops(instructions)
    for start, ends in sorted(loops.items()):
        body = instructions[start : ends[-1]]
        polls = [one for one in body if _is_poll(one)]
        does_more = any(one.name in _WORK and one not in polls for one in body)
        has_inner_loop = any(start < other < ends[-1] for other in loops)
        if polls and not does_more and not has_inner_loop:
            branches = tuple(instructions[end] for end in ends)
            yield WaitLoop(branches, tuple(one for one in polls if one.name == "mbarrier"))


def _is_poll(instruction: Instruction) -> bool:
    """Whether an instruction asks how far others are: the phase of an mbarrier, a flag, or a lock that it takes if it can."""
    if instruction.opcode.startswith("atom.") and "cas" in instruction.modifiers:
        return all(isinstance(one, Immediate) for one in instruction.operands[2:])
    return instruction.opcode.startswith(_POLLS)


def _loops(instructions: Sequence[Instruction]) -> dict[int, list[int]]:
    """Short loops: where each starts, and the branches that lead back to it."""
    loops: dict[int, list[int]] = {}
    for number, branch in enumerate(instructions):
        target = branch.operands[0] if branch.name == "bra" else None
        if isinstance(target, Label) and number - _LONGEST_WAIT_LOOP <= target.target < number:
            loops.setdefault(target.target, []).append(number)
    return loops
