"""CuTe's shape:stride: a function from an index to an offset, written as two nested tuples.

The index is spread over the shape, first mode fastest; every digit is multiplied by its stride:

    ((4,8),(2,2)):((32,1),(16,8))        the A operand of mma.m16n8k8: (lane, value) → row + 16 * column

    index   =  t0 + 4 * t1 + 32 * v0 + 64 * v1          t0 < 4, t1 < 8, v0 < 2, v1 < 2
    offset  =  32 * t0 + 1 * t1 + 16 * v0 + 8 * v1

Without their nesting, the strides of one index are (extent, stride) pairs, fastest first: ((64, 16), (2, 65536)) is
(64,2):(16,65536).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, argument_type
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.sentence import format_value
from tilescope.value import Value

IntTree = int | tuple[Any, ...]  # an integer, or a tuple of such nested as deep as one likes
IntegerArray: TypeAlias = "npt.NDArray[np.integer[Any]]"
Index: TypeAlias = "int | IntegerArray"  # of one element, or of many
Pairs = tuple[tuple[int, int], ...]

SHAPE_STRIDE = rule(
    "shape-stride",
    "Shape and stride are integers, or tuples with the same nesting; extents are at least 1. A layout in shared "
    "memory has strides of at least 0, and at most five indices.",
    argument="shape, stride",
    found="{modes}",
    limit="shape and stride are integers or tuples with the same nesting; extents are at least 1",
    fix="Use one stride for every extent, as in (8,(4,2)):(4,(1,32)).",
    source="CuTe, Layout<Shape, Stride>",
    passing="ts.Layout.from_modes(((8, (4, 2)), (4, (1, 32))), 16)",
    failing="ts.Layout.from_modes(((8, (4, 2)), (4, 1)), 16)",
)
UNEVEN_GROUPS = SHAPE_STRIDE.worded(
    argument="extents",
    found="{extents} of {modes}",
    limit="every extent is a product of the modes in their order",
    fix="Cut the extents {mode_extents: x } in their order.",
)
TILE_TO_SHAPE = rule(
    "tile-to-shape",
    "A tile is a multiple of its block along every index.",
    argument="shape",
    found="a tile of {shape: x } from blocks of {block: x }",
    limit="tile_to_shape takes whole blocks, with one extent for every index",
    fix="Use {whole: x }.",
    source="CuTe, tile_to_shape",
    passing='ts.parse_layout("tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_16,_128>{})")',
    failing='ts.parse_layout("tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_12,_128>{})")',
)


def coalesced(*pairs: tuple[int, int]) -> Pairs:
    """The fewest (extent, stride) pairs with the same meaning.

    >>> coalesced((8, 2), (1, 7), (4, 16)), coalesced((1, 5))
    (((32, 2),), ((1, 0),))
    """
    merged: list[tuple[int, int]] = []
    for extent, stride in pairs:
        if extent > 1 and merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = merged[-1][0] * extent, merged[-1][1]
        elif extent > 1:
            merged.append((extent, stride))
    return tuple(merged) or ((1, 0),)


class Strides(NamedTuple):
    """Strides made ready for sums: for an index its inner (extent, stride) pairs and its last stride, in `unit`s of 1 / divisor.

    >>> Strides.of((((8, 1024),), ((64, 16), (2, 8192))), 8).offset((1, 72), 0x400)  # strides in bits, a byte address
    2192
    """

    indices: tuple[tuple[Pairs, int], ...]
    divisor: int  # 1 where all strides are whole units

    @classmethod
    def of(cls, pairs: tuple[Pairs, ...], unit: int = 1) -> Strides:
        """From the pairs of every index, for sums in units of `unit`."""
        is_whole = not any(stride % unit for index in pairs for _, stride in index)
        scale = unit if is_whole else 1
        indices = []
        for index in pairs:
            *inner, (_, last_stride) = index
            scaled = tuple((extent, stride // scale) for extent, stride in inner)
            indices.append((scaled, last_stride // scale))
        return cls(tuple(indices), 1 if is_whole else unit)

    def offset(self, coord: tuple[Index, ...], start: int = 0) -> Any:  # an integer of integers, an array of arrays
        """The start plus the offset of a coordinate, of integers or of arrays."""
        indices, divisor = self
        total: Any = start if divisor == 1 else 0
        for (inner, last), digits in zip(indices, coord, strict=True):
            remaining: Any = digits
            offset: Any = 0
            for extent, stride in inner:
                outer = remaining // extent
                offset = offset + (remaining - outer * extent) * stride  # % takes numpy far longer
                remaining = outer
            total = total + (offset + remaining * last)
        return total if divisor == 1 else start + total // divisor


class Step(NamedTuple):
    """A mode as a step through memory: how far it goes, how often, and what it counts."""

    stride: int
    extent: int
    place: int  # of its index among all
    weight: int  # what one step adds to that index


def steps_of(pairs: tuple[Pairs, ...]) -> list[Step]:
    """Every step, the smallest first.

    >>> [tuple(step) for step in steps_of((((8, 64), (2, 1)), ((4, 16),)))]
    [(1, 2, 0, 8), (16, 4, 1, 1), (64, 8, 0, 1)]
    """
    steps = []
    for place, index in enumerate(pairs):
        weight = 1
        for extent, stride in index:
            if extent > 1:
                steps.append(Step(stride, extent, place, weight))
            weight *= extent
    return sorted(steps)


@dataclass(frozen=True, slots=True)
class Modes(Value):
    """A hierarchical layout: `shape` and `stride` are integers or tuples with the same nesting.

    >>> tv = Modes(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    >>> print(tv, tv.size)
    ((4,8),(2,2)):((32,1),(16,8)) 128
    >>> tv.evaluate(22), tv.at(22, 1)  # lane 22, values 0 and 1
    (69, 85)
    >>> tv.pairs
    ((4, 32), (8, 1), (2, 16), (2, 8))
    """

    shape: IntTree
    stride: IntTree
    indices: tuple[Pairs, ...] = field(init=False, repr=False, compare=False)  # the pairs of every outermost mode

    def __post_init__(self) -> None:
        shape, stride = self.shape, self.stride
        if isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride):
            indices = tuple(map(_pair_leaves, shape, stride))
        else:
            indices = (_pair_leaves(shape, stride),)
        object.__setattr__(self, "indices", indices)
        if not indices or not all(indices):
            raise SHAPE_STRIDE.error(modes=str(self), shape=shape, stride=stride)

    @classmethod
    def of_indices(cls, indices: Iterable[Pairs]) -> Modes:
        """From the (extent, stride) pairs of every index, fastest first, with the minimum of nesting.

        >>> str(Modes.of_indices([((8, 4),), ((4, 1), (2, 32))]))
        '(8,(4,2)):(4,(1,32))'
        """
        shape, stride = [], []
        for index in indices:
            shape.append(_tree([extent for extent, _ in index]))
            stride.append(_tree([step for _, step in index]))
        return cls(tuple(shape), tuple(stride))

    @classmethod
    def joined(cls, *parts: Modes) -> Modes:
        """One layout with one index for a part, nested as the parts are.

        >>> str(Modes.joined(Modes(8, 4), Modes((4, 2), (1, 32))))
        '(8,(4,2)):(4,(1,32))'
        """
        return cls(tuple(part.shape for part in parts), tuple(part.stride for part in parts))

    @property
    def parts(self) -> tuple[Modes, ...]:
        """The modes of the outermost level, as separate layouts.

        >>> [str(part) for part in Modes((8, (4, 2)), (4, (1, 32))).parts]
        ['8:4', '(4,2):(1,32)']
        """
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(map(Modes, self.shape, self.stride))

    @property
    def is_matrix(self) -> bool:
        """Whether it is a plain matrix of rows and columns, without nested modes.

        >>> Modes((8, 64), (64, 1)).is_matrix, Modes(((4, 8), 2), ((2, 8), 1)).is_matrix
        (True, False)
        """
        return len(self.indices) == 2 and all(len(index) == 1 for index in self.indices)

    @property
    def pairs(self) -> Pairs:
        """(extent, stride) of every mode, fastest first, without the nesting."""
        return tuple(chain(*self.indices))

    @property
    def size(self) -> int:
        """How many indices there are."""
        return prod(extent for extent, _ in self.pairs)

    @property
    def cosize(self) -> int:
        """One more than the largest offset (for strides of at least 0)."""
        return 1 + sum((extent - 1) * stride for extent, stride in self.pairs)

    @overload
    def evaluate(self, index: int) -> int: ...
    @overload
    def evaluate(self, index: IntegerArray) -> npt.NDArray[np.int64]: ...
    def evaluate(self, index: Index) -> int | npt.NDArray[np.int64]:
        """The offset of an index, or of an array of them. The last mode continues beyond its extent.

        >>> Modes((4, 8), (32, 1)).evaluate(np.arange(6))
        array([ 0, 32, 64, 96,  1, 33])
        """
        offset: int | npt.NDArray[np.int64] = Strides.of((self.pairs,)).offset((index,))
        return offset

    @overload
    def at(self, *coord: int) -> int: ...
    @overload
    def at(self, *coord: IntegerArray) -> npt.NDArray[np.int64]: ...
    @overload
    def at(self, *coord: Index) -> int | npt.NDArray[np.int64]: ...
    def at(self, *coord: Index) -> int | npt.NDArray[np.int64]:
        """The offset of a coordinate with one index (or array) per outermost mode.

        >>> Modes(((4, 8), (2, 2)), ((32, 1), (16, 8))).at(1, 3)  # lane 1, value 3
        56
        """
        rank = len(self.indices)
        if len(coord) != rank:
            raise ARGUMENT_RANGE.error(
                argument="coord",
                found=f"{len(coord)} indices",
                limit=f"{self} has {rank} outermost modes",
                fix=f"Use {rank}: one index per mode.",
                indices=len(coord),
                modes=rank,
            )
        offset: int | npt.NDArray[np.int64] = Strides.of(self.indices).offset(coord)
        return offset

    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of every coordinate, with one axis per outermost mode.

        >>> Modes((2, 3), (10, 1)).offsets().tolist()
        [[0, 1, 2], [10, 11, 12]]
        """
        return self.at(*np.ix_(*(np.arange(part.size) for part in self.parts)))

    def coalesced(self) -> Modes:
        """The same function with the fewest modes: extents of 1 dropped, contiguous neighbours joined.

        >>> str(Modes((2, (4, 1), 3), (1, (2, 0), 9)).coalesced())
        '(8,3):(1,9)'
        """
        return Modes.of_indices([coalesced(*self.pairs)]).parts[0]

    def scaled(self, factor: int, divisor: int = 1) -> Modes | None:
        """The same shape with strides in another unit; None where one is no whole number of it.

        >>> str(Modes((8, 64), (64, 1)).scaled(16)), Modes((8, 64), (64, 1)).scaled(1, 2)
        ('(8,64):(1024,16)', None)
        """
        if any(stride * factor % divisor for _, stride in self.pairs):
            return None
        return Modes(self.shape, _scale_tree(self.stride, factor, divisor))

    def right_inverse(self) -> Modes:
        """The layout that leads from an offset back to its index, as far as offsets are hit without a gap.

        For a layout that is one to one onto 0 .. size - 1, its inverse:

        >>> str(Modes(((4, 8), (2, 2)), ((32, 1), (16, 8))).right_inverse())
        '(8,2,2,4):(4,64,32,1)'
        """
        inverse: list[tuple[int, int]] = []
        reached = 1
        for step in steps_of((self.pairs,)):
            if step.stride != reached:
                break
            inverse.append((step.extent, step.weight))
            reached *= step.extent
        return Modes.of_indices([tuple(inverse) or ((1, 0),)]).parts[0]

    def grouped(self, *extents: int) -> Modes:
        """The same function with its modes gathered into parts of `extents` indices; a mode is cut where it must be.

        >>> str(Modes((8, 2, 2, 4), (4, 64, 32, 1)).grouped(16, 8))
        '((8,2),(2,4)):((4,64),(32,1))'
        """
        pending = list(self.pairs)
        indices = []
        for part_extent in extents:
            part: list[tuple[int, int]] = []
            while (missing := part_extent // prod(extent for extent, _ in part)) > 1:
                extent, stride = pending.pop(0) if pending else (0, 0)
                if not extent or (missing % extent and extent % missing):
                    mode_extents = tuple(extent for extent, _ in self.pairs)
                    raise UNEVEN_GROUPS.error(extents=extents, modes=str(self), mode_extents=mode_extents)
                taken = min(extent, missing)
                part.append((taken, stride))
                if extent > taken:
                    pending.insert(0, (extent // taken, stride * taken))
            indices.append(coalesced(*part))
        return Modes.of_indices(indices)

    def repeated(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Modes:
        """The layout repeated until it fills `shape`, first along the index whose `order` is lowest: tile_to_shape.

        >>> str(Modes((8, 64), (64, 1)).repeated((16, 128), (1, 2)))
        '(16,(64,2)):(64,(1,1024))'
        """
        further = len(shape) - len(self.indices)  # indices along which there is one block
        indices: list[Pairs] = [*self.indices, *([((1, 0),)] * further)]
        block = tuple(prod(extent for extent, _ in index) for index in indices)
        if len(block) != len(shape) or any(extent % step for extent, step in zip(shape, block, strict=True)):
            rounded = tuple(rounded_up(extent, step) for extent, step in zip(shape, block, strict=False))
            raise TILE_TO_SHAPE.error(shape=shape, block=block, whole=rounded)
        step = self.cosize
        for index in sorted(range(len(shape)), key=lambda index: order[index]):
            count = shape[index] // block[index]
            indices[index] = coalesced(*indices[index], (count, step))
            step *= count
        return Modes.of_indices(indices)

    def __str__(self) -> str:
        return f"{_format_tree(self.shape)}:{_format_tree(self.stride)}"

    def __repr__(self) -> str:
        return f"Modes({self.shape}, {self.stride})"


def as_modes(modes: object) -> Modes:
    """Modes from a pair of shape and stride; modes stay themselves.

    >>> print(as_modes(((8, 64), (64, 1))))
    (8,64):(64,1)
    """
    if isinstance(modes, Modes):
        return modes
    if not isinstance(modes, tuple) or len(modes) != 2:
        fix = "Use ((8, 64), (64, 1)), for example."
        raise RuleError([argument_type("modes", modes, "a pair: shape, stride", fix)])
    return Modes(*modes)


def _tree(entries: list[int]) -> IntTree:
    return entries[0] if len(entries) == 1 else tuple(entries)


def _scale_tree(tree: IntTree, factor: int, divisor: int) -> IntTree:
    if isinstance(tree, int):
        return tree * factor // divisor
    return tuple(_scale_tree(branch, factor, divisor) for branch in tree)


def _pair_leaves(shape: object, stride: object) -> Pairs:
    """The (extent, stride) pairs of trees with the same nesting; empty if it differs."""
    if type(shape) is int and type(stride) is int:
        return ((shape, stride),) if shape >= 1 else ()
    if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(shape) != len(stride):
        return ()
    branches = [
        _pair_leaves(inner_shape, inner_stride) for inner_shape, inner_stride in zip(shape, stride, strict=True)
    ]
    return tuple(chain(*branches)) if all(branches) else ()


def _format_tree(tree: object) -> str:
    if isinstance(tree, tuple):
        return f"({','.join(map(_format_tree, tree))})"
    return str(tree) if isinstance(tree, int) else format_value(tree)
