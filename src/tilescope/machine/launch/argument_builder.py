"""Build the arguments that a launch describes: arrays in memory, tensor maps over them, addresses into them.

    f16:256x192, map:0,box=64x128, 256     [array, TensorMap(…, address of the array), 256]

The index of an argument seeds its random numbers: every run of a launch has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.launch.argument_text import ARGUMENT_TEXT, attribute_to_argument, find_missing_arrays
from tilescope.machine.launch.kernel_arguments import Argument
from tilescope.machine.launch.launch_description import (
    ArgumentDescription,
    ArrayArgument,
    BytesArgument,
    MapArgument,
    NumberArgument,
    PointerArgument,
    own_array,
)
from tilescope.machine.memory import Memory
from tilescope.sentence import by
from tilescope.tensor_map import AnyMap, MapArguments
from tilescope.tma.array_file import read_array

Array = npt.NDArray[Any]
ReadArray = Callable[[str], Array]

LARGEST_ARRAY_BYTES = 1 << 30
_SMALL_INTEGERS_END = 17  # random integers: -16 to 16, or 0 to 16

TOO_LARGE = ARGUMENT_TEXT.worded(
    found="argument {index}: {shape: x } elements of {data_type}, {size_bytes} bytes",
    limit="an array of a launch has at most {most_bytes} bytes",
    fix="Use fewer elements, and a smaller grid.",
)
PACKED_TYPE = ARGUMENT_TEXT.worded(
    found="argument {index}: elements of {data_type}, of which several share a byte",
    limit="an array has elements of whole bytes",
    fix="Use u8, and the shape in bytes.",
)
OTHER_FILE = ARGUMENT_TEXT.worded(
    found="argument {index}: {file} holds {held_shape: x } elements of {held_type}",
    limit="{shape: x } elements of {data_type} are described",
    fix="Write {fix}, or save another array.",
)
BARE_ELEMENTS = ARGUMENT_TEXT.worded(
    found="argument {index}: {file} has elements of {held_type}, which say no type",
    limit="a type of their width names them",
    fix="Write {example}@{file}, for example.",
)
NOT_NUMBERS = ARGUMENT_TEXT.worded(
    found="argument {index}: {file} has elements of {held_type}",
    limit="an array of a launch has integers or floats",
    fix="Save it as one, such as np.save(file, array.view(np.uint8)).",
)
UNREADABLE = ARGUMENT_TEXT.worded(
    found="argument {index}: {file}: {reason}",
    limit="a file that np.save wrote",
    fix="Name a file that exists, or write the array as TYPE:SHAPE.",
)
OUTSIDE = ARGUMENT_TEXT.worded(
    found="argument {index} points at byte {offset} of argument {reference}",
    limit="its array has {size_bytes} bytes",
    fix="Use an offset from 0 to {size_bytes}.",
)


class BuiltArguments(NamedTuple):
    """Arguments of a launch, and the arrays among them by the number of their argument."""

    arguments: list[Argument]
    arrays: dict[int, Array]


def build_arguments(
    descriptions: Sequence[ArgumentDescription], memory: Memory, read: ReadArray = read_array
) -> BuiltArguments:
    """Build arguments and place their arrays in `memory`; a RuleError reports every problem.

    `read` returns the array of a file by its name.

    >>> built = build_arguments([ArrayArgument(data_type="f16", shape=(64, 64)), NumberArgument(value=64)], Memory())
    >>> built.arrays[0].dtype, built.arrays[0].shape, built.arguments[1]
    (dtype('float16'), (64, 64), 64)
    """
    return _Builder(descriptions, memory, read).build()


class _Builder:
    """Builds arrays first, since maps and pointers may come before the arrays that they refer to."""

    def __init__(self, descriptions: Sequence[ArgumentDescription], memory: Memory, read: ReadArray) -> None:
        self._descriptions = descriptions
        self._memory = memory
        self._read = read
        self._problems: list[Violation] = []
        self._arrays: dict[int, Array] = {}
        self._numbers = {argument.name: index for index, argument in enumerate(descriptions) if argument.name}

    def build(self) -> BuiltArguments:
        self._problems += find_missing_arrays(dict(enumerate(self._descriptions)))
        for index, description in enumerate(self._descriptions):
            array_description = own_array(description)
            array = None if array_description is None else self._try_array(index, array_description)
            if array is not None:
                self._arrays[index] = array
                self._memory.place(array)
        arguments: list[Argument] = []
        for index, description in enumerate(self._descriptions):
            try:
                arguments.append(self._build_argument(index, description))
            except RuleError as error:
                self._problems += [attribute_to_argument(index, violation) for violation in error.violations]
        raise_all(self._problems)
        return BuiltArguments(arguments, self._arrays)

    def _try_array(self, index: int, description: ArrayArgument) -> Array | None:
        try:
            return build_array(description, index, self._read)
        except RuleError as error:
            self._problems += [attribute_to_argument(index, violation) for violation in error.violations]
            return None

    def _build_argument(self, index: int, argument: ArgumentDescription) -> Argument:
        match argument:
            case NumberArgument():
                return argument.value
            case BytesArgument():
                return bytes.fromhex(argument.content)
            case ArrayArgument():
                return self._arrays.get(index)
            case PointerArgument():
                return self._resolve_pointer(index, argument)
            case MapArgument():
                is_own = own_array(argument) is not None
                array = self._arrays.get(index) if is_own else self._find_array(argument)
                return None if array is None else build_map(array, self._memory, argument)

    def _resolve_pointer(self, index: int, pointer: PointerArgument) -> int | None:
        array = self._find_array(pointer)
        if array is None:
            return None
        if not 0 <= pointer.offset_bytes <= array.nbytes:
            raise OUTSIDE.error(
                index=index, offset=pointer.offset_bytes, reference=pointer.array, size_bytes=array.nbytes
            )
        return self._memory.place(array) + pointer.offset_bytes

    def _find_array(self, argument: MapArgument | PointerArgument) -> Array | None:
        """The array that a map or pointer refers to; None if that argument could not be built."""
        number = self._numbers.get(argument.array) if isinstance(argument.array, str) else argument.array
        assert not isinstance(number, ArrayArgument)
        return None if number is None else self._arrays.get(number)


def build_map(array: Array, memory: Memory, argument: MapArgument) -> AnyMap:
    """The tensor map over a placed array: the array's type and dims, overridden by the options of the argument."""
    defaults = {
        "data_type": DataType.named(array.dtype).tma.name,
        "dims": array.shape[::-1],
        "address": memory.place(array),
    }
    return MapArguments.of({**defaults, **argument.options}).completed().tensor_map()


def build_array(description: ArrayArgument, index: int, read: ReadArray = read_array) -> Array:
    """The array that an argument describes, writable and C-contiguous."""
    if description.file:
        return _read_file(description, index, read)
    row = DataType.named(description.data_type)
    if row.is_packed or row.numpy_name is None:
        raise PACKED_TYPE.error(index=index, data_type=description.data_type)
    size_bytes = prod(description.shape) * row.bits // 8
    if size_bytes > LARGEST_ARRAY_BYTES:
        raise TOO_LARGE.error(
            index=index,
            shape=description.shape,
            data_type=description.data_type,
            size_bytes=size_bytes,
            most_bytes=LARGEST_ARRAY_BYTES,
        )
    return fill_array(row, description.shape, description.fill, index)


def fill_array(row: DataType, shape: tuple[int, ...], fill: str, seed: int) -> Array:
    """An array of zeros, ones, counted or random numbers.

    Random floats are normally distributed, random integers are at most 16. Counting restarts at 0 where the type stops
    being exact, so that every element is an integer.

    >>> fill_array(DataType.named("e4m3"), (18,), "arange", 0)[15:].tolist()
    [15.0, 16.0, 0.0]
    """
    dtype = row.numpy
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "arange":
        numbers = np.arange(prod(shape)) % (_count_exact_integers(dtype) + 1 if row.is_float else 1 << 62)
        return numbers.astype(dtype).reshape(shape)
    random = np.random.default_rng(seed)
    if row.is_float:
        normal = random.standard_normal(shape, np.float64 if row.bits == 64 else np.float32)
        return normal.astype(dtype)
    least = 1 - _SMALL_INTEGERS_END if np.issubdtype(dtype, np.signedinteger) else 0
    return random.integers(least, _SMALL_INTEGERS_END, shape).astype(dtype)


def _count_exact_integers(dtype: np.dtype[Any]) -> int:
    """The largest power of two up to which a float type holds every integer."""
    count = 1
    while count < 1 << 53 and np.array(2 * count - 1).astype(dtype).astype(np.float64) == 2 * count - 1:
        count *= 2
    return count


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether elements are integers or floats: complex numbers, strings and dates have no PTX type."""
    return DataType.knows(dtype)


def _read_file(description: ArrayArgument, index: int, read: ReadArray) -> Array:
    file = description.file
    try:
        array = read(file)
    except (OSError, ValueError) as error:
        if isinstance(error, RuleError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UNREADABLE.error(index=index, file=file, reason=reason) from None
    is_untyped = array.dtype.type is np.void
    if is_untyped and not description.data_type:
        example = {1: "e4m3", 2: "bf16"}.get(array.dtype.itemsize, "u8")
        raise BARE_ELEMENTS.error(index=index, file=file, held_type=array.dtype.str, example=example)
    if not is_untyped and not _is_numeric(array.dtype):
        raise NOT_NUMBERS.error(index=index, file=file, held_type=str(array.dtype))
    array = np.atleast_1d(array)  # a single number is an array of one element
    dtype = DataType.named(description.data_type).numpy if description.data_type else array.dtype
    shape = description.shape or array.shape
    is_named_by_launch = is_untyped and array.dtype.itemsize == dtype.itemsize
    if array.shape != shape or (array.dtype != dtype and not is_named_by_launch):
        type_name = description.data_type if is_named_by_launch else str(array.dtype)
        raise OTHER_FILE.error(
            index=index,
            file=file,
            held_shape=array.shape,
            held_type=str(array.dtype),
            shape=shape,
            data_type=description.data_type or str(dtype),
            fix=f"{type_name}:{by(array.shape).replace(' ', '')}@{file}",
        )
    return np.array(array, order="C").view(dtype)
