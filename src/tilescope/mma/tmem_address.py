"""Tensor memory (Blackwell): 128 lanes x 512 columns of 32-bit cells, and the word that names one.

    bits   31 … 23    22 … 16    15 … 9    8 … 0           lane 96, column 37 = 0x00600025
           0          lane       0         column

              column 0    1    2   …  511
    lane   0  ┌────┬────┬────┬─ ─┬────┐
              │ 32 bits each     │    │   quarter 0: reached by warps 0, 4, 8 … of a block
          32  ├────┼────┼────┼─ ─┼────┤
              │                  │    │   quarter 1: warps 1, 5, 9 …
          64  ├────┼────┼────┼─ ─┼────┤
              │                  │    │   quarter 2
          96  ├────┼────┼────┼─ ─┼────┤
              │                  │    │   quarter 3
         127  └────┴────┴────┴─ ─┴────┘

Elements narrower than a cell, and scale factors, need a place inside it. So maps of this package count *bits*: a
bit address is lane << 21 | column << 5 | bit of the cell, which is CuTe's way too; shifted right by 5 it is the
address word. Everything about tensor memory is known from documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.bits import Inspection, WordField, WordFormat
from tilescope.errors import Violation, raise_all
from tilescope.mma.tcgen05_kind import BLACKWELL, Documented
from tilescope.reading import plain_int, try_read
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.value import Value

TMEM_LANES = 128
TMEM_COLUMNS = 512
ALLOC_COLUMNS = (32, 64, 128, 256, 512)
CELL_BITS = 32
QUARTER_LANES = 32  # what one warp of four reaches
QUARTERS = TMEM_LANES // QUARTER_LANES
UPPER_HALF_LANE = QUARTER_LANES // 2  # of a quarter
LANE_BITS = 1 << 21  # from a cell to the one below it, in a bit address

TMEM_ADDRESS = rule(
    "tmem-address",
    "An address of tensor memory has the lane in bits 16-22 and the column in bits 0-8; the other bits are zero.",
    argument="word",
    found="{word:#010x} has bits {bits:, } set",
    limit="bits 16-22 are the lane and bits 0-8 the column; the others are zero",
    fix="Keep lane below 128 and column below 512.",
    source="PTX ISA, Tensor Memory Addressing",
    architectures=BLACKWELL,
    passing="ts.descriptor_readings(0x00600025).readings[0].violations",
    failing="ts.TensorMemory().alloc(32).load('32x32b.x1', 0x00800000, warp=0)",
)
ONE_STRAY_BIT = TMEM_ADDRESS.worded(found="{word:#010x} has bit {bits:, } set")
SCALE_ID_IN_ADDRESS = (
    "CuTe keeps the id of a scale factor in bits 30-31: mask them, and put the id into the instruction descriptor."
)
COLUMNS_RAN_OVER = "Columns end at 511: a sum of columns ran over."
NO_SUCH_CELL = TMEM_ADDRESS.worded(
    argument="{index}",
    found="{index} {asked}",
    limit="tensor memory has {index}s 0 to {last}",
    fix="Use {index} {last}, the last.",
)


def _column_in_words(column: int) -> str:
    return f"column {column} of {TMEM_COLUMNS}"


def _lane_in_words(lane: int) -> str:
    quarter = lane // QUARTER_LANES
    warps = f"{quarter}, {quarter + QUARTERS}, {quarter + 2 * QUARTERS} …"
    return f"lane {lane} of {TMEM_LANES}: quarter {quarter}, reached by warps {warps}"


# PTX ISA, "Tensor Memory Addressing". The fields have 16 bits; the memory fills these.
TMEM_WORD = WordFormat(
    "tensor-memory address",
    32,
    (
        WordField("column", 0, 8, says=_column_in_words),
        WordField("lane", 16, 22, says=_lane_in_words),
    ),
)
_CUTE_SCALE_ID_BITS = {30, 31}
_BITS_BEHIND_COLUMN = set(range(9, 16))


@dataclass(frozen=True, slots=True, init=False)
class TmemAddress(Documented, Value):
    """A cell of tensor memory.

    >>> address = TmemAddress(96, 37)
    >>> hex(address.encode()), TmemAddress.decode(0x600025) == address, address.quarter
    ('0x600025', True, 3)
    >>> print(address.moved(columns=4))
    lane 96, column 41 (0x00600029)
    """

    lane: int
    column: int

    def __init__(self, lane: int = 0, column: int = 0) -> None:
        problems = []
        for name, value, extent in (("lane", lane, TMEM_LANES), ("column", column, TMEM_COLUMNS)):
            number = plain_int(value)
            object.__setattr__(self, name, number)
            if number not in range(extent):
                field_value: dict[str, Any] = {name: number}
                problems.append(
                    NO_SUCH_CELL.violation(index=name, asked=format_value(value), last=extent - 1, **field_value)
                )
        raise_all(problems)

    @property
    def quarter(self) -> int:
        """Its 32 lanes: the warps that access it have this number modulo 4."""
        return self.lane // QUARTER_LANES

    def moved(self, *, lanes: int = 0, columns: int = 0) -> TmemAddress:
        """The cell some lanes and columns further; refused beyond the memory: no column carries into the lane."""
        return TmemAddress(self.lane + lanes, self.column + columns)

    def encode(self) -> int:
        """The 32-bit word, as tcgen05.alloc writes it and the instructions take it."""
        return TMEM_WORD.encode({"lane": self.lane, "column": self.column})

    @classmethod
    def decode(cls, word: int) -> TmemAddress:
        """The cell that a word names; a word that names none is refused.

        >>> TmemAddress.decode(0x00100008).lane
        16
        """
        word = TMEM_WORD.checked(word)
        ones = TMEM_WORD.reserved_ones(word)
        if ones:
            wording = ONE_STRAY_BIT if len(ones) == 1 else TMEM_ADDRESS.wording
            if _CUTE_SCALE_ID_BITS.issuperset(ones):
                wording = wording.worded(fix=SCALE_ID_IN_ADDRESS)
            elif _BITS_BEHIND_COLUMN.issuperset(ones):
                wording = wording.worded(fix=COLUMNS_RAN_OVER)
            raise wording.error(word=word, bits=ones)
        return cls(**TMEM_WORD.decode(word))

    @classmethod
    def of(cls, address: object) -> TmemAddress:
        """An address as it is, or the one in a word."""
        return address if isinstance(address, TmemAddress) else cls.decode(TMEM_WORD.checked(address))

    def __str__(self) -> str:
        return f"lane {self.lane}, column {self.column} (0x{self.encode():08x})"


class CellPlaces(NamedTuple):
    """The cells of bit addresses, and the bit of the cell that each address names."""

    lane: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    bit: npt.NDArray[np.int64]


def cells_of(bit_addresses: npt.NDArray[np.int64]) -> CellPlaces:
    """The cells of bit addresses.

    >>> [part.item() for part in cells_of(np.array([3 << 21 | 5 << 5 | 16]))]
    [3, 5, 16]
    """
    lane, bit_of_lane = np.divmod(bit_addresses, LANE_BITS)
    column, bit = np.divmod(bit_of_lane, CELL_BITS)
    return CellPlaces(lane, column, bit)


def inspect_tmem_address(word: int) -> Inspection:
    """What a 32-bit number means as an address of tensor memory.

    >>> [field.meaning for field in inspect_tmem_address(0x00600025).fields]
    ['column 37 of 512', 'lane 96 of 128: quarter 3, reached by warps 3, 7, 11 …']
    >>> inspect_tmem_address(0x08400010).violations[0].found
    '0x08400010 has bit 27 set'
    """
    word = TMEM_WORD.checked(word)
    problems: list[Violation] = []
    address = try_read(problems, None, TmemAddress.decode, word)
    return Inspection(
        name=TMEM_WORD.name,
        bits=TMEM_WORD.bits,
        word=word,
        fields=TMEM_WORD.described(word),
        violations=tuple(problems),
        described=address,
    )
