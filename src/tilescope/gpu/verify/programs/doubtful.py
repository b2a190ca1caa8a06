"""Programs that reveal nothing about the card: compilers change the meaning of certain pairs of steps.

Seen with the compiler of driver 580.159.04 (CUDA 13.0) on an H200. Programs with such a pair are drawn again.

    writes a register       reads it                     what the compiler does
    abs of an integer       cvt                          takes -2**31, whose absolute value is itself, for a positive number
    abs of an integer       div, rem                     the same: a quotient or rest of the wrong sign
    abs, neg of an integer  sub.cc and others with .cc   adds the opposite: a carry where 0 is taken away, a borrow in the text
    cvt of f16 to bf16      cvt                          makes one conversion of both, and reads bits of one type as the other
    cvt of bf16 to f16      cvt                          the same
    cvt of f16 to f16       cvt                          leaves out the rounding of the second: to the nearest, not towards zero
    mul.f32                 slct by its sign             takes a square for a number, though it may be NaN
    cnot                    cvt                          takes the bits of 1 for the number 1, whatever their type
    cnot                    atom of two halves           takes all bits set, the NaN of both halves, for 1
    mul.f32                 fp8 mma.sync, as C           adds the product unrounded: this mma ends in additions of f32
    mul of f16 or bf16      add or sub, and others do    adds the product unrounded, though the rounded one is needed too
    lop3                    and, or, xor, lop3           makes one of both: for lop3 a, b, b, 72 and or with a it takes a alone
    copysign                and, or, xor, lop3           makes one of both: for copysign a, a and a changed sign it takes -|a|
    cvt to two fp8          mov.b32 {it, other}          packs into the register of `other`, which is still needed
    mov.b64 {lo, hi}, it    atom of two halves, by lo    takes the low halves of lo and hi for the two halves of lo

Two wgmma with the same register, its sign changed, among their accumulators: the second one takes the first one's sum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tilescope.gpu.verify.programs.random_program import Program, Step

_HALF_TYPES = ("f16", "f16x2", "bf16", "bf16x2")


class Opcode(NamedTuple):
    """The name and modifiers of an instruction."""

    name: str
    modifiers: tuple[str, ...]

    def is_plain(self, types: tuple[str, ...]) -> bool:
        """Whether it is of one of these types, and has no rounding modifier: compilers may leave the rounding out.

        >>> Opcode("add", ("ftz", "sat", "f16")).is_plain(("f16",)), Opcode("add", ("rn", "f16")).is_plain(("f16",))
        (True, False)
        """
        return self.modifiers[-1] in types and set(self.modifiers[:-1]) <= {"ftz", "sat"}


def opcodes(step: Step) -> Iterator[Opcode]:
    """The instructions of a step.

    >>> [*opcodes(Step(lines=("@%p1 add.rn.f32 %r1, %r2, %r3;", "}"), reads=(), writes=()))]
    [Opcode(name='add', modifiers=('rn', 'f32'))]
    """
    for line in step.lines:
        words = line.split()
        if words and words[0].startswith("@"):
            words = words[1:]
        if words and "." in words[0] and not words[0].startswith("."):
            name, *modifiers = words[0].rstrip(";").split(".")
            yield Opcode(name, tuple(modifiers))


def is_doubtful(program: Program) -> bool:
    """Whether two steps of a program are such a pair."""
    accumulated = Counter(source for step in program.steps for source in negated_accumulators(step))
    if any(count > 1 for count in accumulated.values()):
        return True
    writers = {register: step for step in program.steps for register in step.writes}
    uses = Counter([register for step in program.steps for register in set(step.reads)])
    uses.update(program.kept)
    for reader in program.steps:
        for register in reader.reads:
            writer = writers.get(register)
            if writer is not None and _are_doubtful(writer, reader, is_used_again=uses[register] > 1):
                return True
    return False


def negated_accumulators(step: Step) -> set[str]:
    """The registers whose values, with the sign changed, a wgmma adds to.

    >>> lines = ("xor.b32 %r5, %r1, 0x80000000;", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r5}, %u0, %u1, 1, 1, 1;")
    >>> negated_accumulators(Step(lines=lines, reads=(), writes=())), negated_accumulators(Step(lines=lines[:1], reads=(), writes=()))
    ({'%r1'}, set())
    """
    if not any(opcode.name == "wgmma" for opcode in opcodes(step)):
        return set()
    negations = (re.match(r"\s*xor\.b32 %\w+, (%\w+), 0x80000000;", line) for line in step.lines)
    return {negation.group(1) for negation in negations if negation is not None}


def _are_doubtful(writer: Step, reader: Step, *, is_used_again: bool) -> bool:
    pairs = list(_PAIRS)
    if is_used_again:
        pairs.append((_makes_half_product, _adds_halves))
    return any(any(map(writes, opcodes(writer))) and any(map(reads, opcodes(reader))) for writes, reads in pairs)


def _makes_integer_magnitude(opcode: Opcode) -> bool:
    return opcode.name == "abs" and opcode.modifiers[-1].startswith("s")


def _divides_integers(opcode: Opcode) -> bool:
    return opcode.name in ("div", "rem") and opcode.modifiers[-1].startswith("s")


def _negates_integer(opcode: Opcode) -> bool:
    return opcode.name in ("abs", "neg") and opcode.modifiers[-1].startswith("s")


def _sets_carry(opcode: Opcode) -> bool:
    return "cc" in opcode.modifiers


def _makes_truth(opcode: Opcode) -> bool:
    return opcode.name == "cnot"


def _converts(opcode: Opcode) -> bool:
    return opcode.name == "cvt"


def _converts_between_halves(opcode: Opcode) -> bool:
    return opcode.name == "cvt" and set(opcode.modifiers[-2:]) == {"f16", "bf16"}


def _converts_half_to_itself(opcode: Opcode) -> bool:
    return opcode.name == "cvt" and opcode.modifiers[-2:] == ("f16", "f16")


def _selects(opcode: Opcode) -> bool:
    return opcode.name == "slct"


def _multiplies_floats(opcode: Opcode) -> bool:
    return opcode.name == "mul" and opcode.modifiers[-1] == "f32"


def _makes_single_product(opcode: Opcode) -> bool:
    return opcode.name == "mul" and opcode.is_plain(("f32",))


def _multiplies_fp8(opcode: Opcode) -> bool:
    return opcode.name == "mma" and not {"e4m3", "e5m2"}.isdisjoint(opcode.modifiers)


def _makes_half_product(opcode: Opcode) -> bool:
    return opcode.name == "mul" and opcode.is_plain(_HALF_TYPES)


def _adds_halves(opcode: Opcode) -> bool:
    return opcode.name in ("add", "sub") and opcode.is_plain(_HALF_TYPES)


def _chooses_by_table(opcode: Opcode) -> bool:
    return opcode.name == "lop3"


def _combines_bits(opcode: Opcode) -> bool:
    return opcode.name in ("and", "or", "xor", "lop3")


def _copies_sign(opcode: Opcode) -> bool:
    return opcode.name == "copysign"


def _converts_to_fp8_pair(opcode: Opcode) -> bool:
    return opcode.name == "cvt" and not {"e4m3x2", "e5m2x2"}.isdisjoint(opcode.modifiers)


def _moves_32_bits(opcode: Opcode) -> bool:
    return opcode == Opcode("mov", ("b32",))


def _moves_64_bits(opcode: Opcode) -> bool:
    return opcode == Opcode("mov", ("b64",))


def _adds_half_pairs_in_memory(opcode: Opcode) -> bool:
    return opcode.name in ("atom", "red") and opcode.modifiers[-1] in ("f16x2", "bf16x2")


_Test = Callable[[Opcode], bool]
_PAIRS: tuple[tuple[_Test, _Test], ...] = (
    (_makes_integer_magnitude, _converts),
    (_makes_integer_magnitude, _divides_integers),
    (_negates_integer, _sets_carry),
    (_converts_between_halves, _converts),
    (_converts_half_to_itself, _converts),
    (_multiplies_floats, _selects),
    (_makes_truth, _converts),
    (_makes_truth, _adds_half_pairs_in_memory),
    (_makes_single_product, _multiplies_fp8),
    (_chooses_by_table, _combines_bits),
    (_copies_sign, _combines_bits),
    (_converts_to_fp8_pair, _moves_32_bits),
    (_moves_64_bits, _adds_half_pairs_in_memory),
)
