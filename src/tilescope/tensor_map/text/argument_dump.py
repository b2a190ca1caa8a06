"""The arguments that frameworks print when the driver refuses a map, or when they print all their maps.

    CUTLASS, flash-attention, TileLang                    Triton
    TMA Desc Addr:   0x7ffd7d2800c0                       Failed to create tensor map descriptor: invalid argument
    format         6                                      elemType=6 rank=2 global_address=0x7f0000 elemSize=2
    dim            3                                      swizzle=3 padding=0
    gmem_address   0x7f0000                               shape=[1024, 1024]
    globalDim      (1024,1024,1,1,1)                      strides=[2048]
    globalStrides  (2,2048,2097152,0,0)                   blockSize=[64, 128] elementStrides=[1, 1] fill=0
    boxDim         (64,128,1,1,1)
    …                                                     TensorRT-LLM, FlashInfer
                                                          tmaFormat: 9 dim: 4 gmem: 0xf64d740000
    Error: Failed to initialize the TMA descriptor 1      Shape: 64 16 1 7721128 7149852580857340533
                                                          Stride: 128 2 4096 337
    ThunderKittens                                        tileShapes: 64 16 1 1 1024
    tma_format: 9                                         swizzleType: 3
    gmem_shape: 140736 [64, 8192, 1, 16, 1]
    …                                                     DeepGEMM
                                                          Making TMA desc: global memory: 7168 4096, shared memory: 64 128,
                                                          outer stride: 7168, swizzle: 128, elem size: 1

All print the driver's numbers, innermost first, or names such as CU_TENSOR_MAP_SWIZZLE_128B. They differ in the
strides: CUTLASS prints five, TileLang one for each dimension, and both begin with the innermost, which is not passed to
the driver; the others print what they pass (DeepGEMM in elements). Entries beyond the rank have no meaning. `TMA Desc
Addr` is the address of the map itself; the number or the words after the error are the driver's result, a CUresult.

A log is read line by line, however long it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tilescope.arch import architectures_with
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.map_arguments import MapArguments
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL, Option
from tilescope.tensor_map.text.distinct_maps import drop_duplicates
from tilescope.tensor_map.text.driver_answer import DriverAnswer, answer_code

Argument = int | str | tuple[int, ...]  # a number, a name, or a list
DriverRow = DataType | Swizzle | Option  # a row of a table that the driver numbers

_LINE_CHARACTERS = 1 << 14
_DUMP_LINES = 60  # from the first line of a dump to its last, with the lines that other threads print between them

_SAMPLE = "elemType=6 rank=2 elemSize=2 swizzle=3\nshape=[1024, 1024]\nstrides=[2048]\nblockSize=[64, 128]"
ARGUMENT_DUMP = rule(
    "argument-dump",
    "A dump of arguments contains at least the extents of the tensor and of the box.",
    argument="text",
    found="no arguments of a tensor map",
    limit="the arguments that a framework prints or passes to the driver, or JSON",
    fix="Paste the lines with globalDim or shape, the call of cuTensorMapEncodeTiled, or give options such as --dims.",
    source="what CUTLASS, TileLang, Triton, TensorRT-LLM, FlashInfer, ThunderKittens and DeepGEMM print",
    basis="measured",
    subjects=("paste",),
    architectures=architectures_with("tma"),
    passing=f"ts.tensor_map.dumped_arguments({_SAMPLE!r})",
    failing='ts.tensor_map.dumped_arguments("Triton Error [CUDA]: invalid argument")',
)

# Our name for an argument, and what dumps and calls of the driver call it.
_SPELLINGS = {
    "data_type": ("format", "tensorDataType", "elemType", "tma_format", "tmaFormat"),
    "rank": ("dim", "tensorRank", "rank", "tma_dim"),
    "address": ("gmem_address", "globalAddress", "global_address", "global_addr", "gmem"),
    "dims": ("globalDim", "shape", "gmem_shape", "Shape", "global memory"),
    "all_strides": ("globalStrides", "globalStridesRaw"),
    "strides_bytes": ("cudaGlobalStrides", "strides", "gmem_stride", "Stride"),
    "strides_elements": ("outer stride",),
    "box": ("boxDim", "blockSize", "smem_shape", "tileShapes", "shared memory"),
    "element_strides": ("elementStrides", "smem_stride", "tileStrides"),
    "interleave": ("interleave", "tma_interleave"),
    "swizzle": ("swizzle", "tma_swizzle", "swizzleType"),
    "swizzle_base": ("base",),
    "l2_promotion": ("l2Promotion", "tma_l2Promotion"),
    "oob_fill": ("oobFill", "fill", "tma_oobFill"),
    "element_bytes": (", elem size",),
    "element_bytes_of_fork": (" elem size",),
    "channels_per_pixel": ("smem_box_channel", "channelsPerPixel"),
    "pixels_per_column": ("smem_box_pixel", "pixelsPerColumn"),
    "lower_corner": ("pixelBoxLowerCorner", "pixelBoxLower"),
    "upper_corner": ("pixelBoxUpperCorner", "pixelBoxUpper"),
}
NAMES = {spelling: argument for argument, spellings in _SPELLINGS.items() for spelling in spellings}
# Common words that are names in only one format: Triton's shape=[…]; in the dumps of TensorRT-LLM and DeepGEMM, Shape:
# 64 16.
_WITH_EQUALS = ("shape", "strides", "rank", "fill")
_WITH_COLON = (
    "tmaFormat",
    "gmem",
    "Shape",
    "Stride",
    "tileShapes",
    "tileStrides",
    "swizzleType",
    "global memory",
    "shared memory",
    "outer stride",
    "base",
    ", elem size",
    " elem size",
)
_COLON_DUMP = re.compile(r"tmaFormat:|Making (?:\dD )?TMA desc:")
# What frameworks always pass and do not print, by a name that only they use.
_L2_PROMOTION = {"elemType": "128B", "blockSize": "128B", "tmaFormat": "128B", "outer stride": "256B"}
TABLES: Mapping[str, Mapping[str, DriverRow]] = {
    "data_type": DATA_TYPE,
    "interleave": INTERLEAVE,
    "swizzle": SWIZZLE,
    "l2_promotion": L2_PROMOTION,
    "oob_fill": OOB_FILL,
}
LISTS = (
    "dims",
    "all_strides",
    "strides_bytes",
    "strides_elements",
    "box",
    "element_strides",
    "lower_corner",
    "upper_corner",
)
_BOX_NAMES = {"box", "channels_per_pixel", "pixels_per_column"}  # one of them determines the bytes of a copy
_OF_DEEP_GEMM = ("strides_elements", "swizzle_base", "element_bytes", "element_bytes_of_fork")
_UNSWIZZLED_BYTES = 16  # DeepGEMM names a swizzle by its width; up to this it is none
_TYPE_OF_BYTES = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}  # if a dump has only the size

_START = re.compile(
    r"TMA Desc Addr|Failed to create (?:im2col )?tensor map|tensorDataType\b|tmaFormat:|TMA descriptor creation:|Making (?:\dD )?TMA desc:"
)
_FIRST = re.compile(  # signs that a dump begins; most lines of a log have none
    rf"{_START.pattern}|Failed to initialize the TMA|\b(?:globalDim|gmem_address|tma_format|elemType=|shape=\[)"
    r"|\b(?:format|dim)[ \t]+(?:\d|<?CU)"
)
_AT = re.compile(r"TMA Desc Addr:?\s+0x([0-9a-fA-F]{1,16})\b")
_RESULT = re.compile(
    r"(?:Failed to initialize the TMA descriptor|tensor map descriptor:|TMA descriptor creation:)\.?\s*(?:due to\s+)?([\w (),]{0,80})"
)
_PAIR = re.compile(
    rf"(?:\b(?=\w)|(?=[ ,]))({'|'.join(sorted(NAMES, key=len, reverse=True))})(\s*[=:]\s*|[ \t]+)"
    r"(<?(?:CUtensorMap\w{1,40}(?:\.|::))?CU_TENSOR_MAP_\w{1,80}"
    r"|(?:\d{1,20} )?(?:\([-\d, ]{0,200}\)|\[[-\d, ]{0,200}\])"
    r"|0x[0-9a-fA-F]{1,40}|-?\d{1,40}(?: +\d{1,20}){0,8}(?!\w))"
)


def is_dump(text: str) -> bool:
    """Whether the text has a line of a dump, or mentions one."""
    return _FIRST.search(text) is not None or re.search("Triton Error|TMA desc|cuTensorMapEncode", text) is not None


def dumped_arguments(text: str) -> tuple[MapArguments, ...]:
    """The arguments of every map that the text dumps, each once; RuleError where it dumps none.

    >>> asked, = dumped_arguments("format 6 dim 2 globalDim (64,8,1) globalStrides (2,128,0) boxDim (128,8,1) swizzle 3")
    >>> asked.given["strides_bytes"], asked.given["swizzle"], [found.rule for found in asked.check()]
    ((128,), '128B', ['swizzle-span', 'box-larger'])
    """
    maps = drop_duplicates(maps_in(enumerate(text.splitlines(), 1)))
    if maps:
        return maps
    raise ARGUMENT_DUMP.error()


def maps_in(lines: Iterable[tuple[int, str]]) -> Iterator[MapArguments]:
    """The maps that numbered lines of a log dump, each as soon as its last line was read."""
    dump = _Dump()
    for number, line in lines:
        if dump.is_empty and _FIRST.search(line) is None:
            continue
        for piece in filter(None, re.split(f"(?={_START.pattern})", line[:_LINE_CHARACTERS])):
            if dump.ends_before(piece):
                yield from dump.maps()
                dump = _Dump()
            dump.read(piece, number)
        dump.lines += 1
    yield from dump.maps()


@dataclass
class _Dump:
    """The values read from one dump; the first occurrence of a name counts."""

    arguments: dict[str, Argument] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # the framework's
    map_address: int | None = None
    result: int | None = None
    first_line: int = 0  # on which it begins
    lines: int = 0
    has_colons: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read yet."""
        return not self.arguments and self.result is None

    def ends_before(self, piece: str) -> bool:
        """Whether the piece belongs to the next dump: it starts one, or repeats a name of this one."""
        if self.lines > _DUMP_LINES:
            return True
        has_dims = "dims" in self.arguments
        if _START.match(piece):
            return bool(self.arguments)
        if self.result is not None and _RESULT.search(piece):
            return has_dims
        return has_dims and any(NAMES[name] == "dims" for name, _ in self._pairs(piece))

    def read(self, piece: str, line: int) -> None:
        """Take in a line, or a part of one, of that number."""
        if self.is_empty and self.map_address is None:
            self.first_line = line
        at = _AT.search(piece)
        if at:
            self.map_address = int(at[1], 16)
        result = _RESULT.search(piece)
        if result and self.result is None:
            self.result = answer_code(result[1])
        if _COLON_DUMP.search(piece):
            self.has_colons = True
        for name, written in self._pairs(piece):
            self.names.add(name)
            value = _value(NAMES[name], written)
            if value is not None:
                self.arguments.setdefault(NAMES[name], value)

    def _pairs(self, piece: str) -> Iterator[tuple[str, str]]:
        """The names and values of a line."""
        for name, separator, value in _PAIR.findall(piece):
            if name in _WITH_COLON:
                is_argument = self.has_colons and separator[:1] == ":"
            else:
                is_argument = separator == "=" or name not in _WITH_EQUALS
            if is_argument:
                yield name, value

    def maps(self) -> Iterator[MapArguments]:
        """The map that the dump describes; None if the dump is incomplete."""
        if "dims" not in self.arguments or not self.arguments.keys() & _BOX_NAMES:
            return
        arguments = dict(self.arguments)
        element = _element_size(arguments)
        _translate_deep_gemm(arguments)
        answer = DriverAnswer(self.map_address, self.result)
        if "data_type" not in arguments and element.size_bytes in _TYPE_OF_BYTES:
            arguments["data_type"] = _TYPE_OF_BYTES[element.size_bytes]
            answer = replace(answer, type_from=element.said_by, element_bytes=element.size_bytes)
        for name, table in TABLES.items():
            code = arguments.get(name)
            if isinstance(code, int | str):
                arguments[name] = row_name(table, code)
        cut_to_rank(arguments)
        if "lower_corner" in arguments and "box" in arguments:  # Triton's block of an im2col map: channels, pixels
            box = _entries(arguments, "box")
            del arguments["box"]
            arguments.update(zip(("channels_per_pixel", "pixels_per_column"), box, strict=False))
        for name, promotion in _L2_PROMOTION.items():
            if name in self.names:
                arguments.setdefault("l2_promotion", promotion)
        yield replace(MapArguments.of(arguments), answer=answer, lines=(self.first_line,))


class _ElementSize(NamedTuple):
    """The size of an element, if a dump has one besides its type or instead of it, and its name there."""

    size_bytes: int  # 0: the dump gives none
    said_by: str


def _element_size(arguments: Mapping[str, Argument]) -> _ElementSize:
    if "strides_elements" in arguments:
        size_bytes = _number(arguments, "element_bytes", otherwise=1)
        return _ElementSize(_number(arguments, "element_bytes_of_fork", otherwise=size_bytes), "elem size")
    innermost, *_ = _entries(arguments, "all_strides") or (0,)
    return _ElementSize(innermost, "the innermost stride")


def _translate_deep_gemm(arguments: dict[str, Argument]) -> None:
    """Turn DeepGEMM's arguments into the driver's: its strides count elements (a fork's, bytes), its swizzle is a width."""
    if "strides_elements" in arguments:
        step_bytes = _number(arguments, "element_bytes", otherwise=1)
        strides = _entries(arguments, "strides_elements")
        arguments["strides_bytes"] = tuple(stride * step_bytes for stride in strides)
        width_bytes = arguments.get("swizzle", 0)
        if isinstance(width_bytes, int):
            atom = "_ATOM_32B" if arguments.get("swizzle_base") == 32 else ""
            arguments["swizzle"] = f"{width_bytes}B{atom}" if width_bytes > _UNSWIZZLED_BYTES else "none"
    for name in _OF_DEEP_GEMM:
        arguments.pop(name, None)


def _number(arguments: Mapping[str, Argument], name: str, *, otherwise: int) -> int:
    value = arguments.get(name)
    return value if isinstance(value, int) else otherwise


def _entries(arguments: Mapping[str, Argument], name: str) -> tuple[int, ...]:
    """The entries of a list; none where there is none."""
    value = arguments.get(name)
    return value if isinstance(value, tuple) else ()


def _value(argument: str, written: str) -> Argument | None:
    """A list, the name of an enumerator or a number; None for what cannot be a value of the argument."""
    named = re.search("CU_TENSOR_MAP_.*", written)
    if named:
        return named[0] if argument in TABLES else None
    is_hexadecimal = written.startswith("0x")
    if argument in LISTS:
        listed = re.sub(r"^\d+ (?=[\[(])", "", written)  # a pointer before its list
        return None if is_hexadecimal else tuple(int(entry) for entry in re.findall(r"-?\d+", listed))
    if written[-1] in ")]":
        return None
    number = written.split(maxsplit=1)[0]
    return int(number, 16 if is_hexadecimal else 10)


def row_name(table: Mapping[str, DriverRow], code: int | str) -> str:
    """Our name of a row, by the driver's number or name; an unknown one stays as it is, for a rule to refuse."""
    if isinstance(code, int):
        return next((row.name for row in table.values() if row.driver_code == code), f"number {code}")
    short = re.sub(r"^(?:DATA_TYPE|INTERLEAVE|SWIZZLE|L2_PROMOTION|FLOAT_OOB_FILL)_", "", code)
    kind = type(next(iter(table.values())))
    return _name_of(kind, code) or _name_of(kind, short) or code


def _name_of(kind: type[DriverRow], spelling: str) -> str | None:
    """The name of the row that is spelled so; None where there is none."""
    try:
        return kind.named(spelling).name
    except RuleError:
        return None


def cut_to_rank(arguments: dict[str, Argument]) -> None:
    """Drop the entries beyond the rank, and the innermost stride, which is not passed to the driver."""
    dims = _entries(arguments, "dims")
    used = len(dims)
    if "all_strides" in arguments:
        strides = _entries(arguments, "all_strides")
        del arguments["all_strides"]
        arguments.setdefault("strides_bytes", strides[1:])
        if strides:
            used = sum(stride != 0 for stride in strides)
    rank = _number(arguments, "rank", otherwise=min(len(dims), max(used, 1)))
    arguments.pop("rank", None)
    is_im2col = "lower_corner" in arguments
    for name, fewer in (("dims", 0), ("box", 0), ("element_strides", 0), ("strides_bytes", 1)):
        if name in arguments and not (name == "box" and is_im2col):
            arguments[name] = _entries(arguments, name)[: max(0, rank - fewer)]
