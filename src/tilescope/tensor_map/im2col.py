"""The im2col tensor map: a column of pixels of a convolution's input, and the convolution it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map.any_map import AnyMap, Reader, check_of, readers_of
from tilescope.tensor_map.convolution import walk_of
from tilescope.tensor_map.geometry import Im2colGeometry
from tilescope.tensor_map.option import Interleave, InterleaveName, L2Promotion, L2PromotionName, OobFill, OobFillName
from tilescope.value import Value


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Im2colMap(AnyMap, Im2colGeometry):
    """An im2col tensor map, as cuTensorMapEncodeIm2col makes it.

    Pixels are walked W, then H, then D, then N inside the bounding box that the corners give; corners
    are in the order W, H, D (the header's text says D, H, W; the hardware says otherwise).

    >>> x = Im2colMap("f16", (64, 9, 14, 64), (128, 1152, 16128), lower_corner=(-1, -1), upper_corner=(-1, -1),
    ...               channels_per_pixel=8, pixels_per_column=64)
    >>> x.smem_bytes, x.transaction_bytes
    (1024, 1024)
    """

    readers: ClassVar[Mapping[str, Reader]] = readers_of(
        "lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"
    )

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
        walk = walk_of((n, h, w, c), (r, s), pad, stride, dilation, DataType.named(data_type).tma)
        column = {"channels_per_pixel": channels_per_pixel, "pixels_per_column": pixels_per_column}
        tensor_map = cls(**walk.arguments | {"data_type": data_type} | column | options)
        return Convolution(tensor_map, walk.offsets, walk.output_shape, walk.stride)


@dataclass(frozen=True, slots=True)
class Convolution(Value):
    """The map of a convolution's input, the offsets of its taps, and the shape of its output.

    `offsets[r][s]` is what a load passes for filter tap (r, s), in the order W, H.
    """

    tensor_map: Im2colMap
    offsets: tuple[tuple[tuple[int, int], ...], ...]
    output_shape: tuple[int, int, int]  # n, p, q
    stride: tuple[int, int]  # height, width

    def coords(self, channel: int, output_index: int) -> tuple[int, int, int, int]:
        """Coordinates of the copy that starts at a flat output pixel (n, p, q order).

        >>> strided = Im2colMap.for_convolution(2, 8, 8, 64, 3, 3, pad=1, stride=2, data_type="f16",
        ...                                     channels_per_pixel=64, pixels_per_column=16)
        >>> strided.output_shape, strided.coords(0, 5)  # output pixel (0, 1, 1)
        ((2, 4, 4), (0, 1, 1, 0))
        """
        _, p, q = self.output_shape
        image, pixel = divmod(output_index, p * q)
        row, column = divmod(pixel, q)
        left, top = self.tensor_map.lower_corner
        return channel, left + column * self.stride[1], top + row * self.stride[0], image
