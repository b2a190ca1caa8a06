"""Whether the blocks of a kernel may run in lockstep: its text has no instruction by which blocks wait for each other.

Arithmetic, plain loads and stores, barriers of blocks and warps, products of warps and atomics may stay. Asynchronous copies, mbarriers,
volatile accesses, acquires, clocks and calls of the host are left to blocks that run one after another. So is a lock that a block takes
as a whole: a loop with atom.cas or atom.exch in global memory and a barrier, as Triton compiles `while tl.atomic_cas(lock, 0, 1) == 1`.
Blocks in lockstep would go round that loop, and the block that holds the lock would wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.machine.arithmetic.computed_forms import NAMES
from tilescope.machine.arithmetic.video import SCALAR_NAMES, SIMD_NAMES
from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.decoding.dataflow import find_readers
from tilescope.machine.instructions.control import Branch
from tilescope.machine.program import Program
from tilescope.ptx.syntax import Instruction
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.memory_scope import GPU

_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix"})
_PLAIN = frozenset(
    {
        *NAMES,
        *SCALAR_NAMES,
        *SIMD_NAMES,
        "mov",
        "cvta",
        "createpolicy",
        "movmatrix",
        "mma",
        "shfl",
        "vote",
        "match",
        "redux",
        "elect",
        "activemask",
        "bra",
        "brx",
        "ret",
        "exit",
        "prefetch",
        "prefetchu",
        "applypriority",
        "griddepcontrol",
        "pmevent",
    }
)
_DATA_DEPENDENT = frozenset({"brx"})
_BARRIERS = frozenset({"bar", "barrier"})
_EXCHANGES = frozenset({"cas", "exch"})
_COMMUTING = frozenset({"add", "min", "max", "and", "or", "xor"})
_INTEGERS = frozenset({"b32", "b64", "s32", "s64", "u32", "u64"})
_SHARED = frozenset({"shared", "shared::cta"})
_FENCES = frozenset({"fence", "membar"})
_OTHER_FENCES = frozenset({"proxy", "cta", "cluster", "mbarrier_init"})
_WAITS = frozenset({"nanosleep", "call", "trap"})
_ASYNCHRONOUS = frozenset({"bulk", "async"})


def are_blocks_independent(program: Program) -> bool:
    """Whether blocks of a program communicate only through global memory."""
    if program.clock_reads or len(program.functions) > 1:
        return False
    accesses = program.fact(decode_accesses)
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name in _PLAIN:
            continue
        if instruction.name in _ACCESSES:
            if "bulk" in instruction.modifiers or not _is_of_independent_blocks(instruction, accesses[pc]):
                return False
        elif instruction.name in _BARRIERS:
            if not _meets_all_threads(instruction):
                return False
        elif instruction.name not in _FENCES or "proxy" in instruction.modifiers:
            return False
    return not any(_takes_lock(program.instructions[start:end]) for start, end in _find_loops(program))


def do_threads_work_alone(program: Program) -> bool:
    """Whether threads do everything themselves: no copy, product or mbarrier works for them, and each fence reaches the whole grid."""
    accesses = program.fact(decode_accesses)
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name in _PLAIN or instruction.name in _WAITS:
            continue
        words = instruction.modifiers
        if instruction.name in _ACCESSES:
            if accesses[pc] is None or not _ASYNCHRONOUS.isdisjoint(words):
                return False
        elif instruction.name in _FENCES:
            if not _OTHER_FENCES.isdisjoint(words):
                return False
        elif instruction.name not in _BARRIERS or "cluster" in words:
            return False
    return True


def changes_global_words(program: Program) -> bool:
    """Whether a program has atomics in global memory, whose results depend on the order of blocks."""
    return any(
        instruction is not None and instruction.name in ("atom", "red") and _SHARED.isdisjoint(instruction.modifiers)
        for instruction in program.instructions
    )


def do_atomics_commute(program: Program) -> bool:
    """Whether the atomics in global memory leave the same words there in any order: one operation on integers, of unused results."""
    operations: set[tuple[str, ...]] = set()
    for pc, instruction in enumerate(program.instructions):
        if (
            instruction is None
            or instruction.name not in ("atom", "red")
            or not _SHARED.isdisjoint(instruction.modifiers)
        ):
            continue
        operation = tuple(word for word in instruction.modifiers if word in _COMMUTING or word in _INTEGERS)
        if len(operation) != 2 or find_readers(program, program.targets[pc]):
            return False
        operations.add(operation)
    return len(operations) == 1


def _find_loops(program: Program) -> Iterator[tuple[int, int]]:
    """The first instruction of each loop, and the one behind its last."""
    for pc, turn in enumerate(program.turns):
        if isinstance(turn, Branch) and turn.target <= pc:
            yield turn.target, pc + 1


def _takes_lock(loop: Sequence[Instruction | None]) -> bool:
    """Whether a loop exchanges a word of global memory and contains a block barrier."""
    instructions = [instruction for instruction in loop if instruction is not None]
    exchanges = any(
        instruction.name == "atom"
        and not _EXCHANGES.isdisjoint(instruction.modifiers)
        and _SHARED.isdisjoint(instruction.modifiers)
        for instruction in instructions
    )
    return exchanges and any(instruction.name in _BARRIERS for instruction in instructions)


def may_follow_a_leader(program: Program) -> bool:
    """Whether one block of a program may act for all: its barriers and copies do not depend on data, as far as the text tells."""
    if program.clock_reads or len(program.functions) > 1:
        return False
    accesses = program.fact(decode_accesses)
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name in _PLAIN - _DATA_DEPENDENT:
            continue
        if instruction.name in _ACCESSES:
            access = accesses[pc]
            if access is None or access.is_strong or "bulk" in instruction.modifiers:
                return False
        elif not _is_of_leader(instruction):
            return False
    return True


def _is_of_leader(instruction: Instruction) -> bool:
    """Whether the leader of a batch executes an instruction for all blocks."""
    words = instruction.modifiers
    match instruction.name:
        case "wgmma":
            return True
        case "mbarrier":
            return "pending_count" not in words
        case "bar" | "barrier":
            return "red" not in words and "cluster" not in words
        case "fence" | "membar":
            return "tensormap::generic" not in words
        case "cp":
            is_group = "commit_group" in words or "wait_group" in words
            is_copy = "tensor" in words and "multicast::cluster" not in words and "prefetch" not in words
            return "bulk" in words and (is_group or is_copy)
        case _:
            return instruction.name == "setmaxnreg"


def _is_of_independent_blocks(instruction: Instruction, access: AccessSemantics | None) -> bool:
    """Whether an access is plain, or an atomic that all blocks of the grid see."""
    if access is None or not access.is_strong:
        return access is not None
    return access.kind == "atomic" and (access.scope == GPU or not _SHARED.isdisjoint(instruction.modifiers))


def _meets_all_threads(instruction: Instruction) -> bool:
    """Whether a barrier is one of a warp, or of all threads of a block."""
    words = instruction.modifiers
    if "warp" in words:
        return True
    return "sync" in words and "cluster" not in words and len(instruction.operands) == 1
