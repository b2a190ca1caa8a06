"""The three small enumerations of a tensor map: interleave, L2 promotion, out-of-bounds fill.

interleave    NC/8HWC8 (16B) or NC/16HWC16 (32B): one pixel of one channel slice is 16 or 32 bytes
l2_promotion  how many bytes of DRAM one miss fetches into L2; a hint
oob_fill      what an element outside the tensor becomes: zero, or a NaN that products ignore
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from tilescope.errors import RuleError, unknown_name
from tilescope.value import Row

InterleaveName = Literal["none", "16B", "32B"]
L2PromotionName = Literal["none", "64B", "128B", "256B"]
OobFillName = Literal["zero", "nan"]


@dataclass(frozen=True, slots=True, eq=False)
class Option(Row):
    """A row of one of these enumerations: its name, the driver's number and the driver's name."""

    table: ClassVar[dict[str, Self]]

    name: str
    driver_code: int
    driver_name: str  # the enumerator of cuda.h

    @classmethod
    def named(cls, name: object) -> Self:
        """The row called `name` in any case, or by its name in cuda.h, in full or by the last words.

        >>> OobFill.named("NaN").name, L2Promotion.named("CU_TENSOR_MAP_L2_PROMOTION_L2_128B").name
        ('nan', '128B')
        >>> OobFill.named("NONE").name  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE fills with zeros
        'zero'
        """
        if isinstance(name, cls):
            return name
        written = name.strip().casefold() if isinstance(name, str) else None
        for row in cls.table.values():
            if written == row.name.casefold() or f"_{row.driver_name}".casefold().endswith(f"_{written}"):
                return row
        raise RuleError([unknown_name(cls.kind.replace("_", " "), cls.kind, name, cls.table)])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Interleave(Option):
    """How channels are stored in global memory; `slice_bytes` of one pixel are contiguous."""

    slice_bytes: int | None = None  # None: channels are simply the innermost dimension


@dataclass(frozen=True, slots=True, eq=False)
class L2Promotion(Option):
    """The number of bytes that a miss fetches from DRAM into L2."""


@dataclass(frozen=True, slots=True, eq=False)
class OobFill(Option):
    """The value that a load writes for elements outside the tensor."""


INTERLEAVE: dict[str, Interleave] = {
    row.name: row
    for row in (
        Interleave("none", 0, "CU_TENSOR_MAP_INTERLEAVE_NONE"),
        Interleave("16B", 1, "CU_TENSOR_MAP_INTERLEAVE_16B", 16),
        Interleave("32B", 2, "CU_TENSOR_MAP_INTERLEAVE_32B", 32),
    )
}
L2_PROMOTION: dict[str, L2Promotion] = {
    row.name: row
    for row in (
        L2Promotion("none", 0, "CU_TENSOR_MAP_L2_PROMOTION_NONE"),
        L2Promotion("64B", 1, "CU_TENSOR_MAP_L2_PROMOTION_L2_64B"),
        L2Promotion("128B", 2, "CU_TENSOR_MAP_L2_PROMOTION_L2_128B"),
        L2Promotion("256B", 3, "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"),
    )
}
OOB_FILL: dict[str, OobFill] = {
    row.name: row
    for row in (
        OobFill("zero", 0, "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
        OobFill("nan", 1, "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"),
    )
}
Interleave.table = INTERLEAVE
L2Promotion.table = L2_PROMOTION
OobFill.table = OOB_FILL
