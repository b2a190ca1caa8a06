"""Words made of bit fields: one table gives the encoder, the decoder and the explanation.

    wgmma descriptor, bits 63 .. 0          a field holds (its value - first) / unit

    63 62 │ 61 … 52 │ 51 … 49 │ 48 … 46 │ 45 … 32 │ 31 30 │ 29 … 16 │ 15 14 │ 13 … 0
     mode │    0    │  base   │    0    │ SBO/16  │   0   │ LBO/16  │   0   │ start/16

A tensor map is such a word of 1024 bits, a tensor core's descriptor one of 64, an instruction descriptor one of 32.
Bits that no field covers must be zero. `Inspection` has the fields of any word, valid or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from tilescope.errors import RuleError, Violation, argument_type, unknown_name
from tilescope.reading import integer
from tilescope.rule import rule
from tilescope.sentence import format_hex
from tilescope.value import Value, hex_field

_WORD = "ts.WgmmaDescriptor({start}, leading_bytes=16, stride_bytes=1024, swizzle='128B')"
DESCRIPTOR_FIELD = rule(
    "descriptor-field",
    "A field of a descriptor has a value that fits its bits: an address or an offset in units of 16 bytes.",
    argument="{field}",
    found="{field} = {value}",
    limit="bits {low_bit}-{high_bit} hold {numbers}",
    fix="Use {nearest:or}.",
    source='PTX ISA, "Matrix Descriptor Format" of wgmma and "Shared memory descriptor" of tcgen05',
    passing=_WORD.format(start=0x400),
    failing=_WORD.format(start=0x408),
)
DESCRIPTOR_WORD = rule(
    "descriptor-word",
    "A descriptor is an integer of at most 64 bits, an instruction descriptor of 32.",
    argument="word",
    found="{word:#x}",
    limit="a {name} is an integer of {bits} bits, 0 to {largest:#x}",
    fix="Use its low {bits} bits: {low:#x}.",
    source='PTX ISA, "Matrix Descriptor Format" of wgmma and "Instruction descriptor" of tcgen05',
    passing="ts.inspect_descriptor(0x4000004000010040)",
    failing="ts.inspect_descriptor(1 << 64)",
)
DESCRIPTOR_WORD_WITHOUT_LOW_BITS = DESCRIPTOR_WORD.worded(fix="Use one word of {bits} bits, such as 0x1.")


@dataclass(frozen=True, slots=True)
class WordField:
    """Bits `low` to `high` of a word: value = first + unit x number, where a signed number is two's complement.

    >>> start = WordField("start_address", 0, 13, 16)
    >>> start.limit, start.extract(0x4000004000010040)
    (262128, 1024)
    >>> box = WordField("box[0]", 4, 11, first=1)
    >>> box.place(64) == 63 << 4, box.extract(63 << 4)
    (True, 64)
    >>> box.values, WordField("corner", 0, 4, signed=True).values
    (range(1, 257), range(-16, 16))
    """

    name: str
    low: int
    high: int
    unit: int = 1
    first: int = 0  # the value that 0 encodes
    signed: bool = False
    says: Callable[[int], str] = str  # the value in words

    @property
    def width_bits(self) -> int:
        """How many bits it has."""
        return self.high - self.low + 1

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return (1 << self.high + 1) - (1 << self.low)

    @property
    def limit(self) -> int:
        """The largest value that fits."""
        return self.first + ((1 << self.width_bits - self.signed) - 1) * self.unit

    @property
    def values(self) -> range:
        """Every value that the field can hold, smallest first."""
        lowest_number = -(1 << self.width_bits - 1) if self.signed else 0
        return range(self.first + lowest_number * self.unit, self.limit + 1, self.unit)

    def extract(self, word: int) -> int:
        """The value that the field holds in `word`."""
        number = (word & self.mask) >> self.low
        if self.signed and number >> self.width_bits - 1:
            number -= 1 << self.width_bits
        return self.first + number * self.unit

    def place(self, value: int) -> int:
        """The word with `value` in this field and 0 elsewhere; extra bits are truncated."""
        return (value - self.first) // self.unit << self.low & self.mask

    def problems(self, value: object) -> list[Violation]:
        """Why the field cannot hold `value`; empty when it can."""
        if not isinstance(value, int) or isinstance(value, bool):
            return [argument_type(self.name, value, "an integer", f"Use {self.first:#x}, for example.")]
        if value in self.values:
            return []
        field_value: dict[str, Any] = {self.name: value}
        violation = DESCRIPTOR_FIELD.violation(
            field=self.name,
            value=format_hex(value),
            low_bit=self.low,
            high_bit=self.high,
            numbers=self._numbers(),
            nearest=tuple(hex(number) for number in self._nearest(value)),
            **field_value,
        )
        return [violation]

    def _numbers(self) -> str:
        """What the field can hold, in words."""
        lowest, highest = self.values[0], self.values[-1]
        start = f"{lowest:#x}" if lowest else "0"
        numbers = f"{start} to {highest:#x}"
        if self.unit == 1:
            return numbers
        if lowest % self.unit == 0:
            return f"multiples of {self.unit} from {numbers}"
        return f"{numbers} in steps of {self.unit}"

    def _nearest(self, value: int) -> tuple[int, ...]:
        """The values that the field can hold around one that it cannot."""
        lowest, highest = self.values[0], self.values[-1]
        if value < lowest:
            return (lowest,)
        if value > highest:
            return (highest,)
        below = value - (value - lowest) % self.unit
        return below, below + self.unit


@dataclass(frozen=True)
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
        word = 0
        for name, low, unit, first, mask, _ in self._rows:  # unpacked: this is the inner loop of encode()
            word |= (values[name] - first) // unit << low & mask
        return word

    def decode(self, word: int) -> dict[str, int]:
        """The value of every field, for any reserved bits."""
        return {row.name: row.value(word) for row in self._rows}

    def problems(self, values: Mapping[str, object]) -> list[Violation]:
        """All fields that cannot hold their value; a field without a value has none."""
        problems: list[Violation] = []
        for field, holds in self._holds:
            if field.name not in values:
                continue
            value = values[field.name]
            if type(value) is not int or value not in holds:
                problems += field.problems(value)
        return problems

    def checked(self, word: object) -> int:
        """`word` as an integer; refused if it is too long or negative."""
        number = integer("word", word)
        largest = (1 << self.bits) - 1
        if not 0 <= number <= largest:
            low = number & largest
            wording = DESCRIPTOR_WORD.wording if low else DESCRIPTOR_WORD_WITHOUT_LOW_BITS
            raise wording.error(word=number, name=self.name, bits=self.bits, largest=largest, low=low)
        return number

    def reserved_ones(self, word: int) -> tuple[int, ...]:
        """The bits that are set in `word` although no field covers them.

        >>> WordFormat("sample", 8, (WordField("low", 0, 3),)).reserved_ones(0b1010_0001)
        (5, 7)
        """
        return ones(word & ~self.covered)

    def described(self, word: int, meanings: Mapping[str, str] | None = None) -> tuple[DescriptorField, ...]:
        """Every field of the word in the order of its bits, in words: those of `meanings`, else its own."""
        return tuple(
            DescriptorField(
                field.name,
                field.low,
                field.width_bits,
                (word & field.mask) >> field.low,
                field.says(field.extract(word)) if meanings is None else meanings[field.name],
            )
            for field in sorted(self.fields, key=lambda field: field.low)
        )

    @cached_property
    def covered(self) -> int:
        """The bits of all fields."""
        return sum(field.mask for field in self.fields)

    @cached_property
    def _holds(self) -> tuple[tuple[WordField, range], ...]:
        """What every field can hold: asking a range is quicker than asking the field for its limits."""
        return tuple((field, field.values) for field in self.fields)

    @cached_property
    def _rows(self) -> tuple[_Row, ...]:
        """What `encode` and `decode` need of every field, worked out once."""
        return tuple(
            _Row(field.name, field.low, field.unit, field.first, field.mask, field.signed << field.width_bits - 1)
            for field in self.fields
        )


class _Row(NamedTuple):
    """A field as `encode` and `decode` need it."""

    name: str
    low: int
    unit: int
    first: int
    mask: int
    sign: int  # the highest bit of a signed number; 0 of an unsigned one

    def value(self, word: int) -> int:
        """What the field holds in a word."""
        number = (word & self.mask) >> self.low
        if number & self.sign:
            number -= 2 * self.sign
        return self.first + number * self.unit


def ones(word: int) -> tuple[int, ...]:
    """The bits that are set.

    >>> ones(0b1010)
    (1, 3)
    """
    return tuple(bit for bit in range(word.bit_length()) if word >> bit & 1)


@dataclass(frozen=True, slots=True)
class DescriptorField(Value):
    """One field of a descriptor: where it is, what it holds, and what that means.

    >>> DescriptorField("rank", 68, 3, 1, "2 dimensions").word
    1
    """

    name: str
    bit: int  # first bit, counted through all words
    width_bits: int
    raw: int = hex_field()
    meaning: str = ""

    @property
    def word(self) -> int:
        """The 64-bit word that holds it."""
        return self.bit // 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(Value):
    """A word read as a descriptor of some kind: every field, the violations, and the value if it is valid.

    >>> import tilescope as ts
    >>> found = ts.inspect_tensor_map(ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").encode())
    >>> found.field("swizzle").meaning, found.field("box[1]").meaning, found.violations
    ('128B', '8 elements', ())
    >>> word = ts.inspect_descriptor(0x4000004000010040)
    >>> word.name, word.descriptor == ts.WgmmaDescriptor.decode(0x4000004000010040), word.ignored
    ('wgmma descriptor', True, ('leading_bytes',))
    """

    _derived: ClassVar[tuple[str, ...]] = ("unknown_bits",)

    name: str  # what the word is read as
    bits: int
    word: int = hex_field()
    fields: tuple[DescriptorField, ...]
    violations: tuple[Violation, ...]
    described: Value | None  # the tensor map or the descriptor; None where the word is none
    ignored: tuple[str, ...] = ()  # fields that the hardware does not look at
    major: Literal["K", "MN"] | None = None  # of an operand; part of the instruction, not of the word
    element_bits: int | None = None

    @property
    def unknown_bits(self) -> tuple[int, ...]:
        """Bits that are set, and part of no field."""
        return ones(self.word & ~sum((1 << field.width_bits) - 1 << field.bit for field in self.fields))

    @property
    def sound(self) -> bool:
        """Whether it is such a descriptor."""
        return self.described is not None

    @property
    def tensor_map(self) -> Any:
        """The tensor map that the word is; None where it is none."""
        return self.described

    @property
    def descriptor(self) -> Any:
        """The tensor core's descriptor that the word is; None where it is none."""
        return self.described

    def field(self, name: str) -> DescriptorField:
        """The field called `name`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise RuleError([unknown_name("field", "name", name, [field.name for field in self.fields])])
