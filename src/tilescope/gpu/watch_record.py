"""What the injection library sends: one packet for each call that differs from those before it.

Two calls are alike when caller, result and all arguments but the address are the same. Further calls of the kind are
counted, in memory that the first packet of a process brings along: their number is known however the process ends.

    packet = struct watch_record of watch_library/watch.h, its text cut to length
    text   = lines of fields separated by tabs:
             native  library  offset  symbol      who called, nearest first
             python  file     line    function    innermost first
             program name                         in the first packet of a process
             failed  reason                       CUPTI did not let us watch
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.argument_dump import row_name
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL

HELLO, CALL = 1, 2
SITES = 16384
HEADER = struct.Struct("=4I")
ARGUMENTS = struct.Struct("=Ii2I7I2I3i3i5I5II5Q5Q")
TAIL = struct.Struct("=Q128s2I")
COUNTS = struct.Struct(f"={SITES + 2}Q")
TEXT_OFFSET = HEADER.size + ARGUMENTS.size + TAIL.size
LARGEST_PACKET_BYTES = TEXT_OFFSET + 8192
MOST_DIMS = 5

FUNCTIONS = (
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeIm2colWide",
    "cuTensorMapReplaceAddress",
)
_KINDS = ("tensor_map", "im2col_map", "im2col_wide_map")
_SHARED = ("dims", "strides_bytes", "element_strides")
_ARRAYS = ((*_SHARED, "box"), (*_SHARED, "lower_corner", "upper_corner"), _SHARED)
_WIDE_MODES = {0: "W", 1: "W128"}
# bit of `readable`: our name and cuda.h's for the pointer
POINTERS = {
    1: ("dims", "globalDim"),
    2: ("strides_bytes", "globalStrides"),
    4: ("box", "boxDim"),
    8: ("element_strides", "elementStrides"),
    16: ("lower_corner", "pixelBoxLowerCorner"),
    32: ("upper_corner", "pixelBoxUpperCorner"),
    64: ("tensor_map", "tensorMap"),
}


class Frame(NamedTuple):
    """One call on the way to the driver: in a library at an offset, or in a Python file at a line."""

    file: str
    place: int  # offset or line
    function: str


class Stack(NamedTuple):
    """Who called: native frames, the nearest first, and Python frames, the innermost first."""

    native: tuple[Frame, ...] = ()
    python: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the driver: its arguments as tilescope names them, its result, and its caller."""

    function: str
    pid: int
    result: int
    arch: str | None  # None: not known
    arguments: Mapping[str, Any]  # of a map; of cuTensorMapReplaceAddress, the address alone
    unreadable: tuple[str, ...]  # cuda.h's names of the pointers that could not be read
    rank: int
    address: int
    descriptor: bytes | None  # the map after the call
    stack: Stack


class Counts(NamedTuple):
    """What a process counted: calls that found no room in the socket, and repeats of those that were sent."""

    lost: int
    lost_refused: int
    repeats: tuple[int, ...]

    @classmethod
    def of(cls, data: bytes) -> Counts:
        """The counts in shared memory, as they are now."""
        lost, lost_refused, *repeats = COUNTS.unpack_from(data)
        return cls(lost, lost_refused, tuple(repeats))


class Packet(NamedTuple):
    """The header of a packet and its text; `read_call` reads the rest."""

    kind: int
    pid: int
    site: int  # under which further calls like this one are counted
    lines: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, data: bytes) -> Packet:
        """The packet that these bytes are."""
        text = data[TEXT_OFFSET:].decode("utf-8", errors="replace")
        kind, pid, site, _ = HEADER.unpack_from(data)
        lines = tuple(tuple(line.split("\t")) for line in text.split("\n"))
        return cls(kind, pid, site, lines)

    def told(self, word: str) -> str | None:
        """What the line that begins with this word says."""
        return next((fields[0] for name, *fields in self.lines if name == word and fields), None)

    def stack(self) -> Stack:
        """The frames that the packet brought."""
        native = tuple(Frame(file, int(at, 16), name) for kind, file, at, name in self._lines("native", 4))
        python = tuple(Frame(file, int(at), name) for kind, file, at, name in self._lines("python", 4))
        return Stack(native, python)

    def _lines(self, word: str, fields: int) -> list[tuple[str, ...]]:
        return [line for line in self.lines if line[0] == word and len(line) == fields]


def read_call(data: bytes, stack: Stack) -> Call:
    """The call that a packet tells of."""
    function, result, capability, readable, *codes = ARGUMENTS.unpack_from(data, HEADER.size)
    data_type, rank, interleave, swizzle, l2_promotion, oob_fill, wide_mode, channels, pixels = codes[:9]
    lower, upper, box, element_strides = codes[9:12], codes[12:15], codes[15:20], codes[20:25]
    dims, strides = codes[26:31], codes[31:36]
    address, descriptor, *_ = TAIL.unpack_from(data, HEADER.size + ARGUMENTS.size)
    arch = f"sm_{capability}" if capability else None
    pid = HEADER.unpack_from(data)[1]
    blob = bytes(descriptor) if readable & 64 else None
    if function == FUNCTIONS.index("cuTensorMapReplaceAddress"):
        unread = () if blob else ("tensorMap",)
        return Call(FUNCTIONS[function], pid, result, arch, {"address": address}, unread, 0, address, blob, stack)

    is_rank = 0 < rank <= MOST_DIMS  # the arrays of another were not read
    lists = {
        "dims": dims[:rank],
        "strides_bytes": strides[: max(0, rank - 1)],
        "element_strides": element_strides[:rank],
        "box": box[:rank],
        "lower_corner": lower[: max(0, rank - 2)],
        "upper_corner": upper[: max(0, rank - 2)],
    }
    taken = _ARRAYS[function] if is_rank else ()
    absent = tuple(
        theirs for bit, (ours, theirs) in POINTERS.items()
        if is_rank and not readable & bit and (ours == "tensor_map" or (ours in taken and lists[ours]))
    )  # fmt: skip
    arguments: dict[str, Any] = {"kind": _KINDS[function], "data_type": row_name(DATA_TYPE, data_type)}
    for bit, (name, _) in POINTERS.items():
        if name in taken:
            arguments[name] = tuple(lists[name]) if readable & bit or not lists[name] else None
    if function:
        arguments |= {"channels_per_pixel": channels, "pixels_per_column": pixels}
    if function == 2:
        mode = _WIDE_MODES.get(wide_mode, f"number {wide_mode}")
        arguments |= {"lower_width": lower[0], "upper_width": upper[0], "mode": mode}
    arguments |= {
        "interleave": row_name(INTERLEAVE, interleave),
        "swizzle": row_name(SWIZZLE, swizzle),
        "l2_promotion": row_name(L2_PROMOTION, l2_promotion),
        "oob_fill": row_name(OOB_FILL, oob_fill),
        "address": address,
    }
    if arch:
        arguments["arch"] = arch
    return Call(FUNCTIONS[function], pid, result, arch, arguments, absent, rank, address, blob, stack)
