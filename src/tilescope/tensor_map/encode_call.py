"""The arguments of a call of cuTensorMapEncodeTiled or its im2col relatives, pasted with what it uses, in C++ or Python.

    constexpr int K = 4096;                                          from cuda.bindings import driver as cuda
    cuuint64_t globalDim[2] = {K, 1024};                             cuda.cuTensorMapEncodeTiled(
    cuuint64_t globalStrides[1] = {K * sizeof(__half)};                  cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    cuuint32_t boxDim[2] = {64, 128}, elementStrides[2] = {1, 1};        2, ptr, [cuda.cuuint64_t(K), cuda.cuuint64_t(1024)],
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16,        [cuda.cuuint64_t(2 * K)], …)
        2, ptr, globalDim, globalStrides, boxDim, …);

Names are looked up in the text, the nearest definition before the call; sums, products and shifts of them are worked
out. Nothing is run. The address is left out where it is a pointer that only the program knows.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import RuleError, counted, shortened
from tilescope.tensor_map.argument_dump import LISTS, NAMES, TABLES, cut_to_rank, row_name
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.checking import map_rule

_SAMPLE = (
    "cuuint64_t dim[2] = {K, 64}; cuuint64_t stride[1] = {K * sizeof(half)}; cuuint32_t box[2] = {64, 8}, step[2] = {1, 1};\n"
    "cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, ptr, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, "
    "CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"
)
encode_call = map_rule(
    "encode-call", "A pasted call of the driver has all its arguments: numbers, or names that the text defines.",
    source="cuda.h, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide", subjects=("paste",),
    passing={"call": "const int K = 64;\n" + _SAMPLE}, failing={"call": _SAMPLE},
)  # fmt: skip

_OPTIONS = ("interleave", "swizzle", "l2_promotion", "oob_fill")
_TENSOR = ("data_type", "rank", "address", "dims", "strides_bytes")
_COLUMN = ("channels_per_pixel", "pixels_per_column", "element_strides")
_PARAMETERS = {
    "Tiled": (*_TENSOR, "box", "element_strides", *_OPTIONS),
    "Im2col": (*_TENSOR, "lower_corner", "upper_corner", *_COLUMN, *_OPTIONS),
    "Im2colWide": (*_TENSOR, "lower_width", "upper_width", *_COLUMN, "interleave", "mode", *_OPTIONS[1:]),
}
_MODES = {"CU_TENSOR_MAP_IM2COL_WIDE_MODE_W": "W", "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128": "W128", 0: "W", 1: "W128"}
_CALL = re.compile(r"\w{0,40}[eE]ncode(Tiled|Im2colWide|Im2col)\w{0,20}\s*\(")
_COMMENT = re.compile(
    r"/\*.{0,2000}?\*/|//[^\n]*|^[ \t]*#(?!\s*define)[^\n]*|(?<=[\s,])#(?!\s*define)[^\n]*", re.DOTALL | re.MULTILINE
)
_DEFINE = re.compile(r"^[ \t]*#\s*define\s+(\w{1,80})[ \t]+([^\n]{1,300})", re.MULTILINE)
_DEFINITION = re.compile(r"\b([A-Za-z_]\w{0,80})\s{0,9}(?:\[([^\]\n]{0,80})\]\s{0,9})?(?:=\s{0,9}(?!=)|(?=\{))")
_CAST = re.compile(
    r"\b(?:static_cast|reinterpret_cast)\s*<[^<>()]{0,80}>"
    r"|\((?:const\s+)?(?:cuuint(?:32|64)_t|u?int\d{0,2}(?:_t)?|unsigned(?: \w+)?|size_t|long(?: long)?|CUtensorMap\w{1,40})\)"
    r"|\b(?:[A-Za-z_]\w{0,40}(?:\.|::)){0,4}(?:cuuint(?:32|64)_t|u?int(?:32|64)_t|size_t|int|CUtensorMap\w{1,40})(?=\s*[({])"
)
_SIZEOF = re.compile(r"\bsizeof\s*\(([^()]{1,80})\)")
_COMPREHENSION = re.compile(r"[\[(].{1,200}?\bfor\s+\w+\s+in\s+(.{1,400}?),?\s*[\])]\s*$", re.DOTALL)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_VALUE = re.compile(r"(?:\([^()\n]{0,200}\)|[^;,\n()]){1,300}")
_MAX_CALL, _MAX_LIST = 1 << 14, 1000  # characters
_MAX_BEFORE, _MAX_BEHIND = 1 << 16, 1 << 15  # the first call, where the text is long
_MAX_CALLS, _MAX_NAMES, _MAX_DEPTH = 64, 2000, 32
_MAX_INTEGER = 1 << 128
_OPERATORS: dict[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitOr: operator.or_, ast.BitAnd: operator.and_,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.LShift: lambda a, b: a << min(max(b, 0), 256), ast.RShift: lambda a, b: a >> max(b, 0),
}  # fmt: skip


class _Definition(NamedTuple):
    place: int
    entry: str | None  # of an array, where one entry is set: dim[0] = 64
    value: str


def encode_calls(text: str) -> tuple[MapArguments, ...]:
    """The arguments of every call of the driver in the text, each once; none where there is no call.

    >>> asked, = encode_calls("int K = 64;" + _SAMPLE)
    >>> asked.given["dims"], asked.given["strides_bytes"], asked.given["swizzle"]
    ((64, 64), (128,), '128B')
    """
    first = _CALL.search(text)
    if first is None:
        return ()
    text = text[max(0, first.start() - _MAX_BEFORE) : first.start() + _MAX_BEHIND]
    plain = _COMMENT.sub(lambda found: " " * (found[0].startswith("/*")), text)
    found: list[MapArguments] = []
    names: dict[str, list[_Definition]] | None = None
    for call in islice(_CALL.finditer(plain), _MAX_CALLS):
        written = _split(plain, call.end() - 1)
        if len(written) < 8 or re.search(r"\bCUtensorMap\s*\*", written[0]):  # no call: a sentence, or a declaration
            continue
        names = _definitions(plain) if names is None else names
        asked = MapArguments.of(_arguments(call[1], written, _Names(names, call.start())))
        if asked not in found:
            found.append(asked)
    return tuple(found)


def _arguments(kind: str, written: list[str], names: _Names) -> dict[str, Any]:
    parameters = _PARAMETERS[kind]
    if len(written) == len(parameters) + 1 or written[0].startswith("&"):  # C++ is told where the map goes
        written = written[1:]
    if len(written) != len(parameters):
        raise encode_call.error(
            "text", f"{counted(len(written), 'argument')} behind the map of cuTensorMapEncode{kind}",
            f"{len(parameters)}: {', '.join(parameters)}", "Paste the whole call.",
        )  # fmt: skip
    given: dict[str, Any] = {
        "kind": {"Tiled": "tensor_map", "Im2col": "im2col_map", "Im2colWide": "im2col_wide_map"}[kind]
    }
    for parameter, value in map(_by_keyword, parameters, written):
        if parameter in LISTS:
            given[parameter] = names.numbers(value, parameter)
        elif parameter in TABLES or parameter == "mode":
            said = names.enumerator(value)
            given[parameter] = _MODES.get(said, said) if parameter == "mode" else row_name(TABLES[parameter], said)
        elif parameter in ("address", "rank"):  # a pointer is the program's; the lists have the rank too
            given |= {parameter: known} if (known := names.known(value)) is not None else {}
        else:
            given[parameter] = names.number(value, parameter)
    cut_to_rank(given)
    return given


def _by_keyword(parameter: str, written: str) -> tuple[str, str]:
    """The argument and its value: the one at this place, or the one that Python names."""
    keyword = re.match(r"(\w{1,40})\s*=(?!=)\s*(.*)", written, re.DOTALL)
    if keyword is None:
        return parameter, written
    return NAMES.get(keyword[1], keyword[1]).replace("all_strides", "strides_bytes"), keyword[2]


class _Names:
    """What names mean at one place of the text."""

    def __init__(self, definitions: Mapping[str, list[_Definition]], place: int) -> None:
        self._definitions, self._place = definitions, place

    def value(self, name: str) -> str | None:
        """What was written for the name: the nearest definition before the call, else the first after it."""
        known = [each for each in self._definitions.get(name, ()) if each.entry is None]
        before = [each for each in known if each.place < self._place]
        return before[-1].value if before else known[0].value if known else None

    def number(self, written: str, argument: str, depth: int = 0) -> int:
        """The integer that an expression is."""
        plain = _SIZEOF.sub(lambda found: str(DataType.named(found[1]).bits // 8), written)
        plain = (
            re.sub(r"(?<=\d)'(?=\d)", "", _CAST.sub("", plain)).replace("{", "(").replace("}", ")").replace("->", ".")
        )
        plain = re.sub(r"\b(0[xX][0-9a-fA-F]{1,40}|\d{1,40})(?:[uU][lL]{0,2}|[lL]{1,2}[uU]?)\b", r"\1", plain)
        try:
            tree = ast.parse(" ".join(plain.split()) if len(plain) < 2000 else "?", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._unknown(argument, written, "it is no sum, product or shift of numbers") from None
        return self._evaluated(tree, argument, depth)

    def _evaluated(self, tree: ast.AST, argument: str, depth: int) -> int:
        if depth > _MAX_DEPTH:
            raise self._unknown(argument, ast.unparse(tree), "its names lead in circles, or too deep")
        if isinstance(tree, ast.Constant) and type(tree.value) is int and abs(tree.value) < _MAX_INTEGER:
            return tree.value
        if isinstance(tree, ast.Name) and (written := self.value(tree.id)) is not None:
            return self.number(written, argument, depth + 1)
        if (
            isinstance(tree, ast.Call)
            and len(tree.args) == 1
            and not tree.keywords
            and isinstance(tree.func, ast.Name | ast.Attribute)
        ):
            name = tree.func.id if isinstance(tree.func, ast.Name) else tree.func.attr
            if re.fullmatch(r"cuuint(?:32|64)_t|u?int\d{0,2}(?:_t)?|size_t", name):
                return self._evaluated(tree.args[0], argument, depth + 1)
        if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
            entries = self.numbers(tree.value.id, argument, depth + 1)
            place = self._evaluated(tree.slice, argument, depth + 1)
            if 0 <= place < len(entries):
                return entries[place]
        if isinstance(tree, ast.BinOp | ast.UnaryOp) and (work := _OPERATORS.get(type(tree.op))):
            operands = [tree.left, tree.right] if isinstance(tree, ast.BinOp) else [tree.operand]
            values = [self._evaluated(operand, argument, depth + 1) for operand in operands]
            if work not in (operator.floordiv, operator.mod) or values[1]:
                result = work(*values)
                if abs(result) < _MAX_INTEGER:
                    return result
        raise self._unknown(argument, ast.unparse(tree), "the text does not define it")

    def numbers(self, written: str, argument: str, depth: int = 0) -> tuple[int, ...]:
        """The integers of a list, written out or by its name."""
        plain = re.sub(r"^&|\.(?:data|begin)\(\)|\[0\]$", "", written.strip())
        if depth > _MAX_DEPTH:
            raise self._unknown(argument, written, "its names lead in circles")
        if shifted := re.fullmatch(r"(\w{1,80})\s*\+\s*(\d)", plain):
            return self.numbers(shifted[1], argument, depth + 1)[int(shifted[2]) :]
        if re.fullmatch(r"\w{1,80}", plain):
            entries = {
                int(each.entry): each.value
                for each in self._definitions.get(plain, ())
                if each.entry and each.entry.isdecimal()
            }
            whole = self.value(plain)
            if whole is None and not entries:
                raise self._unknown(argument, plain, "the text does not define it", is_list=True)
            listed = [] if whole is None else list(self.numbers(whole, argument, depth + 1))
            for place, value in sorted(entries.items()):
                if place < 8:
                    listed[place:] = [
                        *[1] * (place - len(listed)),
                        self.number(value, argument, depth + 1),
                        *listed[place + 1 :],
                    ]
            return tuple(listed)
        if over := _COMPREHENSION.fullmatch(plain):
            return self.numbers(
                over[1] if over[1][:1] not in "([" or over[1][-1:] in ")]" else over[1] + ",)", argument, depth + 1
            )
        opening = re.search(r"[\[({]", plain)
        if opening is None:
            raise self._unknown(argument, written, "a list is wanted")
        return tuple(self.number(each, argument, depth) for each in islice(_split(plain, opening.start()), 8) if each)

    def enumerator(self, written: str) -> Any:
        """The name of an enumerator, or its number."""
        plain = _CAST.sub("", written).strip()
        for _ in range(_MAX_DEPTH):
            name = re.split(r"::|\.", plain.strip("() "))[-1]
            defined = self.value(name)
            if defined is None:
                break
            plain = defined
        return int(name) if re.fullmatch(r"\d{1,4}", name) else name

    def known(self, written: str) -> int | None:
        """The number that is written there, if it is one."""
        try:
            return self.number(re.sub(r"\((?:void|char|const|\w+_t|\s|\*)+\)", "", written), "address")
        except RuleError:
            return None

    def _unknown(self, argument: str, written: str, why: str, *, is_list: bool = False) -> RuleError:
        shown = shortened(" ".join(written.split()), 60)
        name = re.search(r"[A-Za-z_]\w*", written)
        fix = "Write a number there."
        if name is not None:
            example = f"cuuint64_t {name[0]}[] = {{64, 64}};" if is_list else f"int {name[0]} = 64;"
            fix = f"Add a line such as `{example}` to the text."
        return encode_call.error(
            "text", f"{shown} in {argument}: {why}", "numbers, or names that the text defines", fix
        )


def _definitions(text: str) -> dict[str, list[_Definition]]:
    """What the text defines: `int K = 64`, `dim[2] = {…}`, `dim[0] = …`, `#define K 64`, `box = [64, 8]`."""
    names: dict[str, list[_Definition]] = {}
    for found in islice(_definition_places(text), _MAX_NAMES):
        names.setdefault(found[0], []).append(_Definition(*found[1:]))
    for known in names.values():
        known.sort(key=lambda each: each.place)
    return names


def _definition_places(text: str) -> Iterator[tuple[str, int, str | None, str]]:
    for found in _DEFINE.finditer(text):
        yield found[1], found.start(), None, found[2]
    for found in _DEFINITION.finditer(text):
        start = found.end()
        if text[start : start + 1] in ("{", "["):
            yield found[1], found.start(), None, "{" + ",".join(_split(text, start, _MAX_LIST)) + "}"
        elif value := _VALUE.match(text, start):
            yield found[1], found.start(), found[2], value[0]


def _split(text: str, opening: int, most: int = _MAX_CALL) -> list[str]:
    """What stands between a bracket and its partner, cut at the commas between; of `most` characters."""
    pieces: list[str] = []
    closings: list[str] = []
    start = opening + 1
    for place in range(opening, min(len(text), opening + most)):
        character = text[place]
        if character in _BRACKETS:
            closings.append(_BRACKETS[character])
        elif closings and character == closings[-1]:
            closings.pop()
            if not closings:
                last = text[start:place].strip()
                return [*pieces, last] if last else pieces
        elif character == "," and len(closings) == 1:
            pieces.append(text[start:place].strip())
            start = place + 1
    return pieces
