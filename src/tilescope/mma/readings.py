"""What a number could be: the 64-bit descriptors of wgmma and tcgen05, the 32-bit ones of tcgen05's kinds, an address.

0x4000404000010040   bit 46 set, bits 61-63 = 2      tcgen05 descriptor, 128B
0x4000004000010040   bits 46-48 zero, 62-63 = 1      wgmma descriptor, 128B
0x0000000008400010   at most 32 bits                 instruction descriptor of kind f16, or of kind f8f6f4, …
0x0000000000600025   lane 96, column 37              tensor-memory address
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.bits import Inspection
from tilescope.layout import Major
from tilescope.mma.descriptor_word import DESCRIPTORS, inspect_descriptor
from tilescope.mma.instruction_descriptor import inspect_instruction_descriptor
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tmem_address import inspect_tmem_address
from tilescope.reading import integer
from tilescope.value import Value, hex_field

INSTRUCTION_BITS = 32
_DIGITS = {"0x": 16, "0b": 64, "0o": 22, "": 20}  # of 64 bits, by prefix


@dataclass(frozen=True, slots=True)
class WordReadings(Value):
    """All that a number could be, the likeliest first: sound without a warning, sound, not sound.

    >>> [reading.name for reading in descriptor_readings(0x4000404000010040).possible]
    ['tcgen05 descriptor']
    """

    word: int = hex_field()
    readings: tuple[Inspection, ...] = ()

    @property
    def possible(self) -> tuple[Inspection, ...]:
        """The readings under which the word is a sound descriptor."""
        return tuple(reading for reading in self.readings if reading.sound)


def descriptor_readings(word: int, *, major: Major = "K", element_bits: int = 16) -> WordReadings:
    """Every kind of descriptor that a number could be, with all fields in words.

    Majorness and element width, which the 64-bit words do not hold, are those of the operand.

    >>> [reading.name for reading in descriptor_readings(0x08400010).possible][:2]
    ['tcgen05 instruction descriptor, kind f16', 'tcgen05 instruction descriptor, kind f8f6f4']
    """
    word = integer("word", word)
    found: list[Inspection] = [
        inspect_descriptor(word, major=major, element_bits=element_bits, instruction=name) for name in DESCRIPTORS
    ]
    if word < 1 << INSTRUCTION_BITS:
        found = [*(inspect_instruction_descriptor(word, kind) for kind in KINDS), inspect_tmem_address(word), *found]
    return WordReadings(word, tuple(sorted(found, key=lambda reading: (not reading.sound, bool(reading.violations)))))


def pasted_word(text: str) -> int | None:
    """The number that a text is, if it is one integer of at most 64 bits, without more digits than such a one has.

    >>> pasted_word("0x40"), pasted_word("0x1" + 16 * "0"), pasted_word(254 * "0")  # 127 bytes are no word
    (64, None, None)
    """
    plain = text.strip().casefold().replace("_", "")
    prefix = plain[:2] if plain[:2] in _DIGITS else ""
    try:
        word = int(text, 0)
    except ValueError:
        return None
    return word if 0 <= word < 1 << 64 and len(plain) - len(prefix) <= _DIGITS[prefix] else None
