"""What each instruction of a program means to the order of its accesses, read once from its modifiers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.machine.compared_loads import compared_loads
from tilescope.machine.program import Program
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction
from tilescope.sync.detector.releases import CARD, SCOPES

AccessKind = Literal["read", "write", "atomic"]
_KINDS: dict[str, AccessKind] = {
    "ld": "read",
    "ldu": "read",
    "ldmatrix": "read",
    "st": "write",
    "stmatrix": "write",
    "atom": "atomic",
    "red": "atomic",
    "tensormap": "write",
}
_KINDS_OF_WMMA: dict[str, AccessKind] = {"load": "read", "store": "write"}
_STRONG_WORDS = frozenset({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"})
_WIDEST_CELL_BYTES = 16
_SHARED = ("shared", "shared::cta", "shared::cluster")


class Meaning(NamedTuple):
    """An access of memory: what it does, whether others may race with it, and what it orders."""

    kind: AccessKind
    is_strong: bool
    acquires: bool
    releases: bool
    reach: int  # of its scope
    is_compared: bool = False  # a plain load whose value atom.cas checks: it orders nothing

    @property
    def is_flag(self) -> bool:
        """Whether threads tell each other something by it."""
        return self.is_strong and not self.is_compared

    @property
    def is_flag_load(self) -> bool:
        """Whether it loads a word that others may change meanwhile."""
        return self.kind == "read" and self.is_flag


def meaning_of(instruction: Instruction | None) -> Meaning | None:
    """What an instruction does to memory by the generic proxy; None where it does nothing, or later (.async)."""
    if instruction is None or "async" in instruction.modifiers:
        return None
    kind = _kind_of(instruction)
    if kind is None:
        return None
    words = instruction.modifiers
    return Meaning(
        kind,
        is_strong=kind == "atomic" or not _STRONG_WORDS.isdisjoint(words),
        acquires=("acquire" in words or "acq_rel" in words) and instruction.name != "red",
        releases="release" in words or "acq_rel" in words,
        reach=reach_of(instruction),
    )


def _kind_of(instruction: Instruction) -> AccessKind | None:
    if instruction.name == "wmma":
        return _KINDS_OF_WMMA.get(instruction.modifiers[0])
    return _KINDS.get(instruction.name)


def reach_of(instruction: Instruction) -> int:
    """How far the scope of an access or a fence reaches; without one as far as the card."""
    return next((SCOPES[word] for word in instruction.modifiers if word in SCOPES), CARD)


def meanings(program: Program) -> list[Meaning | None]:
    """By instruction."""
    found = [meaning_of(instruction) for instruction in program.instructions]
    for pc in compared_loads(program):
        plain = found[pc]
        if plain is not None and not plain.is_strong:
            found[pc] = plain._replace(is_strong=True, is_compared=True)
    return found


def cell_bytes(program: Program, space: Literal["shared", "global"]) -> int:
    """The narrowest access of a program to a space, at most 16 bytes."""
    sizes = [_WIDEST_CELL_BYTES]
    for instruction in program.instructions:
        if instruction is not None and instruction.name in ("ld", "ldu", "st", "atom", "red", "wmma"):
            size_bytes = _access_bytes(instruction, space)
            if size_bytes is not None:
                sizes.append(size_bytes)
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
    bits = [BITS_OF_TYPE[word] for word in words if word in BITS_OF_TYPE]
    if not bits:
        return None
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    if instruction.name in ("atom", "red"):
        count = 1  # every element of a vector is an atomic of its own
    return max(1, bits[0] * count // 8)
