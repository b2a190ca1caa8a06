"""The encoding in a text of Triton: one attribute, a Gluon constructor, or lines of a TTGIR file.

#blocked = #ttg.blocked<{…}>                                                        registers: passed over
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, …}>                          the encoding
#smem = #ttg.shared_memory
%0 = ttg.local_alloc : () -> !ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>    names it, with the tile's shape
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from tilescope.errors import shortened
from tilescope.notation.text import Scanner, closing_place, last_name, refusal, require_known, type_bits

_CLUSTER_FIELDS = ("CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout")
# The fields of an encoding, in the order of Gluon's arguments.
FIELDS = {
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth", "elementBitWidth", "rank", "transposed", "fp4Padded"),
    "padded_shared": ("intervals", "offset", "block", "shape", "order"),
    "shared_linear": ("offset", "block", "alignment"),
}
_REQUIRED = {
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth",),
    "padded_shared": ("intervals",),
    "shared_linear": ("offset",),
}
WIDTHS = {0: "none", 32: "32B", 64: "64B", 128: "128B"}  # bytes of an nvmma_shared encoding, and the mode they are
MAX_EXTENT = 1 << 20
_IDENTITY = ("intervals", "shape", "order", "block")  # of PaddedSharedLayout.with_identity_for
_MOST_LINES = 100  # definitions and buffers that are worth reading
_NAMES = {
    "shared": "swizzled_shared", "SwizzledSharedLayout": "swizzled_shared", "NVMMASharedLayout": "nvmma_shared",
    "PaddedSharedLayout": "padded_shared", "SharedLinearLayout": "shared_linear", "per_phase": "perPhase",
    "max_phase": "maxPhase", "swizzle_byte_width": "swizzlingByteWidth", "element_bitwidth": "elementBitWidth",
    "fp4_padded": "fp4Padded", "interval_padding_pairs": "intervals", "offset_bases": "offset", "block_bases": "block",
    "cga_layout": "CGALayout", "ctas_per_cga": "CTAsPerCGA", "cta_split_num": "CTASplitNum", "cta_order": "CTAOrder",
}  # fmt: skip
_ATTRIBUTE = re.compile(
    r"#(?:ttg|ttng|triton_gpu|triton_nvidia_gpu|amdg|gluon)\.(\w+)|\b(\w{0,20}Shared\w{0,20}Layout)(?:\.with_identity_for)?\s*\("
)
_DEFINITION = re.compile(r"(#\w+)\s*=\s*(?=#[a-z])")
_MEMDESC = re.compile(r"!(?:ttg|triton_gpu|tt)\.memdesc<")
_BUFFER = re.compile(r"\s*((?:[\d?]{1,7}x){1,9})([A-Za-z]\w{0,30})\s*,\s*(#[\w.]+)")


class Encoding(NamedTuple):
    """An encoding, its fields by Triton's names, and what the type of a buffer says beside it."""

    kind: str
    fields: dict[str, Any]
    extents: tuple[int, ...] | None = None
    element_bits: int | None = None


def starts(text: str) -> bool:
    """Whether the text has an encoding of Triton or the type of a buffer."""
    return _ATTRIBUTE.search(text) is not None or _MEMDESC.search(text) is not None


def read_encoding(text: str) -> Encoding:
    """The one shared encoding of the text, with the shape and the type of its buffer where the text says them.

    >>> lines = "#s = #ttg.shared_linear<{offset = [[0, 1], [1, 0]]}, alignment = 16> !ttg.memdesc<2x2xf16, #s, #smem>"
    >>> read_encoding(lines)
    Encoding(kind='shared_linear', fields={'offset': [[0, 1], [1, 0]], 'alignment': 16}, extents=(2, 2), element_bits=16)
    """
    defined = {found[1]: _attribute(text, found.end()) for found in islice(_DEFINITION.finditer(text), _MOST_LINES)}
    buffers = dict.fromkeys(_buffers(text, defined))
    if not buffers:
        shared = {name: text for name, text in defined.items() if _kind(text) in FIELDS}
        found = _ATTRIBUTE.search(text)
        if not defined and found is not None:
            return _parsed(_attribute(text, found.start()), None, None)
        if not shared and defined:
            return _parsed(next(iter(defined.values())), None, None)
        buffers = dict.fromkeys((fromkey, None, None) for fromkey in dict.fromkeys(shared.values()))
    whole = max(buffers, key=lambda buffer: len(buffer[1] or ()))
    kinds = {(encoding, bits) for encoding, _, bits in buffers}
    views = [extents or () for _, extents, _ in buffers]
    if len(kinds) > 1 or any(view != (whole[1] or ())[-len(view) :] for view in views):
        shown = "; ".join(f"{'x'.join(map(str, extents or ()))} {encoding}".strip() for encoding, extents, _ in buffers)
        several = f"{len(buffers)} encodings: {shortened(shown, 300)}"
        limit = "one layout at a time; views of a buffer are one with it"
        raise refusal(several, limit, "Leave the others out.", encodings=len(buffers))
    return _parsed(*whole)


def _buffers(text: str, defined: dict[str, str]) -> list[tuple[str, tuple[int, ...] | None, int | None]]:
    """The buffers whose types the text has: encoding, extents, bits of an element; those of tensor memory left out."""
    buffers: list[tuple[str, tuple[int, ...] | None, int | None]] = []
    for found in islice(_MEMDESC.finditer(text), _MOST_LINES):
        inside = text[found.end() : closing_place(text, found.end() - 1)]
        parts = _BUFFER.match(inside)
        if parts is None or "?" in parts[1]:
            limit = "extents, type and encoding, such as 64x64xf16, #shared"
            fix = "Put numbers: a size that only the running kernel knows has none."
            raise refusal(f"the buffer {shortened(inside, 60)}", limit, fix)
        encoding = _attribute(inside, parts.start(3)) if "." in parts[3] else defined.get(parts[3])
        if encoding is None:
            fix = f"Add it: {parts[3]} = #ttg.nvmma_shared<{{…}}>."
            raise refusal(f"{parts[3]} is not defined", "the line that defines an encoding", fix)
        if "tensor_memory" not in encoding:
            buffers.append((encoding, tuple(map(int, parts[1].split("x")[:-1])), type_bits(parts[2])))
    return buffers


def _attribute(text: str, start: int) -> str:
    """The attribute, or the call, that starts there, with its brackets."""
    opening = re.compile(r"[#\w.]*\s*").match(text, start)
    end = opening.end() if opening else start
    return text[start : closing_place(text, end) + 1] if text[end : end + 1] in ("<", "(") else text[start:end]


def _kind(attribute: str) -> str:
    name = last_name(re.split(r"[<(]", attribute)[0].strip().lstrip("#").removesuffix(".with_identity_for"))
    return _NAMES.get(name, name)


def _parsed(attribute: str, extents: tuple[int, ...] | None, bits: int | None) -> Encoding:
    kind = _kind(attribute)
    if kind not in FIELDS:
        where = (
            "in tensor memory" if "tensor_memory" in kind else "unknown here" if "shared" in kind else "in registers"
        )
        limit = f"known in shared memory: {', '.join(FIELDS)}"
        raise refusal(f"the encoding {kind}, {where}", limit, "Paste the encoding of a shared buffer.")
    scan = Scanner(attribute)
    scan.name()
    fields: dict[str, Any] = {}
    if scan.accept("("):
        fields = scan.fields(")", _IDENTITY if "with_identity_for" in attribute else FIELDS[kind])
    else:
        scan.expect("<")
        while not scan.accept(">"):
            if scan.at("["):
                fields["intervals"] = scan.value()
            elif scan.accept("{"):
                fields |= scan.fields("}")
            else:
                fields |= scan.fields(">")
                break
            scan.accept(",")
    scan.finished()
    fields = {_NAMES.get(key, key): value for key, value in fields.items()}
    if fields.pop("hasLeadingOffset", False) is True:
        raise refusal("hasLeadingOffset = true", "what nvmma_shared says today", "Spell it as nvmma_shared.")
    require_known(fields, (*FIELDS[kind], *_CLUSTER_FIELDS))
    _check(kind, fields)
    return Encoding(kind, fields, extents, bits)


def _check(kind: str, fields: dict[str, Any]) -> None:
    """Refuse a field that is missing, or that holds what it cannot."""
    for key in _REQUIRED[kind]:
        if key not in fields:
            limit = f"it has {', '.join(_REQUIRED[kind])}"
            raise refusal(f"{kind} without {key}", limit, f"Add {key} = {_VALUES[key][2]}.")
    for key, value in fields.items():
        fits, limit, example = _VALUES[key]
        if value != [] and not fits(value):
            raise refusal(f"{key} = {shortened(str(value))}", limit, f"Use {key} = {example}.", **{key: value})


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
