"""The byte address of every element of a tile in shared memory, and the element at every address.

    address = swizzle( start + (sum over the indices of digit * stride) / 8 )          strides in bits

    Layout((64, 128), 16, atom=(8, 64), swizzle="128B")            (mn, k), k contiguous

    mn  →  64:128 bytes                 one column of atoms after the other
    k   →  (64, 2):(2, 8192) bytes      64 elements of an atom's row, then the next column of atoms

A tile is made of equal atoms (tiling.py), or of any nested modes (modes.py), as CuTe prints them. Its first index is mn
(rows of A, columns of B), its second k. Rows and columns, with the contiguous index left to right, exist where a tile is
drawn or read by threads: `as_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from math import prod
from typing import Any, ClassVar, Self, overload

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.layout.checks import LAYOUT_SIZE, POINTER_BYTES, checked_indices, checked_modes, checked_tiling
from tilescope.layout.modes import IntTree, Modes, Pairs, Strides, coalesced, steps_of
from tilescope.layout.terms import AddressTerms
from tilescope.layout.tiling import (
    AtomOrder,
    Major,
    Rows,
    Tiling,
    contiguous,
    find_tiling,
    major_named,
    mn_k_first,
    oriented,
)
from tilescope.reading import integer, plain_int
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, hex_field, row_field

MAX_ELEMENTS = 2**22  # of an address map: shared memory holds fewer, even of one bit
Addresses = npt.NDArray[np.int64]
_TOLD_BY_MODES = ("shape", "atom", "atom_order", "padding_bytes", "major", "nesting")


@dataclass(frozen=True, init=False, eq=False)  # without slots: derived values are cached
class Layout(Value):
    """A tile of `shape` (mn, k) elements in shared memory; k is contiguous, with `major="MN"` mn.

    >>> tile = Layout((64, 64), 16, swizzle="128B", start=0x400)
    >>> hex(tile.address(1, 0)), hex(tile.address(0, 8)), tile.locate(0x490)
    ('0x490', '0x410', (1, 0))
    >>> Layout((128, 16), 16, atom=(64, 8), swizzle="128B", major="MN").address(1, 0)  # mn 1 follows mn 0
    2

    Two layouts are equal if all addresses are equal, in any notation:

    >>> Layout((64, 64), 16, atom=(8, 64)) == Layout.from_modes(((64, 64), (64, 1)), 16)
    True
    """

    shape: tuple[int, ...]  # extents of the indices in elements
    element_bits: int
    atom: tuple[int, int] | None  # mn x k elements that are stored whole; None: the modes are not a grid of atoms
    atom_order: AtomOrder | None
    padding_bytes: int | None  # after every row of an atom
    major: Major | None  # the contiguous index of two; None: neither is, or there are more
    swizzle: Swizzle = row_field(Swizzle.named)
    start: int = hex_field()  # absolute shared address of the first logical byte
    nesting: Modes | None = None  # in bits, as a notation nests them; None: the fewest modes for an index

    unit_bits: ClassVar[int] = 8  # what an address counts

    def __init__(
        self,
        shape: tuple[int, int],
        element_bits: int,
        *,
        atom: tuple[int, int] | None = None,
        atom_order: AtomOrder = "column",
        padding_bytes: int = 0,
        major: Major = "K",
        swizzle: SwizzleName | str | Swizzle = "none",
        start: int = 0,
    ) -> None:
        row = Swizzle.named(swizzle)
        major = major_named(major)
        tile = checked_tiling(
            shape,
            element_bits,
            major,
            atom=atom,
            atom_order=atom_order,
            padding_bytes=padding_bytes,
            start=start,
        )
        self.__dict__.update(tile._asdict(), major=major, swizzle=row, nesting=None)

    @classmethod
    def from_modes(
        cls,
        modes: Modes | tuple[IntTree, IntTree],
        element_bits: int,
        *,
        unit_bits: int | None = None,
        swizzle: SwizzleName | str | Swizzle = "none",
        start: int = 0,
    ) -> Self:
        """Any nested modes, (shape, stride) as CuTe writes them; strides count elements, or `unit_bits`.

        >>> scales = Layout.from_modes((((32, 4), 4), ((16, 4), 1)), 8)  # scale factors of a block-scaled operand
        >>> scales.shape, scales.address(33, 2), scales.locate(22), scales.size_bytes
        ((128, 4), 22, (33, 2), 512)
        """
        row = Swizzle.named(swizzle)
        nesting = checked_modes(modes, element_bits, unit_bits, start)
        bits = plain_int(element_bits) or 0
        pairs = tuple(coalesced(*index) for index in nesting.indices)
        major = contiguous(pairs, bits)
        tiling = None if major is None else find_tiling(*oriented(major, *pairs), bits)
        is_plain = tiling is not None and nesting.indices == pairs and nesting == Modes.of_indices(pairs)
        layout = object.__new__(cls)
        layout.__dict__.update(
            shape=tuple(prod(extent for extent, _ in index) for index in pairs),
            element_bits=bits,
            atom=None if tiling is None else oriented(major, *tiling.atom),
            atom_order=None if tiling is None else tiling.atom_order,
            padding_bytes=None if tiling is None else tiling.padding_bytes,
            major=major,
            swizzle=row,
            start=plain_int(start) or 0,
            nesting=None if is_plain else nesting,
            tiling=tiling,
            pairs=pairs,
        )
        return layout

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The layout that `to_dict` described."""
        nesting = data.get("nesting") if isinstance(data, Mapping) else None
        if nesting is None:
            if isinstance(data, Mapping):
                data = {name: data[name] for name in data if name != "nesting"}
            return super().from_dict(data)
        common = super().from_dict(
            {name: data[name] for name in data if name not in _TOLD_BY_MODES} | {"shape": (8, 8)}
        )
        modes = Modes.from_dict(nesting)
        return cls.from_modes(modes, common.element_bits, unit_bits=1, swizzle=common.swizzle, start=common.start)

    @cached_property
    def pairs(self) -> tuple[Pairs, ...]:
        """(extent, stride in bits) pairs of every index, merged as far as possible."""
        if self.nesting is not None:
            return tuple(coalesced(*index) for index in self.nesting.indices)
        assert self.tiling is not None
        return oriented(self.major, *self.tiling.pairs())

    @cached_property
    def tiling(self) -> Tiling | None:
        """The grid of atoms in rows and columns, or None."""
        if self.atom is None or self.atom_order is None or self.padding_bytes is None:
            return None
        mn, k = self.shape
        shape = oriented(self.major, mn, k)
        atom = oriented(self.major, *self.atom)
        return Tiling(shape, self.element_bits, atom, self.atom_order, self.padding_bytes)

    @cached_property
    def _strides(self) -> Strides:
        return Strides.of(self.pairs, self.unit_bits)

    @property
    def bit_modes(self) -> Modes:
        """The nested modes with strides in bits."""
        return Modes.of_indices(self.pairs) if self.nesting is None else self.nesting

    @property
    def modes(self) -> Modes | None:
        """The nested modes with strides in elements; None if a stride is not a whole number of elements.

        >>> print(Layout((16, 128), 16, atom=(8, 64)).modes)
        (16,(64,2)):(64,(1,1024))
        """
        return self.bit_modes.scaled(1, self.element_bits)

    @property
    def elements(self) -> int:
        """The number of elements of the tile."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Shared memory from the first logical byte to the end of the last element (or atom, with its padding)."""
        if self.tiling is not None:
            return self.tiling.size_bytes
        last = sum((extent - 1) * stride for extent, stride in chain(*self.pairs))
        return ceil_div(last + self.element_bits, self.unit_bits)

    @property
    def alignment_bytes(self) -> int:
        """Alignment of `start` at which the swizzle pattern starts at its first line."""
        return max(self.swizzle.repeat_bytes, SMEM_LINE_BYTES)

    def with_start(self, start: int) -> Layout:
        """The same tile at another shared address."""
        moved = copy(self)
        object.__setattr__(moved, "start", integer("start", start, 0, POINTER_BYTES - 1))
        return moved

    @overload
    def logical(self, *coord: int) -> int: ...
    @overload
    def logical(self, *coord: npt.ArrayLike) -> Addresses: ...
    def logical(self, *coord: npt.ArrayLike) -> int | Addresses:
        """Address before the swizzle; for elements below a byte, of the byte that holds the first bit."""
        address: int | Addresses = self._strides.offset(checked_indices(self, coord), self.start)
        return address

    @overload
    def address(self, *coord: int) -> int: ...
    @overload
    def address(self, *coord: npt.ArrayLike) -> Addresses: ...
    def address(self, *coord: npt.ArrayLike) -> int | Addresses:
        """Physical byte address of element (mn, k); arrays broadcast."""
        address: int | Addresses = self.swizzle.apply(self._strides.offset(checked_indices(self, coord), self.start))
        return address

    def addresses(self) -> Addresses:
        """Physical byte address of every element, as an array of the tile's shape."""
        addresses: Addresses = self.swizzle.apply(self._strides.offset(self._grid(), self.start))
        return addresses

    def locate(self, address: int) -> tuple[int, ...] | None:
        """The element at a physical shared address; None for padding and bytes outside the tile.

        Where elements are narrower than a byte or not a whole number of them, the one with the byte's first bit.

        >>> Layout((2, 64), 16, padding_bytes=16).locate(0x80) is None
        True
        """
        return self._locate_bit((self.swizzle.apply(integer("address", address, 0)) - self.start) * self.unit_bits)

    def _locate_bit(self, bit: int) -> tuple[int, ...] | None:
        """The element that holds a bit, counted from the start before the swizzle; None where there is none."""
        if not 0 <= bit < self.size_bytes * self.unit_bits:
            return None
        coord = [0] * len(self.shape)
        remaining = bit
        steps = [step for step in steps_of(self.pairs) if step.stride]
        for step in reversed(steps):
            digit = min(remaining // step.stride, step.extent - 1)
            coord[step.place] += digit * step.weight
            remaining -= digit * step.stride
        if remaining < self.element_bits:
            return tuple(coord)
        reached = list(accumulate(((step.extent - 1) * step.stride for step in steps), initial=self.element_bits))
        if all(step.stride >= before for step, before in zip(steps, reached, strict=False)):
            return None  # no step overlaps another: an element that was not found does not exist
        offset = self.bit_offsets()
        found_at = np.argwhere((offset <= bit) & (bit < offset + self.element_bits))
        return tuple(found_at[0].tolist()) if len(found_at) else None

    def first_difference(self, other: Layout) -> tuple[int, ...] | None:
        """The first index whose element is elsewhere in `other`; None if every address is equal.

        Elements below a byte are compared to the bit.

        >>> Layout((8, 64), 16, swizzle="128B").first_difference(Layout((8, 64), 16, swizzle="64B"))
        (4, 0)
        """
        if self == other:
            return None
        if self.shape != other.shape or self.element_bits != other.element_bits:
            return (0,) * len(self.shape)
        differ = self.addresses() != other.addresses()
        if self.element_bits % self.unit_bits:
            differ |= (self.bit_offsets() - other.bit_offsets()) % self.unit_bits != 0
        places = np.argwhere(differ)
        return tuple(places[0].tolist()) if len(places) else None

    def terms(self, *names: str) -> AddressTerms:
        """The address as data that prints as C, Python or PTX; `names` are those of the indices.

        >>> Layout((16, 128), 16, atom=(8, 64), atom_order="row").terms().c
        'base + mn / 8 * 2048 + mn % 8 * 128 + k / 64 * 1024 + k % 64 * 2'
        """
        pairs = tuple(tuple(map(self._pair_in_bytes, index)) for index in self.pairs)
        return AddressTerms.of(pairs, names or self.names, self.swizzle)

    def _pair_in_bytes(self, pair: tuple[int, int]) -> tuple[int, int]:
        """A mode with its stride in bytes."""
        extent, stride = pair
        return extent, stride * 8 // self.unit_bits

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the indices: mn and k if there are two."""
        if len(self.shape) == 2:
            return "mn", "k"
        return tuple(f"i{place}" for place in range(len(self.shape)))

    @property
    def c_expression(self) -> str:
        """The physical address in C, with `unsigned a` declared: r is the strided index of two, c the contiguous one.

        >>> Layout((64, 64), 16, swizzle="128B").c_expression
        '(a = base + r * 128 + c * 2, a ^ ((a >> 3) & 0x70))'
        >>> Layout((8, 33), 32, padding_bytes=4).c_expression
        'base + r * 136 + c * 4'
        """
        if len(self.shape) != 2:
            return self.terms().c
        return AddressTerms.of(oriented(self.major, *self.pairs), ("r", "c"), self.swizzle).c

    def as_rows(self) -> Rows:
        """The tile as rows and columns, its contiguous index left to right; further indices are rows below.

        >>> rows = Layout((128, 16), 16, atom=(64, 8), swizzle="128B", major="MN").as_rows()
        >>> rows.shape, rows.names, rows.address(1, 0)
        ((16, 128), ('k', 'mn'), 144)
        """
        first, second, *further = self._mn_k_first()
        names = ("", "i0") if len(self.shape) == 1 else ("mn", "k")
        major = self.major or ("MN" if first[0][1] == self.element_bits != second[0][1] else "K")
        (rows, row_name), (columns, column_name) = oriented(major, (first, names[0]), (second, names[1]))
        rows = coalesced(*chain(rows, *further)) if further else rows
        return Rows(self, (rows, columns), (row_name, column_name))

    def stage(self) -> Layout | None:
        """The tile of mn x k that further indices repeat; None if the first indices do not form such a tile.

        >>> Layout.from_modes((((128, 16), 1, 4, 2), ((64, 1), 0, 16, 8192)), 16, swizzle="128B").stage()
        Layout((128, 64), 16, swizzle="128B")
        """
        first = Modes.of_indices(self._mn_k_first()[:2])
        tile = Layout.from_modes(first, self.element_bits, unit_bits=1, swizzle=self.swizzle, start=self.start)
        return None if tile.atom is None else tile

    def _mn_k_first(self) -> tuple[Pairs, ...]:
        return self.pairs if len(self.pairs) == 2 else mn_k_first(self.bit_modes, self.element_bits)

    def _grid(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Indices of all elements, which broadcast to the tile's shape."""
        if self.elements > MAX_ELEMENTS:
            raise LAYOUT_SIZE.error(elements=self.elements, most_elements=MAX_ELEMENTS)
        return np.ix_(*map(np.arange, self.shape))

    def bit_offsets(self) -> Addresses:
        """Bits from the start to every element before the swizzle, as an array of the tile's shape."""
        return np.asarray(Strides.of(self.pairs).offset(self._grid()), np.int64)

    def _map(self) -> tuple[object, ...]:
        """What makes two layouts equal: every address."""
        return self.pairs, self.element_bits, self.start, self.swizzle.moves

    def __eq__(self, other: object) -> bool:
        return self._map() == other._map() if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._map())

    def __repr__(self) -> str:
        """The call that makes it; `parse_layout` reads it too."""
        arguments = self._modes_said() if self.atom is None else self._atoms_said()
        if self.swizzle.name != "none":
            arguments.append(f'swizzle="{self.swizzle.name}"')
        if self.start:
            arguments.append(f"start={self.start:#x}")
        call = "Layout.from_modes" if self.atom is None else "Layout"
        return f"{call}({', '.join(arguments)})"

    def _modes_said(self) -> list[str]:
        """The arguments of `from_modes`, strides in elements or else in bits."""
        modes = self.modes
        if modes is None:
            return [repr(self.bit_modes).removeprefix("Modes"), f"{self.element_bits}", "unit_bits=1"]
        return [repr(modes).removeprefix("Modes"), f"{self.element_bits}"]

    def _atoms_said(self) -> list[str]:
        """The arguments of a tile of atoms, defaults left out."""
        arguments = [f"{self.shape}", f"{self.element_bits}"]
        if self.atom != self.shape:
            arguments.append(f"atom={self.atom}")
        if self.atom_order != "column":
            arguments.append(f'atom_order="{self.atom_order}"')
        if self.padding_bytes:
            arguments.append(f"padding_bytes={self.padding_bytes}")
        if self.major == "MN":
            arguments.append('major="MN"')
        return arguments
