"""An im2col map for a convolution: corners, strides, and the offsets of each filter tap.

For a filter of R x S taps, padding p, dilation e and stride t, the base pixel of output (p, q) is the
top left corner of the filter; the corners bound where it may stand, the offsets pick the tap:

    lower = -pad          upper = pad - (filter - 1) * dilation          offset of tap r = r * dilation

     lower ┌ ─ ─ ─ ─ ─ ─ ─ ┐
           │ ┌ image ────┐ │        the walk over W and H visits every base position,
           │ │ ·  ·  ·   │ │        element_strides apart, and adds the tap's offset
           │ └───────────┘ │
           └ ─ ─ ─ ─ ─ ─ ─ ┘ upper
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, Violation
from tilescope.tensor_map import reading
from tilescope.value import Value

if TYPE_CHECKING:
    from tilescope.tensor_map.maps import Im2colMap


@dataclass(frozen=True, slots=True)
class Convolution(Value):
    """The map of a convolution's input, the offsets of its taps, and the shape of its output.

    `offsets[r][s]` is what a load passes for filter tap (r, s), in the order W, H.
    """

    tensor_map: Im2colMap
    offsets: tuple[tuple[tuple[int, int], ...], ...]
    output_shape: tuple[int, int, int]  # n, p, q
    stride: tuple[int, int]  # height, width

    @classmethod
    def of(
        cls, map_class: type[Im2colMap], image: tuple[int, int, int, int], filter_shape: tuple[int, int],
        pad: Any, stride: Any, dilation: Any, options: Mapping[str, Any],
    ) -> Convolution:  # fmt: skip
        """The convolution of an NHWC image; pairs are (height, width)."""
        n, h, w, c = (_positive(name, extent) for name, extent in zip("nhwc", image, strict=True))
        taps = tuple(_positive(name, extent) for name, extent in zip("rs", filter_shape, strict=True))
        pads, steps, spread = _pair("pad", pad, 0), _pair("stride", stride, 1), _pair("dilation", dilation, 1)
        bits = DataType.named(options["data_type"]).bits
        lower = tuple(-each for each in pads)
        upper = tuple(each - (tap - 1) * gap for each, tap, gap in zip(pads, taps, spread, strict=True))
        pixel, row, picture = (c * bits // 8, w * c * bits // 8, h * w * c * bits // 8)
        arguments = {
            "dims": (c, w, h, n), "strides_bytes": (pixel, row, picture), "lower_corner": lower[::-1],
            "upper_corner": upper[::-1], "element_strides": (1, *steps[::-1], 1),
        } | dict(options)  # fmt: skip
        output = (
            n,
            *(
                (size + high - low - 1) // step + 1
                for size, low, high, step in zip((h, w), lower, upper, steps, strict=True)
            ),
        )
        offsets = tuple(tuple((s * spread[1], r * spread[0]) for s in range(taps[1])) for r in range(taps[0]))
        return cls(map_class(**arguments), offsets, output, steps)  # type: ignore[arg-type]

    def coords(self, channel: int, output_index: int) -> tuple[int, int, int, int]:
        """Coordinates of the copy that starts at a flat output pixel (n, p, q order).

        >>> from tilescope.tensor_map import Im2colMap
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


def _pair(argument: str, given: Any, least: int) -> tuple[int, int]:
    both = reading.integers(argument, given if isinstance(given, list | tuple) else (given, given))
    if len(both) != 2 or min(both) < least:
        raise TensorMapError([Violation(
            "convolution", "error", argument, f"{argument} = {given}", f"one or two integers of at least {least}",
            "Give one number, or (height, width).",
        )])  # fmt: skip
    return both[0], both[1]


def _positive(argument: str, given: Any) -> int:
    number = reading.integer(argument, given)
    if number < 1:
        raise TensorMapError(
            [
                Violation(
                    "convolution", "error", argument, f"{argument} = {number}", "at least 1", "Give a positive extent."
                )
            ]
        )
    return number
