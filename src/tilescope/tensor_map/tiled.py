"""The tiled tensor map: a box of up to five dimensions out of a tensor.

A 4096 x 4096 bf16 matrix, read in boxes of 64 x 64:

    dims = (4096, 4096)          ┌──────────────── dims[0] ───┐
    strides_bytes = (8192,)      │ ┌ box[0] ┐                 │  one row of the box:
    box = (64, 64)               │ │        │ box[1]     dims[1]    64 x 2 bytes = 128 bytes,
                                 │ └────────┘                 │  the span of swizzle 128B
                                 └── strides_bytes[0] a row ──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from operator import floordiv
from typing import Any, ClassVar

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.errors import TensorMapError
from tilescope.reading import integers
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map.any_map import AnyMap, Reader, check_of, readers_of
from tilescope.tensor_map.array import described
from tilescope.tensor_map.checking import Subject
from tilescope.tensor_map.option import Interleave, InterleaveName, L2Promotion, L2PromotionName, OobFill, OobFillName


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
    readers: ClassVar[Mapping[str, Reader]] = readers_of(box=integers)

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
        elements: int = prod(map(floordiv, self.box, self.element_strides))
        return elements * self.data_type.bits // 8
