"""What registers hold, as the program text says: values made of others, compared, summed over a warp, or stored back.

cvt.rn.f16x2.f32 %r1, %f2, %f1       made of %f1 and %f2, each lane from its own values
shfl.sync.idx.b32 %r2, %r1, …        dealt to other lanes: not made of %r1 in this sense
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tilescope.machine.program import Program
from tilescope.ptx.syntax import BITS_OF_TYPE, Immediate, Instruction, Operand, Register, nested_operands

_DEALT_ANEW = frozenset({"ld", "ldmatrix", "movmatrix", "shfl", "selp", "slct", "atom", "call", "mma", "wgmma", "wmma"})

_STORES = frozenset({"st", "atom", "red", "stmatrix"})


def made_of(program: Program, registers: Iterable[int]) -> frozenset[int]:
    """The registers themselves, and all values computed from them on any path through the program."""
    users: dict[int, list[int]] = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name not in _DEALT_ANEW:
            for number in program.registers_named[pc]:
                users.setdefault(number, []).append(pc)
    waiting = list(registers)
    derived = set(waiting)
    while waiting:
        for pc in users.get(waiting.pop(), ()):
            targets = [number for number in program.targets[pc] if number not in derived]
            derived.update(targets)
            waiting.extend(targets)
    return frozenset(derived)


def find_decisions(program: Program, loads: Iterable[int]) -> frozenset[int]:
    """Of some loads those whose value is only compared, and the result only guards instructions.

    ld.acquire.gpu.u32 f, [flag];
    setp.ne.u32        p, f, 0;
    @p bra             fast;          the thread looks once, and either branch may be right
    """
    return frozenset(pc for pc in loads if _only_decides(program, pc))


def _only_decides(program: Program, load: int) -> bool:
    comparisons = [pc for pc in find_readers(program, program.targets[load]) if pc != load]
    instructions = [program.instructions[pc] for pc in comparisons]
    if not comparisons or any(instruction is None or instruction.name != "setp" for instruction in instructions):
        return False
    return not any(find_readers(program, program.targets[pc]) for pc in comparisons)


def find_readers(program: Program, registers: Iterable[int]) -> list[int]:
    """The instructions that read one of some registers as an operand; a guard is none."""
    register_set = set(registers)
    return [
        pc
        for pc, named in enumerate(program.registers_named)
        if not register_set.isdisjoint(named) and not register_set.intersection(named) <= set(program.targets[pc])
    ]


def find_stored_values(program: Program) -> frozenset[int]:
    """The instructions whose result, or something made of it, the text stores, by some path and in some lane."""
    stored: set[int] = set()  # registers whose values, or what is made of them, are stored
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name in _STORES:
            stored.update(program.registers_named[pc])
    count = -1
    while count < len(stored):
        count = len(stored)
        for pc in range(len(program.targets) - 1, -1, -1):
            if not stored.isdisjoint(program.targets[pc]):
                stored.update(program.registers_named[pc])
    return frozenset(
        pc
        for pc, targets in enumerate(program.targets)
        if any(register in stored and not _is_overwritten_next(program, pc, register) for register in targets)
    )


def find_stored_registers(program: Program) -> frozenset[int]:
    """The registers whose value decides what the text stores, or where: stored itself, or part of a value or an address.

    A value that is only compared does not count, nor one that an atom.cas swaps in: a loop tries it again until it is right.
    """
    stored: set[int] = set()
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        if instruction.name == "atom":
            if "cas" not in instruction.modifiers:
                stored.update(number for number in program.registers_named[pc] if _is_source(program, pc, number))
        elif instruction.name in _STORES or instruction.name == "cp":
            stored.update(program.registers_named[pc])
    count = -1
    while count < len(stored):
        count = len(stored)
        for pc in range(len(program.targets) - 1, -1, -1):
            instruction = program.instructions[pc]
            is_followed = instruction is not None and instruction.name not in ("setp", "atom")
            if is_followed and not stored.isdisjoint(program.targets[pc]):
                stored.update(program.registers_named[pc])
    return frozenset(stored)


def find_computed_exchanges(program: Program) -> frozenset[int]:
    """The atom.exch whose value is no constant, so that threads may exchange different ones. A lock exchanges 0 and 1."""
    return frozenset(
        pc
        for pc, one in enumerate(program.instructions)
        if one is not None
        and one.name == "atom"
        and "exch" in one.modifiers
        and not all(_is_constant(program, number) for number in _registers_in(program, pc, one.operands[2]))
    )


def _registers_in(program: Program, pc: int, operand: Operand) -> list[int]:
    function = _function_at(program, pc)
    registers = [inner for inner in nested_operands(operand) if isinstance(inner, Register)]
    return [program.register_numbers[function, register.number] for register in registers]


def _is_constant(program: Program, register: int) -> bool:
    """Whether every instruction that writes a register moves a constant there."""
    writers = [one for pc, one in enumerate(program.instructions) if register in program.targets[pc]]
    return all(one is not None and one.name == "mov" and isinstance(one.operands[1], Immediate) for one in writers)


def find_copied_loads(program: Program) -> frozenset[int]:
    """The loads whose value the text stores unchanged before the next branch, label or barrier: every thread that loads it stores it."""
    return frozenset(
        pc
        for pc, instruction in enumerate(program.instructions)
        if instruction is not None
        and instruction.name == "ld"
        and any(_is_stored_unchanged(program, pc, register) for register in program.targets[pc])
    )


def _is_stored_unchanged(program: Program, pc: int, register: int) -> bool:
    """Whether a store to shared or global memory follows an instruction straight on, and stores a register that it wrote."""
    for later in range(pc + 1, program.straight_end[pc]):
        instruction = program.instructions[later]
        if instruction is None or register in program.targets[later]:
            return False
        is_certain = instruction.name == "st" and instruction.guard is None
        is_seen = any(word.startswith(("shared", "global")) for word in instruction.modifiers)
        if is_certain and is_seen and _is_source(program, later, register):
            return True
    return False


def _is_overwritten_next(program: Program, pc: int, register: int) -> bool:
    """Whether the next instruction of the text that names a register overwrites it completely."""
    for later in range(pc + 1, len(program.instructions)):
        instruction = program.instructions[later]
        if instruction is not None and register in program.registers_named[later]:
            return overwrites(program, later, register)
    return False


def overwrites(program: Program, pc: int, register: int) -> bool:
    """Whether an instruction overwrites a register: it neither reads it nor depends on a guard."""
    instruction = program.instructions[pc]
    if instruction is None or register not in program.targets[pc]:
        return False
    return instruction.guard is None and not _is_source(program, pc, register)


def _is_source(program: Program, pc: int, register: int) -> bool:
    """Whether an instruction names a register behind its first operand."""
    instruction = program.instructions[pc]
    assert instruction is not None
    function = _function_at(program, pc)
    return any(
        isinstance(inner, Register) and program.register_numbers.get((function, inner.number)) == register
        for operand in instruction.operands[1:]
        for inner in nested_operands(operand)
    )


class _Swap(NamedTuple):
    """An atom.cas: where it swaps, how many bits, and the register with the value that it expects there."""

    address: Operand
    bits: int
    expected: int


def compared_loads(program: Program) -> frozenset[int]:
    """Plain loads whose value an atom.cas at the same address expects: they do not race with atomics of other threads.

        old = *p;                                           a guess: another thread may change *p meanwhile
        do {
            expected = old;
            old = atomicCAS(p, expected, f(expected));      stores f(expected) only if *p is still what was guessed
        } while (old != expected);

    A stale value costs one more round of the loop. CUDA C++ programs make atomics this way that the card does not have, such as
    a maximum of floats. With a plain store of another thread such a load still races.
    """
    swaps = list(_swaps(program))
    loads = set()
    for pc, instruction in enumerate(program.instructions):
        if not swaps or instruction is None or instruction.name != "ld":
            continue
        place = (instruction.operands[1], _bits(instruction))
        expected = {swap.expected for swap in swaps if (swap.address, swap.bits) == place}
        if expected and not made_of(program, program.targets[pc]).isdisjoint(expected):
            loads.add(pc)
    return frozenset(loads)


def _swaps(program: Program) -> Iterator[_Swap]:
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name != "atom" or "cas" not in instruction.modifiers:
            continue
        _, address, expected = instruction.operands[:3]
        if isinstance(expected, Register):
            number = program.register_numbers[_function_at(program, pc), expected.number]
            yield _Swap(address, _bits(instruction), number)


def _function_at(program: Program, pc: int) -> str:
    """The function that an instruction belongs to."""
    starts = {start: name for name, start in program.functions.items()}
    return starts[max(start for start in starts if start <= pc)]


def _bits(instruction: Instruction) -> int:
    """How many bits one element of an access has; 0 where the instruction names no type."""
    return next((BITS_OF_TYPE[word] for word in instruction.modifiers if word in BITS_OF_TYPE), 0)


def stores_of_sums(program: Program) -> frozenset[int]:
    """The instructions that store what a butterfly of shuffles and float additions has left in a register.

        mul.f32            p, x, x;
        shfl.sync.bfly.b32 q, p, 16, 31, -1;
        fma.rn.f32         s, x, x, q;        in lane 0 x0 * x0 is exact and x16 * x16 is rounded, in lane 16 the reverse
        st.shared.b32      [sums], s;         Triton stores the sum of a warp by all lanes: which of the two stays?

    The last bits of such sums differ between lanes, and programs that add floats do not rely on those.
    """
    shuffled: set[int] = set()
    sums: set[int] = set()
    stores = set()
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        named = program.registers_named[pc]
        written = program.targets[pc]
        if instruction.name == "st" and not sums.isdisjoint(named):
            stores.add(pc)
        is_shuffled = instruction.name == "shfl" and "bfly" in instruction.modifiers
        is_sum = _adds_floats(instruction) and not shuffled.isdisjoint(named)
        if instruction.name == "mov":  # between registers of bits and of floats
            is_shuffled = not shuffled.isdisjoint(named)
            is_sum = not sums.isdisjoint(named)
        shuffled.difference_update(written)
        sums.difference_update(written)
        if is_shuffled:
            shuffled.update(written)
        if is_sum:
            sums.update(written)
    return frozenset(stores)


def _adds_floats(instruction: Instruction) -> bool:
    return instruction.name in ("add", "fma") and "f32" in instruction.modifiers
