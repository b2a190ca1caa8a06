"""A tensor map out of whatever shows it: 128 bytes, hexadecimal digits, words, JSON, or a pasted dump of arguments.

bytes that are no text            a descriptor
{"data_type": …}                  arguments as JSON
globalDim (64,8,1) boxDim …       a dump of arguments, or several of them
cuTensorMapEncodeTiled(&map, …    a call of the driver, with the arrays it is given
0x7f5a20000000 0x20000…           the words of a descriptor
a log of any length               the dumps in it, line by line

Calls of cuTensorMapEncodeTiled and its im2col relatives are pasted with what they use, in C++ or Python:

    constexpr int K = 4096;                                          from cuda.bindings import driver as cuda
    cuuint64_t globalDim[2] = {K, 1024};                             cuda.cuTensorMapEncodeTiled(
    cuuint64_t globalStrides[1] = {K * sizeof(__half)};                  cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    cuuint32_t boxDim[2] = {64, 128}, elementStrides[2] = {1, 1};        2, ptr, [cuda.cuuint64_t(K), cuda.cuuint64_t(1024)],
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16,        [cuda.cuuint64_t(2 * K)], …)
        2, ptr, globalDim, globalStrides, boxDim, …);

C++ is turned into Python where the two differ: {64, 128} becomes (64, 128), casts and suffixes go, :: becomes a dot. Names are
looked up in the text, the nearest definition before the call; sums, products and shifts of them are worked out. Nothing is
run. The address is left out where it is a pointer that only the program knows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice
from operator import itemgetter
from typing import IO, Any, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.sentence import counted, shortened
from tilescope.tensor_map import argument_dump
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments, MapReport, distinct
from tilescope.tensor_map.checking import stated
from tilescope.tensor_map.decoding import decode_tensor_map, descriptor_bytes, inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES
from tilescope.written import C_SUFFIX, INTEGER_OPERATIONS

_JSON = re.compile(r"""\s*\{(?:[^{]*"|\s*'?[A-Za-z_]\w*'?\s*:)""")  # what may stand in braces otherwise are words in C
_ESCAPE = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")  # colours of a terminal
WHOLE_BYTES = 1 << 20  # what is read at once; more is a log
_LINE_BYTES = 1 << 16
_TEXT = re.compile(r"[\x09-\x0d\x20-\x7e\x80-\U0010ffff]*")

_READ = "ts.tensor_map.source.MapSource.read({})"
_LINE = '{"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [64]}\n'
INPUT_BINARY = rule(
    "input-binary",
    "Bytes that are no text are a descriptor, and a descriptor is 128 bytes.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    passing=_READ.format("bytes(128)"),
    failing=_READ.format("bytes(127)"),
)
ONE_MAP = rule(
    "one-map",
    "encode, load and diff take the arguments of one map at a time; check takes several.",
    source="the command line",
    passing=_READ.format((_LINE % 64).encode()) + ".tensor_map()",
    failing=_READ.format((_LINE % 64 + _LINE % 128).encode()) + ".tensor_map()",
)


class MapSource(NamedTuple):
    """What was given: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()

    @classmethod
    def from_json(cls, content: str | bytes) -> MapSource:
        """The arguments that JSON gives; JSON lines give several."""
        return cls(None, MapArguments.from_json(content))

    @classmethod
    def read(cls, content: bytes) -> MapSource:
        """The map that bytes or text show; RuleError where they show none.

        >>> MapSource.read(b'{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}').tensor_map().box
        (64,)
        """
        if len(content) != DESCRIPTOR_BYTES:
            content = _ESCAPE.sub(b"", content)
        text = content.decode("utf-8", errors="replace")
        if _TEXT.fullmatch(text) is None or "\ufffd" in text:
            if len(content) == DESCRIPTOR_BYTES:
                return cls(content)
            found, fix = f"{len(content)} bytes that are no text", "Pass the 128 bytes of the map alone."
            raise INPUT_BINARY.error("source", found, "a descriptor is 128 bytes", fix, bytes=len(content))
        if _JSON.match(text):
            return cls.from_json(text)
        if asked := encode_calls(text) or (argument_dump.dumped_arguments(text) if argument_dump.is_dump(text) else ()):
            return cls(None, asked)
        try:
            return cls(descriptor_bytes(text))
        except RuleError:
            if text.lstrip().startswith("[") and "x" not in text:  # a list of too few words, or JSON
                return cls.from_json(text)
            raise

    @classmethod
    def read_log(cls, head: bytes, rest: IO[Any]) -> MapSource:
        """The maps that a long log dumps or has as JSON lines; `head` is what was read of it already.

        One line at a time is kept, and a line is cut where it is longer than a dump could be.
        """
        in_json: list[MapArguments] = []

        def without_json() -> Iterator[str]:
            for line in _lines(head, rest):
                if _JSON.match(line) and len(in_json) < argument_dump.MAX_MAPS:
                    with suppress(RuleError):
                        in_json.extend(asked for asked in MapArguments.from_json(line) if asked not in in_json)
                else:
                    yield line

        maps = tuple(islice(chain(argument_dump.maps_in(without_json()), in_json), argument_dump.MAX_MAPS))
        return cls(None, maps or argument_dump.dumped_arguments(""))

    def reports(self) -> tuple[MapReport, ...]:
        """What the rules say of each map."""
        if self.blob is None:
            return tuple(asked.report() for asked in self.asked)
        inspected = inspect_tensor_map(self.blob)
        return (MapReport(inspected.sound, inspected.violations, inspected.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        if len(self.asked) > 1:
            found = f"the arguments of {len(self.asked)} maps"
            raise ONE_MAP.error("source", found, "one map at a time", "Leave the others out.", maps=len(self.asked))
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)


def _lines(head: bytes, rest: IO[Any]) -> Iterator[str]:
    """The lines of a stream, of which the first bytes were read."""
    pending = more = head
    while more:
        *whole, pending = pending.split(b"\n")
        yield from (_ESCAPE.sub(b"", line[:_LINE_BYTES]).decode("utf-8", errors="replace") for line in whole)
        more = rest.read(WHOLE_BYTES)
        pending = pending[:_LINE_BYTES] + more
    yield pending[:_LINE_BYTES].decode("utf-8", errors="replace")


_CALL_SAMPLE = (
    "cuuint64_t dim[2] = {K, 64}; cuuint64_t stride[1] = {K * sizeof(half)}; cuuint32_t box[2] = {64, 8}, step[2] = {1, 1};\n"
    "cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, ptr, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, "
    "CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"
)
encode_call = stated(
    "encode-call",
    "A pasted call of the driver has all its arguments: numbers, or names that the text defines.",
    argument="text",
    source="cuda.h, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide",
    subjects=("paste",),
    passing=f"ts.tensor_map.source.encode_calls({'int K = 64;' + _CALL_SAMPLE!r})",
    failing=f"ts.tensor_map.source.encode_calls({_CALL_SAMPLE!r})",
)

_OPTIONS = ("interleave", "swizzle", "l2_promotion", "oob_fill")
_TENSOR = ("data_type", "rank", "address", "dims", "strides_bytes")
_COLUMN = ("channels_per_pixel", "pixels_per_column", "element_strides")
_CALLS = {  # our kind of map, and the arguments behind the map in the driver's order
    "Tiled": ("tensor_map", (*_TENSOR, "box", "element_strides", *_OPTIONS)),
    "Im2col": ("im2col_map", (*_TENSOR, "lower_corner", "upper_corner", *_COLUMN, *_OPTIONS)),
    "Im2colWide": (
        "im2col_wide_map",
        (*_TENSOR, "lower_width", "upper_width", *_COLUMN, "interleave", "mode", *_OPTIONS[1:]),
    ),
}
_MODES = {"CU_TENSOR_MAP_IM2COL_WIDE_MODE_W": "W", "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128": "W128", 0: "W", 1: "W128"}
_CALL = re.compile(r"\w{0,40}[eE]ncode(Tiled|Im2colWide|Im2col)\w{0,20}\s*\(")
_COMMENT = re.compile(
    r"/\*.{0,2000}?\*/|//[^\n]*|^[ \t]*#(?!\s*define)[^\n]*|(?<=[\s,])#(?!\s*define)[^\n]*", re.DOTALL | re.MULTILINE
)
_DEFINE = re.compile(r"^[ \t]*#\s*define\s+(\w{1,80})[ \t]+([^\n]{1,300})", re.MULTILINE)
_DEFINITION = re.compile(r"\b([A-Za-z_]\w{0,80})\s{0,9}(?:\[([^\]\n]{0,80})\]\s{0,9})?(?:=\s{0,9}(?!=)|(?=\{))")
_INTEGER_TYPE = r"(?:cuuint(?:32|64)_t|u?int\d{0,2}(?:_t)?|size_t)"
# What C++ has and Python has not, and what takes its place; in this order.
_TO_PYTHON: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"\bsizeof\s*\(([^()]{1,80})\)"), lambda sized: str(DataType.named(sized[1]).bits // 8)),
    (re.compile(r"\b(?:static_cast|reinterpret_cast)\s*<[^<>()]{0,80}>"), ""),
    (re.compile(rf"\((?:const\s+)?(?:{_INTEGER_TYPE}|unsigned(?: \w+)?|long(?: long)?|CUtensorMap\w{{1,40}})\)"), ""),
    (re.compile(r"\((?:(?:void|char|const|\w{1,40}_t)\s*|\*\s*){1,6}\)"), ""),
    (
        re.compile(rf"\b(?:[A-Za-z_]\w{{0,40}}(?:\.|::)){{0,4}}(?:{_INTEGER_TYPE}|CUtensorMap\w{{1,40}})(?=\s*[({{])"),
        "",
    ),
    (re.compile(r"(?<=\d)'(?=\d)"), ""),
    (C_SUFFIX, r"\1"),
    (re.compile(r"^\s*&\s*(\w{1,80})\s*\[\s*0\s*\]\s*$|^\s*&"), r"\1"),
    (re.compile(r"::|->"), "."),
    (re.compile(r"\{"), "("),
    (re.compile(r"\}"), ")"),
    (re.compile(r"\s+"), " "),
)
_VALUE = re.compile(r"(?:\([^()\n]{0,200}\)|[^;,\n()]){1,300}")
_MAX_CALL, _MAX_LIST = 1 << 14, 1000  # characters
_MAX_BEFORE, _MAX_BEHIND = 1 << 16, 1 << 15  # the first call, where the text is long
_MAX_CALLS, _MAX_NAMES, _MAX_ENTRIES = 64, 2000, 8
_MAX_INTEGER = 1 << 128
_OPERATORS: dict[type[ast.AST], Callable[..., int]] = INTEGER_OPERATIONS | {  # a pasted shift may be of any size
    ast.LShift: lambda number, bits: number << min(max(bits, 0), 256),
    ast.RShift: lambda number, bits: number >> max(bits, 0),
}
_Definition = tuple[
    int, str, str | None, str
]  # place, name, the entry of an array where one is set (dim[0] = 64), value


def encode_calls(text: str) -> tuple[MapArguments, ...]:
    """The arguments of every call of the driver in the text, each once; none where there is no call.

    >>> asked, = encode_calls("int K = 64;" + _CALL_SAMPLE)
    >>> asked.given["dims"], asked.given["strides_bytes"], asked.given["swizzle"]
    ((64, 64), (128,), '128B')
    """
    first = _CALL.search(text)
    if first is None:
        return ()
    text = text[max(0, first.start() - _MAX_BEFORE) : first.start() + _MAX_BEHIND]
    plain = _COMMENT.sub(lambda comment: " " * (comment[0].startswith("/*")), text)
    calls = {call: _split(plain, call.end() - 1) for call in islice(_CALL.finditer(plain), _MAX_CALLS)}
    # Others are no calls: sentences, and declarations.
    whole = {call: a for call, a in calls.items() if len(a) >= 8 and not re.search(r"\bCUtensorMap\s*\*", a[0])}
    definitions = sorted(islice(_definitions(plain), _MAX_NAMES), key=itemgetter(0)) if whole else []
    read = (_arguments(call[1], written, _Names(definitions, call.start())) for call, written in whole.items())
    return distinct(map(MapArguments.of, read))


def _arguments(call: str, written: list[str], names: _Names) -> dict[str, Any]:
    kind, parameters = _CALLS[call]
    if len(written) == len(parameters) + 1 or written[0].startswith("&"):  # C++ is told where the map goes
        written = written[1:]
    if len(written) != len(parameters):
        found = f"{counted(len(written), 'argument')} behind the map of cuTensorMapEncode{call}"
        facts = {"limit": f"{len(parameters)}: {', '.join(parameters)}", "fix": "Paste the whole call."}
        raise RuleError([encode_call.told(found=found, arguments=len(written), wanted=len(parameters), **facts)])
    arguments: dict[str, Any] = {"kind": kind}
    for place, value in zip(parameters, written, strict=True):
        keyword = re.match(r"(\w{1,40})\s*=(?!=)\s*(.*)", value, re.DOTALL)  # Python may name an argument
        parameter = argument_dump.NAMES.get(keyword[1], keyword[1]) if keyword else place
        parameter = "strides_bytes" if parameter == "all_strides" else parameter
        # A pointer is the program's, and the lists have the rank too.
        with suppress(*[RuleError] if parameter in ("address", "rank") else []):
            arguments[parameter] = names.read(parameter, keyword[2] if keyword else value)
    argument_dump.cut_to_rank(arguments)
    return arguments


class _Names:
    """What names mean at one place of the text."""

    def __init__(self, definitions: list[_Definition], place: int) -> None:
        self._definitions, self._place = definitions, place
        self._known: dict[str, Any] = {}

    def read(self, argument: str, written: str) -> Any:
        """The value of an argument: a list of integers, the name of an enumerator, or an integer."""
        try:
            value = self._value(written, argument)
            if argument in argument_dump.TABLES or argument == "mode":
                named = value if isinstance(value, int) else self._defined(str(value).rpartition(".")[2], argument)
                return (
                    _MODES.get(named, named)
                    if argument == "mode"
                    else argument_dump.row_name(argument_dump.TABLES[argument], named)
                )
            if argument not in argument_dump.LISTS:
                return self._integer(value, written, argument)
        except RecursionError:
            raise _unknown(argument, written, "its names lead in circles, or too deep") from None
        if isinstance(value, str):
            raise _unknown(argument, value, "the text does not define it", f"cuuint64_t {value}[] = {{64, 64}};")
        return value if isinstance(value, tuple) else (value,)  # (64) stands for {64}, of which Python makes no list

    def _value(self, written: str, argument: str) -> Any:
        """What an expression is: an integer, a tuple of integers, or a name that the text does not define."""
        plain = written
        for pattern, replacement in _TO_PYTHON:
            plain = pattern.sub(replacement, plain)
        try:
            tree = ast.parse(plain.strip() if len(plain) < 2000 else "?", mode="eval").body
        except (SyntaxError, ValueError, MemoryError):
            raise _unknown(argument, written, "it is no sum, product or shift of numbers") from None
        return self._evaluated(tree, argument)

    @staticmethod
    def _integer(value: Any, written: str, argument: str) -> int:
        if isinstance(value, int):
            return value
        raise _unknown(argument, value if isinstance(value, str) else written, "the text does not define it")

    def _evaluated(self, tree: ast.AST, argument: str) -> Any:
        match tree:
            case ast.Constant(value=int() as number) if type(number) is int and abs(number) < _MAX_INTEGER:
                return number
            case ast.Name(id=name):
                return self._defined(name, argument)
            case ast.Attribute():
                return ast.unparse(tree)
            case ast.Tuple(elts=entries) | ast.List(elts=entries):
                return tuple(self._operand(entry, argument) for entry in entries[:_MAX_ENTRIES])
            case (
                ast.ListComp(generators=[ast.comprehension(iter=inner)])
                | ast.Call(func=ast.Attribute(value=inner, attr="data" | "begin"), args=[])
            ):
                return self._evaluated(inner, argument)
            case ast.Subscript(value=inner, slice=index):
                value, place = self._evaluated(inner, argument), self._operand(index, argument)
                held = (value,) if isinstance(value, int) else value
                if isinstance(held, tuple) and 0 <= place < len(held):
                    return held[place]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=inner):
                return _OPERATORS[type(sign)](self._operand(inner, argument))
            case ast.BinOp(left=left, op=sign, right=right):
                one, other = self._evaluated(left, argument), self._operand(right, argument)
                if isinstance(one, tuple) and isinstance(sign, ast.Add) and other >= 0:
                    return one[other:]  # a pointer behind the first entries
                if isinstance(one, int) and type(sign) in _OPERATORS:
                    with suppress(ZeroDivisionError):
                        result = _OPERATORS[type(sign)](one, other)
                        if abs(result) < _MAX_INTEGER:
                            return result
        raise _unknown(argument, ast.unparse(tree), "the text does not define it")

    def _operand(self, tree: ast.AST, argument: str) -> int:
        return self._integer(self._evaluated(tree, argument), ast.unparse(tree), argument)

    def _defined(self, name: str, argument: str) -> Any:
        """What a name is: its nearest definition before the call, else the first after it; else the name itself."""
        if name not in self._known:
            known = [(place, entry, value) for place, defined, entry, value in self._definitions if defined == name]
            whole = [(place, value) for place, entry, value in known if entry is None]
            before = [(place, value) for place, value in whole if place < self._place]
            held = self._value((before[-1:] or whole)[0][1], argument) if whole else name
            entries = {int(entry): value for _, entry, value in known if entry and re.fullmatch("[0-7]", entry)}
            for place, written in sorted(entries.items()):  # dim[0] = 64; dim[1] = 8;
                first = held if isinstance(held, tuple) else ()
                number = self._integer(self._value(written, argument), written, argument)
                held = (*first[:place], *[1] * (place - len(first)), number, *first[place + 1 :])
            self._known[name] = held
        return self._known[name]


def _unknown(argument: str, written: str, why: str, example: str = "") -> RuleError:
    name = re.search(r"[A-Za-z_]\w*", written)
    line = example or (name and f"int {name[0]} = 64;")
    fix = f"Add a line such as `{line}` to the text." if line else "Write a number there, such as 64."
    found = f"{shortened(written, 60)} in {argument}: {why}"
    return RuleError([encode_call.told(found=found, limit="numbers, or names that the text defines", fix=fix)])


def _definitions(text: str) -> Iterator[_Definition]:
    """What the text defines: `int K = 64`, `dim[2] = {…}`, `dim[0] = …`, `#define K 64`, `box = [64, 8]`."""
    for macro in _DEFINE.finditer(text):
        yield macro.start(), macro[1], None, macro[2]
    for defined in _DEFINITION.finditer(text):
        start = defined.end()
        if text[start : start + 1] in ("{", "["):
            yield defined.start(), defined[1], None, "{" + ",".join(_split(text, start, _MAX_LIST)) + "}"
        elif value := _VALUE.match(text, start):
            yield defined.start(), defined[1], defined[2], value[0]


def _split(text: str, opening: int, most: int = _MAX_CALL) -> list[str]:
    """What stands between a bracket and its partner, cut at the commas between; of `most` characters."""
    pieces: list[str] = []
    depth, start = 0, opening + 1
    for place in range(opening, min(len(text), opening + most)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0 or (depth == 1 and text[place] == ","):
            pieces.append(text[start:place].strip())
            start = place + 1
        if depth == 0:
            break
    return pieces if pieces[-1:] != [""] else pieces[:-1]
