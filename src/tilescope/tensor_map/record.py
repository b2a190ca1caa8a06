"""The arguments of a map as plain data, and the sizes of a copy that follow from them.

    MapOptions            the six arguments that are rows of tables: type, interleave, swizzle, …
    └── MapRecord         with address, dims and strides: what every kind of map has
        ├── TiledRecord           with the box
        └── ColumnRecord          with channels and pixels
            ├── Im2colRecord      with corners
            └── WideRecord        with the corners of W alone

A record may break any rule: the rules examine records, and a map is built from one that they accept. An argument that
could not be read has a stand-in, and rules that read it are skipped. A record is never modified; it is not frozen
because one is created for every map, and creating a frozen one takes three times as long.

Everything is innermost first and in the driver's units: elements for dims and box, bytes for strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from operator import floordiv
from typing import ClassVar, Literal, Protocol

from tilescope.arch import Arch, Basis
from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.swizzle import Swizzle
from tilescope.tensor_map.limits import (
    ALIGNMENT_BYTES,
    PADDED_ROW_ELEMENTS,
    WIDE_128_PIXELS,
    WIDE_ALIGNMENT_BYTES,
)
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill

MapSubject = Literal["tiled", "im2col", "wide"]
WideMode = Literal["W", "W128"]
WIDE_MODES: tuple[WideMode, ...] = ("W", "W128")  # CUtensorMapIm2ColWideMode 0 and 1
Arguments = dict[str, int | tuple[int, ...]]  # to replace, by name
SIX_BIT_TYPE = "16u6_align16b"
FOUR_BIT_TYPE = "16u4_align16b"


def takes_half_rows(data_type: DataType, arch: Arch) -> bool:
    """Whether a store may use rows of 64 values and 16-byte alignment: 16u6_align16b on sm_103."""
    return data_type.name == SIX_BIT_TYPE and arch.has("half_row_16u6_store")


def packed_multiple(data_type: DataType, arch: Arch) -> int:
    """The multiple that dims[0] of a packed type is; of a padded type, coords[0] of a store too."""
    if data_type.smem_bits == data_type.bits:
        return 2
    return PADDED_ROW_ELEMENTS // 2 if takes_half_rows(data_type, arch) else PADDED_ROW_ELEMENTS


class MapFacts(Protocol):
    """Properties that rules read from a valid map and from a record."""

    @property
    def subject(self) -> MapSubject:
        """Tiled, im2col or im2col-wide."""

    @property
    def data_type(self) -> DataType:
        """Type of the elements."""

    @property
    def interleave(self) -> Interleave:
        """Whether channels are stored in slices."""

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle of shared memory."""

    @property
    def arch(self) -> Arch:
        """The architecture that copies."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Elements of each dimension."""

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        """Strides of all dimensions but the first."""

    @property
    def address(self) -> int:
        """Of the first element, in global memory."""

    @property
    def is_padded(self) -> bool:
        """Whether the values spread out in shared memory."""

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy."""


class ColumnFacts(MapFacts, Protocol):
    """What the rules read of a map whose copies are columns of pixels."""

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """(dimension, lower corner, upper corner) of the dimensions that the copy walks."""


class Im2colFacts(ColumnFacts, Protocol):
    """What the rules read of an im2col map."""

    @property
    def lower_corner(self) -> tuple[int, ...]:
        """Lower corner of the bounding box, W first."""

    @property
    def upper_corner(self) -> tuple[int, ...]:
        """Upper corner of the bounding box, W first."""


@dataclass(slots=True, kw_only=True)
class MapOptions:
    """The arguments that are rows of tables."""

    data_type: DataType
    interleave: Interleave
    swizzle: Swizzle
    l2_promotion: L2Promotion
    oob_fill: OobFill
    arch: Arch

    @property
    def is_padded(self) -> bool:
        """Whether the values are padded in shared memory: 16u4_align16b and 16u6_align16b."""
        return self.data_type.smem_bits > self.data_type.bits

    @property
    def is_interleaved(self) -> bool:
        """Whether channels are stored in slices of 16 or 32 bytes per pixel."""
        return self.interleave.slice_bytes is not None

    @property
    def takes_half_rows(self) -> bool:
        """Whether a store may use rows of 64 values and 16-byte alignment."""
        return takes_half_rows(self.data_type, self.arch)

    @property
    def alignment_bytes(self) -> int:
        """What addresses and strides are a multiple of."""
        if self.is_padded and not self.takes_half_rows:
            return WIDE_ALIGNMENT_BYTES
        return WIDE_ALIGNMENT_BYTES if self.interleave.slice_bytes == 32 else ALIGNMENT_BYTES

    @property
    def cured_alignment_bytes(self) -> int:
        """The alignment of a fixed address or stride: loads of padded types need 32 where a store needs 16."""
        return WIDE_ALIGNMENT_BYTES if self.is_padded else self.alignment_bytes

    @property
    def basis(self) -> Basis:
        """Whether facts about a map with these options were "measured" on a card or are "documented"."""
        is_measured = self.arch.basis == self.swizzle.basis == "measured" and not self.data_type.is_packed
        return "measured" if is_measured else "documented"


@dataclass(slots=True, kw_only=True)
class MapRecord(MapOptions):
    """The arguments of a map of any kind."""

    subject: ClassVar[MapSubject]
    inner_argument: ClassVar[str]  # the argument that determines the length of a row

    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    element_strides: tuple[int, ...]
    address: int

    @property
    def derived(self) -> Mapping[str, tuple[str, ...]]:
        """Values that follow from arguments and that a rule may read: by name, the arguments that they follow from."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """The number of dimensions of the tensor."""
        return len(self.dims)

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy: box[0], or the channels of a pixel."""
        raise NotImplementedError

    def inner_change(self, elements: int) -> Arguments:
        """The arguments that make a row of the copy `elements` long."""
        raise NotImplementedError

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row in shared memory, without the gap up to the swizzle's span."""
        return self.inner_elements * self.data_type.smem_bits // 8

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """How many elements (or pixels) the copy visits, innermost first; its product counts the elements."""
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
        """Shared memory that one copy covers, gaps included."""
        return self.rows * self.pitch_bytes

    @property
    def transaction_bytes(self) -> int:
        """What the mbarrier must expect for one copy: filled elements count, gaps and padding do not."""
        return self.rows * (self.interleave.slice_bytes or self.inner_elements * self.data_type.bits // 8)

    @property
    def row_bytes(self) -> int:
        """Bytes of dim 0 in global memory."""
        slice_bytes = self.interleave.slice_bytes
        return self.dims[0] * slice_bytes if slice_bytes else self.dims[0] * self.data_type.bits // 8

    @property
    def reach_bytes(self) -> int:
        """Bytes of global memory from the tensor's first byte to its end."""
        steps = zip(self.dims[1:], self.strides_bytes, strict=True)
        return self.row_bytes + sum(max(0, (extent - 1) * stride) for extent, stride in steps)

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps or overlaps."""
        filled_bytes = self.row_bytes
        for step, extent in sorted(zip(self.strides_bytes, self.dims[1:], strict=True)):
            if extent > 1 and step != filled_bytes:
                return False
            filled_bytes *= extent
        return True


@dataclass(slots=True, kw_only=True)
class TiledRecord(MapRecord):
    """The arguments of a tiled map."""

    subject: ClassVar[MapSubject] = "tiled"
    inner_argument: ClassVar[str] = "box[0]"

    box: tuple[int, ...]

    @property
    def derived(self) -> Mapping[str, tuple[str, ...]]:
        """The sizes of the box."""
        return {
            "inner_elements": ("box",),
            "box_bytes": ("data_type", "box", "element_strides"),
            "rows": ("box", "element_strides"),
            "pixels": ("box", "element_strides", "dims"),
        }

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the box."""
        return self.box[0]

    def inner_change(self, elements: int) -> Arguments:
        """A box with rows of that many elements."""
        return {"box": (elements, *self.box[1:])}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Elements visited in each dimension; an interleaved copy moves one slice for every box.

        A traversal stride of s visits every s-th element of the box, and the last step may be cut:

            box 5, element stride 2:   x . x . x   → 3 visited
        """
        if max(self.element_strides) == 1 and not self.interleave.slice_bytes:
            return self.box
        visited = [ceil_div(extent, stride) for extent, stride in zip(self.box, self.element_strides, strict=True)]
        if self.interleave.slice_bytes:
            visited[-2] = 1
        else:
            visited[0] = self.box[0]  # dim 0 ignores its element stride
        return tuple(visited)

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: with the floor of box / element stride, dim 0 included."""
        return int(prod(map(floordiv, self.box, self.element_strides))) * self.data_type.bits // 8


@dataclass(slots=True, kw_only=True)
class ColumnRecord(MapRecord):
    """The arguments of a map whose copies are columns of pixels, some channels of each."""

    inner_argument: ClassVar[str] = "channels_per_pixel"

    channels_per_pixel: int
    pixels_per_column: int

    @property
    def inner_elements(self) -> int:
        """Channels of one pixel that a copy moves."""
        return self.channels_per_pixel

    def inner_change(self, elements: int) -> Arguments:
        """That many channels of each pixel."""
        return {"channels_per_pixel": elements}

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: channels x pixels x element bytes."""
        return self.channels_per_pixel * self.visited_elements[-1] * self.data_type.bits // 8

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """(dimension, lower corner, upper corner) of the dimensions that the copy walks, W first."""
        raise NotImplementedError

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> Arguments:
        """The arguments that set the corners."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class Im2colRecord(ColumnRecord):
    """The arguments of an im2col map."""

    subject: ClassVar[MapSubject] = "im2col"

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]

    @property
    def derived(self) -> Mapping[str, tuple[str, ...]]:
        """The sizes of a column."""
        return {
            "inner_elements": ("channels_per_pixel",),
            "box_bytes": ("data_type", "interleave", "channels_per_pixel", "pixels_per_column"),
            "rows": ("channels_per_pixel", "pixels_per_column"),
            "pixels": ("pixels_per_column", "dims"),
        }

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """Those of W, H, D; interleaved dims start with W."""
        first = 0 if self.interleave.slice_bytes else 1
        return tuple(zip(range(first, self.rank), self.lower_corner, self.upper_corner, strict=False))

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> Arguments:
        """Both corners."""
        return {"lower_corner": lower, "upper_corner": upper}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels; interleaved, only the pixels (one slice of channels per copy)."""
        if self.interleave.slice_bytes:
            return (self.pixels_per_column,)
        return self.channels_per_pixel, self.pixels_per_column


@dataclass(slots=True, kw_only=True)
class WideRecord(ColumnRecord):
    """The arguments of an im2col-wide map."""

    subject: ClassVar[MapSubject] = "wide"

    lower_width: int
    upper_width: int
    mode: WideMode

    @property
    def derived(self) -> Mapping[str, tuple[str, ...]]:
        """The sizes of a column; mode W128 does not look at the pixels."""
        copied: tuple[str, ...] = ("channels_per_pixel", "mode")
        if self.mode != "W128":
            copied += ("pixels_per_column",)
        return {
            "inner_elements": ("channels_per_pixel",),
            "box_bytes": ("data_type", *copied),
            "rows": copied,
            "pixels": ("dims", *copied),
        }

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """The corner of W."""
        return ((1, self.lower_width, self.upper_width),)

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> Arguments:
        """Both ends of W."""
        return {"lower_width": lower[0], "upper_width": upper[0]}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels: those of the map, or 128 in mode W128."""
        return self.channels_per_pixel, WIDE_128_PIXELS if self.mode == "W128" else self.pixels_per_column
