"""What a map's arguments say, and the sizes that follow from them; whether they are sound is for the rules.

Geometry            the tensor in global memory, and the options
├── TiledGeometry   box: a box of up to five dimensions
├── Im2colGeometry  corners, channels, pixels: a column of pixels of a convolution
└── WideGeometry    the same along W only

Everything is innermost first and in the driver's units: elements for dims and box, bytes for strides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from operator import floordiv
from typing import Any, ClassVar, Literal

from tilescope.arch import Arch, Basis
from tilescope.data_type import DataType
from tilescope.errors import Violation, ceil_div
from tilescope.swizzle import Swizzle
from tilescope.tensor_map.checking import Subject
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.value import Value, hex_field, row_field

WideMode = Literal["W", "W128"]
WIDE_128_PIXELS = 128  # what mode W128 loads, whatever pixels_per_column says


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Geometry(Value):
    """What the three kinds of map share: the tensor, the options, and the sizes of a copy."""

    subject: ClassVar[Subject]
    inner_argument: ClassVar[str]  # the argument that says how long a row of the copy is

    data_type: DataType = row_field(DataType.named)
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = row_field(Interleave.named)
    swizzle: Swizzle = row_field(Swizzle.named)
    l2_promotion: L2Promotion = row_field(L2Promotion.named)
    oob_fill: OobFill = row_field(OobFill.named)
    address: int = hex_field()
    arch: Arch = row_field(Arch.named)
    findings: tuple[Violation, ...] = field(init=False, repr=False, compare=False)  # warnings and notes of the rules

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.dims)

    @property
    def is_padded(self) -> bool:
        """Whether the values spread out in shared memory: 16u4_align16b and 16u6_align16b."""
        return self.data_type.smem_bits > self.data_type.bits

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy: box[0], or the channels of a pixel."""
        raise NotImplementedError

    def inner_change(self, elements: int) -> dict[str, Any]:
        """The arguments that make a row of the copy `elements` long."""
        raise NotImplementedError

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row in shared memory, without the gap up to the swizzle's span."""
        return self.inner_elements * self.data_type.smem_bits // 8

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """How many elements (or pixels) the copy visits, innermost first; its product counts the elements.

        A traversal stride visits every so many elements of the box, and the last one may be cut:

            box 5, element stride 2:   x . x . x   → 3 visited
        """
        raise NotImplementedError

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Rows in shared memory; an interleaved map's rows are single pixels."""
        visited = self.visited_elements
        return prod(visited if self.interleave.slice_bytes else visited[1:])

    @property
    def pitch_bytes(self) -> int:
        """From one row to the next in shared memory: a swizzled row takes its whole span."""
        return self.interleave.slice_bytes or max(self.inner_bytes, self.swizzle.span_bytes or 0)

    @property
    def smem_bytes(self) -> int:
        """Shared memory that one copy covers, gaps included.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").smem_bytes  # 8 rows of 128, half gap
        1024
        """
        return self.rows * self.pitch_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """Alignment at which the swizzle's pattern starts at its first line.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").smem_alignment_bytes
        1024
        """
        return self.swizzle.repeat_bytes

    @property
    def transaction_bytes(self) -> int:
        """What the mbarrier must expect for one copy: filled elements count, gaps and padding do not.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").transaction_bytes
        512
        """
        if self.interleave.slice_bytes:
            return self.rows * self.interleave.slice_bytes
        return self.rows * self.inner_elements * self.data_type.bits // 8

    @property
    def reach_bytes(self) -> int:
        """Bytes of global memory from the tensor's first byte to behind its last."""
        return self._row_bytes + sum(
            max(0, (n - 1) * step) for n, step in zip(self.dims[1:], self.strides_bytes, strict=True)
        )

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps, and none lies on another.

        >>> from tilescope.tensor_map import TensorMap
        >>> [TensorMap("u8", (16, 4), (step,), (16, 4)).is_dense for step in (0, 16, 32)]
        [False, True, False]
        """
        filled = self._row_bytes
        for step, extent in sorted(zip(self.strides_bytes, self.dims[1:], strict=True)):
            if extent > 1 and step != filled:
                return False
            filled *= extent
        return True

    @property
    def _row_bytes(self) -> int:
        """Bytes of dim 0 in global memory."""
        return self.dims[0] * (self.interleave.slice_bytes or 0) or self.dims[0] * self.data_type.bits // 8

    @property
    def basis(self) -> Basis:
        """Whether what tilescope says of this map was "measured" on a card or rests on documents."""
        measured = self.arch.basis == self.swizzle.basis == "measured" and not self.data_type.is_packed
        return "measured" if measured else "documented"


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class TiledGeometry(Geometry):
    """A box of up to five dimensions."""

    subject: ClassVar[Subject] = "tiled"
    inner_argument: ClassVar[str] = "box[0]"

    box: tuple[int, ...]

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the box."""
        return self.box[0]

    def inner_change(self, elements: int) -> dict[str, Any]:
        """A box with rows of that many elements."""
        return {"box": (elements, *self.box[1:])}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Elements visited in each dimension; an interleaved copy moves one slice, whatever its box says."""
        visited = [-(-extent // stride) for extent, stride in zip(self.box, self.element_strides, strict=True)]
        if self.interleave.slice_bytes:
            visited[-2] = 1
        else:
            visited[0] = self.box[0]  # dim 0 ignores its element stride
        return tuple(visited)

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: with the floor of box / element stride, dim 0 included."""
        return floor_product(self.box, self.element_strides) * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class _ColumnGeometry(Geometry):
    """A column of pixels, some channels of each."""

    inner_argument: ClassVar[str] = "channels_per_pixel"

    channels_per_pixel: int
    pixels_per_column: int

    @property
    def inner_elements(self) -> int:
        """Channels of one pixel that a copy moves."""
        return self.channels_per_pixel

    def inner_change(self, elements: int) -> dict[str, Any]:
        """That many channels of each pixel."""
        return {"channels_per_pixel": elements}


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Im2colGeometry(_ColumnGeometry):
    """Pixels in a bounding box of W, H and D, given by its corners in that order."""

    subject: ClassVar[Subject] = "im2col"

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels; interleaved, the pixels alone (one slice of channels a copy)."""
        if self.interleave.slice_bytes:
            return (self.pixels_per_column,)
        return self.channels_per_pixel, self.pixels_per_column

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: channels x pixels x element bytes."""
        return self.channels_per_pixel * self.pixels_per_column * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class WideGeometry(_ColumnGeometry):
    """Pixels along W alone; halo pixels are the instruction's, not the map's."""

    subject: ClassVar[Subject] = "wide"

    lower_width: int
    upper_width: int
    mode: WideMode

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels: those of the map, or 128 in mode W128."""
        return self.channels_per_pixel, WIDE_128_PIXELS if self.mode == "W128" else self.pixels_per_column

    @property
    def box_bytes(self) -> int:
        """Bytes of the channels and pixels of one column."""
        return prod(self.visited_elements) * self.data_type.bits // 8


def floor_product(box: tuple[int, ...], element_strides: tuple[int, ...]) -> int:
    """Elements of a box as the driver counts them, the cut ones left out.

    >>> floor_product((64, 5), (1, 2))  # a copy visits 64 x 3
    128
    """
    return prod(map(floordiv, box, element_strides))


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple at or above `number`.

    >>> rounded_up(100, 16)
    112
    """
    return ceil_div(number, multiple) * multiple
