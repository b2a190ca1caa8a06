"""The three kinds of tensor map, and the map of a convolution.

TensorMap       a box of up to five dimensions out of a tensor
Im2colMap       a column of pixels of a convolution's input: it walks W, H, D and N inside a bounding box
Im2colWideMap   walks W alone, from sm_100 on; H and D stand still during a copy: its coordinates choose them

    mode W       pixels_per_column pixels along W, then the halo of the instruction
    mode W128    always 128 pixels, the halo after every 32

What Im2colWideMap is rests on the documents. A 4096 x 4096 bf16 matrix, read in boxes of 64 x 64:

    dims = (4096, 4096)          ┌──────────────── dims[0] ───┐
    strides_bytes = (8192,)      │ ┌ box[0] ┐                 │  one row of the box:
    box = (64, 64)               │ │        │ box[1]     dims[1]    64 x 2 bytes = 128 bytes,
                                 │ └────────┘                 │  the span of swizzle 128B
                                 └── strides_bytes[0] a row ──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from operator import floordiv, mul
from typing import Any, ClassVar, Literal

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.errors import TensorMapError
from tilescope.reading import integer, integers, known_name
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map.any_map import COMMON_READERS, AnyMap, Reader, check_of
from tilescope.tensor_map.array import described
from tilescope.tensor_map.checking import Subject
from tilescope.tensor_map.convolution import PASSES, Pass, walk_of
from tilescope.tensor_map.option import Interleave, InterleaveName, L2Promotion, L2PromotionName, OobFill, OobFillName
from tilescope.value import Value

WideMode = Literal["W", "W128"]
WIDE_MODES: tuple[WideMode, ...] = ("W", "W128")  # CUtensorMapIm2ColWideMode 0 and 1
_COLUMN_READERS: dict[str, Reader] = {"channels_per_pixel": integer, "pixels_per_column": integer}
WIDE_128_PIXELS = 128  # what mode W128 loads, whatever pixels_per_column says


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TensorMap(AnyMap):
    """A tiled tensor map, as cuTensorMapEncodeTiled makes it; unsound arguments raise TensorMapError.

    >>> a = TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    >>> a.smem_bytes, a.transaction_bytes, a.smem_alignment_bytes
    (8192, 8192, 1024)
    >>> TensorMap.check("bf16", (4096, 4096), (8192,), (128, 64), swizzle="128B")[0].fix
    'Use box[0] <= 64 and one box per span.'
    """

    subject: ClassVar[Subject] = "tiled"
    inner_argument: ClassVar[str] = "box[0]"
    readers: ClassVar[Mapping[str, Reader]] = COMMON_READERS | {"box": integers}

    box: tuple[int, ...]

    def __init__(
        self,
        data_type: DataType | str | Any,
        dims: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        box: tuple[int, ...],
        *,
        element_strides: tuple[int, ...] | None = None,
        interleave: InterleaveName | Interleave = "none",
        swizzle: SwizzleName | Swizzle = "none",
        l2_promotion: L2PromotionName | L2Promotion = "none",
        oob_fill: OobFillName | OobFill = "zero",
        address: int = 0,
        arch: ArchName | Arch = "sm_90",
    ) -> None:
        self._construct(locals())

    check = check_of(__init__)

    @classmethod
    def from_array(
        cls, array: Any, box_shape: tuple[int, ...], *, address: int | None = None, **options: Any
    ) -> TensorMap:
        """The map of an array (numpy, DLPack, __array_interface__, __cuda_array_interface__): numpy order.

        `box_shape` is outermost first like the array's shape; `options` are the constructor's. With a
        `data_type` of another size, box_shape[-1] counts elements of that type.

        >>> import numpy
        >>> TensorMap.from_array(numpy.zeros((128, 64), "float16"), (8, 64), swizzle="128B", address=0).box
        (64, 8)
        """
        arguments, problems = described(array, box_shape, address, options)
        if problems:
            about_array = {"rank", "argument-length", "stride-range"}  # said already, in the array's own words
            others = cls.check(**arguments) if arguments else ()
            errors = [other for other in others if other.severity == "error" and other.rule not in about_array]
            raise TensorMapError([*problems, *errors])
        return cls(**arguments)

    def coords(self, *index: int) -> tuple[int, ...]:
        """An index in numpy order as coordinates in the driver's order.

        >>> TensorMap("bf16", (64, 128), (128,), (64, 8)).coords(16, 0)  # row 16, column 0
        (0, 16)
        """
        return integers("index", index)[::-1]

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
        if max(self.element_strides) == 1 and not self.interleave.slice_bytes:
            return self.box
        visited = [-(-extent // stride) for extent, stride in zip(self.box, self.element_strides, strict=True)]
        if self.interleave.slice_bytes:
            visited[-2] = 1
        else:
            visited[0] = self.box[0]  # dim 0 ignores its element stride
        return tuple(visited)

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: with the floor of box / element stride, dim 0 included."""
        return int(prod(map(floordiv, self.box, self.element_strides))) * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False, repr=False, kw_only=True)
class ColumnMap(AnyMap):
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

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: channels x pixels x element bytes."""
        return self.channels_per_pixel * self.visited_elements[-1] * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Im2colMap(ColumnMap):
    """An im2col tensor map, as cuTensorMapEncodeIm2col makes it.

    Pixels are walked W, then H, then D, then N inside the bounding box that the corners give; corners
    are in the order W, H, D (the header's text says D, H, W; the hardware says otherwise).

    >>> x = Im2colMap("f16", (64, 9, 14, 64), (128, 1152, 16128), lower_corner=(-1, -1), upper_corner=(-1, -1),
    ...               channels_per_pixel=8, pixels_per_column=64)
    >>> x.smem_bytes, x.transaction_bytes
    (1024, 1024)
    """

    subject: ClassVar[Subject] = "im2col"
    readers: ClassVar[Mapping[str, Reader]] = (
        COMMON_READERS | {"lower_corner": integers, "upper_corner": integers} | _COLUMN_READERS
    )

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]

    def __init__(
        self,
        data_type: DataType | str | Any,
        dims: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        *,
        lower_corner: tuple[int, ...],
        upper_corner: tuple[int, ...],
        channels_per_pixel: int,
        pixels_per_column: int,
        element_strides: tuple[int, ...] | None = None,
        interleave: InterleaveName | Interleave = "none",
        swizzle: SwizzleName | Swizzle = "none",
        l2_promotion: L2PromotionName | L2Promotion = "none",
        oob_fill: OobFillName | OobFill = "zero",
        address: int = 0,
        arch: ArchName | Arch = "sm_90",
    ) -> None:
        self._construct(locals())

    check = check_of(__init__)

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """(dimension, lower corner, upper corner) of W, H, D; interleaved dims start with W."""
        first = 0 if self.interleave.slice_bytes else 1
        return tuple(zip(range(first, self.rank), self.lower_corner, self.upper_corner, strict=False))

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> dict[str, Any]:
        """The arguments that set the corners."""
        return {"lower_corner": lower, "upper_corner": upper}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels; interleaved, the pixels alone (one slice of channels a copy)."""
        if self.interleave.slice_bytes:
            return (self.pixels_per_column,)
        return self.channels_per_pixel, self.pixels_per_column

    @classmethod
    def for_convolution(
        cls,
        n: int,
        h: int,
        w: int,
        c: int,
        r: int,
        s: int,
        pad: int | tuple[int, int] = 0,
        stride: int | tuple[int, int] = 1,
        dilation: int | tuple[int, int] = 1,
        *,
        data_type: DataType | str | Any,
        channels_per_pixel: int,
        pixels_per_column: int,
        **options: Any,
    ) -> Convolution:
        """The map of an NHWC activation for an R x S filter, with the offsets of each filter tap.

        Pairs are (height, width).

        >>> three = Im2colMap.for_convolution(1, 10, 10, 64, 3, 3, pad=1, data_type="f16",
        ...                                   channels_per_pixel=64, pixels_per_column=64)
        >>> three.tensor_map.lower_corner, three.tensor_map.upper_corner, three.offsets[2][1]
        ((-1, -1), (-1, -1), (1, 2))
        """
        options |= {"channels_per_pixel": channels_per_pixel, "pixels_per_column": pixels_per_column}
        walk: dict[str, Any] = {"pad": pad, "stride": stride, "dilation": dilation}
        return Convolution.of((n, h, w, c), (1, r, s), data_type, **walk, **options)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Im2colWideMap(ColumnMap):
    """An im2col map that walks W alone, as cuTensorMapEncodeIm2colWide makes it (sm_100 on; documented).

    >>> x = Im2colWideMap("f16", (64, 32, 32, 1), (128, 4096, 131072), lower_width=-1, upper_width=-1,
    ...                   channels_per_pixel=64, pixels_per_column=32, swizzle="128B", arch="sm_100")
    >>> x.smem_bytes, x.basis
    (4096, 'documented')
    """

    subject: ClassVar[Subject] = "wide"
    readers: ClassVar[Mapping[str, Reader]] = (
        COMMON_READERS
        | {"lower_width": integer, "upper_width": integer}
        | _COLUMN_READERS
        | {"mode": partial(known_name, known=WIDE_MODES, what="im2col-wide mode")}
    )

    lower_width: int
    upper_width: int
    mode: WideMode

    def __init__(
        self,
        data_type: DataType | str | Any,
        dims: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        *,
        lower_width: int,
        upper_width: int,
        channels_per_pixel: int,
        pixels_per_column: int,
        mode: WideMode = "W",
        element_strides: tuple[int, ...] | None = None,
        interleave: InterleaveName | Interleave = "none",
        swizzle: SwizzleName | Swizzle = "128B",
        l2_promotion: L2PromotionName | L2Promotion = "none",
        oob_fill: OobFillName | OobFill = "zero",
        address: int = 0,
        arch: ArchName | Arch = "sm_100",
    ) -> None:
        self._construct(locals())

    check = check_of(__init__)

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """(1, lower_width, upper_width): W alone."""
        return ((1, self.lower_width, self.upper_width),)

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> dict[str, Any]:
        """The arguments that set the corners."""
        return {"lower_width": lower[0], "upper_width": upper[0]}

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels: those of the map, or 128 in mode W128."""
        return self.channels_per_pixel, WIDE_128_PIXELS if self.mode == "W128" else self.pixels_per_column


@dataclass(frozen=True, slots=True)
class Convolution(Value):
    """The map of a convolution's pass, the offsets of its taps, and the pixels that it walks over.

    `offsets[r][s]` is what a load passes for filter tap (r, s), in the order W, H; in one dimension `offsets[s]`, in three
    `offsets[t][r][s]`.
    """

    tensor_map: Im2colMap
    offsets: Any
    output_shape: tuple[int, ...]  # of the walk: n, then its extents, outermost first
    stride: tuple[int, ...]  # outermost first
    direction: Pass = "forward"
    gemm: tuple[int, int, int] = (0, 0, 0)  # m, n, k of the product

    @classmethod
    def of(
        cls,
        image: tuple[int, ...],
        filters: tuple[int, ...],
        data_type: DataType | str | Any,
        *,
        direction: Pass = "forward",
        pad: int | tuple[int, ...] = 0,
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        channels_per_pixel: int | None = None,
        pixels_per_column: int = 128,
        **options: Any,
    ) -> Convolution:
        """The map of a pass: `image` is N x extents x C, `filters` their count and taps (and C), everything outermost first.

        "forward" and "wgrad" read the image, "dgrad" the gradient of the output. Without `channels_per_pixel` a copy takes a
        span of the widest swizzle that divides the channels.

        >>> one = Convolution.of((8, 1000, 64), (128, 3), "bf16", pad=1)
        >>> one.tensor_map.swizzle.name, one.output_shape, one.gemm
        ('128B', (8, 1000), (8000, 128, 192))
        """
        row = DataType.named(data_type).tma
        if len(filters) == len(image) and filters[-1:] == image[-1:]:  # K x R x S x C, as frameworks shape a filter
            filters = filters[:-1]
        walk, facts = walk_of(image, filters, known_name("direction", direction, PASSES), pad, stride, dilation)
        pixel_bytes = walk["dims"][0] * row.bits // 8
        walk["strides_bytes"] = tuple(accumulate((pixel_bytes, *walk["dims"][1:-1]), mul))
        if channels_per_pixel is None:
            span = next((width for width in (128, 64, 32) if pixel_bytes % width == 0), min(pixel_bytes, 256))
            options = ({"swizzle": f"{span}B"} if span in (128, 64, 32) else {}) | options
            channels_per_pixel = span * 8 // row.bits
        walk |= {"channels_per_pixel": channels_per_pixel, "pixels_per_column": pixels_per_column}
        return cls(Im2colMap(data_type, **walk | options), direction=direction, **facts)

    @property
    def taps(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(tap, offsets W first) of every tap of the filter, the last dimension fastest."""
        taps: list[tuple[tuple[int, ...], Any]] = [((), self.offsets)]
        for _ in self.stride:
            taps = [((*tap, number), inner) for tap, held in taps for number, inner in enumerate(held)]
        return taps

    def coords(self, channel: int, output_index: int) -> tuple[int, ...]:
        """Coordinates of the copy that starts at a flat output pixel (n, p, q order).

        >>> strided = Im2colMap.for_convolution(2, 8, 8, 64, 3, 3, pad=1, stride=2, data_type="f16",
        ...                                     channels_per_pixel=64, pixels_per_column=16)
        >>> strided.output_shape, strided.coords(0, 5)  # output pixel (0, 1, 1)
        ((2, 4, 4), (0, 1, 1, 0))
        """
        base = []
        for low, step, extent in zip(
            self.tensor_map.lower_corner, self.stride[::-1], self.output_shape[:0:-1], strict=True
        ):
            output_index, index = divmod(output_index, extent)
            base.append(low + step * index)
        return channel, *base, output_index
