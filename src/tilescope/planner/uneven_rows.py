"""Rows of a matrix, or of its tile, whose length the copy does not take.

Rows in global memory start at multiples of 16 bytes, whoever copies them; rows of C only where TMA stores them.

    k = 260 of bf16     rows of 520 bytes: no multiple of 16; the next is 264, rows of 528 bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.planner.product import Product, Tile
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map.limits import PADDED_ROW_ELEMENTS

_ROW_BITS = CHUNK_BYTES * 8  # rows in global memory start at multiples of 16 bytes


class UnevenRow(NamedTuple):
    """A row whose length the copy does not take, with the next longer length that it does: the facts of a refusal."""

    rows_of: str  # the matrix
    extent: str
    elements: int
    data_type: str
    padded: bool  # TMA spreads its elements out
    mover: str
    multiple_elements: int
    multiple_bytes: int
    row_bytes: float
    up: int
    up_bytes: int


def uneven_rows(product: Product, extents: Tile) -> Iterator[UnevenRow]:
    """Rows of A, B and C (or of their tiles) whose length the copy does not take."""
    m, n, k = extents
    a_extent, a_elements = ("k", k) if product.a_major == "K" else ("m", m)
    b_extent, b_elements = ("k", k) if product.b_major == "K" else ("n", n)
    yield from _uneven_row(product, "A", a_extent, a_elements, product.operand_type)
    yield from _uneven_row(product, "B", b_extent, b_elements, product.operand_type)
    if product.by_tma:  # threads store C straight from registers
        yield from _uneven_row(product, "C", "n", n, product.output_type)


def _uneven_row(product: Product, matrix: str, extent: str, elements: int, element: DataType) -> Iterator[UnevenRow]:
    by_tma = product.by_tma
    padded = by_tma and element.tma.smem_bits != element.tma.bits
    multiple = _row_multiple(product, matrix, element, padded=padded)
    up = rounded_up(elements, multiple)
    if up != elements:
        yield UnevenRow(
            rows_of=matrix,
            extent=extent,
            elements=elements,
            data_type=(product.output_type if matrix == "C" else product.data_type).name,
            padded=padded,
            mover="TMA takes" if by_tma else "cp.async takes 16 bytes at a time of",
            multiple_elements=multiple,
            multiple_bytes=multiple * element.bits // 8,
            row_bytes=elements * element.bits / 8,
            up=up,
            up_bytes=up * element.bits // 8,
        )


def _row_multiple(product: Product, matrix: str, element: DataType, *, padded: bool) -> int:
    """Elements of which a row is a multiple: those of 16 bytes, or 64 of 6 bits; types that TMA spreads out move in rows of 128.

    Stores of 6-bit types on sm_103 move rows of 64 of them.
    """
    if padded:
        half = matrix == "C" and element.bits == 6 and product.arch.has("half_row_16u6_store")
        return PADDED_ROW_ELEMENTS // 2 if half else PADDED_ROW_ELEMENTS
    return PADDED_ROW_ELEMENTS // 2 if element.bits == 6 else _ROW_BITS // element.bits
