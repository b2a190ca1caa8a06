"""The arguments of a tensor map for an array that exists: numpy, torch, cupy, anything with DLPack.

Only metadata is read: the pointer, the shape, the strides and the type. This is the one place where
numpy's order (outermost first) turns into the driver's (innermost first):

    shape   (128, 64)     strides (256, 2)  of float16, 128 bytes of padding a row
    dims    (64, 128)     strides_bytes (256,)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tilescope.data_type import ARRAY_TYPE, DataType
from tilescope.errors import RuleError, TensorMapError, Violation, counted, shortened
from tilescope.reading import integers
from tilescope.tensor_map.checking import map_rule, rounded_up
from tilescope.tensor_map.rules.tensor import RANK

_ARRAY = {"array": {"shape": (128, 64), "typestr": "<f2"}, "box_shape": (64, 64)}
array_interface = map_rule(
    "array-interface",
    "An array says where its elements are: __array_interface__, __cuda_array_interface__ or __dlpack__.",
    source="the array protocols", subjects=("array",), passing=_ARRAY, failing=_ARRAY | {"array": {"shape": (128, 64)}},
)  # fmt: skip
array_strides = map_rule(
    "array-strides", "The last axis of an array steps one element, and no axis steps backwards.",
    source="cuda.h, cuTensorMapEncodeTiled: dim 0 has no stride", subjects=("array",), passing=_ARRAY,
    failing=_ARRAY | {"array": {"shape": (128, 64), "strides": (2, 256), "typestr": "<f2"}},
)  # fmt: skip
array_box = map_rule(
    "array-box", "box_shape has one entry for each axis of the array, in its order.",
    source="cuda.h, cuTensorMapEncodeTiled", subjects=("array",), passing=_ARRAY, failing=_ARRAY | {"box_shape": (64,)},
)  # fmt: skip


class Metadata(NamedTuple):
    """What a map needs to know of an array."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    data_type: DataType
    element_bytes: int


class Described(NamedTuple):
    """The arguments of an array's map, as far as there are any, and what stands in the way."""

    arguments: dict[str, Any]
    problems: tuple[Violation, ...]


def described(array: Any, box_shape: Any, address: int | None, options: Mapping[str, Any]) -> Described:
    """Arguments of TensorMap for the array, and every reason why it cannot be described."""
    found = metadata(array)
    options = dict(options)
    data_type = DataType.named(options.pop("data_type", found.data_type)).tma
    problems = _undescribable(found, data_type)
    box = integers("box_shape", box_shape)
    if len(box) != len(found.shape):
        which = f"{counted(len(box), 'entry', 'entries')} for an array of {counted(len(found.shape), 'dimension')}"
        fix = f"Use {counted(len(found.shape), 'entry', 'entries')}, in the order of the array's shape."
        values: dict[str, Any] = {"entries": len(box), "dimensions": len(found.shape)}
        problems.append(array_box.violation("box_shape", which, "one entry for every axis of the array", fix, **values))
    if not found.shape:
        return Described({}, tuple(problems))
    dims = list(found.shape[::-1])
    dims[0] = dims[0] * found.element_bytes * 8 // data_type.bits
    strides = list(found.strides_bytes[-2::-1])
    for axis, extent in enumerate(dims[1:]):
        if extent == 1 and strides[axis] % 32:  # the step of a single index is never taken
            strides[axis] = rounded_up(max(strides[axis], 0), 32)
    arguments = {
        "data_type": data_type,
        "dims": tuple(dims),
        "strides_bytes": tuple(strides),
        "box": box[::-1],
        "address": found.address if address is None else address,
    }
    return Described(arguments | options, tuple(problems))


def metadata(array: Any) -> Metadata:
    """Pointer, shape, strides and type of whatever array this is.

    >>> metadata(np.zeros((4, 8), "float16"))[1:3]
    ((4, 8), (16, 2))
    """
    readers: tuple[Callable[[Any], Metadata | None], ...] = (_from_numpy, _from_torch, _from_interface, _from_dlpack)
    refused = ""
    for read in readers:
        try:
            found = read(array)
        except RuleError:
            raise
        except Exception as error:  # noqa: BLE001  a foreign array may raise whatever it likes
            refused = f" ({type(error).__name__}: {shortened(str(error))})"
            continue
        if found is not None:
            return found
    raise TensorMapError([array_interface.violation(
        "array", f"a {type(array).__name__}{refused}",
        "an array with __array_interface__, __cuda_array_interface__ or __dlpack__",
        "Use a numpy, torch, cupy or jax array.",
    )])  # fmt: skip


def _from_numpy(array: Any) -> Metadata | None:
    if not isinstance(array, np.ndarray):
        return None
    return Metadata(array.ctypes.data, array.shape, array.strides, _element(array.dtype), array.itemsize)


def _from_torch(array: Any) -> Metadata | None:
    if not all(hasattr(array, name) for name in ("data_ptr", "stride", "element_size", "dtype", "shape")):
        return None
    size = int(array.element_size())
    strides = tuple(int(step) * size for step in array.stride())
    return Metadata(int(array.data_ptr()), tuple(map(int, array.shape)), strides, _element(array.dtype), size)


def _from_interface(array: Any) -> Metadata | None:
    interface = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if not isinstance(interface, Mapping):
        return None
    dtype = np.dtype(interface["typestr"])
    shape = tuple(map(int, interface["shape"]))
    strides = interface.get("strides") or _packed_strides(shape, dtype.itemsize)
    data = interface.get("data")
    element = getattr(array, "dtype", dtype)  # typestr spells ml_dtypes as raw bytes; dtype knows better
    return Metadata(int(data[0]) if data else 0, shape, tuple(map(int, strides)), _element(element), dtype.itemsize)


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
# fmt: off
_DLPACK_TYPES = {
    (0, 8): "int8",     (0, 16): "int16",   (0, 32): "int32",   (0, 64): "int64",
    (1, 8): "uint8",    (1, 16): "uint16",  (1, 32): "uint32",  (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16",
    (6, 8): "uint8",    (10, 8): "e4m3",    (12, 8): "e5m2",    (14, 8): "ue8m0",
}
# fmt: on


def _from_dlpack(array: Any) -> Metadata | None:
    if not hasattr(array, "__dlpack__"):
        return None
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer(capsule, b"dltensor"))  # unconsumed, the capsule frees it
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    name = _DLPACK_TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise _untyped(f"DLPack type code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    size = tensor.bits // 8
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * size for axis in range(tensor.ndim))
    else:
        strides = _packed_strides(shape, size)
    return Metadata((tensor.data or 0) + tensor.byte_offset, shape, strides, DataType.named(name), size)


def _packed_strides(shape: tuple[int, ...], element_bytes: int) -> tuple[int, ...]:
    strides, step = [], element_bytes
    for extent in shape[::-1]:
        strides.append(step)
        step *= extent
    return tuple(strides[::-1])


def _element(dtype: Any) -> DataType:
    try:
        return DataType.named(dtype)
    except RuleError as error:
        if error.violations[0].rule == ARRAY_TYPE.name:
            raise TensorMapError(error.violations) from None
        raise _untyped(shortened(str(dtype))) from None


def _untyped(what: str) -> TensorMapError:
    return TensorMapError([ARRAY_TYPE.violation(
        "array", f"elements of {what}", "a type that TMA can move",
        "View it as an unsigned integer of the same size, such as uint8 or uint64.",
    )])  # fmt: skip


def _undescribable(found: Metadata, data_type: DataType) -> list[Violation]:
    """What is wrong with an array, in the array's own words."""
    problems = []
    if not found.shape:
        problems.append(RANK.rule.violation("array", "0 dimensions", "a tiled map has 1 to 5", "Use array.reshape(1)."))
    elif len(found.shape) > 5:
        fix = "Merge contiguous axes with reshape, or index the leading ones away."
        which = f"{len(found.shape)} dimensions"
        values: dict[str, Any] = {"rank": len(found.shape)}
        problems.append(RANK.rule.violation("array", which, "a tiled map has at most 5", fix, **values))
    if any(step < 0 and extent > 1 for step, extent in zip(found.strides_bytes, found.shape, strict=True)):
        problems.append(array_strides.violation(
            "array", f"strides {found.strides_bytes} bytes", "strides of at least 0",
            "Use np.ascontiguousarray, or flip the coordinates instead of the array.", None,
            strides_bytes=found.strides_bytes,
        ))  # fmt: skip
    if found.shape and found.shape[-1] > 1 and abs(found.strides_bytes[-1]) != found.element_bytes:
        unit = [axis for axis, step in enumerate(found.strides_bytes) if step == found.element_bytes]
        problems.append(array_strides.violation(
            "array", f"elements of the last axis are {found.strides_bytes[-1]} bytes apart",
            f"the innermost dimension steps one element, {found.element_bytes} bytes",
            f"Move axis {unit[0]} last (np.moveaxis)." if unit else "Use np.ascontiguousarray.", None,
            stride_bytes=found.strides_bytes[-1], element_bytes=found.element_bytes,
        ))  # fmt: skip
    if found.data_type.is_packed and data_type.is_packed:
        problems.append(ARRAY_TYPE.violation(
            "array", f"an array of {found.data_type.name}, which numpy keeps in a byte each",
            f"{data_type.name} wants its values packed together",
            'Pack the values into a uint8 array and pass data_type, or move the bytes with data_type="uint8".',
        ))  # fmt: skip
    elif found.shape and found.shape[-1] * found.element_bytes * 8 % data_type.bits:
        problems.append(ARRAY_TYPE.violation(
            "array", f"rows of {found.shape[-1] * found.element_bytes} bytes",
            f"whole elements of {data_type.name}, {data_type.bits} bits each",
            f'Use data_type="{found.data_type.name}", the array\'s own.', None,
            row_bytes=found.shape[-1] * found.element_bytes, element_bits=data_type.bits,
        ))  # fmt: skip
    return problems
