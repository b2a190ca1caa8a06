"""The fields of a word as a bit ruler, and the bytes of a tensor map in the colours of its fields."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from tilescope.bits import DescriptorField, Inspection
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES, WORD_BITS
from tilescope.view.grid import Grid
from tilescope.view.number_span import runs
from tilescope.view.ruler import BitField, BitRuler, byte_grid

_SHOWN_NAME = {  # of fields that are not shown by their own names
    "start_address": "start",
    "leading_bytes": "leading",
    "stride_bytes": "stride",
    "base_offset": "base offset",
    "leading_is_address": "leading mode",
    "m": "M",
    "n": "N",
    "k": "K",
    "a_type": "A type",
    "b_type": "B type",
    "d_type": "D type",
    "a_major": "A major",
    "b_major": "B major",
    "negate_a": "negate A",
    "negate_b": "negate B",
    "sparsity_selector": "selector",
    "max_shift": "max shift",
    "scale_type": "scale type",
    "a_scale_id": "A scale",
    "b_scale_id": "B scale",
}


def is_tensor_map(word: Inspection) -> bool:
    """Whether the word is read as the 128 bytes of a tensor map."""
    return word.bits == DESCRIPTOR_BYTES * 8


def word_ruler(word: Inspection, title: str = "", wrong: Collection[str] = ()) -> BitRuler:
    """The fields of a word or a tensor map to scale; those named in `wrong` are marked."""
    fields = [_bit_field(word, field, is_wrong=field.name in wrong) for field in word.fields]
    fields += _unknown_fields(word)
    return BitRuler(title, tuple(fields), word.bits, min(word.bits, WORD_BITS), (_note(word),))


def map_ruler(word: Inspection) -> BitRuler:
    """The fields of a tensor map's 128 bytes; those that break a rule are marked."""
    wrong = {violation.argument for violation in word.violations if violation.severity == "error"}
    return word_ruler(word, "The descriptor", wrong)


def map_bytes(word: Inspection, ruler: BitRuler) -> Grid:
    """The 128 bytes of a tensor map, in the colours of its ruler."""
    return byte_grid(ruler, "The 128 bytes", word.word.to_bytes(DESCRIPTOR_BYTES, "little"))


def _bit_field(word: Inspection, field: DescriptorField, *, is_wrong: bool) -> BitField:
    is_small = is_tensor_map(word) and field.raw < 10
    return BitField(
        low=field.bit,
        high=field.bit + field.width_bits - 1,
        name=_SHOWN_NAME.get(field.name, field.name),
        value=str(field.raw) if is_small else hex(field.raw),
        meaning=field.meaning,
        colour="unused" if field.name in word.ignored else None,
        mark="collision" if is_wrong else "",
    )


def _unknown_fields(word: Inspection) -> list[BitField]:
    """Bits that are set and part of no field, one run of a word after the other."""
    name, meaning = ("unknown", "part of no field") if is_tensor_map(word) else ("reserved", "must be 0")
    fields = []
    for _, bits in groupby(word.unknown_bits, lambda bit: bit // WORD_BITS):
        for low, high in runs(bits):
            fields.append(BitField(low, high, name, "set", meaning, colour="collision", mark="collision"))
    return fields


def _note(word: Inspection) -> str:
    if is_tensor_map(word):
        return "Bits without a name are zero."
    if word.major is not None:
        return "Start, leading and stride are stored divided by 16; unnamed bits are 0."
    if any(field.name == "m" for field in word.fields):
        return "N is stored divided by 8, M by 16 or 128; unnamed bits are 0."
    return "Unnamed bits are 0."
