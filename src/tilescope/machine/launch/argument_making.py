"""Described arguments made: arrays filled and placed, maps over them, addresses into them.

    f16:256x192, map:0,box=64x128, 256     [array, TensorMap(…, address of the array), 256]

Random numbers depend only on the number of the argument: every run of a launch has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.launch.argument_text import ARGUMENT_TEXT, missing_arrays, of_argument
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


class MadeArguments(NamedTuple):
    """Arguments of a launch, and the arrays among them by the number of their argument."""

    arguments: list[Argument]
    arrays: dict[int, Array]


def made_arguments(
    descriptions: Sequence[ArgumentDescription], memory: Memory, read: ReadArray = read_array
) -> MadeArguments:
    """The arguments, their arrays placed in `memory`; a RuleError names everything that is wrong with them.

    `read` gives the array of a file by its name.

    >>> made = made_arguments([ArrayArgument(data_type="f16", shape=(64, 64)), NumberArgument(value=64)], Memory())
    >>> made.arrays[0].dtype, made.arrays[0].shape, made.arguments[1]
    (dtype('float16'), (64, 64), 64)
    """
    return _Maker(descriptions, memory, read).made()


class _Maker:
    """Makes arrays first, since maps and pointers may come before the arrays that they refer to."""

    def __init__(self, descriptions: Sequence[ArgumentDescription], memory: Memory, read: ReadArray) -> None:
        self._descriptions = descriptions
        self._memory = memory
        self._read = read
        self._problems: list[Violation] = []
        self._arrays: dict[int, Array] = {}
        self._numbers = {one.name: index for index, one in enumerate(descriptions) if one.name}

    def made(self) -> MadeArguments:
        self._problems += missing_arrays(dict(enumerate(self._descriptions)))
        for index, one in enumerate(self._descriptions):
            own = own_array(one)
            if own is not None:
                array = self._attempted(index, own)
                if array is not None:
                    self._arrays[index] = array
                    self._memory.place(array)
        arguments: list[Argument] = []
        for index, one in enumerate(self._descriptions):
            try:
                arguments.append(self._argument(index, one))
            except RuleError as error:
                self._problems += [of_argument(index, violation) for violation in error.violations]
        raise_all(self._problems)
        return MadeArguments(arguments, self._arrays)

    def _attempted(self, index: int, described: ArrayArgument) -> Array | None:
        try:
            return array_of(described, index, self._read)
        except RuleError as error:
            self._problems += [of_argument(index, violation) for violation in error.violations]
            return None

    def _argument(self, index: int, one: ArgumentDescription) -> Argument:
        match one:
            case NumberArgument():
                return one.value
            case BytesArgument():
                return bytes.fromhex(one.content)
            case ArrayArgument():
                return self._arrays.get(index)
            case PointerArgument():
                return self._pointer(index, one)
            case MapArgument():
                array = self._arrays.get(index) if own_array(one) is not None else self._meant(one)
                return None if array is None else map_over(array, self._memory, one)

    def _pointer(self, index: int, one: PointerArgument) -> int | None:
        array = self._meant(one)
        if array is None:
            return None
        if not 0 <= one.offset_bytes <= array.nbytes:
            raise OUTSIDE.error(index=index, offset=one.offset_bytes, reference=one.array, size_bytes=array.nbytes)
        return self._memory.place(array) + one.offset_bytes

    def _meant(self, one: MapArgument | PointerArgument) -> Array | None:
        """The array of the argument that a map or pointer refers to; None if something is wrong with that argument."""
        place = self._numbers.get(one.array) if isinstance(one.array, str) else one.array
        assert not isinstance(place, ArrayArgument)
        return None if place is None else self._arrays.get(place)


def map_over(array: Array, memory: Memory, one: MapArgument) -> AnyMap:
    """The map over a placed array: its type, dims and strides, with the options of the argument in their place."""
    own = {
        "data_type": DataType.named(array.dtype).tma.name,
        "dims": array.shape[::-1],
        "address": memory.place(array),
    }
    return MapArguments.of({**own, **one.options}).completed().tensor_map()


def array_of(described: ArrayArgument, index: int, read: ReadArray = read_array) -> Array:
    """The array that is described, writable and with rows that follow each other."""
    if described.file:
        return _from_file(described, index, read)
    row = DataType.named(described.data_type)
    if row.is_packed or row.numpy_name is None:
        raise PACKED_TYPE.error(index=index, data_type=described.data_type)
    size_bytes = prod(described.shape) * row.bits // 8
    if size_bytes > LARGEST_ARRAY_BYTES:
        raise TOO_LARGE.error(
            index=index,
            shape=described.shape,
            data_type=described.data_type,
            size_bytes=size_bytes,
            most_bytes=LARGEST_ARRAY_BYTES,
        )
    return filled_array(row, described.shape, described.fill, index)


def filled_array(row: DataType, shape: tuple[int, ...], fill: str, seed: int) -> Array:
    """An array of zeros, ones, counted or random numbers.

    Random floats are normal, random integers at most 16. Counted numbers begin again at 0 where the type stops being
    exact, so that every element is a whole number.

    >>> filled_array(DataType.named("e4m3"), (18,), "arange", 0)[15:].tolist()
    [15.0, 16.0, 0.0]
    """
    dtype = row.numpy
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "arange":
        counted = np.arange(prod(shape)) % (_exact_integers(dtype) + 1 if row.is_float else 1 << 62)
        return counted.astype(dtype).reshape(shape)
    random = np.random.default_rng(seed)
    if row.is_float:
        normal = random.standard_normal(shape, np.float64 if row.bits == 64 else np.float32)
        return normal.astype(dtype)
    least = 1 - _SMALL_INTEGERS_END if np.issubdtype(dtype, np.signedinteger) else 0
    return random.integers(least, _SMALL_INTEGERS_END, shape).astype(dtype)


def _exact_integers(dtype: np.dtype[Any]) -> int:
    """The largest power of two up to which a float type holds every integer."""
    count = 1
    while count < 1 << 53 and np.array(2 * count - 1).astype(dtype).astype(np.float64) == 2 * count - 1:
        count *= 2
    return count


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether elements are integers or floats: complex numbers, texts and dates have no PTX type."""
    try:
        DataType.named(dtype)
    except RuleError:
        return False
    return True


def _from_file(described: ArrayArgument, index: int, read: ReadArray) -> Array:
    file = described.file
    try:
        held = read(file)
    except (OSError, ValueError) as error:
        if isinstance(error, RuleError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UNREADABLE.error(index=index, file=file, reason=reason) from None
    is_bare = held.dtype.type is np.void
    if is_bare and not described.data_type:
        example = {1: "e4m3", 2: "bf16"}.get(held.dtype.itemsize, "u8")
        raise BARE_ELEMENTS.error(index=index, file=file, held_type=held.dtype.str, example=example)
    if not is_bare and not _is_numeric(held.dtype):
        raise NOT_NUMBERS.error(index=index, file=file, held_type=str(held.dtype))
    held = np.atleast_1d(held)  # a single number is an array of one element
    dtype = DataType.named(described.data_type).numpy if described.data_type else held.dtype
    shape = described.shape or held.shape
    is_named = is_bare and held.dtype.itemsize == dtype.itemsize
    if held.shape != shape or (held.dtype != dtype and not is_named):
        own_name = described.data_type if is_named else str(held.dtype)
        raise OTHER_FILE.error(
            index=index,
            file=file,
            held_shape=held.shape,
            held_type=str(held.dtype),
            shape=shape,
            data_type=described.data_type or str(dtype),
            fix=f"{own_name}:{by(held.shape).replace(' ', '')}@{file}",
        )
    return np.array(held, order="C").view(dtype)
