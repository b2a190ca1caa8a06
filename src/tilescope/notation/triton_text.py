"""The encoding in a text of Triton: one attribute, a Gluon constructor, or lines of a TTGIR file.

#blocked = #ttg.blocked<{…}>                                                        registers: passed over
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, …}>                          the encoding
#smem = #ttg.shared_memory
%0 = ttg.local_alloc : () -> !ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>    names it, with the tile's shape
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, NamedTuple

from tilescope.errors import nearest_name, shortened
from tilescope.notation.text import Scanner, closing_place, last_name, refusal, type_bits

CLUSTER_FIELDS = ("CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout")
# The fields of each encoding, in the order of Gluon's arguments.
FIELDS = {
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth", "elementBitWidth", "rank", "transposed", "fp4Padded"),
    "padded_shared": ("intervals", "offset", "block", "shape", "order"),
    "shared_linear": ("offset", "block", "alignment"),
}
_IDENTITY = ("intervals", "shape", "order", "block")  # of PaddedSharedLayout.with_identity_for
_MOST_LINES = 100  # definitions and buffers that are worth reading
_NAMES = {
    "shared": "swizzled_shared", "SwizzledSharedLayout": "swizzled_shared", "NVMMASharedLayout": "nvmma_shared",
    "PaddedSharedLayout": "padded_shared", "SharedLinearLayout": "shared_linear", "per_phase": "perPhase",
    "max_phase": "maxPhase", "swizzle_byte_width": "swizzlingByteWidth", "element_bitwidth": "elementBitWidth",
    "fp4_padded": "fp4Padded", "interval_padding_pairs": "intervals", "offset_bases": "offset", "block_bases": "block",
    "cga_layout": "CGALayout", "ctas_per_cga": "CTAsPerCGA", "cta_split_num": "CTASplitNum", "cta_order": "CTAOrder",
}  # fmt: skip
_LITERALS: dict[str, Any] = {"true": True, "True": True, "false": False, "False": False, "None": []}
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
    Encoding(kind='shared_linear', fields={'offset': [[0, 1], [1, 0]]}, extents=(2, 2), element_bits=16)
    """
    defined = {found[1]: _attribute(text, found.end()) for found in islice(_DEFINITION.finditer(text), _MOST_LINES)}
    buffers = dict.fromkeys(_buffers(text, defined))
    if not buffers:
        shared = {name: each for name, each in defined.items() if _kind(each) in FIELDS}
        found = _ATTRIBUTE.search(text)
        if not defined and found is not None:
            return _parsed(_attribute(text, found.start()), None, None)
        if not shared and defined:
            return _parsed(next(iter(defined.values())), None, None)
        buffers = dict.fromkeys((fromkey, None, None) for fromkey in dict.fromkeys(shared.values()))
    whole = max(buffers, key=lambda buffer: len(buffer[1] or ()))
    if any(each[::2] != whole[::2] or (each[1] or ()) != (whole[1] or ())[-len(each[1] or ()) :] for each in buffers):
        shown = "; ".join(f"{'x'.join(map(str, extents or ()))} {encoding}".strip() for encoding, extents, _ in buffers)
        several = f"{len(buffers)} encodings: {shortened(shown, 300)}"
        raise refusal(several, "one layout at a time; views of a buffer are one with it", "Leave the others out.")
    return _parsed(*whole)


def _buffers(text: str, defined: dict[str, str]) -> list[tuple[str, tuple[int, ...] | None, int | None]]:
    """The buffers whose types the text has: encoding, extents, bits of an element; those of tensor memory left out."""
    buffers: list[tuple[str, tuple[int, ...] | None, int | None]] = []
    for found in islice(_MEMDESC.finditer(text), _MOST_LINES):
        inside = text[found.end() : closing_place(text, found.end() - 1)]
        parts = _BUFFER.match(inside)
        if parts is None or "?" in parts[1]:
            limit = "extents, type and encoding, such as 64x64xf16, #shared"
            raise refusal(
                f"the buffer {shortened(inside, 60)}", limit,
                "Put numbers: a size that only the running kernel knows has none.",
            )  # fmt: skip
        encoding = _attribute(inside, parts.start(3)) if "." in parts[3] else defined.get(parts[3])
        if encoding is None:
            raise refusal(
                f"{parts[3]} is not defined", "the line that defines an encoding",
                f"Add it: {parts[3]} = #ttg.nvmma_shared<{{…}}>.",
            )  # fmt: skip
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
            "in tensor memory"
            if "tensor_memory" in kind
            else "in registers"
            if "shared" not in kind
            else "unknown here"
        )
        raise refusal(
            f"the encoding {kind}, {where}", f"known in shared memory: {', '.join(FIELDS)}",
            "Paste the encoding of a shared buffer.",
        )  # fmt: skip
    scan = Scanner(attribute)
    scan.name()
    fields: dict[str, Any] = {}
    if scan.accept("("):
        _read_fields(scan, ")", _IDENTITY if "with_identity_for" in attribute else FIELDS[kind], fields)
    else:
        scan.expect("<")
        while not scan.accept(">"):
            if scan.at("["):
                fields["intervals"] = _read_value(scan)
            elif scan.accept("{"):
                _read_fields(scan, "}", (), fields)
            else:
                _read_fields(scan, ">", (), fields)
                break
            scan.accept(",")
    scan.finished()
    fields = {_NAMES.get(key, key): value for key, value in fields.items()}
    if fields.pop("hasLeadingOffset", False) is True:
        raise refusal("hasLeadingOffset = true", "what nvmma_shared says today", "Spell it as nvmma_shared.")
    known = FIELDS[kind]
    for key in fields:
        if key not in known and key not in CLUSTER_FIELDS:
            raise refusal(
                f"the field {key}", f"known: {', '.join(known)}", f"Use {nearest_name(key, known) or known[0]}."
            )
    fields = {key: value for key, value in fields.items() if key != "alignment"}
    return Encoding(kind, fields, extents, bits)


def _read_fields(scan: Scanner, closing: str, positions: tuple[str, ...], fields: dict[str, Any]) -> None:
    while not scan.accept(closing):
        if scan.peek(1).spelling == "=":
            key = scan.name()
            scan.expect("=")
        elif len(fields) < len(positions):
            key = positions[len(fields)]
        else:
            scan.refuse("a field such as vec = 8")
        if key in fields:
            scan.refuse(f"{key} once", "Remove one of the two.")
        fields[key] = _read_value(scan)
        if not scan.at(closing):
            scan.expect(",")


def _read_value(scan: Scanner, depth: int = 0) -> Any:
    """A number (8, 8 : i32), true, false, an interval with its padding (256:+8), or a list of such."""
    token = scan.peek()
    if token.spelling in _LITERALS:
        return _LITERALS[scan.take().spelling]
    if token.spelling in ("[", "(") and depth < 4:
        closing = {"[": "]", "(": ")"}[scan.take().spelling]
        members = []
        while not scan.accept(closing):
            members.append(_read_value(scan, depth + 1))
            if not scan.at(closing):
                scan.expect(",")
        return members
    if token.kind != "number":
        scan.refuse("a number, true, false or a list")
    number = scan.integer()
    if scan.accept(":", "+"):
        return [number, scan.integer()]
    if scan.accept(":"):
        scan.name()
    return number
