"""The im2col map that walks W alone, from sm_100 on; what it is rests on the documents.

    mode W       pixels_per_column pixels along W, then the halo of the instruction
    mode W128    always 128 pixels, the halo after every 32

H and D stand still during a copy: its coordinates choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map.any_map import AnyMap, Reader, check_of, readers_of
from tilescope.tensor_map.geometry import WideGeometry, WideMode
from tilescope.tensor_map.option import Interleave, InterleaveName, L2Promotion, L2PromotionName, OobFill, OobFillName


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Im2colWideMap(AnyMap, WideGeometry):
    """An im2col map that walks W alone, as cuTensorMapEncodeIm2colWide makes it (sm_100 on; documented).

    >>> x = Im2colWideMap("f16", (64, 32, 32, 1), (128, 4096, 131072), lower_width=-1, upper_width=-1,
    ...                   channels_per_pixel=64, pixels_per_column=32, swizzle="128B", arch="sm_100")
    >>> x.smem_bytes, x.basis
    (4096, 'documented')
    """

    readers: ClassVar[Mapping[str, Reader]] = readers_of(
        "lower_width", "upper_width", "channels_per_pixel", "pixels_per_column", "mode"
    )

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
