"""Words made of bit fields: one table gives the encoder, the decoder and the explanation.

    wgmma descriptor, bits 63 .. 0          a field holds its value divided by its unit

    63 62 │ 61 … 52 │ 51 … 49 │ 48 … 46 │ 45 … 32 │ 31 30 │ 29 … 16 │ 15 14 │ 13 … 0
     mode │    0    │  base   │    0    │ SBO/16  │   0   │ LBO/16  │   0   │ start/16

Bits that no field covers must be zero; a decoder that meets a one there says which bit it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilescope.errors import Violation, printed, printed_hex
from tilescope.value import plain_int as value_int


@dataclass(frozen=True, slots=True)
class WordField:
    """Bits `low` to `high` of a word, holding a value in multiples of `unit`.

    >>> start = WordField("start_address", 0, 13, 16)
    >>> start.limit, start.extract(0x4000004000010040)
    (262128, 1024)
    """

    name: str
    low: int
    high: int
    unit: int = 1

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return (1 << self.high + 1) - (1 << self.low)

    @property
    def limit(self) -> int:
        """The largest value that fits."""
        return (self.mask >> self.low) * self.unit

    def extract(self, word: int) -> int:
        """The value that the field holds in `word`."""
        return ((word & self.mask) >> self.low) * self.unit

    def problems(self, value: Any) -> list[Violation]:
        """Why the field cannot hold `value`; empty when it can."""
        bits = f"bits {self.low}-{self.high}"
        if not isinstance(value, int) or isinstance(value, bool):
            found, fix = printed(value), "Give an integer."
        elif not 0 <= value <= self.limit:
            found, fix = printed_hex(value), f"Stay between 0 and {self.limit:#x}."
        elif value % self.unit:
            found, fix = (
                f"{value:#x}",
                f"Use {value // self.unit * self.unit:#x} or {-(-value // self.unit) * self.unit:#x}.",
            )
        else:
            return []
        multiples = f"multiples of {self.unit} " if self.unit > 1 else ""
        limit = f"{bits} hold {multiples}from 0 to {self.limit:#x}"
        return [Violation("descriptor-field", "error", self.name, f"{self.name} = {found}", limit, fix)]


@dataclass(frozen=True, slots=True)
class WordFormat:
    """A word of `bits` bits, made of `fields`.

    >>> form = WordFormat("sample", 16, (WordField("low", 0, 3), WordField("high", 8, 15, 16)))
    >>> hex(form.encode({"low": 5, "high": 0x120}))
    '0x1205'
    >>> form.decode(0x1205)
    {'low': 5, 'high': 288}
    """

    name: str
    bits: int
    fields: tuple[WordField, ...]

    def field(self, name: str) -> WordField:
        """The field of that name."""
        return next(field for field in self.fields if field.name == name)

    def encode(self, values: Mapping[str, int]) -> int:
        """The word; the values must have passed `problems`."""
        return sum(values[field.name] // field.unit << field.low for field in self.fields)

    def decode(self, word: int) -> dict[str, int]:
        """The value of every field, whatever the reserved bits are."""
        return {field.name: field.extract(word) for field in self.fields}

    def problems(self, values: Mapping[str, Any]) -> list[Violation]:
        """All fields that cannot hold their value."""
        return [problem for field in self.fields for problem in field.problems(values[field.name])]

    def word_problems(self, word: Any) -> list[Violation]:
        """Why `word` is no such word at all: no integer, too long."""
        if isinstance(word, int) and not isinstance(word, bool) and 0 <= word < 1 << self.bits:
            return []
        found = printed_hex(word) if isinstance(word, int) and not isinstance(word, bool) else printed(word)
        limit = f"a {self.name} is an integer of {self.bits} bits, 0 to {(1 << self.bits) - 1:#x}"
        return [Violation("descriptor-word", "error", "word", found, limit, f"Give one {self.bits}-bit word.")]

    def reserved_ones(self, word: int) -> tuple[int, ...]:
        """The bits that are set in `word` although no field covers them.

        >>> WordFormat("sample", 8, (WordField("low", 0, 3),)).reserved_ones(0b1010_0001)
        (5, 7)
        """
        covered = sum(field.mask for field in self.fields)
        return tuple(bit for bit in range(self.bits) if word >> bit & 1 and not covered >> bit & 1)


def plain_int(value: Any) -> Any:
    """A numpy integer as an int; what is no integer stays as it is, to be refused where it is used.

    >>> import numpy
    >>> plain_int(numpy.int64(16)), plain_int("16")
    (16, '16')
    """
    found = value_int(value)
    return value if found is None else found
