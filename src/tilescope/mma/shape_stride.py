"""CuTe's shape:stride: a function from an index to an offset, written as two nested tuples.

The index is spread over the shape, first mode fastest; every digit is multiplied by its stride:

    ((4,8),(2,2)):((32,1),(16,8))        the A operand of mma.m16n8k8: (lane, value) → row + 16 * column

    index   =  t0 + 4 * t1 + 32 * v0 + 64 * v1          t0 < 4, t1 < 8, v0 < 2, v1 < 2
    offset  =  32 * t0 + 1 * t1 + 16 * v0 + 8 * v1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tilescope.errors import broken
from tilescope.value import Value

IntTree = int | tuple[Any, ...]  # an integer, or a tuple of such nested as deep as one likes


@dataclass(frozen=True, slots=True)
class ShapeStride(Value):
    """A hierarchical layout: `shape` and `stride` are integers or tuples nested alike.

    >>> tv = ShapeStride(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    >>> print(tv, tv.size)
    ((4,8),(2,2)):((32,1),(16,8)) 128
    >>> tv.evaluate(22), tv.at(22, 1)  # lane 22, values 0 and 1
    (69, 85)
    """

    shape: IntTree
    stride: IntTree

    def __post_init__(self) -> None:
        if not _alike(self.shape, self.stride):
            raise broken(
                "shape-stride",
                "shape, stride",
                f"{_shown(self.shape)}:{_shown(self.stride)}",
                "shape and stride are integers or tuples of such nested alike; extents are at least 1",
                "Write one stride for every extent.",
            )

    @property
    def modes(self) -> tuple[tuple[int, int], ...]:
        """All (extent, stride) pairs, fastest first, without the nesting.

        >>> ShapeStride((8, (4, 2)), (4, (1, 32))).modes
        ((8, 4), (4, 1), (2, 32))
        """
        return tuple(zip(_leaves(self.shape), _leaves(self.stride), strict=True))

    @property
    def parts(self) -> tuple[ShapeStride, ...]:
        """The modes of the outermost level, each a layout of its own.

        >>> [str(part) for part in ShapeStride((8, (4, 2)), (4, (1, 32))).parts]
        ['8:4', '(4,2):(1,32)']
        """
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(map(ShapeStride, self.shape, self.stride))

    @property
    def size(self) -> int:
        """How many indices there are."""
        return prod(_leaves(self.shape))

    @property
    def cosize(self) -> int:
        """One more than the largest offset (for strides of at least 0)."""
        return 1 + sum((extent - 1) * stride for extent, stride in self.modes)

    @overload
    def evaluate(self, index: int) -> int: ...
    @overload
    def evaluate(self, index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]: ...
    def evaluate(self, index: Any) -> Any:
        """The offset of an index, or of an array of them. The last mode continues beyond its extent.

        >>> ShapeStride((4, 8), (32, 1)).evaluate(np.arange(6))
        array([ 0, 32, 64, 96,  1, 33])
        """
        offset = 0
        modes = self.modes
        for extent, stride in modes[:-1]:
            offset = offset + index % extent * stride
            index = index // extent
        return offset + index * modes[-1][1]

    @overload
    def at(self, *coord: int) -> int: ...
    @overload
    def at(self, *coord: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]: ...
    def at(self, *coord: Any) -> Any:
        """The offset of a coordinate with one index (or array) per outermost mode.

        >>> ShapeStride(((4, 8), (2, 2)), ((32, 1), (16, 8))).at(1, 3)  # lane 1, value 3
        56
        """
        parts = self.parts
        if len(coord) != len(parts):
            raise broken(
                "shape-stride",
                "coord",
                f"{len(coord)} indices",
                f"{self} has {len(parts)} outermost modes",
                "Give one index per mode.",
            )
        return sum(part.evaluate(index) for part, index in zip(parts, coord, strict=True))

    def coalesced(self) -> ShapeStride:
        """The same function with the fewest modes: extents of 1 dropped, contiguous neighbours joined.

        >>> str(ShapeStride((2, (4, 1), 3), (1, (2, 0), 9)).coalesced())
        '(8,3):(1,9)'
        """
        kept: list[tuple[int, int]] = []
        for extent, stride in self.modes:
            if extent == 1:
                continue
            if kept and stride == kept[-1][0] * kept[-1][1]:
                kept[-1] = kept[-1][0] * extent, kept[-1][1]
            else:
                kept.append((extent, stride))
        return _from_modes(kept)

    def right_inverse(self) -> ShapeStride:
        """The layout that leads from an offset back to its index, as far as offsets are hit without a gap.

        For a layout that is one to one onto 0 .. size - 1, its inverse:

        >>> str(ShapeStride(((4, 8), (2, 2)), ((32, 1), (16, 8))).right_inverse())
        '(8,2,2,4):(4,64,32,1)'
        """
        index_strides, weight = [], 1
        for extent, stride in self.modes:
            index_strides.append((stride, extent, weight))
            weight *= extent
        found: list[tuple[int, int]] = []
        reached = 1
        for stride, extent, weight in sorted(index_strides):
            if extent == 1:
                continue
            if stride != reached:
                break
            found.append((extent, weight))
            reached *= extent
        return _from_modes(found)

    def grouped(self, *extents: int) -> ShapeStride:
        """The same function with its modes gathered into parts of `extents` indices; a mode is cut where it must be.

        >>> str(ShapeStride((8, 2, 2, 4), (4, 64, 32, 1)).grouped(16, 8))
        '((8,2),(2,4)):((4,64),(32,1))'
        """
        pending = list(self.modes)
        parts = []
        for wanted in extents:
            part: list[tuple[int, int]] = []
            while (missing := wanted // prod(extent for extent, _ in part)) > 1:
                extent, stride = pending.pop(0) if pending else (0, 0)
                if not extent or (missing % extent and extent % missing):
                    raise broken(
                        "shape-stride",
                        "extents",
                        f"{extents} of {self}",
                        "each extent is a product of the modes in their order",
                        "Group by extents that the modes can be cut into.",
                    )
                taken = min(extent, missing)
                part.append((taken, stride))
                if extent > taken:
                    pending.insert(0, (extent // taken, stride * taken))
            parts.append(_from_modes(part).coalesced())
        return ShapeStride(tuple(part.shape for part in parts), tuple(part.stride for part in parts))

    def __str__(self) -> str:
        return f"{_shown(self.shape)}:{_shown(self.stride)}"


def _from_modes(modes: list[tuple[int, int]]) -> ShapeStride:
    if len(modes) == 1:
        return ShapeStride(*modes[0])
    if not modes:
        return ShapeStride(1, 0)
    return ShapeStride(tuple(extent for extent, _ in modes), tuple(stride for _, stride in modes))


def _leaves(tree: Any) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        for branch in tree:
            yield from _leaves(branch)


def _alike(shape: Any, stride: Any) -> bool:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return len(shape) == len(stride) > 0 and all(map(_alike, shape, stride))
    plain = all(isinstance(each, int) and not isinstance(each, bool) for each in (shape, stride))
    return plain and shape >= 1


def _shown(tree: Any) -> str:
    return f"({','.join(map(_shown, tree))})" if isinstance(tree, tuple) else str(tree)
