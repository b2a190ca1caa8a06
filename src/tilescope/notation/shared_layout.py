"""What every notation says in the end: a shared byte address for each index of a tile.

    address = swizzle( start + bytes of stride offset )        swizzle on absolute byte addresses

    CuTe     Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)
    Triton   #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>     8 x 64
    Mosaic   (TileTransform((8, 64)), SwizzleTransform(128))                                 of 8 x 64, 16 bits
    driver   CU_TENSOR_MAP_SWIZZLE_128B                                                      box 8 x 64, 16 bits

All four are the same 512 addresses. `SharedLayout` holds them as strides and one swizzle; `tile()` gives
them as a `Layout` of rows, atoms and padding where they have that form, and says why where they do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, broken, printed
from tilescope.layout import Layout
from tilescope.mma.canonical import Major
from tilescope.mma.shape_stride import IntTree, ShapeStride
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.value import Value, hex_field, row_field

ELEMENT_BITS = (1, 2, 4, 6, 8, 16, 32, 64, 128)
COMPARED_ELEMENTS = 2**22  # shared memory holds fewer, even of one bit


def no_equivalent(found: str, limit: str, fix: str) -> RuleError:
    """The error for a layout that a notation cannot say."""
    return broken("no-equivalent", "layout", found, limit, fix)


def xor_swizzle(bits: int, base: int, shift: int) -> Swizzle:
    """The swizzle of byte addresses with these three numbers: TMA's own row where it has one.

    >>> xor_swizzle(3, 4, 3).name, xor_swizzle(0, 4, 3).name, xor_swizzle(2, 3, 3).name
    ('128B', 'none', 'xor:2,3,3')
    """
    if bits == 0:
        return SWIZZLE["none"]
    for row in SWIZZLE.values():
        if (row.bits, row.base, row.shift, row.flip_bytes) == (bits, base, shift, 0) and row.driver_code is not None:
            return row
    return Swizzle.xor(bits, base, shift)


@dataclass(frozen=True, slots=True)
class SharedLayout(Value):
    """A tile in shared memory: strides in elements, then a swizzle of absolute byte addresses.

    The first index is mn (or the row), the second k (or the column), as in CuTe's atoms.

    >>> atom = SharedLayout(ShapeStride((8, 64), (64, 1)), 16, Swizzle.named("128B"))
    >>> atom.addresses()[1, :16:8]
    array([144, 128])
    >>> atom.major, atom.tile() == Layout((8, 64), 16, swizzle="128B")
    ('K', True)
    """

    modes: ShapeStride  # in elements, as the notation nests them
    element_bits: int
    swizzle: Swizzle = row_field(Swizzle.named, default=SWIZZLE["none"])  # of byte addresses
    start: int = hex_field(default=0)  # absolute shared address of offset 0

    def __post_init__(self) -> None:
        problems = []

        def refuse(argument: str, found: str, limit: str, fix: str) -> None:
            problems.append(Violation("shared-layout", "error", argument, found, limit, fix))

        if min(stride for _, stride in self.modes.modes) < 0:
            refuse("modes", str(self.modes), "strides of at least 0", "Start at the lowest address.")
        elif self.modes.cosize > 2**48:
            refuse("modes", f"{self.modes.cosize} elements apart", "addresses below 2^48", "Use smaller strides.")
        if self.element_bits not in ELEMENT_BITS:
            known = ", ".join(map(str, ELEMENT_BITS))
            refuse("element_bits", f"{printed(self.element_bits)} bits", f"one of {known}", "Give the element's bits.")
        if not isinstance(self.start, int) or not 0 <= self.start < 2**48:
            refuse("start", printed(self.start), "an address from 0 to 2^48", "Give a shared address.")
        if problems:
            raise RuleError(problems)

    @classmethod
    def from_tile(cls, layout: Layout, major: Major = "K") -> SharedLayout:
        """A `Layout` as strides; with major "MN" its columns are the first index.

        >>> str(SharedLayout.from_tile(Layout((16, 32), 16, atom=(8, 16), swizzle="32B")).modes)
        '(16,(16,2)):(16,(1,256))'
        """
        below, beside = layout.atom_strides_bytes
        pitch, below, beside = (_elements(step, layout) for step in (layout.pitch_bytes, below, beside))
        high, wide = layout.atom_grid
        rows = ShapeStride((layout.atom[0], high), (pitch, below))
        columns = ShapeStride((layout.atom[1], wide), (1, beside))
        return cls(
            joined(rows, columns) if major == "K" else joined(columns, rows),
            layout.element_bits,
            layout.swizzle,
            layout.start,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each index, in elements."""
        return tuple(part.size for part in self.modes.parts)

    @property
    def major(self) -> Major | None:
        """Which index is contiguous: "K" the second, "MN" the first; None: neither, or more than two indices.

        >>> SharedLayout(ShapeStride((64, 8), (1, 64)), 16).major
        'MN'
        """
        parts = self._two_parts()
        if parts is None:
            return None
        (first_extent, first_stride), (second_extent, second_stride) = (part.coalesced().modes[0] for part in parts)
        if second_stride == 1:
            return "K"
        if first_stride == 1:
            return "MN"
        if second_extent == 1:
            return "K"
        return "MN" if first_extent == 1 else None

    @property
    def coalesced(self) -> SharedLayout:
        """The same addresses with the fewest modes per index.

        >>> nested = SharedLayout(ShapeStride(((8, 2), (64, 1)), ((64, 512), (1, 0))), 16)
        >>> str(nested.coalesced.modes)
        '(16,64):(64,1)'
        """
        return SharedLayout(joined(*self.modes.parts), self.element_bits, self.swizzle, self.start)

    def addresses(self) -> npt.NDArray[np.int64]:
        """Physical byte address of every element, as an array of the tile's shape."""
        offset = self._offsets() * self.element_bits
        return np.asarray(self.swizzle.apply(self.start + offset // 8), dtype=np.int64)

    def first_difference(self, other: SharedLayout) -> tuple[int, ...] | None:
        """The first index whose element lies elsewhere in `other`; None when every address is equal.

        Elements below a byte are compared to the bit.

        >>> a = SharedLayout(ShapeStride((8, 64), (64, 1)), 16, Swizzle.named("128B"))
        >>> b = SharedLayout(ShapeStride((8, 64), (64, 1)), 16, Swizzle.named("64B"))
        >>> a.first_difference(b), a.first_difference(a)
        ((4, 0), None)
        """
        if self.shape != other.shape or self.element_bits != other.element_bits:
            return (0,) * len(self.shape)
        differ = self.addresses() != other.addresses()
        if self.element_bits < 8:
            differ |= (self._offsets() - other._offsets()) * self.element_bits % 8 != 0
        found = np.argwhere(differ)
        return tuple(map(int, found[0])) if len(found) else None

    def tile(self) -> Layout:
        """The same addresses as a `Layout`: rows, columns, atoms, padding (see `major` for which index is which).

        >>> SharedLayout(ShapeStride((16, (64, 2)), (72, (1, 1152))), 16).tile().padding_bytes
        16
        """
        parts, major = self._two_parts(), self.major
        if parts is None:
            raise no_equivalent(
                f"{self.modes} has {len(self.modes.parts)} indices",
                "a Layout is a tile of two: mn and k, or row and column",
                f"Two of them are {self._of_two_indices()}: take that.",
            )
        if major is None:
            raise no_equivalent(
                f"{self.modes} has no index of stride 1",
                "the columns of a Layout are contiguous",
                "Write the tile as it lies in memory.",
            )
        rows, columns = parts if major == "K" else parts[::-1]
        wanted = joined(rows, columns)
        for atom, order, padding_bytes in _tilings(rows, columns, self.element_bits):
            layout = Layout(
                (rows.size, columns.size), self.element_bits, atom=atom, atom_order=order, padding_bytes=padding_bytes,
                swizzle=self.swizzle, start=self.start,
            )  # fmt: skip
            if SharedLayout.from_tile(layout).modes == wanted:
                return layout
        raise no_equivalent(
            f"rows {rows.coalesced()}, columns {columns.coalesced()}",
            "a Layout is a grid of equal atoms that follow each other by column or by row",
            "It can be evaluated and drawn, but has no name outside CuTe.",
        )

    def _two_parts(self) -> tuple[ShapeStride, ShapeStride] | None:
        parts = [part for place, part in enumerate(self.modes.parts) if place < 2 or part.size > 1]
        if len(parts) == 1:
            parts.insert(0, ShapeStride(1, 0))
        return (parts[0], parts[1]) if len(parts) == 2 else None

    def _of_two_indices(self) -> ShapeStride:
        """The tile inside more indices: ((mma mn, mma k), mn, k, stages) joined by mn and k, or the first two."""
        parts = self.modes.parts
        if 3 <= len(parts) <= 4 and len(parts[0].parts) == 2:
            (mma_mn, mma_k), mn, k = parts[0].parts, parts[1], parts[2]
            return joined(
                ShapeStride((mma_mn.shape, mn.shape), (mma_mn.stride, mn.stride)),
                ShapeStride((mma_k.shape, k.shape), (mma_k.stride, k.stride)),
            )
        return joined(*parts[:2])

    def _offsets(self) -> npt.NDArray[np.int64]:
        """The offset of every element before start and swizzle, in elements."""
        if self.modes.size > COMPARED_ELEMENTS:
            raise broken(
                "layout-size", "layout", f"{self.modes.size} elements", f"address maps of at most {COMPARED_ELEMENTS}",
                "Shared memory holds fewer: use the tile of one block.",
            )  # fmt: skip
        offset = np.zeros((), dtype=np.int64)
        for part in self.modes.parts:
            offset = np.add.outer(offset, part.evaluate(np.arange(part.size)))
        return offset

    def __str__(self) -> str:
        return f"{self.modes} of {self.element_bits} bits, swizzle {self.swizzle}, at {self.start:#x}"


def joined(*parts: ShapeStride) -> ShapeStride:
    """One layout with an index for each part, each with the fewest modes."""
    fewest = [part.coalesced() for part in parts]
    return ShapeStride(tuple(part.shape for part in fewest), tuple(part.stride for part in fewest))


def _elements(step_bytes: int, layout: Layout) -> int:
    if step_bytes * 8 % layout.element_bits:
        raise no_equivalent(
            f"{step_bytes} bytes from row to row of {layout.element_bits}-bit elements",
            "strides count whole elements",
            "Pad by whole elements.",
        )
    return step_bytes * 8 // layout.element_bits


def _tilings(
    rows: ShapeStride, columns: ShapeStride, element_bits: int
) -> Iterator[tuple[tuple[int, int], Literal["column", "row"], int]]:
    """Every (atom, order, padding) that the strides leave possible; whoever asks compares the result."""
    row_modes, column_modes = rows.coalesced().modes, columns.coalesced().modes
    wide_stride = column_modes[1][1] if len(column_modes) > 1 else 0
    atom_columns = column_modes[0][0]
    choices: tuple[tuple[int, int, Literal["column", "row"]], ...] = (
        (rows.size, row_modes[0][1] if rows.size > 1 else wide_stride or atom_columns, "column"),
        (row_modes[0][0], row_modes[0][1], "row"),
        (1, wide_stride, "row"),
    )
    for atom_rows, pitch, order in choices:
        padding_bits = (pitch - atom_columns) * element_bits
        whole = atom_columns * element_bits % 8 == 0 == padding_bits % 8
        if padding_bits >= 0 and whole and rows.size % atom_rows == 0 == columns.size % atom_columns:
            yield (atom_rows, atom_columns), order, padding_bits // 8


def shape_of(tree: IntTree) -> tuple[int, ...]:
    """The extents of the outermost level of a nested shape.

    >>> shape_of(((8, 2), 64)), shape_of(64)
    ((16, 64), (64,))
    """
    parts: Any = (tree,) if isinstance(tree, int) else tree
    return tuple(ShapeStride(part, part).size for part in parts)
