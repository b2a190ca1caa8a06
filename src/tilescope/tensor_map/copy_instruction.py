"""A copy through a tensor map: one instruction with its operands."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Direction = Literal["load", "store", "reduce"]

# The types that a reduction takes. All 8 x 13 pairs were tried on an H200: these work, all others are illegal.
_BITWISE = ("uint32", "int32", "uint64")
_ORDERED = (*_BITWISE, "int64", "float16", "bfloat16")
_ADDED = (*_BITWISE, "float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz")
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": _ADDED,
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": _BITWISE,
    "or": _BITWISE,
    "xor": _BITWISE,
}


class Copy(NamedTuple):  # made for every copy: a frozen dataclass takes four times as long to make
    """One use of a map by an instruction."""

    tensor_map: Any  # of any kind
    direction: Direction
    coords: tuple[int, ...]  # driver order; gather4 and scatter4: column, then four rows
    smem_address: int = 0
    offsets: tuple[int, ...] = ()  # im2col: W, H, D; im2col-wide: halo, offset
    reduce: str | None = None
    rows4: bool = False  # tile::gather4 or tile::scatter4
    cluster: bool = False  # to .shared::cluster, as for a multicast; else to the .shared::cta of its own block
