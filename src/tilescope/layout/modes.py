"""CuTe's shape:stride: a function from an index to an offset, written as two nested tuples.

The index is spread over the shape, first mode fastest; every digit is multiplied by its stride:

    ((4,8),(2,2)):((32,1),(16,8))        the A operand of mma.m16n8k8: (lane, value) → row + 16 * column

    index   =  t0 + 4 * t1 + 32 * v0 + 64 * v1          t0 < 4, t1 < 8, v0 < 2, v1 < 2
    offset  =  32 * t0 + 1 * t1 + 16 * v0 + 8 * v1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tilescope.errors import by, printed
from tilescope.layout.pairs import coalesced, steps_of, summed
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, rule
from tilescope.value import Value

IntTree = int | tuple[Any, ...]  # an integer, or a tuple of such nested as deep as one likes

SHAPE_STRIDE = rule(
    "shape-stride",
    "Shape and stride are integers, or tuples nested alike; extents are at least 1. Of a layout in shared memory, "
    "strides are at least 0, for at most five indices.",
    source="CuTe, Layout<Shape, Stride>",
    passing="ts.Layout.from_modes(((8, (4, 2)), (4, (1, 32))), 16)",
    failing="ts.Layout.from_modes(((8, (4, 2)), (4, 1)), 16)",
)
TILE_TO_SHAPE = rule(
    "tile-to-shape",
    "A tile made of a block is a whole number of blocks along each of its indices.",
    source="CuTe, tile_to_shape",
    passing='ts.parse_layout("tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_16,_128>{})")',
    failing='ts.parse_layout("tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_12,_128>{})")',
)


@dataclass(frozen=True, slots=True)
class Modes(Value):
    """A hierarchical layout: `shape` and `stride` are integers or tuples nested alike.

    >>> tv = Modes(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    >>> print(tv, tv.size)
    ((4,8),(2,2)):((32,1),(16,8)) 128
    >>> tv.evaluate(22), tv.at(22, 1)  # lane 22, values 0 and 1
    (69, 85)
    """

    shape: IntTree
    stride: IntTree

    def __post_init__(self) -> None:
        if not _alike(self.shape, self.stride):
            raise SHAPE_STRIDE.error(
                "shape, stride", f"{_shown(self.shape)}:{_shown(self.stride)}",
                "shape and stride are integers or tuples of such nested alike; extents are at least 1",
                "Use one stride for every extent, as in (8,(4,2)):(4,(1,32)).",
            )  # fmt: skip

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Modes:
        """From (extent, stride) pairs, fastest first; 1:0 where there is none.

        >>> str(Modes.of_pairs([(8, 4), (2, 32)])), str(Modes.of_pairs([(8, 4)]))
        ('(8,2):(4,32)', '8:4')
        """
        extents, strides = tuple(zip(*pairs, strict=True)) or ((1,), (0,))
        return cls(extents, strides) if len(extents) > 1 else cls(extents[0], strides[0])

    @classmethod
    def joined(cls, *parts: Modes) -> Modes:
        """One layout with an index for each part, nested as the parts are.

        >>> str(Modes.joined(Modes(8, 4), Modes((4, 2), (1, 32))))
        '(8,(4,2)):(4,(1,32))'
        """
        return cls(tuple(part.shape for part in parts), tuple(part.stride for part in parts))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All (extent, stride) pairs, fastest first, without the nesting.

        >>> Modes((8, (4, 2)), (4, (1, 32))).pairs
        ((8, 4), (4, 1), (2, 32))
        """
        return tuple(zip(_leaves(self.shape), _leaves(self.stride), strict=True))

    @property
    def parts(self) -> tuple[Modes, ...]:
        """The modes of the outermost level, each a layout of its own.

        >>> [str(part) for part in Modes((8, (4, 2)), (4, (1, 32))).parts]
        ['8:4', '(4,2):(1,32)']
        """
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(map(Modes, self.shape, self.stride))

    @property
    def size(self) -> int:
        """How many indices there are."""
        return prod(_leaves(self.shape))

    @property
    def cosize(self) -> int:
        """One more than the largest offset (for strides of at least 0)."""
        return 1 + sum((extent - 1) * stride for extent, stride in self.pairs)

    @overload
    def evaluate(self, index: int) -> int: ...
    @overload
    def evaluate(self, index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]: ...
    def evaluate(self, index: Any) -> Any:
        """The offset of an index, or of an array of them. The last mode continues beyond its extent.

        >>> Modes((4, 8), (32, 1)).evaluate(np.arange(6))
        array([ 0, 32, 64, 96,  1, 33])
        """
        return summed((self.pairs,), (index,))

    @overload
    def at(self, *coord: int) -> int: ...
    @overload
    def at(self, *coord: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]: ...
    def at(self, *coord: Any) -> Any:
        """The offset of a coordinate with one index (or array) per outermost mode.

        >>> Modes(((4, 8), (2, 2)), ((32, 1), (16, 8))).at(1, 3)  # lane 1, value 3
        56
        """
        parts = self.parts
        if len(coord) != len(parts):
            found, limit = f"{len(coord)} indices", f"{self} has {len(parts)} outermost modes"
            raise ARGUMENT_RANGE.error(
                "coord",
                found,
                limit,
                f"Use {len(parts)}: one index per mode.",
                indices=len(coord),
                modes=len(parts),
            )
        return summed(tuple(part.pairs for part in parts), coord)

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
        return Modes.of_pairs(coalesced(*self.pairs))

    def by_index(self) -> Modes:
        """The same function with the fewest modes for each index: equal for equal functions of a shape.

        >>> str(Modes(((8, 2), (64, 1)), ((64, 512), (1, 0))).by_index())
        '(16,64):(64,1)'
        """
        return Modes.joined(*(part.coalesced() for part in self.parts))

    def scaled(self, factor: int, divisor: int = 1) -> Modes | None:
        """The same shape with strides in another unit; None where one is no whole number of it.

        >>> str(Modes((8, 64), (64, 1)).scaled(16)), Modes((8, 64), (64, 1)).scaled(1, 2)
        ('(8,64):(1024,16)', None)
        """
        if any(stride * factor % divisor for _, stride in self.pairs):
            return None
        return Modes(self.shape, _mapped(self.stride, factor, divisor))

    def right_inverse(self) -> Modes:
        """The layout that leads from an offset back to its index, as far as offsets are hit without a gap.

        For a layout that is one to one onto 0 .. size - 1, its inverse:

        >>> str(Modes(((4, 8), (2, 2)), ((32, 1), (16, 8))).right_inverse())
        '(8,2,2,4):(4,64,32,1)'
        """
        inverse: list[tuple[int, int]] = []
        reached = 1
        for stride, extent, _, weight in steps_of((self.pairs,)):
            if stride != reached:
                break
            inverse.append((extent, weight))
            reached *= extent
        return Modes.of_pairs(inverse)

    def grouped(self, *extents: int) -> Modes:
        """The same function with its modes gathered into parts of `extents` indices; a mode is cut where it must be.

        >>> str(Modes((8, 2, 2, 4), (4, 64, 32, 1)).grouped(16, 8))
        '((8,2),(2,4)):((4,64),(32,1))'
        """
        pending = list(self.pairs)
        parts = []
        for wanted in extents:
            part: list[tuple[int, int]] = []
            while (missing := wanted // prod(extent for extent, _ in part)) > 1:
                extent, stride = pending.pop(0) if pending else (0, 0)
                if not extent or (missing % extent and extent % missing):
                    limit = "every extent is a product of the modes in their order"
                    fix = f"Cut the extents {by(extent for extent, _ in self.pairs)} in their order."
                    raise SHAPE_STRIDE.error("extents", f"{extents} of {self}", limit, fix)
                taken = min(extent, missing)
                part.append((taken, stride))
                if extent > taken:
                    pending.insert(0, (extent // taken, stride * taken))
            parts.append(Modes.of_pairs(part).coalesced())
        return Modes.joined(*parts)

    def repeated(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Modes:
        """The layout repeated until it fills `shape`, first along the index whose `order` is lowest: tile_to_shape.

        >>> str(Modes((8, 64), (64, 1)).repeated((16, 128), (1, 2)))
        '(16,(64,2)):(64,(1,1024))'
        """
        blocks = [*self.parts, *[Modes(1, 0)] * (len(shape) - len(self.parts))]
        if len(blocks) != len(shape) or any(extent % part.size for extent, part in zip(shape, blocks, strict=True)):
            found, block = f"a tile of {by(shape)}", by(part.size for part in blocks)
            limit = "tile_to_shape takes whole blocks, with an extent for each index"
            raise TILE_TO_SHAPE.error(
                "shape", f"{found} from blocks of {block}", limit, f"Use multiples of {block}.", shape=shape
            )
        step, repeats = self.cosize, {}
        for index in sorted(range(len(shape)), key=lambda index: order[index]):
            count = shape[index] // blocks[index].size
            repeats[index] = Modes(count, step)
            step *= count
        return Modes.joined(*(Modes.joined(block, repeats[index]).coalesced() for index, block in enumerate(blocks)))

    def __str__(self) -> str:
        return f"{_shown(self.shape)}:{_shown(self.stride)}"

    def __repr__(self) -> str:
        return f"Modes({self.shape}, {self.stride})"


def as_modes(modes: Any) -> Modes:
    """Modes from a pair of shape and stride.

    >>> print(as_modes(((8, 64), (64, 1))))
    (8,64):(64,1)
    """
    if not isinstance(modes, tuple) or len(modes) != 2:
        raise ARGUMENT_TYPE.error(
            "modes", printed(modes), "a pair: shape, stride", "Use ((8, 64), (64, 1)), for example."
        )
    return Modes(*modes)


def _leaves(tree: Any) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        for branch in tree:
            yield from _leaves(branch)


def _mapped(tree: Any, factor: int, divisor: int) -> Any:
    return (
        tree * factor // divisor
        if isinstance(tree, int)
        else tuple(_mapped(branch, factor, divisor) for branch in tree)
    )


def _alike(shape: Any, stride: Any) -> bool:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return len(shape) == len(stride) > 0 and all(map(_alike, shape, stride))
    plain = all(isinstance(number, int) and not isinstance(number, bool) for number in (shape, stride))
    return plain and shape >= 1


def _shown(tree: Any) -> str:
    if isinstance(tree, tuple):
        return f"({','.join(map(_shown, tree))})"
    return str(tree) if isinstance(tree, int) else printed(tree)
