"""An arithmetic instruction as the machine executes it: a function of arrays, and the types of its operands.

    mad.lo.s32 d, a, b, c      Operation(compute, source_types=("s32", "s32", "s32"), result_type="s32")

Registers hold bits. Every operand is an array of unsigned integers of its type's width, one element per thread (bool for
predicates). `compute` views it as signed integers or floats and returns unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]  # (threads,): unsigned integers, the bits of a register; or bool, a predicate
Compute: TypeAlias = Callable[..., Any]  # arrays of the sources → an array, or a pair of them


_WORD_OF_BITS: dict[int, np.dtype[Any]] = {bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}


Exactness = Literal[
    "exact",  # on every architecture
    "special unit",  # the bits of an H200's special function unit
    "unknown",  # within the ISA's error bound
]


class Operation(NamedTuple):
    """The arithmetic of an instruction.

    `compute` takes one array for each source, never writes into it, and returns a fresh one; with `result_count` 2 it
    returns a pair whose second member is a predicate or the carry. It runs under `np.errstate(all="ignore")`, which
    the caller sets once for many instructions: setting it costs more than an addition.

    8-bit values are stored in wider registers: `source_types` and `result_type` then name the register (16 bits for a
    source, 32 bits for a result, sign- or zero-extended), and `compute` uses the low bits.
    """

    compute: Compute
    source_types: tuple[str, ...]
    result_type: str
    exactness: Exactness = "exact"
    result_count: int = 1
    takes_carry: bool = False  # the last source is the carry flag (a predicate)
    gives_carry: bool = False  # the second result is the carry flag


class UnknownForm(Exception):  # noqa: N818  internal to the machine
    """An instruction with an unsupported modifier, type or number of operands, named by the message."""


class Modifiers:
    """The modifiers of an instruction, consumed one after another; `end` refuses those left over.

    >>> modifiers = Modifiers("add", ("rn", "ftz", "f32"))
    >>> modifiers.type(["f32", "f64"]), modifiers.one_of(("rn", "rz"), "rn"), modifiers.has("ftz"), modifiers.has("sat")
    ('f32', 'rn', True, False)
    >>> modifiers.end()
    """

    def __init__(self, name: str, words: tuple[str, ...]) -> None:
        self.name = name
        self._left = list(words)

    def type(self, known: Collection[str]) -> str:
        """The last word, which must be one of the `known` types."""
        if not self._left:
            raise UnknownForm(f"{self.name} has no type")
        word = self._left.pop()
        if word not in known:
            raise UnknownForm(f"{self.name} has no type .{word} here")
        return word

    def has(self, word: str) -> bool:
        """Whether the instruction has the modifier; consumes it."""
        if word in self._left:
            self._left.remove(word)
            return True
        return False

    def one_of(self, words: Collection[str], default: str) -> str:
        """The first of these modifiers that the instruction has, consumed; `default` if it has none."""
        for word in self._left:
            if word in words:
                self._left.remove(word)
                return word
        return default

    def last(self) -> str:
        """The modifier that `type` would consume; "" if none is left."""
        return self._left[-1] if self._left else ""

    def end(self) -> None:
        """Refuse modifiers that were not consumed."""
        if self._left:
            raise UnknownForm(f"{self.name} has no modifier .{self._left[0]} here")


def constant(value: int, bits: int) -> Array:
    """A number as a zero-dimensional array, which numpy combines faster than its scalars.

    >>> constant(-1, 16)
    array(65535, dtype=uint16)
    """
    return np.array(value & (1 << bits) - 1, f"u{bits // 8}")


def shared_value(words: Array) -> int | None:
    """The value of an operand that is broadcast to all threads, as constants are; None for any other operand.

    >>> shared_value(np.broadcast_to(np.uint32(7), (32,))), shared_value(np.array([7, 7], np.uint32))
    (7, None)
    """
    return int(words[0]) if words.strides == (0,) else None


def split_parts(words: Array, bits: int) -> Array:
    """Split packed words into parts, low part first: the low half of word 0, its high half, and so on.

    >>> split_parts(np.array([0x00020001], np.uint32), 16)
    array([1, 2], dtype=uint16)
    """
    return np.ascontiguousarray(words).view(_WORD_OF_BITS[bits])


def apply_to_parts(compute: Compute, part_bits: int, word_bits: int) -> Compute:
    """Apply an operation to every part of packed words.

    >>> apply_to_parts(np.add, 16, 32)(np.array([0x0001FFFF], np.uint32), np.array([0x00010001], np.uint32))
    array([131072], dtype=uint32)
    """
    word = _WORD_OF_BITS[word_bits]

    def compute_parts(*sources: Array) -> Array:
        parts: Array = compute(*[split_parts(source, part_bits) for source in sources])
        return parts.view(word)

    return compute_parts
