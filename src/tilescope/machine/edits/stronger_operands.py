"""Corrections of synchronization that is there but too weak: a wait for fewer groups, a narrow scope, a small count.

cp.async.wait_group 2;                          1, 0 groups may stay pending
fence.acq_rel.cta;                              .cluster or .gpu, if two blocks synchronize
mbarrier.arrive.release.cta.shared::cluster     .cluster
bar.sync 1, 64;                                 128, as many threads as execute it
mbarrier.init.shared.b64 [empty], 1;            128, as many threads as arrive

All instructions that a compiler made of one source line are corrected together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.arch import WARP_LANES
from tilescope.machine.edits.conflict_site import BLOCK_BARRIER_OPCODES, ConflictSite
from tilescope.machine.edits.operand_changes import add_to_last_operand
from tilescope.machine.edits.slot_stride import RegisterDefinitions
from tilescope.machine.program import Program
from tilescope.machine.report.places import find_function
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Immediate, Instruction
from tilescope.sentence import counted
from tilescope.sync.detector.race import Correction
from tilescope.sync.memory_scope import CLUSTER, GPU, SCOPE_OF_MODIFIER

Corrections = tuple[Correction, ...]

_MAX_GROUPS = 8  # the smaller numbers of groups that are tried
_MAX_ALONE = 4  # instructions whose scope is widened separately
_SYNCHRONIZING = ("fence", "membar", "ld", "st", "atom", "red", "mbarrier")
_MBARRIER_SEMANTICS = {"arrive": "release", "arrive_drop": "release", "test_wait": "acquire", "try_wait": "acquire"}
_BEFORE_SEMANTICS = frozenset({*_MBARRIER_SEMANTICS, "expect_tx", "parity"})  # modifiers that precede .sem.scope
_ARRIVALS = ("mbarrier.arrive", "cp.async.mbarrier.arrive.noinc")


def smaller_waits(site: ConflictSite, opcode: str) -> Iterator[Corrections]:
    """Existing waits for groups, with fewer groups that stay pending: the nearest wait before the access first.

    A wait in a loop that the access follows is not changed: the last groups are waited for after the loop.
    """
    waits: dict[tuple[int, ...], int] = {}
    body = site.function_body(site.now.pc)
    nearest = sorted(body, key=lambda pc: (pc > site.now.pc, abs(site.now.pc - pc)))
    for pc in nearest:
        instruction = site.program.instructions[pc]
        if instruction is None or not instruction.opcode.startswith(opcode):
            continue
        groups = instruction.operands[-1]
        if isinstance(groups, Immediate) and groups.value > 0 and site.shares_loops(pc, site.now.pc):
            waits.setdefault(tuple(site.copies(pc)), groups.value)
    for pcs, groups_left in waits.items():
        for fewer in range(groups_left - 1, max(-1, groups_left - 1 - _MAX_GROUPS), -1):
            yield tuple(_replace_operand(site, pc, str(fewer)) for pc in pcs)


def wider_scopes(site: ConflictSite) -> Iterator[Corrections]:
    """Instructions with a scope that does not include the other block: each source line separately, then all of them."""
    needed = GPU if site.conflict.is_between_clusters else CLUSTER
    narrow: dict[tuple[int, ...], None] = {}
    for pc, instruction in enumerate(site.program.instructions):
        if instruction is not None and _widened_opcode(instruction, needed) is not None:
            narrow.setdefault(tuple(site.copies(pc)))
    widened = [_widen_scopes(site, pcs, needed) for pcs in narrow]
    yield from widened[:_MAX_ALONE]
    if len(widened) > 1:
        yield tuple(sorted({correction for corrections in widened for correction in corrections}, key=_position))


def _position(correction: Correction) -> int:
    return correction.start


def _widen_scopes(site: ConflictSite, pcs: Sequence[int], needed: int) -> Corrections:
    corrections = []
    for pc in pcs:
        instruction = site.instruction(pc)
        opcode = _widened_opcode(instruction, needed)
        statement = site.text.statement(instruction)
        if opcode is not None:
            guard = statement.head.rpartition(" ")[0]
            head = f"{guard} {opcode}".lstrip()
            changed = statement._replace(head=head)
            corrections.append(_correct(pc, statement.replaced(changed.written)))
    return tuple(corrections)


def _widened_opcode(instruction: Instruction, needed: int) -> str | None:
    """The opcode with a scope that is wide enough; None if it is, or the instruction has no scope.

    >>> from tilescope.ptx.syntax import Sink
    >>> def opcode(name, *modifiers):
    ...     return _widened_opcode(Instruction(name, modifiers, (), None, 1, None, ""), GPU)
    >>> opcode("fence", "acq_rel", "cta"), opcode("membar", "cta"), opcode("ld", "acquire", "gpu", "u32")
    ('fence.acq_rel.gpu', 'membar.gl', None)
    >>> opcode("mbarrier", "try_wait", "parity", "shared::cta", "b64")
    'mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64'
    """
    if instruction.name not in _SYNCHRONIZING:
        return None
    is_mbarrier = instruction.name == "mbarrier"
    scope = CLUSTER if is_mbarrier else needed  # an mbarrier is never used outside its cluster
    name = {CLUSTER: "cluster", GPU: "gpu"}[scope]
    if instruction.name == "membar":
        return "membar.gl" if "cta" in instruction.modifiers else None
    named = [word for word in instruction.modifiers if word in SCOPE_OF_MODIFIER]
    if named:
        if SCOPE_OF_MODIFIER[named[0]] >= scope:
            return None
        return ".".join((instruction.name, *(name if word == named[0] else word for word in instruction.modifiers)))
    if not is_mbarrier or instruction.modifiers[0] not in _MBARRIER_SEMANTICS:
        return None
    semantics = _MBARRIER_SEMANTICS[instruction.modifiers[0]]
    first = [word for word in instruction.modifiers if word in _BEFORE_SEMANTICS]
    rest = [word for word in instruction.modifiers if word not in _BEFORE_SEMANTICS]
    return ".".join((instruction.name, *first, semantics, name, *rest))


def names_counts(program: Program) -> bool:
    """Whether a barrier of the program names how many threads it waits for, or an mbarrier how many arrivals."""
    return any(
        instruction is not None
        and (barrier_threads(instruction) is not None or instruction.opcode.startswith("mbarrier.init"))
        for instruction in program.instructions
    )


def larger_barriers(site: ConflictSite) -> Iterator[Corrections]:
    """bar.sync with the number of threads that execute it, where it waits for fewer."""
    for pc in range(*sorted((site.before.pc, site.now.pc + 1))):
        instruction = site.program.instructions[pc]
        threads = None if instruction is None else barrier_threads(instruction)
        if instruction is None or threads is None:
            continue
        arriving = site.convergence.threads_at(pc)
        if arriving is not None and arriving > threads and arriving % WARP_LANES == 0:
            yield tuple(
                _replace_operand(site, other, str(arriving))
                for other in equal_barriers(site.program.instructions, instruction)
            )


def barrier_threads(instruction: Instruction) -> int | None:
    """The number of threads that a barrier of a block waits for; None if it names none, or is another instruction."""
    is_barrier = instruction.opcode.startswith((*BLOCK_BARRIER_OPCODES, "bar.arrive", "barrier.arrive"))
    if not is_barrier or len(instruction.operands) < 2:
        return None
    threads = instruction.operands[1]
    return threads.value if isinstance(threads, Immediate) else None


def equal_barriers(instructions: Sequence[Instruction | None], barrier: Instruction) -> list[int]:
    """The instructions at the same barrier that wait for the same number of threads."""
    return [
        pc
        for pc, other in enumerate(instructions)
        if other is not None and barrier_threads(other) is not None and other.operands == barrier.operands
    ]


def larger_counts(site: ConflictSite) -> Iterator[Corrections]:
    """mbarrier.init with as many arrivals as threads execute an arrival, where it counts fewer."""
    arriving = set()
    for pc, instruction in enumerate(site.program.instructions):
        if instruction is not None and instruction.guard is None and instruction.opcode.startswith(_ARRIVALS):
            arriving.add(site.convergence.threads_at(pc))
    definitions = {function.name: RegisterDefinitions(function) for function in site.text.functions}
    for pc, instruction in enumerate(site.program.instructions):
        if instruction is None or not instruction.opcode.startswith("mbarrier.init"):
            continue
        count = definitions[find_function(site.program, pc)].constant(instruction.operands[-1])
        for threads in sorted(threads for threads in arriving if threads is not None):
            if count is not None and count < threads:
                yield tuple(_count_arrivals(site, other, count, threads) for other in site.copies(pc))


def _count_arrivals(site: ConflictSite, pc: int, count: int, threads: int) -> Correction:
    edit = add_to_last_operand(site.text, site.instruction(pc), threads - count)
    return _correct(pc, edit, counted(threads, "arrival"))


def _replace_operand(site: ConflictSite, pc: int, operand: str) -> Correction:
    """An instruction with another last operand."""
    return _correct(pc, site.text.statement(site.instruction(pc)).with_operand(-1, operand))


def _correct(pc: int, edit: Edit, number: str | None = None) -> Correction:
    text = edit.text.rstrip("\n")
    return Correction(f"`{text}`" if number is None else number, pc, text, edit.start, edit.end)
