"""How an accumulator leaves tensor memory: which tcgen05.ld gives a thread what it can write to shared memory without conflict.

    load        a thread then holds                    and writes, in a row-major tile
    .32x32b     its lane's row, neighbouring columns   16 bytes (st.b128), lanes below each other
    .16x256b    two neighbours of rows g and g + 8     8 bytes of 32-bit results; of 16-bit ones stmatrix, 8 rows of 16 bytes
    .16x128b    single columns of rows g and g + 8     single elements
    .16x64b     single columns of one row              single elements

Lanes below each other meet in one bank unless the tile is swizzled: the 128B mode spreads the eight rows that st.b128 or stmatrix
write at once over all chunks of a line. Which way is cheapest therefore depends on the tile's layout; all are counted on it.
"""

from __future__ import annotations

from tilescope.errors import RuleError
from tilescope.mma.fragment import fragment
from tilescope.smem.access import Access

_ROW_BITS = 128  # what one lane stores at once
_FORMS = ("32x32b", "16x256b", "16x128b", "16x64b")  # in the order in which equals are preferred


def tmem_epilogues(tile: tuple[int, int], element_bits: int, *, transpose: bool) -> tuple[Access, ...]:
    """The ways to write a tile of results that tcgen05.ld brought into registers; the errors of all where none is possible.

    The tile is rows x columns, columns contiguous; `transpose` where its columns are m, the lanes of tensor memory.

    >>> [access.name for access in tmem_epilogues((128, 64), 16, transpose=False)][:3]
    ['stmatrix.x4 tcgen05.ld.16x256b', 'st.b128 tcgen05.ld.32x32b.x8', 'st.b32 tcgen05.ld.16x256b.x1']
    """
    found: list[Access] = []
    errors: list[RuleError] = []
    if element_bits == 16:
        for count in (4, 2, 1):
            try:
                walk = Access.stmatrix(tile, element_bits, count=count, transpose=transpose)
            except RuleError as error:
                errors.append(error)
                continue
            found.append(Access(walk.op, walk.lane_address, walk.active, f"{walk.op.name} tcgen05.ld.16x256b"))
            break
    columns = tile[0] if transpose else tile[1]
    for form in _FORMS:
        count = 1
        while (
            form == "32x32b" and not transpose and 2 * count * element_bits <= _ROW_BITS and columns % (2 * count) == 0
        ):
            count *= 2
        try:
            held = fragment(f"tcgen05.ld.{form}.x{count}")
            found.append(Access.fragment(held, tile, transpose=transpose, element_bits=element_bits))
        except RuleError as error:
            errors.append(error)
    if not found:
        raise RuleError(dict.fromkeys(violation for error in errors for violation in error.violations))
    return tuple(found)
