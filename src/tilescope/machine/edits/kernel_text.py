"""The PTX text of a kernel as edits need it: where its instructions are written, which loops wait, and what edits make of it.

An edit replaces characters of the text (`tilescope.ptx.editing`); the program after edits is read and assembled again:

    st.shared.b32 [%r1], %r2;                           st.shared.b32 [%r1], %r2;
                                 Edit(…, "bar.sync 0;")  bar.sync 0;
    ld.shared.b32 %r3, [%r4];                           ld.shared.b32 %r3, [%r4];

Everything is computed on first use and kept: a kernel that is run again tries the same remedies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.machine.decoding.assembly import assemble
from tilescope.machine.program import Program
from tilescope.ptx import read_module
from tilescope.ptx.editing import Edit, Statement, apply_edits, only_bodies, statement_of
from tilescope.ptx.lexer import Text
from tilescope.ptx.syntax import Function, Immediate, Instruction, Label, Module

Edits = tuple[Edit, ...]  # in the order of the text

_PROGRAMS_KEPT = 64
_LONGEST_WAIT_LOOP = 64  # instructions
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
        "call",
        "tensormap",
        "multimem",
        "setmaxnreg",
    }
)  # a loop with one of these does more than wait


class WaitLoop(NamedTuple):
    """A loop that only waits: its branches back, and the polls of mbarriers in it."""

    branches: tuple[Instruction, ...]
    polls: tuple[Instruction, ...]


class KernelText:
    """A PTX text, and the functions that one of its kernels runs, the entry first."""

    def __init__(self, ptx: str, module: Module, functions: tuple[Function, ...]) -> None:
        self.ptx = ptx
        self.module = module
        self.functions = functions
        self._statements: dict[int, Statement] = {}
        self._programs: dict[Edits, Program | None] = {}

    @cached_property
    def text(self) -> Text:
        """The text with blanks in place of comments."""
        return Text(self.ptx)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all functions."""
        return tuple(instruction for function in self.functions for instruction in function.instructions or ())

    @cached_property
    def short(self) -> str:
        """The text with empty bodies for functions that the kernel does not run, which is faster to read."""
        return only_bodies(self.text, self.module, {function.name for function in self.functions})

    @cached_property
    def wait_loops(self) -> dict[str, tuple[WaitLoop, ...]]:
        """The loops that only wait, by function."""
        return {function.name: tuple(find_wait_loops(function)) for function in self.functions}

    def statement(self, instruction: Instruction) -> Statement:
        """The characters of an instruction, with its operands as they are written."""
        if instruction.start not in self._statements:
            self._statements[instruction.start] = statement_of(self.text.code, instruction)
        return self._statements[instruction.start]

    def program_after(self, edits: Edits) -> Program | None:
        """The program after edits; None if they name an unknown variable, or the target lacks an instruction."""
        if edits not in self._programs:
            if len(self._programs) >= _PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]  # the oldest
            self._programs[edits] = self._assemble(edits)
        return self._programs[edits]

    def _assemble(self, edits: Edits) -> Program | None:
        try:
            module = read_module(apply_edits(self.short, edits))
            return assemble(module, module.functions[self.functions[0].name])
        except RuleError:
            return None


def find_wait_loops(function: Function) -> Iterator[WaitLoop]:
    """The loops of a function that only wait for an mbarrier, or for a flag in memory.

    >>> module = read_module('''.version 8.0 .target sm_90 .entry k() {
    ...     .reg .b32 %r; .reg .pred p; .shared .b64 full;
    ...     A: mbarrier.try_wait.parity.shared.b64 p, [full], 0;
    ...     @!p bra A; }''')
    >>> [branch.text for loop in find_wait_loops(module.functions["k"]) for branch in loop.branches]
    ['@!p bra A']
    """
    instructions = function.instructions or ()
    loops = _find_short_loops(instructions)
    for start, ends in sorted(loops.items()):
        body = instructions[start : ends[-1]]
        polls = [instruction for instruction in body if _is_poll(instruction)]
        does_more = any(instruction.name in _WORK and instruction not in polls for instruction in body)
        has_inner_loop = any(start < other < ends[-1] for other in loops)
        if polls and not does_more and not has_inner_loop:
            branches = tuple(instructions[end] for end in ends)
            yield WaitLoop(branches, tuple(poll for poll in polls if poll.name == "mbarrier"))


def _is_poll(instruction: Instruction) -> bool:
    """Whether an instruction reads what another thread changes: the phase of an mbarrier, a flag, or a lock that it tries to take."""
    if instruction.opcode.startswith("atom.") and "cas" in instruction.modifiers:
        return all(isinstance(operand, Immediate) for operand in instruction.operands[2:])
    return instruction.opcode.startswith(_POLLS)


def _find_short_loops(instructions: Sequence[Instruction]) -> dict[int, list[int]]:
    """Where each short loop starts, and the branches that lead back to it."""
    loops: dict[int, list[int]] = {}
    for number, branch in enumerate(instructions):
        target = branch.operands[0] if branch.name == "bra" else None
        if isinstance(target, Label) and number - _LONGEST_WAIT_LOOP <= target.target < number:
            loops.setdefault(target.target, []).append(number)
    return loops
