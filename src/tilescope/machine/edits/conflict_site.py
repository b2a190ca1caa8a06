"""The places next to and between the two accesses of a conflict, where a barrier, a wait or a fence can be inserted.

    st.shared.u32 [%r1], %r2;        the earlier access: a barrier may follow it
    @%p1 bra $skip;                  … be before a branch or a label between the two
    ld.shared.u32 %r3, [%r4];        the later access: … or precede it

A compiler unrolls a source line to several instructions. They are one place of the source, so all of them are edited together.
Barriers are only inserted where all threads that they wait for arrive (convergence.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple

from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.edits.converged_places import JUMPS, Convergence, is_straight
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.races.conflict_groups import is_in_one_warp
from tilescope.ptx.syntax import Immediate, Instruction, Label
from tilescope.sync.detector.race import Conflict, Insertion, Side

Spot = tuple[Literal["before", "behind"], int]  # next to an instruction, by its pc
IsConverged = Callable[[int], bool]  # whether all threads of a barrier execute an instruction, by its pc

BLOCK_BARRIER = "bar.sync 0;"
_SYNCHRONIZING = ("bar", "barrier", "cp", "mbarrier", "wgmma")
BLOCK_BARRIER_OPCODES = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
WAIT_LOOP = (
    "{{ .reg .pred tilescope_seen; tilescope_wait:"
    " mbarrier.try_wait.parity.shared::cta.b64 tilescope_seen, {barrier}, {parity}; @!tilescope_seen bra tilescope_wait; }}"
)
_MAX_JOINS = 4
_MAX_FLAGS = 3  # accesses of flags next to which a fence is tried
_MAX_WAITS = 8


class AccessPair(NamedTuple):
    """The instructions of two accesses, the earlier one first."""

    before: int
    now: int


class NamedBarrier(NamedTuple):
    """A barrier of a block: its text, and the number of threads that it waits for, None if all threads of the block."""

    text: str
    threads: int | None


class ConflictSite:
    """A conflict in its program: its two accesses, their unrolled copies, and the control flow between them."""

    def __init__(
        self, launch: Launch, text: KernelText, conflict: Conflict, converge: Callable[[], Convergence]
    ) -> None:
        self.launch = launch
        self.text = text
        self.program: Program = launch.program
        self.conflict = conflict
        self.now: Side = conflict.now
        self._converge = converge

    @property
    def before(self) -> Side:
        """The earlier access; a conflict at the end of a block has none."""
        assert self.conflict.before is not None
        return self.conflict.before

    @property
    def convergence(self) -> Convergence:
        """Which threads reach which places."""
        return self._converge()

    def instruction(self, pc: int) -> Instruction:
        """The instruction of an access."""
        instruction = self.program.instructions[pc]
        assert instruction is not None  # the implicit return at the end of a body accesses nothing
        return instruction

    @property
    def is_in_one_warp(self) -> bool:
        """Whether lanes of one warp make both accesses."""
        return is_in_one_warp(self.conflict)

    @property
    def is_between_blocks(self) -> bool:
        """Whether two blocks make the accesses."""
        before, now = self.before.lane, self.now.lane
        if self.conflict.is_between_clusters:
            return True
        block_lanes = self.launch.block_lanes
        return before is not None and now is not None and before // block_lanes != now // block_lanes

    def block_barriers(self) -> list[NamedBarrier]:
        """Barriers of the block: the nearest one of the text, then bar.sync 0."""
        return list(dict.fromkeys((self._nearest_barrier(), NamedBarrier(BLOCK_BARRIER, None))))

    def _nearest_barrier(self) -> NamedBarrier:
        """The nearest barrier of the text: specialized warps use their own one, such as bar.sync 1, 128."""
        near = sorted(self.function_body(self.now.pc), key=lambda pc: abs(pc - self.now.pc))
        for pc in near:
            instruction = self.program.instructions[pc]
            if instruction is None or instruction.guard is not None:
                continue
            numbers = [operand.value for operand in instruction.operands if isinstance(operand, Immediate)]
            is_fixed = len(numbers) == len(instruction.operands)
            if is_fixed and instruction.opcode.startswith(BLOCK_BARRIER_OPCODES):
                return NamedBarrier(self.text.statement(instruction).written, numbers[1] if len(numbers) > 1 else None)
        return NamedBarrier(BLOCK_BARRIER, None)

    def has_instruction(self, opcode: str) -> bool:
        """Whether the program contains an instruction whose opcode starts so."""
        return any(
            instruction is not None and instruction.opcode.startswith(opcode)
            for instruction in self.program.instructions
        )

    # ---- unrolled copies

    def copies(self, pc: int) -> list[int]:
        """The instructions with the same opcode and source line; without a source line, only the instruction."""
        first = self.instruction(pc)
        if first.source is None:
            return [pc]
        return [
            other
            for other in self.function_body(pc)
            if (instruction := self.program.instructions[other]) is not None
            and instruction.source == first.source
            and instruction.opcode == first.opcode
        ]

    @cached_property
    def pairs(self) -> list[AccessPair]:
        """The two accesses of the conflict, then the pairs of their unrolled copies that follow one another."""
        conflict_pair = AccessPair(self.before.pc, self.now.pc)
        if conflict_pair.before not in self.function_body(conflict_pair.now):
            return [conflict_pair]
        earlier = self.copies(conflict_pair.before)
        pairs = [conflict_pair]
        for now in self.copies(conflict_pair.now):
            previous = [pc for pc in earlier if pc < now] or self._later_in_loop(earlier, now)
            if previous and not any(self._is_covered(pair, previous[-1], now) for pair in pairs):
                pairs.append(AccessPair(previous[-1], now))
        return pairs

    def _is_covered(self, pair: AccessPair, before: int, now: int) -> bool:
        """Whether a place before the later access of a pair is also before another access that follows it straight on.

        Copies of a loop body that was unrolled have other accesses or synchronization between them: the place before the line is then
        a place before each of them.
        """
        if pair.now == now:
            return True
        between = range(pair.now + 1, now)
        return pair.before == before and pair.now < now and not any(self._separates(pc, now) for pc in between)

    def _separates(self, pc: int, copy: int) -> bool:
        """Whether an instruction is a jump, or accesses memory or synchronizes for another source line than a copy of one."""
        if self._is_jump(pc):
            return True
        instruction = self.instruction(pc)
        if instruction.source is None or instruction.source == self.instruction(copy).source:
            return False
        return self.program.fact(decode_accesses)[pc] is not None or instruction.name in _SYNCHRONIZING

    def _later_in_loop(self, pcs: list[int], now: int) -> list[int]:
        """Those of some instructions that a loop around another one executes after it."""
        loops = [
            (target, branch) for branch, target in self._branches(self.function_body(now)) if target <= now <= branch
        ]
        return [pc for pc in pcs if any(target <= pc <= branch for target, branch in loops)]

    def last_unrolled(self, pc: int) -> int:
        """The last instruction that the same source line was unrolled to, before the next branch."""
        first = self.instruction(pc)
        last = pc
        for later in range(pc + 1, self.function_body(pc).stop):
            instruction = self.program.instructions[later]
            if instruction is None or instruction.name in JUMPS or first.source is None:
                break
            if instruction.name == first.name and instruction.source == first.source:
                last = later
        return last

    # ---- places

    def insertions(self, text: str, is_converged: IsConverged | None = None) -> Iterator[tuple[Insertion, ...]]:
        """An instruction at each of the places between the two accesses, and at the same place of their unrolled copies."""
        spots_of_pairs = [self._spots(pair, is_converged) for pair in self.pairs]
        for number, first_spot in enumerate(spots_of_pairs[0]):
            spots = [first_spot]
            for others in spots_of_pairs[1:]:
                spots += [others[min(number, len(others) - 1)]] if others else []
            yield tuple(Insertion(text, *spot) for spot in sorted(dict.fromkeys(spots), key=lambda spot: spot[1]))

    def warp_barriers(self) -> Iterator[tuple[Insertion, ...]]:
        """bar.warp.sync with the lanes that reach a place."""
        for insertions in self.insertions("", lambda pc: self.convergence.warp_mask(pc) is not None):
            masks = [
                self.convergence.warp_mask(self._place_pc((insertion.place, insertion.pc))) for insertion in insertions
            ]
            yield tuple(
                insertion._replace(text=f"bar.warp.sync {mask:#x};")
                for insertion, mask in zip(insertions, masks, strict=True)
            )

    def is_reached(self, barrier: NamedBarrier) -> IsConverged:
        """Whether a barrier may be at a place: all threads that it waits for execute the place."""
        if barrier.threads is not None:
            return lambda pc: self.convergence.threads_at(pc) == barrier.threads
        if self.program.fact(is_straight):
            return lambda pc: pc < len(self.program.instructions)
        if any(self.convergence.is_reached_by_block(pc) for pc in range(*sorted((self.before.pc, self.now.pc + 1)))):
            return self.convergence.is_reached_by_block
        return self.convergence.is_reached_before_exit

    def spots(self) -> list[Spot]:
        """The places between the two accesses of the conflict."""
        return self._spots(self.pairs[0], None)

    def _spots(self, pair: AccessPair, is_converged: IsConverged | None) -> list[Spot]:
        """Places between two accesses: next to them, then where control flow joins or branches."""
        first, second = pair
        spots: list[Spot] = [("before", second), ("behind", self.last_unrolled(first))]
        body = self.function_body(second)
        if first in body:
            joins = self._joins(body, first, second) if first < second else self._loop_ends(body, first, second)
            spots += list(dict.fromkeys(joins))[:_MAX_JOINS]
        if is_converged is None:
            return spots
        converged_spots = [self._move_to_convergence(pair, spot, is_converged) for spot in spots]
        return list(dict.fromkeys(spot for spot in converged_spots if spot is not None))

    def _move_to_convergence(self, pair: AccessPair, spot: Spot, is_converged: IsConverged) -> Spot | None:
        """A place, or the nearest one between the two accesses where threads have not diverged, or have converged again."""
        if is_converged(self._place_pc(spot)):
            return spot
        first, second = pair
        place, pc = spot
        body = self.function_body(second)
        if place == "before":
            lowest = first if first < second and first in body else body.start - 1
            for earlier in range(self.convergence.start_of(pc) - 1, lowest, -1):
                if is_converged(earlier):
                    return ("before" if self._is_jump(earlier) else "behind"), earlier
            return None
        highest = second if first < second and first in body else body.stop - 1
        for later in range(pc + 1, highest + 1):
            if self.convergence.start_of(later) == later and is_converged(later):
                return "before", later
        return None

    def _place_pc(self, spot: Spot) -> int:
        """An instruction of the basic block that a place belongs to: after a branch that is the next one."""
        place, pc = spot
        return pc + 1 if place == "behind" and self._is_jump(pc) else pc

    def _is_jump(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is None or instruction.name in JUMPS

    def function_body(self, pc: int) -> range:
        """The instructions of the function that an instruction belongs to."""
        starts = [*sorted(self.program.functions.values()), len(self.program.instructions)]
        start = max(start for start in starts if start <= pc)
        return range(start, next(end for end in starts if end > pc))

    def _joins(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """Labels and guarded branches between two instructions, the last one first; those in a wait loop count as its end."""
        waits = self._wait_loops(body)
        targets = {target for _, target in self._branches(body)}
        for pc in range(second, first, -1):
            loop = next((wait for wait in waits if pc in wait), None)
            if loop is not None:
                yield "behind", loop[-1]
            elif pc in targets or self._is_guarded_branch(pc):
                yield "before", pc

    def _loop_ends(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """The back edges, and the starts, of the loops that lead from one instruction back to the other."""
        for branch, target in self._branches(body):
            if target <= second and first <= branch:
                yield "before", branch
                yield "before", target

    def _branches(self, body: range) -> Iterator[tuple[int, int]]:
        """(source, target) of each branch of a function."""
        for pc in body:
            instruction = self.program.instructions[pc]
            if instruction is not None and instruction.name == "bra":
                target = instruction.operands[0]
                assert isinstance(target, Label)
                yield pc, body.start + target.target

    def _is_guarded_branch(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is not None and instruction.name == "bra" and instruction.guard is not None

    def _wait_loops(self, body: range) -> list[range]:
        """The loops of a function that only wait, as ranges of pcs."""
        name = next(name for name, start in self.program.functions.items() if start == body.start)
        ends = {branch.start for loop in self.text.wait_loops[name] for branch in loop.branches}
        return [
            range(target, pc + 1)
            for pc, target in self._branches(body)
            if target <= pc and self.instruction(pc).start in ends
        ]

    def is_in_loop(self, pc: int) -> bool:
        """Whether an instruction is in a loop."""
        return any(target <= pc <= branch for branch, target in self._branches(self.function_body(pc)))

    def shares_loops(self, pc: int, other: int) -> bool:
        """Whether all loops around an instruction are also around another one."""
        loops = [
            (target, branch) for branch, target in self._branches(self.function_body(pc)) if target <= pc <= branch
        ]
        return all(target <= other <= branch for target, branch in loops)

    # ---- instructions that exist already

    def last_barrier(self) -> int | None:
        """The last barrier of the block between the two accesses."""
        for pc in range(self.now.pc - 1, self.before.pc, -1):
            instruction = self.program.instructions[pc]
            if instruction is not None and instruction.opcode.startswith(BLOCK_BARRIER_OPCODES):
                return pc
        return None

    def next_commit(self, pc: int, commit: str) -> int | None:
        """The first instruction from `pc` on that commits a group."""
        opcode = commit.rstrip(";")
        for later in range(pc, self.function_body(pc).stop):
            instruction = self.program.instructions[later]
            if opcode and instruction is not None and instruction.opcode == opcode:
                return later
        return None

    @property
    def end(self) -> int:
        """The last written instruction of the kernel, before the implicit return."""
        return self.function_body(self.program.functions[self.program.entry.name]).stop - 2

    def ends(self) -> list[list[Spot]]:
        """Where the kernel ends: at its last instruction, or at all of its returns."""
        if not self._is_return(self.end):
            return [[("behind", self.end)]]
        returns: list[Spot] = [("before", pc) for pc in range(self.end + 1) if self._is_return(pc)]
        return [returns[-1:]] if len(returns) == 1 else [returns[-1:], returns]

    def _is_return(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is not None and instruction.name in ("ret", "exit")

    def wait_texts(self, copy: int, waiter: int) -> list[str]:
        """Loops that may wait for a copy: copies of the kernel's own waits, then for its mbarrier, then for other mbarriers."""
        copy_mbarriers = self._mbarrier_operands((self.instruction(copy),))
        mbarriers = [instruction for instruction in self.text.instructions if instruction.name == "mbarrier"]
        polls = [instruction for instruction in mbarriers if "parity" in instruction.modifiers]
        polled = [self.text.statement(poll).operands[1:3] for poll in polls]
        polled.sort(key=lambda operands: operands[0] not in copy_mbarriers)
        pairs = [(barrier, parity) for barrier, parity in polled]
        pairs += [(barrier, parity) for barrier in copy_mbarriers for _, parity in polled]
        others = [instruction for instruction in mbarriers if "parity" not in instruction.modifiers]
        pairs += product((*copy_mbarriers, *self._mbarrier_operands(others)), ("0", "1"))
        if self.is_in_loop(waiter):  # the next iteration waits for another phase, so a constant parity is wrong
            pairs = [pair for pair in pairs if not pair[1].isdigit()]
        loops = [WAIT_LOOP.format(barrier=barrier, parity=parity) for barrier, parity in dict.fromkeys(pairs)]
        return loops[:_MAX_WAITS]

    def _mbarrier_operands(self, instructions: Iterable[Instruction]) -> list[str]:
        """The mbarrier operands of copies, inits and arrivals, as they are written."""
        operands: list[str] = []
        for instruction in instructions:
            addresses = [operand for operand in self.text.statement(instruction).operands if operand.startswith("[")]
            operands += addresses[:1] if instruction.name == "mbarrier" else addresses[2:3]
        return list(dict.fromkeys(operands))

    def flag_accesses(self) -> tuple[list[int], list[int]]:
        """Stores that may set a flag, and loads that may read it."""
        stores, loads = [], []
        for pc, access in enumerate(self.program.fact(decode_accesses)):
            if access is not None and access.is_strong:
                if access.kind != "read":
                    stores.append(pc)
                if access.kind != "write":
                    loads.append(pc)
        return stores[:_MAX_FLAGS], loads[:_MAX_FLAGS]
