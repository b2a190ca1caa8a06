"""Arguments of a launch as text, for the command line.

f16:256x192            an array of random numbers, the same every time; also f16:256x192:zeros, :ones, :arange
f16:256x192@a.npy      an array from a file; bf16@a.npy has the file's shape, @a.npy its type too
map:0,box=64x128       a tensor map over the array of argument 0; options as TensorMap and Im2colMap have them
map:f16:256x192,box=…  a tensor map over its own array, to which no other parameter points
ptr:0+1024             an address inside the array of argument 0
7   0x40   -1.5        numbers
bytes:00ff             a struct by value
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.launch.launch_description import (
    FILLS,
    ArgumentDescription,
    ArrayArgument,
    BytesArgument,
    FillName,
    MapArgument,
    NumberArgument,
    PointerArgument,
    own_array,
)
from tilescope.names import nearest_name
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.written import number

FORMS = "f16:256x192, @a.npy, map:0,box=64x128, ptr:0+1024, 7, 1.5 or bytes:00ff"

ARGUMENT_TEXT = rule(
    "launch-argument",
    "An argument of a launch is an array, a map over an array, an address in an array, a number, or bytes.",
    argument="argument {index}",
    found="argument {index}: {text}",
    limit=f"one of {FORMS}",
    fix="Write a number, or an array as TYPE:SHAPE, such as f32:1024.",
    source="the command line",
    passing='ts.machine.launch.argument_text.parse_argument("f16:256x192")',
    failing='ts.machine.launch.argument_text.parse_argument("sixteen")',
)
NO_SHAPE = ARGUMENT_TEXT.worded(
    found="argument {index}: {text} has the shape {shape!r}",
    limit="extents with x between them, each at least 1",
    fix="Write {data_type}:256x192, for example.",
)
NO_FILL = ARGUMENT_TEXT.worded(
    found="argument {index}: {text} is filled with {fill!r}",
    limit="{known:, }",
    fix="[[Did you mean {nearest}? ]]Write {data_type}:{shape}:zeros, for example.",
)
FILL_FIRST = ARGUMENT_TEXT.worded(
    limit="TYPE:SHAPE:FILL, in this order",
    fix="Write {reordered}.",
)
NO_REFERENCE = ARGUMENT_TEXT.worded(
    found="argument {index}: {text} names no array",
    limit="the number of an argument that is an array, counted from 0; a map may describe its own array: map:f16:64x64,box=64x64",
    fix="Write {kind}:0{rest}, for example.",
)
NO_OPTION = ARGUMENT_TEXT.worded(
    found="argument {index}: {option!r} in {text}",
    limit="options of a map are NAME=VALUE with commas between them",
    fix="Write box=64x128, for example.",
)
NO_ARRAY = ARGUMENT_TEXT.worded(
    found="argument {index} refers to the array of argument {reference}",
    limit="arguments with arrays: {known:, }",
    fix="Use {example}.",
)
NO_ARRAYS = NO_ARRAY.worded(
    limit="no argument is an array",
    fix="Describe an array in its place, such as map:f16:64x64,box=64x64.",
)
NO_BYTES = ARGUMENT_TEXT.worded(
    found="argument {index}: {text}",
    limit="whole bytes in hexadecimal, two digits each",
    fix="Write bytes:00ff, for example.",
)

_MAP = re.compile(r"map:(?P<array>[^,]*)(?:,(?P<options>.*))?", re.DOTALL)
_NUMBER = re.compile(r"\d{1,9}")
_POINTER = re.compile(r"ptr:(?P<array>\d{1,9})(?:\+(?P<offset>\w+))?")
_ARRAY = re.compile(r"(?P<type>[A-Za-z][\w.]*)(?::(?P<shape>[^:@]*))?(?::(?P<fill>[^:@]*))?(?:@(?P<file>.+))?")
_SHAPE = re.compile(r"\d{1,18}(x\d{1,18})*")
_SEVERAL = re.compile(r"-?\d{1,18}(x-?\d{1,18})*")


def parse_argument(text: str, index: int = 0) -> ArgumentDescription:
    """Parse an argument; `index` is its position among the arguments.

    >>> parse_argument("f16:256x192")
    ArrayArgument(data_type='f16', shape=(256, 192))
    >>> parse_argument("map:0,box=64x128,swizzle=128B").options
    {'box': (64, 128), 'swizzle': '128B'}
    >>> parse_argument("0x40").value, parse_argument("1e-3").value
    (64, 0.001)
    """
    stripped = text.strip()
    value = _parse_number(stripped)
    if value is not None:
        return NumberArgument(value=value)
    if stripped.startswith("map:"):
        return _parse_map(stripped, index)
    if stripped.startswith("ptr:"):
        return _parse_pointer(stripped, index)
    if stripped.startswith("bytes:"):
        return _parse_bytes(stripped, index)
    return _parse_array(stripped, index)


def parse_arguments(texts: Iterable[str]) -> tuple[ArgumentDescription, ...]:
    """Parse the arguments of a launch; a RuleError names every text that is not an argument.

    >>> [argument.kind for argument in parse_arguments(["f32:1000", "7"])]
    ['array_argument', 'number_argument']
    """
    problems: list[Violation] = []
    arguments: dict[int, ArgumentDescription] = {}
    listed = list(texts)
    for index, text in enumerate(listed):
        try:
            arguments[index] = parse_argument(text, index)
        except RuleError as error:
            problems += error.violations
    unread = [index for index in range(len(listed)) if index not in arguments]  # each may be a misspelt array
    problems += find_missing_arrays(arguments, unread)
    raise_all(problems)
    return tuple(arguments.values())


def format_arguments(arguments: Sequence[ArgumentDescription]) -> tuple[str, ...]:
    """The arguments of a launch as text that `parse_arguments` accepts.

    >>> format_arguments([ArrayArgument(data_type="f16", shape=(256, 192), name="a"), MapArgument(array="a", options={"box": (64, 8)})])
    ('f16:256x192', 'map:0,box=64x8')
    """
    numbers = {argument.name: number for number, argument in enumerate(arguments) if argument.name}
    return tuple(_format_argument(argument, numbers) for argument in arguments)


def _format_argument(argument: ArgumentDescription, numbers: Mapping[str, int]) -> str:
    match argument:
        case NumberArgument():
            return repr(argument.value)
        case BytesArgument():
            return f"bytes:{argument.content}"
        case ArrayArgument():
            return _format_array(argument)
        case PointerArgument():
            return f"ptr:{_format_reference(argument.array, numbers)}+{argument.offset_bytes}"
    if isinstance(argument.array, ArrayArgument):
        array = _format_array(argument.array)
    else:
        array = _format_reference(argument.array, numbers)
    options = [f"{name}={_format_option(value)}" for name, value in argument.options.items()]
    return ",".join([f"map:{array}", *options])


def _format_reference(array: int | str, numbers: Mapping[str, int]) -> str:
    """The number of the argument with this name; a name that no argument has stays."""
    return str(numbers.get(array, array) if isinstance(array, str) else array)


def _format_array(array: ArrayArgument) -> str:
    parts = [array.data_type]
    if array.shape:
        parts.append("x".join(map(str, array.shape)))
    if array.file:
        return f"{':'.join(parts)}@{array.file}"
    return ":".join(parts if array.fill == "random" else [*parts, array.fill])


def _format_option(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def find_missing_arrays(
    arguments: Mapping[int, ArgumentDescription], unread: Collection[int] = ()
) -> Iterator[Violation]:
    """Violations of maps and pointers that refer to an argument without an array; `unread` may still have one."""
    array_indices = tuple(index for index, argument in arguments.items() if own_array(argument) is not None)
    numbers = {argument.name: index for index, argument in arguments.items() if argument.name}
    for index, argument in arguments.items():
        if not isinstance(argument, MapArgument | PointerArgument) or isinstance(argument.array, ArrayArgument):
            continue
        target = numbers.get(argument.array) if isinstance(argument.array, str) else argument.array
        if target in array_indices or target in unread:
            continue
        if array_indices:
            yield NO_ARRAY.violation(
                index=index, reference=argument.array, known=array_indices, example=array_indices[0]
            )
        else:
            yield NO_ARRAYS.violation(index=index, reference=argument.array)


def _parse_number(text: str) -> int | float | None:
    try:
        return number(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _parse_array(text: str, index: int) -> ArrayArgument:
    if text.startswith("@") and len(text) > 1:
        return ArrayArgument(file=text[1:])
    match = _ARRAY.fullmatch(text)
    if match is None or (match["shape"] is None and match["file"] is None):
        raise ARGUMENT_TEXT.error(index=index, text=shorten(text) or "nothing")
    if match["type"] in FILLS and match["file"] is None:
        fill, *rest = text.split(":")
        reordered = ":".join([*rest, fill] if len(rest) > 1 else ["f32", *rest, fill])
        raise FILL_FIRST.error(index=index, text=shorten(text), reordered=shorten(reordered))
    _require_type(match["type"], index)
    shape: tuple[int, ...] = ()
    if match["shape"] is not None:
        shape = _parse_shape(match["shape"], text, index, match["type"])
    fill = _parse_fill(match["fill"], index, match)
    return ArrayArgument(data_type=match["type"], shape=shape, fill=fill, file=match["file"] or "")


def _require_type(data_type: str, index: int) -> None:
    try:
        DataType.named(data_type)
    except RuleError as error:
        raise RuleError(attribute_to_argument(index, violation) for violation in error.violations) from None


def attribute_to_argument(index: int, violation: Violation) -> Violation:
    """A violation of another rule, such as a tensor map's, with the index of the launch argument that caused it."""
    if violation.rule == ARGUMENT_TEXT.name:
        return violation
    return replace(
        violation,
        argument=f"argument {index}: {violation.argument}",
        found=f"argument {index}: {violation.found}",
        values={**violation.values, "index": index},
    )


def _parse_shape(shape: str, text: str, index: int, data_type: str) -> tuple[int, ...]:
    extents = tuple(int(extent) for extent in shape.split("x")) if _SHAPE.fullmatch(shape) else (0,)
    if min(extents) < 1:
        raise NO_SHAPE.error(index=index, text=shorten(text), shape=shorten(shape, 40), data_type=data_type)
    return extents


def _parse_fill(fill: str | None, index: int, array: re.Match[str]) -> FillName:
    if fill is None:
        return "random"
    for name in FILLS:
        if name == fill:
            return name
    raise NO_FILL.error(
        index=index,
        text=shorten(array[0]),
        fill=shorten(fill, 40),
        known=FILLS,
        nearest=nearest_name(fill, FILLS),
        data_type=array["type"],
        shape=array["shape"],
    )


def _parse_map(text: str, index: int) -> MapArgument:
    match = _MAP.fullmatch(text)
    if match is None or not match["array"]:
        raise NO_REFERENCE.error(index=index, text=shorten(text), kind="map", rest=",box=64x64")
    array: int | ArrayArgument
    array = int(match["array"]) if _NUMBER.fullmatch(match["array"]) else _parse_array(match["array"], index)
    options: dict[str, object] = {}
    for option in (match["options"] or "").split(","):
        name, _, value = option.partition("=")
        if option.strip() and not value:
            raise NO_OPTION.error(index=index, text=shorten(text), option=shorten(option, 40))
        if option.strip():
            options[name.strip()] = _parse_option(name.strip(), value.strip())
    return MapArgument(array=array, options=options)


_SEQUENCES = frozenset({"box", "dims", "strides_bytes", "element_strides", "lower_corner", "upper_corner"})


def _parse_option(name: str, written: str) -> object:
    """The value of a map's option: a sequence where the map takes one, an integer, or a name."""
    if name in _SEQUENCES and _SEVERAL.fullmatch(written):
        return tuple(int(entry) for entry in written.split("x"))
    try:
        return number(written)
    except ValueError:
        return written


def _parse_pointer(text: str, index: int) -> PointerArgument:
    match = _POINTER.fullmatch(text)
    offset = _parse_number(match["offset"] or "0") if match is not None else None
    if match is None or not isinstance(offset, int):
        raise NO_REFERENCE.error(index=index, text=shorten(text), kind="ptr", rest="+1024")
    return PointerArgument(array=int(match["array"]), offset_bytes=offset)


def _parse_bytes(text: str, index: int) -> BytesArgument:
    digits = text.removeprefix("bytes:").replace(" ", "").replace("_", "").removeprefix("0x")
    try:
        content = bytes.fromhex(digits)
    except ValueError:
        raise NO_BYTES.error(index=index, text=shorten(text)) from None
    return BytesArgument(content=content.hex())
