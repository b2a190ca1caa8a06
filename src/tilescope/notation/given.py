"""What a notation leaves unsaid and the reader of a text must be told.

#ttg.swizzled_shared<{vec = 8, ...}>    says neither the element's bits nor the tile's shape
CU_TENSOR_MAP_SWIZZLE_128B              says only the swizzle
S<3,4,3> o 0 o (8,64):(64,1)            says neither the bits nor what the swizzle counts
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from tilescope.errors import RuleError, Violation, broken, printed
from tilescope.layout import ELEMENT_BITS, Layout, Major
from tilescope.reading import is_one_of

Unit = Literal["bytes", "elements"]


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments beside the text; None where the caller leaves it to the text."""

    element_bits: int | None = None
    shape: tuple[int, int] | None = None
    major: Major | None = None
    unit: Unit | None = None  # what a CuTe swizzle's numbers count
    start: int = 0

    def __post_init__(self) -> None:
        problems = []

        def refuse(argument: str, limit: str, fix: str) -> None:
            found = f"{argument} = {printed(getattr(self, argument))}"
            problems.append(Violation("notation-argument", "error", argument, found, limit, fix))

        if self.element_bits is not None and not is_one_of(self.element_bits, ELEMENT_BITS):
            refuse("element_bits", f"one of {', '.join(map(str, ELEMENT_BITS))}", "Give the element's bits.")
        if self.shape is not None and not _is_pair(self.shape):
            refuse("shape", "two integers from 1 to 2^20", "Give (mn, k) or (rows, columns) in elements.")
        if self.major is not None and not is_one_of(self.major, ("K", "MN")):
            refuse("major", '"K" (second index contiguous) or "MN" (the first)', 'Use "K".')
        if self.unit is not None and not is_one_of(self.unit, ("bytes", "elements")):
            refuse("unit", '"bytes" or "elements"', 'Use "bytes" for layouts of a shared pointer.')
        if not isinstance(self.start, int) or self.start < 0:
            refuse("start", "an address of at least 0", "Give a shared address.")
        if problems:
            raise RuleError(problems)

    def bits(self, said: int | None, where: str) -> int:
        """The element's bits, said by the text or given beside it; both must agree."""
        if said is None and self.element_bits is None:
            raise broken(
                "notation-argument",
                "element_bits",
                f"{where} does not say how wide an element is",
                "addresses are in bytes",
                "Give element_bits (--bits), such as 16.",
            )
        self._agree("element_bits", said, self.element_bits, where)
        return said if said is not None else self.element_bits or 0

    def tile_shape(self, said: tuple[int, int] | None, where: str) -> tuple[int, int]:
        """The tile's shape, said by the text or given beside it; both must agree."""
        if said is None and self.shape is None:
            raise broken(
                "notation-argument",
                "shape",
                f"{where} does not say how large the tile is",
                "an address map has a shape",
                "Give shape (--shape), such as 64x64 elements.",
            )
        self._agree("shape", said, self.shape, where)
        return said or self.shape or (0, 0)

    def major_or(self, said: Major | None, where: str) -> Major:
        """Which index is contiguous: said by the text, given beside it, or "K"."""
        self._agree("major", said, self.major, where)
        return said or self.major or "K"

    def agrees_with(self, layout: Layout, where: str) -> None:
        """Refuse a layout whose shape or majorness is not the one given beside its text."""
        if len(layout.shape) > 1 or self.shape is not None:
            mn, k = (*layout.shape, 1)[0], prod(layout.shape[1:])
            self._agree("shape", (mn, k), self.shape, where)
        if layout.major is not None and 1 not in layout.shape:
            self._agree("major", layout.major, self.major, where)

    @staticmethod
    def _agree(argument: str, said: object, given: object, where: str) -> None:
        if said is not None and given is not None and said != given:
            raise broken(
                "notation-argument",
                argument,
                f"{where} says {argument} = {said}, the argument {given}",
                "both must agree",
                f"Leave {argument} out.",
            )


def _is_pair(shape: Any) -> bool:
    return (
        isinstance(shape, tuple)
        and len(shape) == 2
        and all(isinstance(extent, int) and not isinstance(extent, bool) and 1 <= extent <= 2**20 for extent in shape)
    )
