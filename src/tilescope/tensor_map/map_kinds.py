"""The three kinds of tensor map, and the map of a convolution.

TensorMap       a box of up to five dimensions out of a tensor
Im2colMap       a column of pixels of a convolution's input: it walks W, H, D and N inside a bounding box
Im2colWideMap   walks W alone, from sm_100 on; H and D stand still during a copy: its coordinates choose them

    mode W       pixels_per_column pixels along W, then the halo of the instruction
    mode W128    always 128 pixels, the halo after every 32

Im2colWideMap follows the documentation. A 4096 x 4096 bf16 matrix, read in boxes of 64 x 64:

    dims = (4096, 4096)          ┌──────────────── dims[0] ───┐
    strides_bytes = (8192,)      │ ┌ box[0] ┐                 │  one row of the box:
    box = (64, 64)               │ │        │ box[1]     dims[1]    64 x 2 bytes = 128 bytes,
                                 │ └────────┘                 │  the span of swizzle 128B
                                 └── strides_bytes[0] a row ──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, Violation
from tilescope.reading import integers, known_name
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.array import describe_array
from tilescope.tensor_map.convolution import PASSES, Pass, walk_of
from tilescope.tensor_map.examination import ARGUMENT_LENGTH, READERS, Reader, examine
from tilescope.tensor_map.option import Interleave, InterleaveName, L2Promotion, L2PromotionName, OobFill, OobFillName
from tilescope.tensor_map.record import ColumnRecord, Im2colRecord, MapSubject, TiledRecord, WideMode, WideRecord
from tilescope.tensor_map.rules.tensor_rules import RANK, STRIDE_RANGE
from tilescope.value import Value

_PLAIN_PIXEL_BYTES = 256  # most bytes of a pixel in one copy, where no swizzle's span divides its channels


@dataclass(frozen=True, init=False, repr=False)
class TensorMap(AnyMap):
    """A tiled tensor map, as cuTensorMapEncodeTiled makes it; invalid arguments raise TensorMapError.

    >>> a = TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    >>> a.smem_bytes, a.transaction_bytes, a.smem_alignment_bytes
    (8192, 8192, 1024)
    >>> TensorMap.check("bf16", (4096, 4096), (8192,), (128, 64), swizzle="128B")[0].fix
    'Use box[0] <= 64 and one box per span.'
    """

    subject: ClassVar[MapSubject] = "tiled"
    readers: ClassVar[Mapping[str, Reader]] = READERS["tiled"]

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
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "box": box,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        self._make(examine(TiledRecord, arguments))

    @classmethod
    def check(
        cls,
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
    ) -> tuple[Violation, ...]:
        """Every rule that the constructor's arguments break, and notes; empty for a valid map. Never raises.

        >>> [broken.rule for broken in TensorMap.check("bf16", (100,), (), (0,), address=8)]
        ['address-alignment', 'box-range', 'store-overrun']
        """
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "box": box,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        return examine(TiledRecord, arguments).violations

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
        arguments, problems = describe_array(array, box_shape, address, options)
        if problems:
            about_array = {RANK.name, ARGUMENT_LENGTH.name, STRIDE_RANGE.name}  # reported already, in the array's terms
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


@dataclass(frozen=True, init=False, repr=False, kw_only=True)
class ColumnMap(AnyMap):
    """A column of pixels, some channels of each."""

    channels_per_pixel: int
    pixels_per_column: int
    _record: ColumnRecord = field(init=False, repr=False, compare=False)

    @property
    def corners(self) -> tuple[tuple[int, int, int], ...]:
        """(dimension, lower corner, upper corner) of each dimension that a copy walks: W, H, D, or only W."""
        return self._record.corners

    def corner_change(self, lower: tuple[int, ...], upper: tuple[int, ...]) -> dict[str, Any]:
        """The arguments that set the corners."""
        return self._record.corner_change(lower, upper)


@dataclass(frozen=True, init=False, repr=False)
class Im2colMap(ColumnMap):
    """An im2col tensor map, as cuTensorMapEncodeIm2col makes it.

    Pixels are visited along W, then H, D and N inside the bounding box of the corners. Corners are in the order W, H, D
    (the header's text has D, H, W; the hardware does not).

    >>> x = Im2colMap("f16", (64, 9, 14, 64), (128, 1152, 16128), lower_corner=(-1, -1), upper_corner=(-1, -1),
    ...               channels_per_pixel=8, pixels_per_column=64)
    >>> x.smem_bytes, x.transaction_bytes
    (1024, 1024)
    """

    subject: ClassVar[MapSubject] = "im2col"
    readers: ClassVar[Mapping[str, Reader]] = READERS["im2col"]

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
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "lower_corner": lower_corner,
            "upper_corner": upper_corner,
            "channels_per_pixel": channels_per_pixel,
            "pixels_per_column": pixels_per_column,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        self._make(examine(Im2colRecord, arguments))

    @classmethod
    def check(
        cls,
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
    ) -> tuple[Violation, ...]:
        """Every rule that the constructor's arguments break, and notes; empty for a valid map. Never raises."""
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "lower_corner": lower_corner,
            "upper_corner": upper_corner,
            "channels_per_pixel": channels_per_pixel,
            "pixels_per_column": pixels_per_column,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        return examine(Im2colRecord, arguments).violations

    @classmethod
    def for_convolution(  # noqa: PLR0917  n, h, w, c, r, s: the order in which convolutions are written
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
        return Convolution.of(
            (n, h, w, c),
            (1, r, s),
            data_type,
            pad=pad,
            stride=stride,
            dilation=dilation,
            channels_per_pixel=channels_per_pixel,
            pixels_per_column=pixels_per_column,
            **options,
        )


@dataclass(frozen=True, init=False, repr=False)
class Im2colWideMap(ColumnMap):
    """An im2col map that walks only W, as cuTensorMapEncodeIm2colWide makes it (sm_100 on; documented).

    >>> x = Im2colWideMap("f16", (64, 32, 32, 1), (128, 4096, 131072), lower_width=-1, upper_width=-1,
    ...                   channels_per_pixel=64, pixels_per_column=32, swizzle="128B", arch="sm_100")
    >>> x.smem_bytes, x.basis
    (4096, 'documented')
    """

    subject: ClassVar[MapSubject] = "wide"
    readers: ClassVar[Mapping[str, Reader]] = READERS["wide"]

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
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "lower_width": lower_width,
            "upper_width": upper_width,
            "channels_per_pixel": channels_per_pixel,
            "pixels_per_column": pixels_per_column,
            "mode": mode,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        self._make(examine(WideRecord, arguments))

    @classmethod
    def check(
        cls,
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
    ) -> tuple[Violation, ...]:
        """Every rule that the constructor's arguments break, and notes; empty for a valid map. Never raises."""
        arguments = {
            "data_type": data_type,
            "dims": dims,
            "strides_bytes": strides_bytes,
            "lower_width": lower_width,
            "upper_width": upper_width,
            "channels_per_pixel": channels_per_pixel,
            "pixels_per_column": pixels_per_column,
            "mode": mode,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
            "address": address,
            "arch": arch,
        }
        return examine(WideRecord, arguments).violations


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
        direction = known_name("direction", direction, PASSES)
        walk = walk_of(image, filters, direction, pad=pad, stride=stride, dilation=dilation)
        pixel_bytes = walk.dims[0] * row.bits // 8
        if channels_per_pixel is None:
            span = _widest_span(pixel_bytes)
            if span is not None:
                options = {"swizzle": f"{span}B"} | options
            channels_per_pixel = (span or min(pixel_bytes, _PLAIN_PIXEL_BYTES)) * 8 // row.bits
        arguments: dict[str, Any] = {
            "dims": walk.dims,
            "strides_bytes": tuple(accumulate((pixel_bytes, *walk.dims[1:-1]), mul)),
            "element_strides": walk.element_strides,
            "lower_corner": walk.lower_corner,
            "upper_corner": walk.upper_corner,
            "channels_per_pixel": channels_per_pixel,
            "pixels_per_column": pixels_per_column,
        }
        return cls(
            tensor_map=Im2colMap(data_type, **arguments | options),
            offsets=walk.offsets,
            output_shape=walk.output_shape,
            stride=walk.stride,
            direction=direction,
            gemm=walk.gemm,
        )

    @property
    def taps(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(tap, offsets W first) of every tap of the filter, the last dimension fastest."""
        taps: list[tuple[tuple[int, ...], Any]] = [((), self.offsets)]
        for _ in self.stride:
            taps = [((*tap, number), inner) for tap, nested in taps for number, inner in enumerate(nested)]
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


def _widest_span(pixel_bytes: int) -> int | None:
    """The widest span of a swizzle that divides the channels of a pixel; None if none does."""
    for span in (128, 64, 32):
        if pixel_bytes % span == 0:
            return span
    return None
