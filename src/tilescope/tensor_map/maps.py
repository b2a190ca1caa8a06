"""Tensor maps: what TMA knows about a tensor and the box it copies.

    TensorMap        a box of up to five dimensions            cuTensorMapEncodeTiled
    Im2colMap        a column of pixels of a convolution       cuTensorMapEncodeIm2col
    Im2colWideMap    the same along W only, from sm_100 on     cuTensorMapEncodeIm2colWide

Everything is innermost first and in the driver's units: elements for dims and box, bytes for strides.
A 4096 x 4096 bf16 matrix, read in boxes of 64 x 64:

    dims = (4096, 4096)          ┌──────────────── dims[0] ───┐
    strides_bytes = (8192,)      │ ┌ box[0] ┐                 │  one row of the box:
    box = (64, 64)               │ │        │ box[1]     dims[1]    64 x 2 bytes = 128 bytes,
                                 │ └────────┘                 │  the span of swizzle 128B
                                 └── strides_bytes[0] a row ──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal, Self

from tilescope.arch import Arch, ArchName, Basis
from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.tensor_map import reading
from tilescope.tensor_map.array import array_arguments
from tilescope.tensor_map.convolution import Convolution
from tilescope.tensor_map.descriptor import encoded
from tilescope.tensor_map.option import (
    Interleave,
    InterleaveName,
    L2Promotion,
    L2PromotionName,
    OobFill,
    OobFillName,
)
from tilescope.tensor_map.replacement import replacement_fields
from tilescope.tensor_map.rule import MAPS, RULES, Rule, Subject
from tilescope.value import Value, hex_field, row_field

WideMode = Literal["W", "W128"]
WIDE_128_PIXELS = 128  # what mode W128 loads, whatever pixels_per_column says

_COMMON_READERS: dict[str, reading.Reader] = {
    "data_type": reading.tma_type,
    "dims": reading.integers,
    "strides_bytes": reading.integers,
    "element_strides": reading.optional_integers,
    "interleave": reading.interleave,
    "swizzle": reading.hardware_swizzle,
    "l2_promotion": reading.l2_promotion,
    "oob_fill": reading.oob_fill,
    "address": reading.integer,
    "arch": reading.arch,
}


class AnyMap(Value):
    """What the three kinds of map share: the tensor, the options, and the sizes that follow."""

    __slots__ = ()
    subject: ClassVar[Subject]
    _readers: ClassVar[Mapping[str, reading.Reader]]
    _lengths: ClassVar[Mapping[str, int]]  # entries of a sequence, relative to the rank

    data_type: DataType
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave
    swizzle: Swizzle
    l2_promotion: L2Promotion
    oob_fill: OobFill
    address: int
    arch: Arch
    findings: tuple[Violation, ...]

    def _construct(self, given: Mapping[str, Any]) -> None:
        """Read the arguments into this map; raise when an error is among what the rules find."""
        violations = _fill(self, given)
        if any(each.severity == "error" for each in violations):
            raise TensorMapError(violations)
        object.__setattr__(self, "findings", violations)

    @classmethod
    def _checked(cls, given: Mapping[str, Any]) -> tuple[Violation, ...]:
        return _fill(object.__new__(cls), given)

    def with_fields(self, **fields: Any) -> Self:
        """A map with some constructor arguments replaced, checked like any other.

        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).with_fields(swizzle="128B").swizzle.name
        '128B'
        """
        for name in fields:
            if name not in self._readers:
                raise TensorMapError([unknown_name("argument", name, name, self._readers)])
        return type(self)(**{name: fields.get(name, getattr(self, name)) for name in self._readers})

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.dims)

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy: box[0], or the channels of a pixel."""
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

        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").smem_bytes  # 8 rows of 128, half gap
        1024
        """
        return self.rows * self.pitch_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """Alignment at which the swizzle's pattern starts at its first line.

        >>> TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").smem_alignment_bytes
        1024
        """
        return self.swizzle.repeat_bytes

    @property
    def transaction_bytes(self) -> int:
        """What the mbarrier must expect for one copy: filled elements count, gaps and padding do not.

        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").transaction_bytes
        512
        """
        if self.interleave.slice_bytes:
            return self.rows * self.interleave.slice_bytes
        return self.rows * self.inner_elements * self.data_type.bits // 8

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores: with the floor of box / element stride, dim 0 included."""
        raise NotImplementedError

    @property
    def basis(self) -> Basis:
        """ "measured" where the rules were held against a card, "documented" elsewhere."""
        measured = (self.arch, self.swizzle)
        return (
            "measured"
            if all(row.basis == "measured" for row in measured) and not self.data_type.is_packed
            else "documented"
        )

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes for this map on sm_90.

        >>> TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B").encode().hex()[16:24]
        '10650000'
        """
        return encoded(self)

    def replace(self, **fields: Any) -> Self:
        """The map after tensormap.replace (or, for an address alone, cuTensorMapReplaceAddress).

        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).replace(address=0x1000).address
        4096
        """
        return self.with_fields(**replacement_fields(self, fields))


def _fill(tensor_map: AnyMap, given: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Set the map's fields from the arguments, and return what the rules say about them."""
    violations: list[Violation] = []
    unreadable: set[str] = set()
    kind = type(tensor_map)
    for name, read in kind._readers.items():
        try:
            value = read(name, given[name])
        except RuleError as error:
            violations.extend(error.violations)
            unreadable.add(name)
            value = None
        object.__setattr__(tensor_map, name, value)
    if "dims" in unreadable:
        if tensor_map.element_strides is None:
            unreadable.add("element_strides")
    else:
        rank = len(tensor_map.dims)
        if tensor_map.element_strides is None and "element_strides" not in unreadable:
            object.__setattr__(tensor_map, "element_strides", (1,) * rank)
        for name, fewer in kind._lengths.items():
            if name not in unreadable and len(getattr(tensor_map, name)) != max(0, rank - fewer):
                violations.append(_wrong_length(name, len(getattr(tensor_map, name)), rank, fewer))
                unreadable.add(name)
        if rank == 0:  # no rule but this one can speak of a tensor without dimensions
            violations.extend(RULES["rank"].check(tensor_map))
            unreadable.update(kind._lengths, ["dims"])
    for each in _RULES_OF[kind.subject]:
        if not unreadable or unreadable.isdisjoint(each.reads):
            violations.extend(each.check(tensor_map))
    return tuple(violations)


def _wrong_length(name: str, found: int, rank: int, fewer: int) -> Violation:
    wanted = max(0, rank - fewer)
    order = {0: "one for each dimension", 1: "one for each dimension but the innermost", 2: "one for each of W, H, D"}[
        fewer
    ]
    return Violation(
        "argument-length", "error", name, f"{found} entries for rank {rank}", f"{wanted} entries: {order}",
        f"Give {wanted} entries, innermost first.",
    )  # fmt: skip


_RULES_OF: dict[Subject, tuple[Rule, ...]] = {
    subject: tuple(each for each in RULES.values() if subject in each.subjects and each.reads) for subject in MAPS
}


@dataclass(frozen=True, slots=True, init=False)
class TensorMap(AnyMap):
    """A tiled tensor map, as cuTensorMapEncodeTiled makes it; unsound arguments raise TensorMapError.

    >>> a = TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    >>> a.smem_bytes, a.transaction_bytes, a.smem_alignment_bytes
    (8192, 8192, 1024)
    >>> TensorMap.check("bf16", (4096, 4096), (8192,), (128, 64), swizzle="128B")[0].fix
    'Use box[0] <= 64 and one box per span.'
    """

    subject: ClassVar[Subject] = "tiled"
    _readers: ClassVar[Mapping[str, reading.Reader]] = _COMMON_READERS | {"box": reading.integers}
    _lengths: ClassVar[Mapping[str, int]] = {"strides_bytes": 1, "box": 0, "element_strides": 0}

    data_type: DataType = row_field(DataType.named)
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = row_field(Interleave.named)
    swizzle: Swizzle = row_field(Swizzle.named)
    l2_promotion: L2Promotion = row_field(L2Promotion.named)
    oob_fill: OobFill = row_field(OobFill.named)
    address: int = hex_field()
    arch: Arch = row_field(Arch.named)
    findings: tuple[Violation, ...] = field(init=False, repr=False, compare=False)

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
        """Every rule that these arguments break, and the advice; empty for a sound map. Never raises.

        >>> [broken.rule for broken in TensorMap.check("bf16", (100,), (), (0,), address=8)]
        ['address-alignment', 'box-range', 'store-overrun']
        """
        return cls._checked(locals())

    @classmethod
    def from_array(
        cls, array: Any, box_shape: tuple[int, ...], *, address: int | None = None, **options: Any
    ) -> TensorMap:
        """The map of an array (numpy, DLPack, __array_interface__, __cuda_array_interface__): numpy order.

        `box_shape` is outermost first like the array's shape; `options` are the constructor's.

        >>> import numpy
        >>> TensorMap.from_array(numpy.zeros((128, 64), "float16"), (8, 64), swizzle="128B", address=0).box
        (64, 8)
        """
        return cls(**array_arguments(array, box_shape, address, options))

    def coords(self, *index: int) -> tuple[int, ...]:
        """An index in numpy order as coordinates in the driver's order.

        >>> TensorMap("bf16", (64, 128), (128,), (64, 8)).coords(16, 0)  # row 16, column 0
        (0, 16)
        """
        return reading.integers("index", index)[::-1]

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the box."""
        return self.box[0]

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
        counts = (extent // stride for extent, stride in zip(self.box, self.element_strides, strict=True))
        return prod(counts) * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False)
class Im2colMap(AnyMap):
    """An im2col tensor map, as cuTensorMapEncodeIm2col makes it.

    Pixels are walked W, then H, then D, then N inside the bounding box that the corners give; corners
    are in the order W, H, D (the header's text says D, H, W; the hardware says otherwise).

    >>> x = Im2colMap("f16", (64, 9, 14, 64), (128, 1152, 16128), lower_corner=(-1, -1), upper_corner=(-1, -1),
    ...               channels_per_pixel=8, pixels_per_column=64)
    >>> x.smem_bytes, x.transaction_bytes
    (1024, 1024)
    """

    subject: ClassVar[Subject] = "im2col"
    _readers: ClassVar[Mapping[str, reading.Reader]] = _COMMON_READERS | {
        "lower_corner": reading.integers,
        "upper_corner": reading.integers,
        "channels_per_pixel": reading.integer,
        "pixels_per_column": reading.integer,
    }
    _lengths: ClassVar[Mapping[str, int]] = {
        "strides_bytes": 1, "element_strides": 0, "lower_corner": 2, "upper_corner": 2,
    }  # fmt: skip

    data_type: DataType = row_field(DataType.named)
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int
    element_strides: tuple[int, ...]
    interleave: Interleave = row_field(Interleave.named)
    swizzle: Swizzle = row_field(Swizzle.named)
    l2_promotion: L2Promotion = row_field(L2Promotion.named)
    oob_fill: OobFill = row_field(OobFill.named)
    address: int = hex_field()
    arch: Arch = row_field(Arch.named)
    findings: tuple[Violation, ...] = field(init=False, repr=False, compare=False)

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
        """Every rule that these arguments break, and the advice; empty for a sound map. Never raises."""
        return cls._checked(locals())

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
        return Convolution.of(
            cls, (n, h, w, c), (r, s), pad, stride, dilation,
            {"data_type": data_type, "channels_per_pixel": channels_per_pixel, "pixels_per_column": pixels_per_column}
            | options,
        )  # fmt: skip

    @property
    def inner_elements(self) -> int:
        """Channels of one pixel that a copy moves."""
        return self.channels_per_pixel

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels; interleaved, the pixels alone (one slice of channels a copy)."""
        if self.interleave.slice_bytes:
            return (self.pixels_per_column,)
        return self.channels_per_pixel, self.pixels_per_column

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores."""
        return self.channels_per_pixel * self.pixels_per_column * self.data_type.bits // 8


@dataclass(frozen=True, slots=True, init=False)
class Im2colWideMap(AnyMap):
    """An im2col map that walks W alone, as cuTensorMapEncodeIm2colWide makes it (sm_100 on; documented).

    >>> x = Im2colWideMap("f16", (64, 32, 32, 1), (128, 4096, 131072), lower_width=-1, upper_width=-1,
    ...                   channels_per_pixel=64, pixels_per_column=32, swizzle="128B", arch="sm_100")
    >>> x.smem_bytes, x.basis
    (4096, 'documented')
    """

    subject: ClassVar[Subject] = "wide"
    _readers: ClassVar[Mapping[str, reading.Reader]] = _COMMON_READERS | {
        "lower_width": reading.integer,
        "upper_width": reading.integer,
        "channels_per_pixel": reading.integer,
        "pixels_per_column": reading.integer,
        "mode": reading.wide_mode,
    }
    _lengths: ClassVar[Mapping[str, int]] = {"strides_bytes": 1, "element_strides": 0}

    data_type: DataType = row_field(DataType.named)
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    lower_width: int
    upper_width: int
    channels_per_pixel: int
    pixels_per_column: int
    mode: WideMode
    element_strides: tuple[int, ...]
    interleave: Interleave = row_field(Interleave.named)
    swizzle: Swizzle = row_field(Swizzle.named)
    l2_promotion: L2Promotion = row_field(L2Promotion.named)
    oob_fill: OobFill = row_field(OobFill.named)
    address: int = hex_field()
    arch: Arch = row_field(Arch.named)
    findings: tuple[Violation, ...] = field(init=False, repr=False, compare=False)

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
        """Every rule that these arguments break, and the advice; empty for a sound map. Never raises."""
        return cls._checked(locals())

    @property
    def inner_elements(self) -> int:
        """Channels of one pixel that a copy moves."""
        return self.channels_per_pixel

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """Channels of a pixel, and pixels; halo pixels are the instruction's, not the map's."""
        return self.channels_per_pixel, WIDE_128_PIXELS if self.mode == "W128" else self.pixels_per_column

    @property
    def box_bytes(self) -> int:
        """Bytes of the channels and pixels of one column."""
        return prod(self.visited_elements) * self.data_type.bits // 8
