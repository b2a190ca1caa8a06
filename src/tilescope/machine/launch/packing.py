"""Pack a struct for a kernel parameter by value: fields in order, each at its alignment, as in C.

struct Params { const half* a; int n; float scale; CUtensorMap map; };

ts.pack(memory, a=array, n=7, scale=0.5, map=tensor_map)

a      0 ┊ 8 bytes       an address
n      8 ┊ 4             int
scale 12 ┊ 4             float
map   64 ┊ 128           a tensor map is aligned to 64 bytes
      192                the size is a multiple of the largest alignment

CUtensorMap is aligned to 64 bytes in cuda.h before CUDA 13, and to 128 bytes from CUDA 13 on, whose PTX has version 9.0. The text
of a kernel tells which, so a launch lays the struct out again for its kernel (`aligned_for`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.launch.host_array import is_array
from tilescope.machine.memory import Memory
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.tensor_map import AnyMap

_MAP_ALIGNMENT_BYTES = 64  # of CUtensorMap in cuda.h before CUDA 13 …
_MAP_ALIGNMENT_BYTES_CUDA_13 = 128  # … and from then on
_PTX_OF_CUDA_13 = (9, 0)
_POINTER_BYTES = 8
_INT_BITS = 32

PACK_FIELD = rule(
    "pack-field",
    "A field of a struct has a type: a numpy scalar, an int or a float of C, a pair such as ('s64', 7), an array, a map or bytes.",
    argument="{name}",
    found="{name} = {shown}",
    limit="a numpy scalar, an int of 32 bits, a float, ('s64', value), an array, a tensor map, bytes, or None for a null pointer",
    fix="Use {name}=np.int64(7), or {name}=('s64', 7), for example.",
    source="the C++ ABI of nvcc: layout of structs",
    passing="ts.pack(n=7, scale=0.5, stride=('s64', 1 << 40))",
    failing="ts.pack(n=1 << 40)",
)
NO_MEMORY = PACK_FIELD.worded(
    found="{name} is an array, and the call has no memory",
    limit="an array has an address when it is placed in a memory",
    fix="Use ts.pack(memory, {name}=array), and run with memory=memory.",
)


class PackedStruct(bytes):
    """The bytes of a struct, with its alignment and the offsets of its fields. A struct can be a field of another one."""

    alignment_bytes: int
    offsets: Mapping[str, int]
    _fields: Mapping[str, _Field]

    @classmethod
    def _of(cls, fields: Mapping[str, _Field]) -> PackedStruct:
        """A struct of these fields, each at its alignment."""
        content = bytearray()
        offsets: dict[str, int] = {}
        alignment_bytes = 1
        for name, field in fields.items():
            offsets[name] = rounded_up(len(content), field.alignment_bytes)
            content = content.ljust(offsets[name], b"\0") + field.content
            alignment_bytes = max(alignment_bytes, field.alignment_bytes)
        packed = cls(content.ljust(rounded_up(len(content), alignment_bytes), b"\0"))
        packed.alignment_bytes = alignment_bytes
        packed.offsets = MappingProxyType(offsets)
        packed._fields = fields
        return packed

    def aligned_for(self, ptx_version: str, size_bytes: int | None = None) -> PackedStruct:
        """The same fields as a kernel of this PTX version has them: from 9.0 on, tensor maps are aligned to 128 bytes.

        If only the other alignment of maps gives a struct of `size_bytes`, that one is taken: cuda.h may be older than nvcc.

        >>> from tilescope.tensor_map import TensorMap
        >>> packed = pack(n=7, map=TensorMap("u8", (64,), (), (64,)))
        >>> packed.aligned_for("8.8").layout, packed.aligned_for("9.0").layout
        ('192 bytes: n at 0, map at 64', '256 bytes: n at 0, map at 128')
        """
        is_cuda_13 = _version_number(ptx_version) >= _PTX_OF_CUDA_13
        old = self._with_maps_at(_MAP_ALIGNMENT_BYTES)
        new = self._with_maps_at(_MAP_ALIGNMENT_BYTES_CUDA_13)
        likely, other = (new, old) if is_cuda_13 else (old, new)
        return other if size_bytes not in (None, len(likely)) and len(other) == size_bytes else likely

    def _with_maps_at(self, map_alignment_bytes: int) -> PackedStruct:
        fields: dict[str, _Field] = {}
        for name, field in self._fields.items():
            if isinstance(field.content, PackedStruct):
                inner = field.content._with_maps_at(map_alignment_bytes)
                fields[name] = _Field(inner, inner.alignment_bytes)
            else:
                fields[name] = field._replace(alignment_bytes=map_alignment_bytes) if field.is_map else field
        return PackedStruct._of(fields)

    @property
    def layout(self) -> str:
        """The size and the offsets of the fields, in one line.

        >>> pack(n=7, stride=np.int64(1)).layout
        '16 bytes: n at 0, stride at 8'
        """
        places = ", ".join(f"{name} at {offset}" for name, offset in self.offsets.items())
        return f"{len(self)} bytes: {places}" if places else f"{len(self)} bytes"


class _Field(NamedTuple):
    content: bytes
    alignment_bytes: int
    is_map: bool = False


def _version_number(ptx_version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in ptx_version.split("."))


def pack(memory: Memory | None = None, /, **fields: Any) -> PackedStruct:
    """The bytes of a struct by value, its fields in the order in which they are named, as C lays them out.

    A Python int is C's int, a float is C's float, a bool has one byte; numpy scalars keep their type, and a pair names one:
    ("s64", 7), or ("f32", [1, 2, 3]) for an array by value. An array is a pointer to it, which needs the `memory` in which it is
    placed; None is a null pointer. A tensor map has 128 bytes at a multiple of 64; a kernel whose PTX has version 9.0 or later,
    that of CUDA 13, gets it at a multiple of 128. Bytes are used as they are; the result of `pack` keeps its alignment, as a struct
    inside a struct does.

    >>> pack(n=7, scale=0.5, stride=np.int64(-1)).hex(" ", 4)
    '07000000 0000003f ffffffff ffffffff'
    >>> memory = Memory()
    >>> pack(memory, flag=True, a=np.zeros(4)).offsets["a"]
    8
    """
    encoded: dict[str, _Field] = {}
    problems: list[Violation] = []
    for name, value in fields.items():
        try:
            encoded[name] = _encode_field(name, value, memory)
        except RuleError as error:
            problems += error.violations
    raise_all(problems)
    return PackedStruct._of(encoded)


def _encode_field(name: str, value: Any, memory: Memory | None) -> _Field:
    if isinstance(value, PackedStruct):
        return _Field(value, value.alignment_bytes)
    if isinstance(value, bytes | bytearray | memoryview):
        return _Field(bytes(value), 1)
    if isinstance(value, AnyMap):
        return _Field(value.encode(), _MAP_ALIGNMENT_BYTES, is_map=True)
    if value is None:
        return _Field(bytes(_POINTER_BYTES), _POINTER_BYTES)
    if is_array(value):
        if memory is None:
            raise NO_MEMORY.error(name=name)
        return _Field(memory.place(value).to_bytes(_POINTER_BYTES, "little"), _POINTER_BYTES)
    return _encode_number(name, value)


def _encode_number(name: str, value: Any) -> _Field:
    """A number, or an array by value as a pair of type and numbers."""
    number: np.ndarray[Any, Any] | None = None
    if isinstance(value, np.generic):
        number = np.array(value)
    elif isinstance(value, bool):
        number = np.array(value, np.bool_)
    elif isinstance(value, int) and -(1 << (_INT_BITS - 1)) <= value < 1 << _INT_BITS:
        number = np.array(value & ((1 << _INT_BITS) - 1), np.uint32)
    elif isinstance(value, float):
        number = np.array(value, np.float32)
    elif isinstance(value, tuple) and len(value) == 2:
        number = _convert(*value)
    if number is None or not _is_number(number.dtype):
        raise PACK_FIELD.error(name=name, shown=format_value(value))
    return _Field(np.ascontiguousarray(number).tobytes(), number.dtype.itemsize)


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Whether elements are numbers: a numpy type, or a narrow float of ml_dtypes."""
    return dtype.kind in "biufc" or DataType.knows(dtype)


def _convert(type_name: Any, value: Any) -> np.ndarray[Any, Any] | None:
    """Convert values to a named type of whole bytes; None if there is no such type or an integer does not fit."""
    try:
        row = DataType.named(type_name)
        if row.is_packed:
            return None
        dtype = row.numpy
        exact = np.array(value)
        number = exact.astype(dtype)
    except (RuleError, TypeError, ValueError, OverflowError):
        return None
    is_integer = dtype.kind in "iu"
    return None if is_integer and not np.array_equal(number, exact) else number
