"""The arguments of a tensor map for an array that exists: numpy, torch, cupy, anything with DLPack.

Only metadata is read: the pointer, the shape, the strides and the type. This is the one place where
numpy's order (outermost first) turns into the driver's (innermost first):

    shape   (128, 64)     strides (256, 2)  of float16, 128 bytes of padding a row
    dims    (64, 128)     strides_bytes (256,)
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from tilescope.arithmetic import rounded_up
from tilescope.data_type import ARRAY_TYPE, DataType
from tilescope.errors import RuleError, TensorMapError, Violation
from tilescope.reading import integers
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.tensor_map.checking import TMA_ARCHITECTURES
from tilescope.tensor_map.limits import MAX_RANK, WIDE_ALIGNMENT_BYTES
from tilescope.tensor_map.rules.tensor_rules import RANK
from tilescope.tensor_map.samples import CUDA_H

_ARRAY = "ts.TensorMap.from_array({}, (64, 64))"
ARRAY_INTERFACE = rule(
    "array-interface",
    "An array describes its memory by __array_interface__, __cuda_array_interface__ or __dlpack__.",
    argument="array",
    found="a {type}[[ ({error})]]",
    limit="an array with __array_interface__, __cuda_array_interface__ or __dlpack__",
    fix="Use a numpy, torch, cupy or jax array.",
    source="the array protocols",
    basis="measured",
    subjects=("array",),
    architectures=TMA_ARCHITECTURES,
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("[0, 1]"),
)
ARRAY_STRIDES = rule(
    "array-strides",
    "Elements of the last axis of an array are contiguous, and no axis has a negative stride.",
    argument="array",
    found="elements of the last axis are {stride_bytes} bytes apart",
    limit="the innermost dimension steps one element, {element_bytes} bytes",
    fix="Use np.ascontiguousarray.",
    source="cuda.h, cuTensorMapEncodeTiled: dim 0 has no stride",
    basis="measured",
    subjects=("array",),
    architectures=TMA_ARCHITECTURES,
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("np.zeros((128, 64), 'f2').T"),
)
_OTHER_AXIS_IS_DENSE = ARRAY_STRIDES.worded(fix="Move axis {axis} last (np.moveaxis).")
_BACKWARDS = ARRAY_STRIDES.worded(
    found="strides {strides_bytes} bytes",
    limit="strides of at least 0",
    fix="Use np.ascontiguousarray, or flip the coordinates instead of the array.",
)
ARRAY_BOX = rule(
    "array-box",
    "box_shape has one entry for each axis of the array, in its order.",
    argument="box_shape",
    found="{entries:entry|entries} for an array of {dimensions:dimension}",
    limit="one entry for every axis of the array",
    fix="Use {dimensions:entry|entries}, in the order of the array's shape.",
    source=CUDA_H,
    basis="measured",
    subjects=("array",),
    architectures=TMA_ARCHITECTURES,
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("np.zeros(64, 'f2')"),
)
# Rules of types and ranks, in the array's own words.
_UNKNOWN_TYPE = ARRAY_TYPE.worded(
    argument="array",
    found="elements of {type}",
    limit="a type that TMA can move",
    fix="View it as an unsigned integer of the same size, such as uint8 or uint64.",
)
_UNKNOWN_DLPACK_TYPE = _UNKNOWN_TYPE.worded(found="elements of DLPack type code {code}, {bits} bits, {lanes} lanes")
_SPREAD_VALUES = ARRAY_TYPE.worded(
    argument="array",
    found="an array of {type}, which numpy keeps in a byte each",
    limit="{data_type} wants its values packed together",
    fix='Pack the values into a uint8 array and pass data_type, or move the bytes with {data_type:="uint8"}.',
)
_CUT_ELEMENTS = ARRAY_TYPE.worded(
    argument="array",
    found="rows of {row_bytes} bytes",
    limit="whole elements of {data_type}, {element_bits} bits each",
    fix='Use {data_type:="{type}"}, the array\'s own.',
)
_TOO_MANY_AXES = RANK.worded(
    argument="array",
    limit="a tiled map has 1 to 5",
    fix="Merge contiguous axes with reshape, or index the leading ones away.",
)
_NO_AXIS = _TOO_MANY_AXES.worded(fix="Use array.reshape(1).")


class Metadata(NamedTuple):
    """What a map needs to know of an array."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    data_type: DataType
    element_bytes: int


class Description(NamedTuple):
    """The arguments of TensorMap for an array, as far as there are any, and every reason why it cannot be described."""

    arguments: Mapping[str, Any]
    problems: tuple[Violation, ...]


def describe_array(array: object, box_shape: object, address: int | None, options: Mapping[str, object]) -> Description:
    """The array as a map sees it; `options` are arguments of TensorMap too."""
    facts = metadata(array)
    data_type = DataType.named(options.get("data_type", facts.data_type)).tma
    box = integers("box_shape", box_shape)
    problems = tuple(_problems(facts, data_type, box))
    if not facts.shape:
        return Description({}, problems)
    dims = (facts.shape[-1] * facts.element_bytes * 8 // data_type.bits, *facts.shape[-2::-1])
    arguments = {
        "dims": dims,
        "strides_bytes": _driver_strides(facts, dims),
        "box": box[::-1],
        "address": facts.address if address is None else address,
    }
    return Description(arguments | {**options, "data_type": data_type}, problems)


def _driver_strides(whole: Metadata, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The strides innermost first, without that of dim 0. No copy uses the stride of an extent of 1: it is rounded up."""
    strides = []
    for stride, extent in zip(whole.strides_bytes[-2::-1], dims[1:], strict=True):
        is_free = extent == 1 and stride % WIDE_ALIGNMENT_BYTES
        strides.append(rounded_up(max(stride, 0), WIDE_ALIGNMENT_BYTES) if is_free else stride)
    return tuple(strides)


def metadata(array: object) -> Metadata:
    """Pointer, shape, strides and type of any supported array.

    >>> metadata(np.zeros((4, 8), "float16"))[1:3]
    ((4, 8), (16, 2))
    """
    refused = ""
    for read in (_from_numpy, _from_torch, _from_interface, _from_dlpack):
        try:
            facts = read(array)
        except RuleError:
            raise
        except Exception as error:  # noqa: BLE001  a foreign array may raise anything
            refused = f"{type(error).__name__}: {shorten(str(error))}"
        else:
            if facts is not None:
                return facts
    raise TensorMapError([ARRAY_INTERFACE.violation(type=type(array).__name__, error=refused)])


def _from_numpy(array: object) -> Metadata | None:
    if not isinstance(array, np.ndarray):
        return None
    return Metadata(array.ctypes.data, array.shape, array.strides, _element(array.dtype), array.itemsize)


def _from_torch(array: object) -> Metadata | None:
    if not (hasattr(array, "data_ptr") and hasattr(array, "stride") and hasattr(array, "element_size")):
        return None
    if not (hasattr(array, "dtype") and hasattr(array, "shape")):
        return None
    size = int(array.element_size())
    strides = tuple(int(step) * size for step in array.stride())
    return Metadata(int(array.data_ptr()), tuple(map(int, array.shape)), strides, _element(array.dtype), size)


def _from_interface(array: object) -> Metadata | None:
    interface = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if not isinstance(interface, Mapping):
        return None
    dtype = np.dtype(interface["typestr"])
    shape = tuple(map(int, interface["shape"]))
    strides = tuple(map(int, interface.get("strides") or _packed_strides(shape, dtype.itemsize)))
    address = int((interface.get("data") or (0,))[0])
    element = getattr(array, "dtype", dtype)  # typestr spells ml_dtypes as raw bytes; dtype has the name
    return Metadata(address, shape, strides, _element(element), dtype.itemsize)


class _DlTensor(ctypes.Structure):
    """The head of a DLManagedTensor (DLPack's C header)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


# DLDataTypeCode (0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 7 to 17 narrow floats) and bits of one element.
_DLPACK_TYPES = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (6, 8): "uint8",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
    (14, 8): "ue8m0",
}


def _from_dlpack(array: object) -> Metadata | None:
    if not hasattr(array, "__dlpack__"):
        return None
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer(capsule, b"dltensor"))  # unconsumed, the capsule frees it
    shape = tuple(tensor.shape[: tensor.ndim])
    name = _DLPACK_TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        unknown = _UNKNOWN_DLPACK_TYPE.violation(code=tensor.code, bits=tensor.bits, lanes=tensor.lanes)
        raise TensorMapError([unknown])
    size = tensor.bits // 8
    steps = tensor.strides[: tensor.ndim] if tensor.strides else _packed_strides(shape, 1)
    strides = tuple(step * size for step in steps)
    return Metadata((tensor.data or 0) + tensor.byte_offset, shape, strides, DataType.named(name), size)


def _packed_strides(shape: tuple[int, ...], element_bytes: int) -> tuple[int, ...]:
    if not shape:
        return ()
    innermost_first = accumulate((element_bytes, *shape[:0:-1]), mul)
    return tuple(innermost_first)[::-1]


def _element(dtype: object) -> DataType:
    try:
        return DataType.named(dtype)
    except RuleError as error:
        if error.violations[0].rule == ARRAY_TYPE.name:
            raise TensorMapError(error.violations) from None
        raise TensorMapError([_UNKNOWN_TYPE.violation(type=shorten(str(dtype)))]) from None


def _problems(whole: Metadata, data_type: DataType, box: tuple[int, ...]) -> Iterator[Violation]:
    """What is wrong with an array, in the array's own words."""
    rank = len(whole.shape)
    if rank < 1:
        yield _NO_AXIS.violation(rank=rank)
    elif rank > MAX_RANK:
        yield _TOO_MANY_AXES.violation(rank=rank)
    yield from _stride_problems(whole)
    yield from _type_problems(whole, data_type)
    if len(box) != rank:
        yield ARRAY_BOX.violation(entries=len(box), dimensions=rank)


def _stride_problems(whole: Metadata) -> Iterator[Violation]:
    strides = whole.strides_bytes
    if any(step < 0 and extent > 1 for step, extent in zip(strides, whole.shape, strict=True)):
        yield _BACKWARDS.violation(strides_bytes=strides)
    if not whole.shape or whole.shape[-1] <= 1 or abs(strides[-1]) == whole.element_bytes:
        return
    if whole.element_bytes in strides:
        yield _OTHER_AXIS_IS_DENSE.violation(
            stride_bytes=strides[-1], element_bytes=whole.element_bytes, axis=strides.index(whole.element_bytes)
        )
    else:
        yield ARRAY_STRIDES.violation(stride_bytes=strides[-1], element_bytes=whole.element_bytes)


def _type_problems(whole: Metadata, data_type: DataType) -> Iterator[Violation]:
    row_bytes = whole.shape[-1] * whole.element_bytes if whole.shape else 0
    if whole.data_type.is_packed and data_type.is_packed:
        yield _SPREAD_VALUES.violation(type=whole.data_type.name, data_type=data_type.name)
    elif row_bytes * 8 % data_type.bits:
        yield _CUT_ELEMENTS.violation(
            row_bytes=row_bytes, data_type=data_type.name, element_bits=data_type.bits, type=whole.data_type.name
        )
