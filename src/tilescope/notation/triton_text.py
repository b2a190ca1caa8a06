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
from typing import Any, NamedTuple

from tilescope.notation.hints import MAX_EXTENT
from tilescope.notation.text import Scanner, closing_place, last_name, refusal, require_known, type_bits
from tilescope.sentence import shortened

_CLUSTER_FIELDS = ("CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout")
# The fields of an encoding, in the order of Gluon's arguments, and how many of them must be there.
_FIELDS = {
    "swizzled_shared": (4, ("vec", "perPhase", "maxPhase", "order")),
    "nvmma_shared": (1, ("swizzlingByteWidth", "elementBitWidth", "rank", "transposed", "fp4Padded")),
    "padded_shared": (1, ("intervals", "offset", "block", "shape", "order")),
    "shared_linear": (1, ("offset", "block", "alignment")),
}
WIDTHS = {0: "none", 32: "32B", 64: "64B", 128: "128B"}  # bytes of an nvmma_shared encoding, and the mode they are
_IDENTITY = ("intervals", "shape", "order", "block")  # of PaddedSharedLayout.with_identity_for
_MAX_LINES = 100  # definitions and buffers that are worth reading
_NAMES = {
    "shared": "swizzled_shared", "SwizzledSharedLayout": "swizzled_shared", "NVMMASharedLayout": "nvmma_shared",
    "PaddedSharedLayout": "padded_shared", "SharedLinearLayout": "shared_linear", "per_phase": "perPhase",
    "max_phase": "maxPhase", "swizzle_byte_width": "swizzlingByteWidth", "element_bitwidth": "elementBitWidth",
    "fp4_padded": "fp4Padded", "interval_padding_pairs": "intervals", "offset_bases": "offset", "block_bases": "block",
    "cga_layout": "CGALayout", "ctas_per_cga": "CTAsPerCGA", "cta_split_num": "CTASplitNum", "cta_order": "CTAOrder",
}  # fmt: skip
_DIALECTS = "ttg|ttng|triton_gpu|triton_nvidia_gpu|amdg|gluon"
_ATTRIBUTE = re.compile(rf"#(?:{_DIALECTS})\.\w+|\b\w{{0,20}}Shared\w{{0,20}}Layout(?:\.with_identity_for)?\s*\(")
_NAME = re.compile(r"[#\w.]*\s*")
_DEFINITION = re.compile(r"(#\w+)\s*=\s*(?=#[a-z])")
_MEMDESC = re.compile(r"!(?:ttg|triton_gpu|tt)\.memdesc<")
_BUFFER = re.compile(r"\s*((?:[\d?]{1,7}x){1,9})([A-Za-z]\w{0,30})\s*,\s*(#[\w.]+)")
SOME_TEXT = re.compile(f"{_ATTRIBUTE.pattern}|{_MEMDESC.pattern}")  # an encoding, or the type of a buffer


class _Buffer(NamedTuple):
    """A buffer in memory, or an encoding that stands alone."""

    attribute: str  # the text of its encoding
    extents: tuple[int, ...] = ()
    element_bits: int | None = None


def read_encoding(text: str) -> tuple[str, dict[str, Any], tuple[int, ...] | None, int | None]:
    """The kind and the fields of the one shared encoding, then the extents and the bits of its buffer or None.

    >>> lines = "#s = #ttg.shared_linear<{offset = [[0, 1], [1, 0]]}, alignment = 16> !ttg.memdesc<2x2xf16, #s, #smem>"
    >>> read_encoding(lines)
    ('shared_linear', {'offset': [[0, 1], [1, 0]], 'alignment': 16}, (2, 2), 16)
    """
    defined = {found[1]: _attribute(text, found.end()) for found in islice(_DEFINITION.finditer(text), _MAX_LINES)}
    buffers = [buffer for buffer in dict.fromkeys(_buffers(text, defined)) if "tensor_memory" not in buffer.attribute]
    if not buffers:
        first = _ATTRIBUTE.search(text)
        attributes = list(defined.values()) or [_attribute(text, first.start() if first else text.find("#"))]
        shared = [attribute for attribute in attributes if _kind(attribute) in _FIELDS]
        buffers = list(dict.fromkeys(map(_Buffer, shared or attributes[:1])))
    whole = max(buffers, key=lambda buffer: len(buffer.extents))
    for attribute, extents, bits in buffers:
        if (attribute, bits) != (whole.attribute, whole.element_bits) or extents != whole.extents[-len(extents) :]:
            shown = "; ".join(f"{'x'.join(map(str, extents))} {attribute}".strip() for attribute, extents, _ in buffers)
            several, limit = f"{len(buffers)} encodings: {shortened(shown, 300)}", "one layout at a time"
            raise refusal(
                several, f"{limit}; views of a buffer are one with it", "Leave the others out.", encodings=len(buffers)
            )
    return *_parsed(whole.attribute), whole.extents or None, whole.element_bits


def _buffers(text: str, defined: dict[str, str]) -> Iterator[_Buffer]:
    """The buffers whose types the text has."""
    for found in islice(_MEMDESC.finditer(text), _MAX_LINES):
        inside = text[found.end() : closing_place(text, found.end() - 1)]
        parts = _BUFFER.match(inside)
        if parts is None or "?" in parts[1]:
            limit = "extents, type and encoding, such as 64x64xf16, #shared"
            fix = "Put numbers: a size that only the running kernel knows has none."
            raise refusal(f"the buffer {shortened(inside, 60)}", limit, fix)
        attribute = _attribute(inside, parts.start(3)) if "." in parts[3] else defined.get(parts[3])
        if attribute is None:
            fix = f"Add it: {parts[3]} = #ttg.nvmma_shared<{{…}}>."
            raise refusal(f"{parts[3]} is not defined", "the line that defines an encoding", fix)
        yield _Buffer(attribute, tuple(map(int, parts[1].split("x")[:-1])), type_bits(parts[2]))


def _attribute(text: str, start: int) -> str:
    """The attribute, or the call, that starts there, with its brackets."""
    name = _NAME.match(text, start)
    end = name.end() if name else start
    return text[start : closing_place(text, end) + 1] if text[end : end + 1] in ("<", "(") else text[start:end]


def _kind(attribute: str) -> str:
    name = _NAME.match(attribute)
    last = last_name(name[0].rstrip().removesuffix(".with_identity_for")) if name else ""
    return _NAMES.get(last, last)


def _parsed(attribute: str) -> tuple[str, dict[str, Any]]:
    """The kind of an encoding and its fields, every one of them checked."""
    kind = _kind(attribute)
    if kind not in _FIELDS:
        where = (
            "in tensor memory" if "tensor_memory" in kind else "unknown here" if "shared" in kind else "in registers"
        )
        limit = f"known in shared memory: {', '.join(_FIELDS)}"
        raise refusal(f"the encoding {kind}, {where}", limit, "Paste the encoding of a shared buffer.")
    needed, known = _FIELDS[kind]
    scan = Scanner(attribute)
    scan.name()
    said: dict[str, Any] = {}
    if scan.accept("("):
        said = scan.fields(")", _IDENTITY if "with_identity_for" in attribute else known)
    else:
        scan.expect("<")
        if scan.at("["):
            said["intervals"] = scan.value()
        for _ in scan.until(">"):
            if scan.accept("{"):
                said |= scan.fields("}")
            else:
                key = scan.name()
                scan.expect("=")
                said[key] = scan.value()
    scan.finished()
    fields = {_NAMES.get(key, key): value for key, value in said.items()}
    if fields.pop("hasLeadingOffset", False) is True:
        raise refusal("hasLeadingOffset = true", "what nvmma_shared says today", "Spell it as nvmma_shared.")
    require_known(fields, (*known, *_CLUSTER_FIELDS))
    for key in known[:needed]:
        if key not in fields:
            limit = f"it has {', '.join(known[:needed])}"
            raise refusal(f"{kind} without {key}", limit, f"Add {key} = {_VALUES[key][2]}.")
    for key, value in fields.items():
        fits, limit, example = _VALUES[key]
        if value != [] and not fits(value):
            raise refusal(f"{key} = {shortened(str(value))}", limit, f"Use {key} = {example}.", **{key: value})
    return kind, fields


def is_power(number: Any) -> bool:
    """Whether it is a power of two."""
    return type(number) is int and number > 0 and not number & (number - 1)


def _is_order(value: Any) -> bool:
    return isinstance(value, list) and sorted(map(str, value)) == [str(index) for index in range(len(value))]


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number < MAX_EXTENT for number in value)


def _are_bases(value: Any) -> bool:
    return isinstance(value, list) and all(_are_numbers(basis) and len(basis) == len(value[0]) > 0 for basis in value)


def _are_intervals(value: Any) -> bool:
    return _are_bases(value) and all(len(pair) == 2 and all(map(is_power, pair)) for pair in value)


_POWER = (is_power, "a power of two", "8")
_FLAG = (lambda value: isinstance(value, bool), "true or false", "false")
_BASES = (_are_bases, "a list of bases of equally many numbers, one for every bit", "[[0, 1], [1, 0]]")
_NUMBERS = (_are_numbers, "a list of integers", "[1, 1]")
# What a field may hold, in words, and an example.
_VALUES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "vec": _POWER,
    "perPhase": _POWER,
    "maxPhase": _POWER,
    "order": (_is_order, "every index once, the fastest first", "[1, 0]"),
    "swizzlingByteWidth": (lambda width: type(width) is int and width in WIDTHS, "0, 32, 64 or 128", "128"),
    "elementBitWidth": (lambda bits: bits in (8, 16, 32, 64), "8, 16, 32 or 64", "16"),
    "rank": (lambda rank: type(rank) is int and 1 <= rank <= 5, "an encoding has 1 to 5 indices", "2"),
    "transposed": _FLAG,
    "fp4Padded": _FLAG,
    "intervals": (_are_intervals, "pairs of powers of two, such as [256:+8]", "[256:+8]"),
    "offset": _BASES,
    "block": _BASES,
    "CGALayout": _BASES,
    "shape": _NUMBERS,
    "CTASplitNum": _NUMBERS,
    "CTAsPerCGA": _NUMBERS,
    "CTAOrder": _NUMBERS,
    "alignment": _POWER,
}
