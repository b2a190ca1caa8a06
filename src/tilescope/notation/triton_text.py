"""The encoding in a text of Triton: one attribute, a Gluon constructor, or lines of a TTGIR file.

#blocked = #ttg.blocked<{…}>                                                        registers: passed over
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, …}>                          the encoding
#smem = #ttg.shared_memory
%0 = ttg.local_alloc : () -> !ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>    names it, with the tile's shape
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from tilescope.layout import MAX_INDICES
from tilescope.notation.hints import MAX_EXTENT
from tilescope.notation.text import (
    NOTATION_TEXT,
    Fields,
    Scanner,
    closing_place,
    last_name,
    require_known,
    type_bits,
)
from tilescope.sentence import shorten

_CLUSTER_FIELDS = ("CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout")
_FIELDS = {  # of an encoding, in the order of Gluon's arguments …
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth", "elementBitWidth", "rank", "transposed", "fp4Padded"),
    "padded_shared": ("intervals", "offset", "block", "shape", "order"),
    "shared_linear": ("offset", "block", "alignment"),
}
_NEEDED = {  # … and those that must be there
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth",),
    "padded_shared": ("intervals",),
    "shared_linear": ("offset",),
}
WIDTHS = {0: "none", 32: "32B", 64: "64B", 128: "128B"}  # bytes of an nvmma_shared encoding, and the mode they are
_IDENTITY = ("intervals", "shape", "order", "block")  # of PaddedSharedLayout.with_identity_for
_MAX_LINES = 100  # definitions and buffers that are worth reading
_NAMES = {  # Gluon's, and older ones: what TTGIR calls them
    "shared": "swizzled_shared",
    "SwizzledSharedLayout": "swizzled_shared",
    "NVMMASharedLayout": "nvmma_shared",
    "PaddedSharedLayout": "padded_shared",
    "SharedLinearLayout": "shared_linear",
    "per_phase": "perPhase",
    "max_phase": "maxPhase",
    "swizzle_byte_width": "swizzlingByteWidth",
    "element_bitwidth": "elementBitWidth",
    "fp4_padded": "fp4Padded",
    "interval_padding_pairs": "intervals",
    "offset_bases": "offset",
    "block_bases": "block",
    "cga_layout": "CGALayout",
    "ctas_per_cga": "CTAsPerCGA",
    "cta_split_num": "CTASplitNum",
    "cta_order": "CTAOrder",
}
_DIALECTS = "ttg|ttng|triton_gpu|triton_nvidia_gpu|amdg|gluon"
_ATTRIBUTE = re.compile(rf"#(?:{_DIALECTS})\.\w+|\b\w{{0,20}}Shared\w{{0,20}}Layout(?:\.with_identity_for)?\s*\(")
_NAME = re.compile(r"[#\w.]*\s*")
_DEFINITION = re.compile(r"(#\w+)\s*=\s*(?=#[a-z])")
_MEMDESC = re.compile(r"!(?:ttg|triton_gpu|tt)\.memdesc<")
_BUFFER = re.compile(r"\s*((?:[\d?]{1,7}x){1,9})([A-Za-z]\w{0,30})\s*,\s*(#[\w.]+)")
SOME_TEXT = re.compile(f"{_ATTRIBUTE.pattern}|{_MEMDESC.pattern}")  # an encoding, or the type of a buffer


SEVERAL_ENCODINGS = NOTATION_TEXT.worded(
    found="{encodings} encodings: {shown}",
    limit="one layout at a time; views of a buffer are one with it",
    fix="Leave the others out.",
)
UNKNOWN_SIZE = NOTATION_TEXT.worded(
    found="the buffer {buffer}",
    limit="extents, type and encoding, such as 64x64xf16, #shared",
    fix="Put numbers: a size that only the running kernel knows has none.",
)
UNDEFINED_ENCODING = NOTATION_TEXT.worded(
    found="{name} is not defined",
    limit="the line that defines an encoding",
    fix="Add it: {name} = #ttg.nvmma_shared<{{…}}>.",
)
FOREIGN_ENCODING = NOTATION_TEXT.worded(
    found="the encoding {encoding}, {where}",
    limit="known in shared memory: {known:, }",
    fix="Paste the encoding of a shared buffer.",
)
LEADING_OFFSET = NOTATION_TEXT.worded(
    found="hasLeadingOffset = true",
    limit="what nvmma_shared says today",
    fix="Spell it as nvmma_shared.",
)
MISSING_FIELD_OF_ENCODING = NOTATION_TEXT.worded(
    found="{encoding} without {field}",
    limit="it has {needed:, }",
    fix="Add {field} = {example}.",
)
FIELD_VALUE = NOTATION_TEXT.worded(
    found="{field} = {shown}",
    limit="{allowed}",
    fix="Use {field} = {example}.",
)


class Encoding(NamedTuple):
    """A shared encoding: its kind and its fields, and the extents and the bits of its buffer where the text has one."""

    kind: str
    fields: Fields
    extents: tuple[int, ...] | None
    element_bits: int | None


class _Buffer(NamedTuple):
    """A buffer in memory, or an encoding without one."""

    attribute: str  # the text of its encoding
    extents: tuple[int, ...] = ()
    element_bits: int | None = None

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.extents))} {self.attribute}".strip()

    def is_view_of(self, whole: _Buffer) -> bool:
        """Whether it is the buffer, or one of its stages."""
        is_alike = self.attribute == whole.attribute and self.element_bits == whole.element_bits
        return is_alike and self.extents == whole.extents[-len(self.extents) :]


def read_encoding(text: str) -> Encoding:
    """The one shared encoding of a text, with its buffer.

    >>> lines = "#s = #ttg.shared_linear<{offset = [[0, 1], [1, 0]]}, alignment = 16> !ttg.memdesc<2x2xf16, #s, #smem>"
    >>> tuple(read_encoding(lines))
    ('shared_linear', {'offset': [[0, 1], [1, 0]], 'alignment': 16}, (2, 2), 16)
    """
    defined = {match[1]: _attribute(text, match.end()) for match in islice(_DEFINITION.finditer(text), _MAX_LINES)}
    buffers = [buffer for buffer in dict.fromkeys(_buffers(text, defined)) if "tensor_memory" not in buffer.attribute]
    if not buffers:
        first = _ATTRIBUTE.search(text)
        attributes = list(defined.values()) or [_attribute(text, first.start() if first else text.find("#"))]
        shared = [attribute for attribute in attributes if _kind(attribute) in _FIELDS]
        buffers = list(dict.fromkeys(map(_Buffer, shared or attributes[:1])))
    full_buffer = max(buffers, key=lambda buffer: len(buffer.extents))
    if not all(buffer.is_view_of(full_buffer) for buffer in buffers):
        shown = "; ".join(map(str, buffers))
        raise SEVERAL_ENCODINGS.error(encodings=len(buffers), shown=shorten(shown, 300))
    kind = _known_kind(full_buffer.attribute)
    return Encoding(
        kind, _checked_fields(kind, full_buffer.attribute), full_buffer.extents or None, full_buffer.element_bits
    )


def _buffers(text: str, defined: dict[str, str]) -> Iterator[_Buffer]:
    """The buffers whose types the text has."""
    for match in islice(_MEMDESC.finditer(text), _MAX_LINES):
        inside = text[match.end() : closing_place(text, match.end() - 1)]
        parts = _BUFFER.match(inside)
        if parts is None or "?" in parts[1]:
            raise UNKNOWN_SIZE.error(buffer=shorten(inside, 60))
        attribute = _attribute(inside, parts.start(3)) if "." in parts[3] else defined.get(parts[3])
        if attribute is None:
            raise UNDEFINED_ENCODING.error(name=parts[3])
        yield _Buffer(attribute, tuple(map(int, parts[1].split("x")[:-1])), type_bits(parts[2]))


def _attribute(text: str, start: int) -> str:
    """The attribute, or the call, that starts there, with its brackets."""
    name = _NAME.match(text, start)
    end = name.end() if name else start
    if text[end : end + 1] in ("<", "("):
        end = closing_place(text, end) + 1
    return text[start:end]


def _kind(attribute: str) -> str:
    name = _NAME.match(attribute)
    last = last_name(name[0].rstrip().removesuffix(".with_identity_for")) if name else ""
    return _NAMES.get(last, last)


def _known_kind(attribute: str) -> str:
    """The kind of an encoding of shared memory; others are refused."""
    kind = _kind(attribute)
    if kind in _FIELDS:
        return kind
    if "tensor_memory" in kind:
        where = "in tensor memory"
    elif "shared" in kind:
        where = "unknown here"
    else:
        where = "in registers"
    raise FOREIGN_ENCODING.error(encoding=kind, where=where, known=tuple(_FIELDS))


def _checked_fields(kind: str, attribute: str) -> Fields:
    """The fields of an encoding, every one of them checked."""
    fields = {_NAMES.get(key, key): value for key, value in _written_fields(kind, attribute).items()}
    if fields.pop("hasLeadingOffset", False) is True:
        raise LEADING_OFFSET.error()
    require_known(fields, (*_FIELDS[kind], *_CLUSTER_FIELDS))
    needed = _NEEDED[kind]
    for key in needed:
        if key not in fields:
            raise MISSING_FIELD_OF_ENCODING.error(encoding=kind, field=key, needed=needed, example=_VALUES[key].example)
    for key, value in fields.items():
        allowed = _VALUES[key]
        if value != [] and not allowed.fits(value):
            shown = shorten(str(value))
            field_value: Fields = {key: value}
            raise FIELD_VALUE.error(
                field=key, shown=shown, allowed=allowed.in_words, example=allowed.example, **field_value
            )
    return fields


def _written_fields(kind: str, attribute: str) -> Fields:
    """The fields as they are written: of a Gluon call, or between the angle brackets of an attribute."""
    scan = Scanner(attribute)
    scan.name()
    fields: Fields = {}
    if scan.accept("("):
        fields = scan.fields(")", _IDENTITY if "with_identity_for" in attribute else _FIELDS[kind])
    else:
        scan.expect("<")
        if scan.at("["):
            fields["intervals"] = scan.value()
        for _ in scan.until(">"):
            if scan.accept("{"):
                fields |= scan.fields("}")
            else:
                key = scan.name()
                scan.expect("=")
                fields[key] = scan.value()
    scan.finished()
    return fields


def is_power(number: object) -> bool:
    """Whether it is a power of two."""
    return type(number) is int and number > 0 and not number & (number - 1)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_width(value: object) -> bool:
    return type(value) is int and value in WIDTHS


def _is_element_width(value: object) -> bool:
    return value in (8, 16, 32, 64)


def _is_rank(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_INDICES


def _is_order(value: object) -> bool:
    if not isinstance(value, list):
        return False
    indices = [str(index) for index in range(len(value))]
    return sorted(map(str, value)) == indices


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and number < MAX_EXTENT for number in value)


def _are_bases(value: object) -> bool:
    if not isinstance(value, list) or not all(map(_are_numbers, value)):
        return False
    ranks = {len(basis) for basis in value}
    return len(ranks) <= 1 and 0 not in ranks


def _are_intervals(value: object) -> bool:
    if not isinstance(value, list) or not _are_bases(value):
        return False
    return all(len(pair) == 2 and all(map(is_power, pair)) for pair in value)


class _Allowed(NamedTuple):
    """What a field may hold: the check, in words, and an example."""

    fits: Callable[[object], bool]
    in_words: str
    example: str


_POWER = _Allowed(is_power, "a power of two", "8")
_FLAG = _Allowed(_is_flag, "true or false", "false")
_BASES = _Allowed(_are_bases, "a list of bases of equally many numbers, one for every bit", "[[0, 1], [1, 0]]")
_NUMBERS = _Allowed(_are_numbers, "a list of integers", "[1, 1]")
_VALUES: dict[str, _Allowed] = {
    "vec": _POWER,
    "perPhase": _POWER,
    "maxPhase": _POWER,
    "order": _Allowed(_is_order, "every index once, the fastest first", "[1, 0]"),
    "swizzlingByteWidth": _Allowed(_is_width, "0, 32, 64 or 128", "128"),
    "elementBitWidth": _Allowed(_is_element_width, "8, 16, 32 or 64", "16"),
    "rank": _Allowed(_is_rank, "an encoding has 1 to 5 indices", "2"),
    "transposed": _FLAG,
    "fp4Padded": _FLAG,
    "intervals": _Allowed(_are_intervals, "pairs of powers of two, such as [256:+8]", "[256:+8]"),
    "offset": _BASES,
    "block": _BASES,
    "CGALayout": _BASES,
    "shape": _NUMBERS,
    "CTASplitNum": _NUMBERS,
    "CTAsPerCGA": _NUMBERS,
    "CTAOrder": _NUMBERS,
    "alignment": _POWER,
}
