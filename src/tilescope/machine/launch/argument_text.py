"""Arguments of a launch as people write them on a command line.

f16:256x192            an array of random numbers, the same every time; also f16:256x192:zeros, :ones, :arange
f16:256x192@a.npy      an array from a file; bf16@a.npy has the file's shape, @a.npy its type too
map:0,box=64x128       a tensor map over the array of argument 0; options as TensorMap and Im2colMap have them
map:f16:256x192,box=…  a tensor map over an array of its own, to which no other parameter points
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
from tilescope.sentence import shortened
from tilescope.written import number

FORMS = "f16:256x192, @a.npy, map:0,box=64x128, ptr:0+1024, 7, 1.5 or bytes:00ff"

ARGUMENT_TEXT = rule(
    "launch-argument",
    "An argument of a launch is written as an array, a map over one, an address in one, a number or bytes.",
    argument="argument {index}",
    found="argument {index}: {text}",
    limit=f"one of {FORMS}",
    fix="Write a number, or an array as TYPE:SHAPE, such as f32:1024.",
    source="the command line",
    passing='ts.machine.launch.argument_text.read_argument("f16:256x192")',
    failing='ts.machine.launch.argument_text.read_argument("sixteen")',
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


def read_argument(text: str, index: int = 0) -> ArgumentDescription:
    """The argument that a text describes; `index` is its place among the arguments.

    >>> read_argument("f16:256x192")
    ArrayArgument(data_type='f16', shape=(256, 192))
    >>> read_argument("map:0,box=64x128,swizzle=128B").options
    {'box': (64, 128), 'swizzle': '128B'}
    >>> read_argument("0x40").value, read_argument("1e-3").value
    (64, 0.001)
    """
    stripped = text.strip()
    value = _plain_number(stripped)
    if value is not None:
        return NumberArgument(value=value)
    if stripped.startswith("map:"):
        return _map(stripped, index)
    if stripped.startswith("ptr:"):
        return _pointer(stripped, index)
    if stripped.startswith("bytes:"):
        return _bytes(stripped, index)
    return _array(stripped, index)


def read_arguments(texts: Iterable[str]) -> tuple[ArgumentDescription, ...]:
    """The arguments of a launch in their order; a RuleError names every text that is not an argument.

    >>> [one.kind for one in read_arguments(["f32:1000", "7"])]
    ['array_argument', 'number_argument']
    """
    problems: list[Violation] = []
    arguments: dict[int, ArgumentDescription] = {}
    listed = list(texts)
    for index, text in enumerate(listed):
        try:
            arguments[index] = read_argument(text, index)
        except RuleError as error:
            problems += error.violations
    unread = [index for index in range(len(listed)) if index not in arguments]  # these may have been meant as arrays
    problems += missing_arrays(arguments, unread)
    raise_all(problems)
    return tuple(arguments.values())


def argument_words(arguments: Sequence[ArgumentDescription]) -> tuple[str, ...]:
    """The arguments of a launch as people write them: what `read_arguments` reads.

    >>> argument_words([ArrayArgument(data_type="f16", shape=(256, 192), name="a"), MapArgument(array="a", options={"box": (64, 8)})])
    ('f16:256x192', 'map:0,box=64x8')
    """
    numbers = {one.name: number for number, one in enumerate(arguments) if one.name}
    return tuple(_words(one, numbers) for one in arguments)


def _words(one: ArgumentDescription, numbers: Mapping[str, int]) -> str:
    match one:
        case NumberArgument():
            return repr(one.value)
        case BytesArgument():
            return f"bytes:{one.content}"
        case ArrayArgument():
            return _array_words(one)
        case PointerArgument():
            return f"ptr:{_reference(one.array, numbers)}+{one.offset_bytes}"
    array = _array_words(one.array) if isinstance(one.array, ArrayArgument) else _reference(one.array, numbers)
    options = [f"{name}={_option_words(value)}" for name, value in one.options.items()]
    return ",".join([f"map:{array}", *options])


def _reference(array: int | str, numbers: Mapping[str, int]) -> str:
    """The number of the argument that has this name, as text; a name that no argument has is kept."""
    return str(numbers.get(array, array) if isinstance(array, str) else array)


def _array_words(array: ArrayArgument) -> str:
    parts = [array.data_type]
    if array.shape:
        parts.append("x".join(map(str, array.shape)))
    if array.file:
        return f"{':'.join(parts)}@{array.file}"
    return ":".join(parts if array.fill == "random" else [*parts, array.fill])


def _option_words(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def missing_arrays(arguments: Mapping[int, ArgumentDescription], unread: Collection[int] = ()) -> Iterator[Violation]:
    """What is wrong with arguments that refer to the array of another one, by its number or its name."""
    known = tuple(index for index, one in arguments.items() if own_array(one) is not None)
    names = {one.name: index for index, one in arguments.items() if one.name}
    for index, one in arguments.items():
        if not isinstance(one, MapArgument | PointerArgument) or isinstance(one.array, ArrayArgument):
            continue
        place = names.get(one.array) if isinstance(one.array, str) else one.array
        if place in known or place in unread:
            continue
        if known:
            yield NO_ARRAY.violation(index=index, reference=one.array, known=known, example=known[0])
        else:
            yield NO_ARRAYS.violation(index=index, reference=one.array)


def _plain_number(said: str) -> int | float | None:
    try:
        return number(said)
    except ValueError:
        pass
    try:
        return float(said)
    except ValueError:
        return None


def _array(said: str, index: int) -> ArrayArgument:
    if said.startswith("@") and len(said) > 1:
        return ArrayArgument(file=said[1:])
    found = _ARRAY.fullmatch(said)
    if found is None or (found["shape"] is None and found["file"] is None):
        raise _refused(said, index)
    _require_type(found["type"], index)
    shape: tuple[int, ...] = ()
    if found["shape"] is not None:
        shape = _shape(found["shape"], said, index, found["type"])
    fill = _fill(found["fill"], said, index, found)
    return ArrayArgument(data_type=found["type"], shape=shape, fill=fill, file=found["file"] or "")


def _require_type(data_type: str, index: int) -> None:
    try:
        DataType.named(data_type)
    except RuleError as error:
        raise RuleError(of_argument(index, violation) for violation in error.violations) from None


def of_argument(index: int, violation: Violation) -> Violation:
    """A violation of another rule, such as a map's, with the argument that it is about."""
    if violation.rule == ARGUMENT_TEXT.name:
        return violation
    return replace(
        violation,
        argument=f"argument {index}: {violation.argument}",
        found=f"argument {index}: {violation.found}",
        values={**violation.values, "index": index},
    )


def _shape(shape: str, said: str, index: int, data_type: str) -> tuple[int, ...]:
    extents = tuple(int(extent) for extent in shape.split("x")) if _SHAPE.fullmatch(shape) else (0,)
    if min(extents) < 1:
        raise NO_SHAPE.error(index=index, text=shortened(said), shape=shortened(shape, 40), data_type=data_type)
    return extents


def _fill(fill: str | None, said: str, index: int, found: re.Match[str]) -> FillName:
    if fill is None:
        return "random"
    for known in FILLS:
        if known == fill:
            return known
    raise NO_FILL.error(
        index=index,
        text=shortened(said),
        fill=shortened(fill, 40),
        known=FILLS,
        nearest=nearest_name(fill, FILLS),
        data_type=found["type"],
        shape=found["shape"],
    )


def _map(said: str, index: int) -> MapArgument:
    found = _MAP.fullmatch(said)
    if found is None or not found["array"]:
        raise NO_REFERENCE.error(index=index, text=shortened(said), kind="map", rest=",box=64x64")
    array: int | ArrayArgument
    array = int(found["array"]) if _NUMBER.fullmatch(found["array"]) else _array(found["array"], index)
    options: dict[str, object] = {}
    for option in (found["options"] or "").split(","):
        name, _, value = option.partition("=")
        if option.strip() and not value:
            raise NO_OPTION.error(index=index, text=shortened(said), option=shortened(option, 40))
        if option.strip():
            options[name.strip()] = _option_value(name.strip(), value.strip())
    return MapArgument(array=array, options=options)


_SEQUENCES = frozenset({"box", "dims", "strides_bytes", "element_strides", "lower_corner", "upper_corner"})


def _option_value(name: str, written: str) -> object:
    """A sequence where the map takes one, an integer where one is written; else a name."""
    if name in _SEQUENCES and _SEVERAL.fullmatch(written):
        return tuple(int(entry) for entry in written.split("x"))
    try:
        return number(written)
    except ValueError:
        return written


def _pointer(said: str, index: int) -> PointerArgument:
    found = _POINTER.fullmatch(said)
    offset = _plain_number(found["offset"] or "0") if found is not None else None
    if found is None or not isinstance(offset, int):
        raise NO_REFERENCE.error(index=index, text=shortened(said), kind="ptr", rest="+1024")
    return PointerArgument(array=int(found["array"]), offset_bytes=offset)


def _bytes(said: str, index: int) -> BytesArgument:
    digits = said.removeprefix("bytes:").replace(" ", "").replace("_", "").removeprefix("0x")
    try:
        content = bytes.fromhex(digits)
    except ValueError:
        raise NO_BYTES.error(index=index, text=shortened(said)) from None
    return BytesArgument(content=content.hex())


def _refused(said: str, index: int) -> RuleError:
    return ARGUMENT_TEXT.error(index=index, text=shortened(said) or "nothing")
