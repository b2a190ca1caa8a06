"""Decodes the modifiers of memory instructions: strong or plain, acquire, release, scope; and how wide accesses are."""

from __future__ import annotations

from typing import Literal

from tilescope.machine.decoding.dataflow import compared_loads
from tilescope.machine.program import Program
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction
from tilescope.sync.access_semantics import AccessKind, AccessSemantics
from tilescope.sync.memory_scope import GPU, SCOPE_OF_MODIFIER

_KINDS: dict[str, AccessKind] = {
    "ld": "read",
    "ldu": "read",
    "ldmatrix": "read",
    "st": "write",
    "stmatrix": "write",
    "atom": "atomic",
    "red": "atomic",
}
_KINDS_OF_WMMA: dict[str, AccessKind] = {"load": "read", "store": "write"}
_KINDS_OF_TENSORMAP: dict[str, AccessKind] = {
    "replace": "write",  # the load of the map is part of its edit
    "cp_fenceproxy": "read",  # of shared memory; it also stores to global memory
}
_STRONG_WORDS = frozenset({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"})
_WIDEST_CELL_BYTES = 16
_BULK_WORD_BYTES = 8  # that st.bulk writes at once
_MBARRIER_BYTES = 8
_SHARED = ("shared", "shared::cta", "shared::cluster")


def decode_access(instruction: Instruction | None) -> AccessSemantics | None:
    """The access of an instruction by the generic proxy; None where it has none, or only later (.async)."""
    if instruction is None or "async" in instruction.modifiers:
        return None
    kind = _kind_of(instruction)
    if kind is None:
        return None
    words = instruction.modifiers
    is_strong = kind == "atomic" or not _STRONG_WORDS.isdisjoint(words)
    if instruction.name == "tensormap":
        is_strong = False  # .release is that of the tensormap proxy, not of the words copied
    return AccessSemantics(
        kind,
        is_strong=is_strong,
        acquires=("acquire" in words or "acq_rel" in words) and instruction.name != "red",
        releases=is_strong and ("release" in words or "acq_rel" in words),
        scope=scope_of(instruction),
        is_flag=is_strong,
        is_noncoherent=instruction.name == "ldu" or (instruction.name == "ld" and "nc" in words),
    )


def _kind_of(instruction: Instruction) -> AccessKind | None:
    if instruction.name == "wmma":
        return _KINDS_OF_WMMA.get(instruction.modifiers[0])
    if instruction.name == "tensormap":
        return _KINDS_OF_TENSORMAP.get(instruction.modifiers[0])
    return _KINDS.get(instruction.name)


def scope_of(instruction: Instruction) -> int:
    """The scope of an access or a fence; .gpu where the text names none."""
    return next((SCOPE_OF_MODIFIER[word] for word in instruction.modifiers if word in SCOPE_OF_MODIFIER), GPU)


def decode_accesses(program: Program) -> list[AccessSemantics | None]:
    """The access of every instruction."""
    accesses = [decode_access(instruction) for instruction in program.instructions]
    for pc in compared_loads(program):
        plain = accesses[pc]
        if plain is not None and not plain.is_strong:
            accesses[pc] = plain._replace(is_strong=True)
    return accesses


def cell_bytes(program: Program, space: Literal["shared", "global"]) -> int:
    """The narrowest access of a program to a space, at most 16 bytes."""
    sizes = [_WIDEST_CELL_BYTES]
    for instruction in program.instructions:
        if instruction is not None and instruction.name in ("ld", "ldu", "st", "atom", "red", "wmma"):
            size_bytes = _access_bytes(instruction, space)
            if size_bytes is not None:
                sizes.append(size_bytes)
        elif instruction is not None and instruction.opcode.startswith("mbarrier.inval") and space == "shared":
            sizes.append(_MBARRIER_BYTES)  # which it writes
    return min(sizes)


def _access_bytes(instruction: Instruction, space: str) -> int | None:
    """How many bytes one thread accesses; None where it is another space."""
    words = instruction.modifiers
    named = "shared" if any(word in _SHARED for word in words) else None
    for other in ("global", "local", "param", "const"):
        if other in words:
            named = other
    if named is not None and named != space:
        return None
    if "bulk" in words:
        return _BULK_WORD_BYTES
    bits = [BITS_OF_TYPE[word] for word in words if word in BITS_OF_TYPE]
    if not bits:
        return None
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    if instruction.name in ("atom", "red"):
        count = 1  # every element of a vector is a separate atomic
    return max(1, bits[0] * count // 8)
