"""Between a text and a layout: what the text leaves unsaid, and what a layout must be to have a text.

#ttg.swizzled_shared<{vec = 8, ...}>    says neither the element's bits nor the tile's shape
CU_TENSOR_MAP_SWIZZLE_128B              says only the swizzle
S<3,4,3> o 0 o (8,64):(64,1)            says neither the bits nor what the swizzle counts
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeVar, cast

from tilescope.errors import RuleError, Violation, argument_range, raise_all
from tilescope.layout import ELEMENT_BITS, MAJORS, MAX_INDICES, Layout, Major, Modes, Tiling
from tilescope.notation.text import NOTATION_TEXT
from tilescope.reading import integer, integers, known_name, one_of, try_read
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE, Swizzle

Said = TypeVar("Said")
Unit = Literal["bytes", "elements"]
UNITS: tuple[Unit, ...] = ("bytes", "elements")
MAX_EXTENT = 1 << 20

NOTATION_ARGUMENT = rule(
    "notation-argument",
    "The caller passes what a text does not specify (bits, shape, major, unit), without contradicting the text.",
    argument="{name}",
    found="{where} says {name} = {text}, the argument {beside}",
    limit="both must agree",
    fix="Leave {name} out.",
    source="the grammar of the notation",
    passing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B", element_bits=16)',
    failing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B")',
)
BITS_UNSAID = NOTATION_ARGUMENT.worded(
    argument="element_bits",
    found="{where} does not say how wide an element is",
    limit="addresses are in bytes",
    fix="Add element_bits (--bits), such as 16.",
)
MAJOR_UNSAID = NOTATION_ARGUMENT.worded(
    argument="major",
    found="{where} does not say which index is contiguous",
    limit="an atom is K-major or MN-major",
    fix='Add major (--major), such as "K".',
)
SHAPE_UNSAID = NOTATION_ARGUMENT.worded(
    argument="shape",
    found="{where} does not say how large the tile is",
    limit="an address map has a shape",
    fix="Add shape (--shape), such as 64x64 elements.",
)
SHAPE_RANK = NOTATION_ARGUMENT.worded(
    argument="shape",
    found="a tile of {shape: x }",
    limit="{where} has {rank:index|indices}",
    fix="Use {example: x }.",
)
NO_EQUIVALENT = rule(
    "no-equivalent",
    "A notation has a text only for layouts that it can express, address for address.",
    argument="layout",
    source="the text, read again and compared",
    passing='ts.spell_layout(ts.Layout((64, 64), 16, swizzle="128B"), "triton")',
    failing='ts.spell_layout(ts.Layout((64, 64), 16, padding_bytes=24), "triton")',
)
PART_OF_ELEMENT = NO_EQUIVALENT.worded(
    found="{layout}",
    limit="strides count whole elements",
    fix="Use a padding that is a multiple of the element.",
)
NOT_TWO_INDICES = NO_EQUIVALENT.worded(
    found="{modes} has {rank:index|indices}",
    limit="a tile has two, mn and k",
    fix="Spell it as cute.",
)
STAGES_OF_TILE = NOT_TWO_INDICES.worded(fix="One stage of it is a tile: {stage}.")
NOTHING_CONTIGUOUS = NO_EQUIVALENT.worded(
    found="{modes} has no index of stride 1",
    limit="in a tile mn or k is contiguous",
    fix="Spell it as cute.",
)
NO_GRID_OF_ATOMS = NO_EQUIVALENT.worded(
    found="{modes}",
    limit="a tile is a grid of equal atoms, one after the other by column or by row",
    fix="Spell it as cute.",
)
PART_OF_BYTE = NOTATION_TEXT.worded(
    found="a swizzle of pieces of 2^{base} elements of {element_bits} bits",
    limit="the pieces that move are whole bytes",
    fix="Use pieces of {least}, of elements of 1, 2, 4, 8 … bits.",
)
OFF_PATTERN = NOTATION_TEXT.worded(
    found="{what} {start:#x}",
    limit="buffers start on the pattern, every {repeat_bytes} bytes",
    fix="Use {below:#x}.",
)
# What the text and the caller may both leave unsaid.
_UNSAID = {"element_bits": BITS_UNSAID, "major": MAJOR_UNSAID, "shape": SHAPE_UNSAID}


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
        if self.element_bits is not None:
            bits = try_read(problems, 0, one_of, "element_bits", self.element_bits, ELEMENT_BITS)
            object.__setattr__(self, "element_bits", bits)
        if self.shape is not None:
            no_shape: tuple[int, ...] = ()
            object.__setattr__(self, "shape", try_read(problems, no_shape, _tile, "shape", self.shape))
        if self.major is not None:
            object.__setattr__(self, "major", try_read(problems, "K", known_name, "major", self.major, MAJORS))
        if self.unit is not None:
            object.__setattr__(self, "unit", try_read(problems, "bytes", known_name, "unit", self.unit, UNITS))
        object.__setattr__(self, "start", try_read(problems, 0, integer, "start", self.start, 0))
        raise_all(problems)

    def bits(self, said: int | None, where: str) -> int:
        """The element's bits, from the text or the caller; both must agree."""
        return self._resolve_hint("element_bits", said, where)

    def tile_shape(self, said: tuple[int, ...] | None, where: str, rank: int = 2) -> tuple[int, ...]:
        """The tile's shape, from the text or the caller; both must agree."""
        for shape in (said, self.shape):
            if shape is not None and len(shape) != rank:
                raise SHAPE_RANK.error(shape=shape, where=where, rank=rank, example=(64,) * rank)
        return self._resolve_hint("shape", said, where)

    def check_shape(self, layout: Layout) -> None:
        """Refuse a layout whose shape is not the one beside its text; indices after mn may be joined in one."""
        if self.shape is not None and self.shape != layout.shape:
            mn, *others = layout.shape or (1,)
            self._resolve_hint("shape", (mn, prod(others)), "the text")

    def majorness(self, said: Major | None, where: str) -> Major:
        """The contiguous index, from the text or the caller; both must agree."""
        major: Major = self._resolve_hint("major", said, where)
        return major

    def check_major(self, layout: Layout) -> None:
        """Refuse a layout whose contiguous index is not the one beside its text."""
        if self.major is not None and layout.major is not None and 1 not in layout.shape:
            self._resolve_hint("major", layout.major, "the text")

    def _resolve_hint(self, argument: str, said: Said | None, where: str) -> Said:
        """What the text says, or the caller; refused where they differ, or where neither says what is needed."""
        beside: Said | None = getattr(self, argument)
        if said is None and beside is None:
            raise _UNSAID[argument].error(where=where)
        if said is not None and beside is not None and said != beside:
            change = {argument: None}
            raise NOTATION_ARGUMENT.error(name=argument, where=where, text=said, beside=beside, change=change)
        return cast("Said", beside if said is None else said)


def _tile(argument: str, shape: object) -> tuple[int, ...]:
    extents = integers(argument, shape, None, 1, MAX_EXTENT)
    if not 1 <= len(extents) <= MAX_INDICES:
        limit, fix = f"1 to {MAX_INDICES} extents", "Use (64, 64), for example."
        raise RuleError([argument_range(argument, len(extents), limit, fix)])
    return extents


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
        raise PART_OF_BYTE.error(base=base, element_bits=element_bits, least=max(1, 8 // element_bits))
    return base_bytes


def on_pattern(start: int, swizzle: Swizzle, what: str = "start") -> int:
    """The start of a buffer whose swizzle counts from its first byte: where the pattern of addresses starts."""
    repeat = swizzle.repeat_bytes
    if start % repeat:
        raise OFF_PATTERN.error(what=what, start=start, repeat_bytes=repeat, below=start // repeat * repeat)
    return start


def strides_of(layout: Layout) -> Modes:
    """The modes with strides in elements."""
    if layout.modes is None:
        raise PART_OF_ELEMENT.error(layout=repr(layout))
    return layout.modes


def tile_of(layout: Layout) -> Tiling:
    """The tile of mn x k as rows of equal atoms; refused with the reason where it is none.

    >>> tile_of(Layout((64, 32), 16)).shape
    (64, 32)
    """
    modes = str(layout.modes or repr(layout))
    rank = len(layout.shape)
    if rank != 2:
        stage = layout.stage()
        if stage is None:
            raise NOT_TWO_INDICES.error(modes=modes, rank=rank)
        raise STAGES_OF_TILE.error(modes=modes, rank=rank, stage=str(stage.modes))
    if layout.major is None:
        raise NOTHING_CONTIGUOUS.error(modes=modes)
    if layout.tiling is None:
        raise NO_GRID_OF_ATOMS.error(modes=modes)
    return layout.tiling
