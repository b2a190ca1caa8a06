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

from collections.abc import Mapping
from ctypes import Structure, c_int32, c_uint8, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tilescope.errors import by
from tilescope.tensor_map.argument_dump import TABLES, row_name

HELLO, CALL = 1, 2
SITES = 16384
MOST_DIMS = 5
_WIDE_MODES = {0: "W", 1: "W128"}


class Arguments(Structure):
    """Struct watch_arguments: what makes two maps the same wherever they lie."""

    _fields_ = (
        ("function", c_uint32),
        ("result", c_int32),
        *((name, c_uint32) for name in ("capability", "readable", "data_type", "rank", "interleave", "swizzle")),
        *((name, c_uint32) for name in ("l2_promotion", "oob_fill", "wide_mode", "channels", "pixels")),
        ("lower_corner", c_int32 * 3),
        ("upper_corner", c_int32 * 3),
        ("box", c_uint32 * MOST_DIMS),
        ("element_strides", c_uint32 * MOST_DIMS),
        ("address_class", c_uint32),
        ("dims", c_uint64 * MOST_DIMS),
        ("strides_bytes", c_uint64 * MOST_DIMS),
    )


class Record(Structure):
    """Struct watch_record without its text."""

    _fields_ = (
        *((name, c_uint32) for name in ("kind", "pid", "site", "unused")),
        ("arguments", Arguments),
        ("address", c_uint64),
        ("descriptor", c_uint8 * 128),
        ("text_bytes", c_uint32),
        ("also_unused", c_uint32),
    )


class Counts(Structure):
    """What a process counted: calls that found no room in the socket, and repeats of those that were sent."""

    _fields_ = (("lost", c_uint64), ("lost_refused", c_uint64), ("repeats", c_uint64 * SITES))


LARGEST_PACKET_BYTES = sizeof(Record) + 8192


class Pointer(NamedTuple):
    """A pointer that a call takes: its bit in `readable`, cuda.h's name, and how many entries fewer than the rank it has."""

    bit: int
    name: str
    fewer: int = 0


POINTERS = {
    "dims": Pointer(1, "globalDim"),
    "strides_bytes": Pointer(2, "globalStrides", 1),
    "box": Pointer(4, "boxDim"),
    "element_strides": Pointer(8, "elementStrides"),
    "lower_corner": Pointer(16, "pixelBoxLowerCorner", 2),
    "upper_corner": Pointer(32, "pixelBoxUpperCorner", 2),
    "tensor_map": Pointer(64, "tensorMap"),
}


class Function(NamedTuple):
    """A function of the driver: the kind of map that it encodes (none: it changes one), in short, and the arrays that it reads."""

    name: str
    kind: str = ""
    short: str = "address replaced"
    arrays: tuple[str, ...] = ()


# as watch.h numbers them
FUNCTIONS = (
    Function("cuTensorMapEncodeTiled", "tensor_map", "tiled", ("dims", "strides_bytes", "box", "element_strides")),
    Function(
        "cuTensorMapEncodeIm2col",
        "im2col_map",
        "im2col",
        ("dims", "strides_bytes", "element_strides", "lower_corner", "upper_corner"),
    ),
    Function(
        "cuTensorMapEncodeIm2colWide", "im2col_wide_map", "im2col-wide", ("dims", "strides_bytes", "element_strides")
    ),
    Function("cuTensorMapReplaceAddress"),
)


class Frame(NamedTuple):
    """One call on the way to the driver: in a library at an offset, or in a Python file at a line."""

    file: str
    place: int  # offset or line
    function: str

    @property
    def python_place(self) -> str:
        """The last folder, the file and the line."""
        return f"{'/'.join(Path(self.file).parts[-2:])}:{self.place}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the driver: its arguments as tilescope names them, its result, and its caller."""

    function: Function
    pid: int
    result: int
    arch: str | None  # None: not known
    rank: int
    arguments: Mapping[str, Any]  # of a map; of cuTensorMapReplaceAddress, the address alone
    unreadable: tuple[str, ...]  # cuda.h's names of the pointers that could not be read
    descriptor: bytes | None  # the map after the call
    native: tuple[Frame, ...]  # who called, the nearest first
    python: tuple[Frame, ...]  # the innermost first

    @property
    def address(self) -> int:
        """The global address of the tensor."""
        address: int = self.arguments["address"]
        return address

    @property
    def short(self) -> str:
        """The map in a few words, without its address: "tiled 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B"."""
        if not self.function.kind:
            return self.function.short
        arguments = self.arguments
        extents = by(arguments.get("dims") or ()) or f"of rank {self.rank}"
        parts = [f"{self.function.short} {extents} {arguments['data_type']}"]
        if arguments.get("box"):
            parts.append(f"box {by(arguments['box'])}")
        if "channels_per_pixel" in arguments:
            parts.append(f"{arguments['pixels_per_column']} pixels of {arguments['channels_per_pixel']} channels")
        parts += [f"{name} {arguments[name]}" for name in ("interleave", "swizzle") if arguments[name] != "none"]
        return ", ".join(parts)

    @property
    def caller(self) -> str:
        """The library that called, and the Python line if there is one."""
        library = Path(self.native[0].file).name if self.native else "unknown"
        return f"{library}, {self.python[0].python_place}" if self.python else library


class Packet:
    """A packet: its record, and the lines of its text."""

    def __init__(self, data: bytes) -> None:
        self.record = Record.from_buffer_copy(data)
        text = data[sizeof(Record) :].decode("utf-8", errors="replace")
        self._lines = [line.split("\t") for line in text.split("\n")]

    def told(self, word: str) -> str | None:
        """What the line that begins with this word says."""
        return next((fields[0] for name, *fields in self._lines if name == word and fields), None)

    def _frames(self, word: str, base: int) -> tuple[Frame, ...]:
        lines = [line[1:] for line in self._lines if line[0] == word and len(line) == 4]
        return tuple(Frame(file, int(place, base), name) for file, place, name in lines)

    def call(self) -> Call:
        """The call that the packet tells of."""
        record, passed = self.record, self.record.arguments
        function = FUNCTIONS[passed.function]
        arch = f"sm_{passed.capability}" if passed.capability else None
        arguments: dict[str, Any] = {}
        unreadable: list[str] = []
        is_rank = 0 < passed.rank <= MOST_DIMS  # the arrays of another were not read
        if function.kind:
            arguments = {"kind": function.kind, "data_type": row_name(TABLES["data_type"], passed.data_type)}
            for name in function.arrays if is_rank else ():
                count = max(0, passed.rank - POINTERS[name].fewer)
                is_read = not count or passed.readable & POINTERS[name].bit
                arguments[name] = tuple(getattr(passed, name)[:count]) if is_read else None
                unreadable += [] if is_read else [POINTERS[name].name]
            if function.kind != "tensor_map":
                arguments |= {"channels_per_pixel": passed.channels, "pixels_per_column": passed.pixels}
            if function.kind == "im2col_wide_map":
                mode = _WIDE_MODES.get(passed.wide_mode, f"number {passed.wide_mode}")
                lower, upper = passed.lower_corner[0], passed.upper_corner[0]
                arguments |= {"lower_width": lower, "upper_width": upper, "mode": mode}
            options = ("interleave", "swizzle", "l2_promotion", "oob_fill")
            arguments |= {name: row_name(TABLES[name], getattr(passed, name)) for name in options}
        arguments["address"] = record.address
        if arch and function.kind:
            arguments["arch"] = arch
        has_map = passed.readable & POINTERS["tensor_map"].bit
        if not has_map and (is_rank or not function.kind):
            unreadable.append(POINTERS["tensor_map"].name)
        return Call(
            function=function,
            pid=record.pid,
            result=passed.result,
            arch=arch,
            rank=passed.rank,
            arguments=arguments,
            unreadable=tuple(unreadable),
            descriptor=bytes(record.descriptor) if has_map else None,
            native=self._frames("native", 16),
            python=self._frames("python", 10),
        )
