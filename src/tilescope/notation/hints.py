"""Between a text and a layout: what the text leaves unsaid, and what a layout must be to have a text.

#ttg.swizzled_shared<{vec = 8, ...}>    says neither the element's bits nor the tile's shape
CU_TENSOR_MAP_SWIZZLE_128B              says only the swizzle
S<3,4,3> o 0 o (8,64):(64,1)            says neither the bits nor what the swizzle counts
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeVar, cast

from tilescope.errors import RuleError, Violation, argument_range, raise_all
from tilescope.layout import ELEMENT_BITS, MAJORS, MAX_RANK, Layout, Major, Modes, Tiling
from tilescope.notation.text import refusal
from tilescope.reading import attempted, integer, integers, known_name, one_of
from tilescope.rule import rule
from tilescope.sentence import by, counted
from tilescope.swizzle import SWIZZLE, Swizzle

Said = TypeVar("Said")
Unit = Literal["bytes", "elements"]
UNITS: tuple[Unit, ...] = ("bytes", "elements")
MAX_EXTENT = 1 << 20

NOTATION_ARGUMENT = rule(
    "notation-argument",
    "The caller says what a text leaves unsaid (bits, shape, major, unit), and does not contradict the text.",
    source="the grammar of the notation",
    passing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B", element_bits=16)',
    failing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B")',
)
NO_EQUIVALENT = rule(
    "no-equivalent",
    "A notation has a text only for layouts that it can express, address for address.",
    source="the text, read again and compared",
    passing='ts.spell_layout(ts.Layout((64, 64), 16, swizzle="128B"), "triton")',
    failing='ts.spell_layout(ts.Layout((64, 64), 16, padding_bytes=24), "triton")',
)
# What an argument says, why it is needed, and what to add.
_NEEDED = {
    "element_bits": ("how wide an element is", "addresses are in bytes", "Add element_bits (--bits), such as 16."),
    "major": ("which index is contiguous", "an atom is K-major or MN-major", 'Add major (--major), such as "K".'),
    "shape": ("how large the tile is", "an address map has a shape", "Add shape (--shape), such as 64x64 elements."),
}


@dataclass(frozen=True, slots=True)
class Hints:
    """The arguments beside the text; None where the caller leaves it to the text."""

    element_bits: int | None = None
    shape: tuple[int, ...] | None = None
    major: Major | None = None
    unit: Unit | None = None  # what a CuTe swizzle's numbers count
    start: int = 0

    def __post_init__(self) -> None:
        problems: list[Violation] = []
        for argument, reader, *limits in _READERS:
            value = getattr(self, argument)
            if value is not None or argument == "start":
                object.__setattr__(self, argument, attempted(problems, None, reader, argument, value, *limits))
        raise_all(problems)

    def bits(self, said: int | None, where: str) -> int:
        """The element's bits, from the text or the caller; both must agree."""
        return self._told("element_bits", said, where)

    def tile_shape(self, said: tuple[int, ...] | None, where: str, rank: int = 2) -> tuple[int, ...]:
        """The tile's shape, from the text or the caller; both must agree."""
        for shape in (said, self.shape):
            if shape is not None and len(shape) != rank:
                limit, fix = f"{where} has {counted(rank, 'index', 'indices')}", f"Use {by((64,) * rank)}."
                raise NOTATION_ARGUMENT.error("shape", f"a tile of {by(shape)}", limit, fix, shape=shape)
        return self._told("shape", said, where)

    def check_shape(self, layout: Layout) -> None:
        """Refuse a layout whose shape is not the one beside its text; indices after mn may be joined in one."""
        if self.shape is not None and self.shape != layout.shape:
            self._told("shape", ((*layout.shape, 1)[0], prod(layout.shape[1:])), "the text")

    def majorness(self, said: Major | None, where: str) -> Major:
        """The contiguous index, from the text or the caller; both must agree."""
        major: Major = self._told("major", said, where)
        return major

    def check_major(self, layout: Layout) -> None:
        """Refuse a layout whose contiguous index is not the one beside its text."""
        if self.major is not None and layout.major is not None and 1 not in layout.shape:
            self._told("major", layout.major, "the text")

    def _told(self, argument: str, said: Said | None, where: str) -> Said:
        """What the text says, or the caller; refused where they differ, or where neither says what is needed."""
        beside: Said | None = getattr(self, argument)
        if said is None and beside is None:
            what, limit, fix = _NEEDED[argument]
            raise NOTATION_ARGUMENT.error(argument, f"{where} does not say {what}", limit, fix)
        if said is not None and beside is not None and said != beside:
            found, fix = f"{where} says {argument} = {said}, the argument {beside}", f"Leave {argument} out."
            raise NOTATION_ARGUMENT.error(
                argument, found, "both must agree", fix, {argument: None}, text=said, argument=beside
            )
        return cast("Said", beside if said is None else said)


def _tile(argument: str, shape: Any) -> tuple[int, ...]:
    extents = integers(argument, shape, None, 1, MAX_EXTENT)
    if not 1 <= len(extents) <= MAX_RANK:
        limit, fix = f"1 to {MAX_RANK} extents", "Use (64, 64), for example."
        raise RuleError([argument_range(argument, len(extents), limit, fix)])
    return extents


_READERS: tuple[tuple[Any, ...], ...] = (
    ("element_bits", one_of, ELEMENT_BITS),
    ("shape", _tile),
    ("major", known_name, MAJORS),
    ("unit", known_name, UNITS),
    ("start", integer, 0),
)


def no_equivalent(found: str, limit: str, fix: str, **values: Any) -> RuleError:
    """The error for a layout that a notation cannot say."""
    return NO_EQUIVALENT.error("layout", found, limit, fix, **values)


def xor_swizzle(bits: int, base: int, shift: int) -> Swizzle:
    """The swizzle of byte addresses with these three numbers: TMA's own row where it has one.

    >>> xor_swizzle(3, 4, 3).name, xor_swizzle(0, 4, 3).name, xor_swizzle(2, 3, 3).name
    ('128B', 'none', 'xor:2,3,3')
    """
    swizzle = Swizzle.xor(bits, base, shift) if bits else SWIZZLE["none"]
    return swizzle.hardware_mode or swizzle


def byte_base(base: int, element_bits: int) -> int:
    """The base on byte addresses of a swizzle whose three numbers count elements.

    >>> byte_base(3, 16)
    4
    """
    base_bytes = base + element_bits.bit_length() - 4
    if element_bits & (element_bits - 1) or base_bytes < 0:
        found = f"a swizzle of pieces of 2^{base} elements of {element_bits} bits"
        fix = f"Use pieces of {max(1, 8 // element_bits)}, of elements of 1, 2, 4, 8 … bits."
        raise refusal(found, "the pieces that move are whole bytes", fix, base=base, element_bits=element_bits)
    return base_bytes


def on_pattern(start: int, swizzle: Swizzle, what: str = "start") -> int:
    """The start of a buffer whose swizzle counts from its first byte: where the pattern of addresses starts."""
    if start % swizzle.repeat_bytes:
        repeat = swizzle.repeat_bytes
        limit, fix = f"buffers start on the pattern, every {repeat} bytes", f"Use {start // repeat * repeat:#x}."
        raise refusal(f"{what} {start:#x}", limit, fix, start=start, repeat_bytes=repeat)
    return start


def strides_of(layout: Layout) -> Modes:
    """The modes with strides in elements."""
    if layout.modes is None:
        fix = "Use a padding that is a multiple of the element."
        raise no_equivalent(f"{layout!r}", "strides count whole elements", fix)
    return layout.modes


def tile_of(layout: Layout) -> Tiling:
    """The tile of mn x k as rows of equal atoms; refused with the reason where it is none.

    >>> tile_of(Layout((64, 32), 16)).shape
    (64, 32)
    """
    fix, modes = "Spell it as cute.", layout.modes or repr(layout)
    if len(layout.shape) != 2:
        stage = layout.stage()
        fix = fix if stage is None else f"One stage of it is a tile: {stage.modes}."
        found = f"{modes} has {counted(len(layout.shape), 'index', 'indices')}"
        raise no_equivalent(found, "a tile has two, mn and k", fix, rank=len(layout.shape))
    if layout.major is None:
        raise no_equivalent(f"{modes} has no index of stride 1", "in a tile mn or k is contiguous", fix)
    if layout.tiling is None:
        raise no_equivalent(f"{modes}", "a tile is a grid of equal atoms, one after the other by column or by row", fix)
    return layout.tiling
