"""What a notation leaves unsaid, and the caller says beside the text.

#ttg.swizzled_shared<{vec = 8, ...}>    says neither the element's bits nor the tile's shape
CU_TENSOR_MAP_SWIZZLE_128B              says only the swizzle
S<3,4,3> o 0 o (8,64):(64,1)            says neither the bits nor what the swizzle counts
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from tilescope.errors import RuleError, Violation, argument_range, by, counted, raise_all
from tilescope.layout import ELEMENT_BITS, MAJORS, Layout, Major
from tilescope.reading import attempted, integer, integers, known_name, one_of
from tilescope.rule import rule

Unit = Literal["bytes", "elements"]
UNITS: tuple[Unit, ...] = ("bytes", "elements")
MAX_EXTENT = 1 << 20
MAX_RANK = 5

NOTATION_ARGUMENT = rule(
    "notation-argument",
    "The caller says what a text leaves unsaid (bits, shape, major, unit), and does not contradict the text.",
    source="the grammar of the notation", passing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B", element_bits=16)',
    failing='ts.parse_layout("CU_TENSOR_MAP_SWIZZLE_128B")',
)  # fmt: skip


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
        for reader, argument, *limits in (
            (one_of, "element_bits", ELEMENT_BITS), (_tile, "shape"), (known_name, "major", MAJORS),
            (known_name, "unit", UNITS), (integer, "start", 0),
        ):  # fmt: skip
            value = getattr(self, argument)
            if value is not None or argument == "start":
                object.__setattr__(self, argument, attempted(problems, None, reader, argument, value, *limits))
        raise_all(problems)

    def bits(self, said: int | None, where: str) -> int:
        """The element's bits, from the text or the caller; both must agree."""
        if said is None and self.element_bits is None:
            raise NOTATION_ARGUMENT.error(
                "element_bits", f"{where} does not say how wide an element is", "addresses are in bytes",
                "Add element_bits (--bits), such as 16.",
            )  # fmt: skip
        self._agree("element_bits", said, self.element_bits, where)
        return said if said is not None else self.element_bits or 0

    def tile_shape(self, said: tuple[int, ...] | None, where: str, rank: int = 2) -> tuple[int, ...]:
        """The tile's shape, from the text or the caller; both must agree."""
        if said is None and self.shape is None:
            raise NOTATION_ARGUMENT.error(
                "shape", f"{where} does not say how large the tile is", "an address map has a shape",
                "Add shape (--shape), such as 64x64 elements.",
            )  # fmt: skip
        shape = said or self.shape or ()
        if len(shape) != rank:
            limit = f"{where} has {counted(rank, 'index', 'indices')}"
            example = (64,) * rank
            raise NOTATION_ARGUMENT.error("shape", f"a tile of {by(shape)}", limit, f"Use {by(example)}.", shape=shape)
        self._agree("shape", said, self.shape, where)
        return shape

    def pair(self, said: tuple[int, int] | None, where: str) -> tuple[int, int]:
        """The tile's (mn, k), from the text or the caller."""
        mn, k = self.tile_shape(said, where)
        return mn, k

    def major_or(self, said: Major | None, where: str) -> Major:
        """Which index is contiguous: from the text, from the caller, or "K"."""
        self._agree("major", said, self.major, where)
        return said or self.major or "K"

    def agrees_with(self, layout: Layout, where: str) -> None:
        """Refuse a layout whose shape or majorness is not the one beside its text."""
        if len(layout.shape) > 1 or self.shape is not None:
            folded = (*layout.shape, 1)[0], prod(layout.shape[1:])
            self._agree("shape", layout.shape if self.shape == layout.shape else folded, self.shape, where)
        if layout.major is not None and 1 not in layout.shape:
            self._agree("major", layout.major, self.major, where)

    @staticmethod
    def _agree(argument: str, said: object, beside: object, where: str) -> None:
        if said is not None and beside is not None and said != beside:
            raise NOTATION_ARGUMENT.error(
                argument, f"{where} says {argument} = {said}, the argument {beside}", "both must agree",
                f"Leave {argument} out.", {argument: None}, text=said, argument=beside,
            )  # fmt: skip


def _tile(argument: str, shape: Any) -> tuple[int, ...]:
    extents = integers(argument, shape)
    if not 1 <= len(extents) <= MAX_RANK:
        raise RuleError(
            [argument_range(argument, len(extents), f"1 to {MAX_RANK} extents", "Use (64, 64), for example.")]
        )
    return tuple(integer(f"{argument}[{place}]", extent, 1, MAX_EXTENT) for place, extent in enumerate(extents))
