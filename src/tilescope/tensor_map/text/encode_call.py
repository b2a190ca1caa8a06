"""Calls of cuTensorMapEncodeTiled and its im2col relatives, pasted with what they use, in C++ or Python.

    constexpr int K = 4096;                                          from cuda.bindings import driver as cuda
    cuuint64_t globalDim[2] = {K, 1024};                             cuda.cuTensorMapEncodeTiled(
    cuuint64_t globalStrides[1] = {K * sizeof(__half)};                  cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    cuuint32_t boxDim[2] = {64, 128}, elementStrides[2] = {1, 1};        2, ptr, [cuda.cuuint64_t(K), cuda.cuuint64_t(1024)],
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16,        [cuda.cuuint64_t(2 * K)], …)
        2, ptr, globalDim, globalStrides, boxDim, …);

C++ is converted to Python where the two differ: {64, 128} becomes (64, 128), casts and suffixes are dropped, :: becomes
a dot. Names are looked up in the text, using the nearest definition before the call; their sums, products and shifts
are evaluated. No code is run. The address is omitted if it is a pointer that only the program knows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from tilescope.arch import architectures_with
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, Wording, raise_all
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.tensor_map.map_arguments import MapArguments
from tilescope.tensor_map.text.argument_dump import LISTS, NAMES, TABLES, Argument, cut_to_rank, row_name
from tilescope.tensor_map.text.distinct_maps import drop_duplicates
from tilescope.written import C_SUFFIX, INTEGER_OPERATIONS

_CALL_SAMPLE = (
    "cuuint64_t dim[2] = {K, 64}; cuuint64_t stride[1] = {K * sizeof(half)}; cuuint32_t box[2] = {64, 8}, step[2] = {1, 1};\n"
    "cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, ptr, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, "
    "CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"
)
ENCODE_CALL = rule(
    "encode-call",
    "A pasted call of the driver has all its arguments, as numbers or as names that the text defines.",
    argument="text",
    found="{written} in {parameter}: the text does not define it",
    limit="numbers, or names that the text defines",
    fix="Add a line such as `int {name} = 64;` to the text.",
    source="cuda.h, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide",
    basis="measured",
    subjects=("paste",),
    architectures=architectures_with("tma"),
    passing=f"ts.tensor_map.text.pasted_source.encode_calls({'int K = 64;' + _CALL_SAMPLE!r})",
    failing=f"ts.tensor_map.text.pasted_source.encode_calls({_CALL_SAMPLE!r})",
)
_UNDEFINED = ENCODE_CALL.wording
_UNDEFINED_LIST = ENCODE_CALL.worded(fix="Add a line such as `cuuint64_t {name}[] = {{64, 64}};` to the text.")
_IN_CIRCLES = ENCODE_CALL.worded(found="{written} in {parameter}: its names lead in circles, or too deep")
_NO_EXPRESSION = ENCODE_CALL.worded(found="{written} in {parameter}: it is no sum, product or shift of numbers")
_CUT_CALL = ENCODE_CALL.worded(
    found="{arguments:argument} behind the map of cuTensorMapEncode{function}",
    limit="{wanted}: {parameters:, }",
    fix="Paste the whole call.",
)


class _Signature(NamedTuple):
    """A function of the driver: our kind of map, and its arguments behind the map, in the driver's order."""

    kind: str
    parameters: tuple[str, ...]


_TENSOR = ("data_type", "rank", "address", "dims", "strides_bytes")
_COLUMN = ("channels_per_pixel", "pixels_per_column", "element_strides")
_OPTIONS = ("swizzle", "l2_promotion", "oob_fill")
_SIGNATURES = {
    "Tiled": _Signature("tensor_map", (*_TENSOR, "box", "element_strides", "interleave", *_OPTIONS)),
    "Im2col": _Signature("im2col_map", (*_TENSOR, "lower_corner", "upper_corner", *_COLUMN, "interleave", *_OPTIONS)),
    "Im2colWide": _Signature(
        "im2col_wide_map", (*_TENSOR, "lower_width", "upper_width", *_COLUMN, "interleave", "mode", *_OPTIONS)
    ),
}
_FEWEST_ARGUMENTS = 8  # of what may be a call; sentences have fewer
# One of the driver's enumerators for each, to be named in a fix.
_ENUMERATORS = {
    "data_type": "DATA_TYPE_BFLOAT16",
    "interleave": "INTERLEAVE_NONE",
    "swizzle": "SWIZZLE_128B",
    "l2_promotion": "L2_PROMOTION_L2_128B",
    "oob_fill": "FLOAT_OOB_FILL_NONE",
}
_NOT_NEEDED = ("address", "rank")  # a pointer is the program's, and the lists have the rank too
_MODES: dict[Argument, str] = {
    "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W": "W",
    "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128": "W128",
    0: "W",
    1: "W128",
}
_CALL = re.compile(r"\w{0,40}[eE]ncode(Tiled|Im2colWide|Im2col)\w{0,20}\s*\(")
_DECLARED = re.compile(r"\bCUtensorMap\s*\*")  # a parameter, where a call has an argument
_KEYWORD = re.compile(r"(\w{1,40})\s*=(?!=)\s*(.*)", re.DOTALL)  # Python may name an argument
_COMMENT = re.compile(
    r"/\*.{0,2000}?\*/|//[^\n]*|^[ \t]*#(?!\s*define)[^\n]*|(?<=[\s,])#(?!\s*define)[^\n]*", re.DOTALL | re.MULTILINE
)
_DEFINE = re.compile(r"^[ \t]*#\s*define\s+(\w{1,80})[ \t]+([^\n]{1,300})", re.MULTILINE)
_DEFINITION = re.compile(r"\b([A-Za-z_]\w{0,80})\s{0,9}(?:\[([^\]\n]{0,80})\]\s{0,9})?(?:=\s{0,9}(?!=)|(?=\{))")
_VALUE = re.compile(r"(?:\([^()\n]{0,200}\)|[^;,\n()]){1,300}")
_INDEX = re.compile("[0-7]")  # of an entry that is set separately
_INTEGER_TYPE = r"(?:cuuint(?:32|64)_t|u?int\d{0,2}(?:_t)?|size_t)"


def _size_in_bytes(sized: re.Match[str]) -> str:
    return str(DataType.named(sized[1]).bits // 8)


# What C++ has and Python has not, and what takes its place; in this order.
_TO_PYTHON: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\bsizeof\s*\(([^()]{1,80})\)"), _size_in_bytes),
    (re.compile(rf"\((?:const\s+)?{_INTEGER_TYPE}(?:\s+const)?\s*\[[^\]\n]{{0,80}}\]\s*\)(?=\s*\{{)"), ""),
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
_MAX_CALL = 1 << 14  # characters
_MAX_LIST = 1000
_MAX_EXPRESSION = 2000
_MAX_BEFORE = 1 << 16  # the first call, where the text is long
_MAX_BEHIND = 1 << 15
_MAX_CALLS = 64
_MAX_NAMES = 2000
_MAX_ENTRIES = 8
_MAX_INTEGER = 1 << 128
_MAX_SHIFT = 256  # a pasted shift may be of any size
_SHOWN = 60  # characters of an expression


def _shifted_left(number: int, bits: int) -> int:
    return number << min(max(bits, 0), _MAX_SHIFT)


def _shifted_right(number: int, bits: int) -> int:
    return number >> max(bits, 0)


_OPERATORS: dict[type[ast.AST], Callable[..., int]] = INTEGER_OPERATIONS | {
    ast.LShift: _shifted_left,
    ast.RShift: _shifted_right,
}
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)


def encode_calls(text: str) -> tuple[MapArguments, ...]:
    """The arguments of every call of the driver in the text, each once; none where there is no call.

    >>> asked, = encode_calls("int K = 64;" + _CALL_SAMPLE)
    >>> asked.given["dims"], asked.given["strides_bytes"], asked.given["swizzle"]
    ((64, 64), (128,), '128B')
    """
    first = _CALL.search(text)
    if first is None:
        return ()
    start = max(0, first.start() - _MAX_BEFORE)
    near = text[start : first.start() + _MAX_BEHIND]
    plain = _COMMENT.sub(_comment_as_space, near)
    calls = list(_calls(plain))
    if not calls:
        return ()
    definitions = sorted(islice(_definitions(plain), _MAX_NAMES), key=attrgetter("place"))
    lines_before = text.count("\n", 0, start)
    return drop_duplicates(
        _read_call(call, definitions, lines_before + plain.count("\n", 0, call.place) + 1) for call in calls
    )


def _read_call(call: _Call, definitions: list[_Definition], line: int) -> MapArguments:
    return replace(MapArguments.of(_arguments(call, _Names(definitions, call.place))), lines=(line,))


def _comment_as_space(comment: re.Match[str]) -> str:
    """What C reads in place of a comment; line ends stay, so that lines can be counted."""
    if comment[0].startswith("/*"):
        return " " + "\n" * comment[0].count("\n")
    return ""


class _Call(NamedTuple):
    """A call in the text."""

    place: int
    function: str  # one of _SIGNATURES
    arguments: list[str]


def _calls(text: str) -> Iterator[_Call]:
    """The calls of a text; sentences and declarations, in which a function is only named, are none."""
    for match in islice(_CALL.finditer(text), _MAX_CALLS):
        arguments = _split(text, match.end() - 1, _MAX_CALL)
        if len(arguments) >= _FEWEST_ARGUMENTS and _DECLARED.search(arguments[0]) is None:
            yield _Call(match.start(), match[1], arguments)


def _arguments(call: _Call, names: _Names) -> dict[str, Argument]:
    kind, parameters = _SIGNATURES[call.function]
    written = call.arguments
    if len(written) == len(parameters) + 1 or written[0].startswith("&"):  # C++ passes the destination of the map
        written = written[1:]
    if len(written) != len(parameters):
        raise _CUT_CALL.error(
            function=call.function, arguments=len(written), wanted=len(parameters), parameters=parameters
        )
    arguments: dict[str, Argument] = {"kind": kind}
    problems: list[Violation] = []
    for place, value in zip(parameters, written, strict=True):
        keyword = _KEYWORD.match(value)
        parameter = _parameter_called(keyword[1]) if keyword else place
        try:
            arguments[parameter] = names.read(parameter, keyword[2] if keyword else value)
        except RuleError as error:
            if parameter not in _NOT_NEEDED:
                problems += names.find_undefined(parameter, keyword[2] if keyword else value, error)
    if (
        problems
    ):  # one name that no table has is refused with the names that there are; among others it is one more to define
        problems += _undefined_enumerators(arguments)
    raise_all(problems)
    cut_to_rank(arguments)
    return arguments


def _undefined_enumerators(arguments: Mapping[str, Argument]) -> Iterator[Violation]:
    """Names in place of an enumerator that neither the text defines nor the driver has."""
    for parameter, value in arguments.items():
        if parameter in TABLES and isinstance(value, str) and value.isidentifier() and value not in TABLES[parameter]:
            enumerator = f"CU_TENSOR_MAP_{_ENUMERATORS[parameter]}"
            wording = ENCODE_CALL.worded(fix="Add a line such as `auto {name} = {enumerator};` to the text.")
            yield wording.violation(parameter=parameter, written=value, name=value, enumerator=enumerator)


def _parameter_called(keyword: str) -> str:
    """Our name for an argument, by the driver's; the strides of a call leave out the innermost one."""
    ours = NAMES.get(keyword, keyword)
    return "strides_bytes" if ours == "all_strides" else ours


class _Definition(NamedTuple):
    """The value of a name in the text."""

    place: int
    name: str
    entry: str | None  # of an array, one entry at a time: dim[0] = 64
    value: str


class _Names:
    """What names mean at one place of the text."""

    def __init__(self, definitions: list[_Definition], place: int) -> None:
        self._definitions = definitions
        self._place = place
        self._known: dict[str, Argument] = {}
        self._assumed: set[str] = set()  # names that the text does not define, which were reported

    def read(self, parameter: str, written: str) -> Argument:
        """The value of an argument: a list of integers, the name of an enumerator, or an integer."""
        try:
            value = self._value(written, parameter)
            if parameter in TABLES or parameter == "mode":
                return self._enumerator(value, parameter)
        except RecursionError:
            raise _unknown(_IN_CIRCLES, parameter, written) from None
        if parameter not in LISTS:
            return _integer(value, written, parameter)
        if isinstance(value, str):
            raise _UNDEFINED_LIST.error(parameter=parameter, written=shorten(value, _SHOWN), name=value)
        return (
            value if isinstance(value, tuple) else (value,)
        )  # (64) may mean {64}, but Python does not make it a tuple

    def find_undefined(self, parameter: str, written: str, error: RuleError) -> list[Violation]:
        """All that the text does not define of an argument; each name is reported once for the whole call."""
        problems: list[Violation] = []
        while True:
            first = error.violations[0]
            name = first.values.get("name")
            if first not in problems:
                problems.append(first)
            if not isinstance(name, str) or name in self._assumed:
                return problems
            self._assumed.add(name)
            self._known[name] = 1  # any number: only the other names matter now
            try:
                self.read(parameter, written)
            except RuleError as next_error:
                error = next_error
            else:
                return problems

    def _enumerator(self, value: Argument, parameter: str) -> Argument:
        """Our name for an enumerator, by its number or its last name; one that is not known stays."""
        code = value if isinstance(value, int) else self._resolve_name(str(value).rpartition(".")[2], parameter)
        if parameter == "mode":
            return _MODES.get(code, code)
        return row_name(TABLES[parameter], code if isinstance(code, int) else str(code))

    def _value(self, written: str, parameter: str) -> Argument:
        """The value of an expression: an integer, a tuple of integers, or a name that the text does not define."""
        plain = written
        for pattern, replacement in _TO_PYTHON:
            plain = pattern.sub(replacement, plain)
        if len(plain) >= _MAX_EXPRESSION:
            raise _unknown(_NO_EXPRESSION, parameter, written)
        try:
            tree = ast.parse(plain.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError):
            raise _unknown(_NO_EXPRESSION, parameter, written) from None
        return self._evaluate(tree, parameter)

    def _evaluate(self, tree: ast.expr, parameter: str) -> Argument:
        match tree:
            case ast.Constant(value=int() as number) if type(number) is int and abs(number) < _MAX_INTEGER:
                return number
            case ast.Name(id=name):
                return self._resolve_name(name, parameter)
            case ast.Attribute():
                return ast.unparse(tree)
            case ast.Tuple(elts=entries) | ast.List(elts=entries):
                return tuple(self._operand(entry, parameter) for entry in entries[:_MAX_ENTRIES])
            case (
                ast.ListComp(generators=[ast.comprehension(iter=inner)])
                | ast.Call(func=ast.Attribute(value=inner, attr="data" | "begin"), args=[])
            ):
                return self._evaluate(inner, parameter)
            case ast.Subscript():
                return self._entry(tree, parameter)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=inner):
                return _OPERATORS[type(sign)](self._operand(inner, parameter))
            case ast.BinOp():
                return self._result(tree, parameter)
        raise _unknown(_UNDEFINED, parameter, ast.unparse(tree))

    def _entry(self, tree: ast.Subscript, parameter: str) -> int:
        """One entry of a list."""
        value = self._evaluate(tree.value, parameter)
        place = self._operand(tree.slice, parameter)
        entries = (value,) if isinstance(value, int) else value
        if isinstance(entries, tuple) and 0 <= place < len(entries):
            return entries[place]
        raise _unknown(_UNDEFINED, parameter, ast.unparse(tree))

    def _result(self, tree: ast.BinOp, parameter: str) -> Argument:
        """What an operator makes of two operands."""
        left = self._evaluate(tree.left, parameter)
        right = self._operand(tree.right, parameter)
        if isinstance(left, tuple) and isinstance(tree.op, ast.Add) and right >= 0:
            return left[right:]  # a pointer behind the first entries
        operate = _OPERATORS.get(type(tree.op))
        divides_by_zero = right == 0 and isinstance(tree.op, _DIVISIONS)
        if isinstance(left, int) and operate is not None and not divides_by_zero:
            result = operate(left, right)
            if abs(result) < _MAX_INTEGER:
                return result
        raise _unknown(_UNDEFINED, parameter, ast.unparse(tree))

    def _operand(self, tree: ast.expr, parameter: str) -> int:
        return _integer(self._evaluate(tree, parameter), ast.unparse(tree), parameter)

    def _resolve_name(self, name: str, parameter: str) -> Argument:
        """The value of a name: its nearest definition before the call, else the first after it; else the name itself."""
        if name not in self._known:
            about_it = [definition for definition in self._definitions if definition.name == name]
            full_definitions = [definition for definition in about_it if definition.entry is None]
            before = [definition for definition in full_definitions if definition.place < self._place]
            value: Argument = name
            if full_definitions:
                nearest = before[-1] if before else full_definitions[0]
                value = self._value(nearest.value, parameter)
            entries = {
                int(definition.entry): definition.value
                for definition in about_it
                if definition.entry and _INDEX.fullmatch(definition.entry)
            }
            for place, written in sorted(entries.items()):  # dim[0] = 64; dim[1] = 8;
                listed = value if isinstance(value, tuple) else ()
                ones = (1,) * (place - len(listed))  # of entries that are not set
                number = _integer(self._value(written, parameter), written, parameter)
                value = (*listed[:place], *ones, number, *listed[place + 1 :])
            self._known[name] = value
        return self._known[name]


def _integer(value: Argument, written: str, parameter: str) -> int:
    if isinstance(value, int):
        return value
    raise _unknown(_UNDEFINED, parameter, value if isinstance(value, str) else written)


def _unknown(told: Wording, parameter: str, written: str) -> RuleError:
    """The error for an expression; the first name in it is what the text should define."""
    name = re.search(r"[A-Za-z_]\w*", written)
    expression = shorten(written, _SHOWN)
    if name is None:
        return told.worded(fix="Write a number there, such as 64.").error(parameter=parameter, written=expression)
    return told.error(parameter=parameter, written=expression, name=name[0])


def _definitions(text: str) -> Iterator[_Definition]:
    """What the text defines: `int K = 64`, `dim[2] = {…}`, `dim[0] = …`, `#define K 64`, `box = [64, 8]`."""
    for macro in _DEFINE.finditer(text):
        yield _Definition(macro.start(), macro[1], None, macro[2])
    for defined in _DEFINITION.finditer(text):
        start = defined.end()
        if text[start : start + 1] in ("{", "["):
            entries = ",".join(_split(text, start, _MAX_LIST))
            yield _Definition(defined.start(), defined[1], None, f"{{{entries}}}")
        elif value := _VALUE.match(text, start):
            yield _Definition(defined.start(), defined[1], defined[2], value[0])


def _split(text: str, opening: int, most: int) -> list[str]:
    """The text between a bracket and its partner, cut at the commas between; of `most` characters."""
    pieces: list[str] = []
    depth = 0
    start = opening + 1
    for place in range(opening, min(len(text), opening + most)):
        character = text[place]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            pieces.append(text[start:place].strip())
            start = place + 1
        if depth == 0:
            break
    if pieces and not pieces[-1]:  # a comma behind the last entry, or no entry at all
        pieces.pop()
    return pieces
