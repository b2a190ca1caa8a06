"""The arguments of a tensor map for an array that exists: numpy, torch, cupy, anything with DLPack.

Only metadata is read: the pointer, the shape, the strides and the type. This is the one place where
numpy's order (outermost first) turns into the driver's (innermost first):

    shape   (128, 64)     strides (256, 2)  of float16, 128 bytes of padding a row
    dims    (64, 128)     strides_bytes (256,)
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, Violation, shortened, unknown_name
from tilescope.tensor_map import reading
from tilescope.tensor_map.encode_rules import rounded_up


class Metadata(NamedTuple):
    """What a map needs to know of an array."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    data_type: DataType
    element_bytes: int


def array_arguments(array: Any, box_shape: Any, address: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of TensorMap for the array; raises TensorMapError with every reason it cannot be described."""
    found = metadata(array)
    options = dict(options)
    data_type = DataType.named(options.pop("data_type", found.data_type)).tma
    problems = list(_undescribable(found, data_type))
    try:
        box = reading.integers("box_shape", box_shape)
    except ValueError as error:
        raise TensorMapError([*problems, *error.violations]) from None  # type: ignore[attr-defined]
    if len(box) != len(found.shape):
        problems.append(_problem(
            "array-box", "box_shape", f"{len(box)} entries for an array of {len(found.shape)} dimensions",
            "one entry for each axis of the array", "Give the box in the array's own order.",
        ))  # fmt: skip
    if problems:
        raise TensorMapError(problems)
    dims = list(found.shape[::-1])
    dims[0] = dims[0] * found.element_bytes * 8 // data_type.bits
    strides = list(found.strides_bytes[-2::-1])
    for axis, extent in enumerate(dims[1:]):
        if extent == 1 and strides[axis] % 32:  # the step of a single index is never taken
            strides[axis] = rounded_up(max(strides[axis], 0), 32)
    return {
        "data_type": data_type, "dims": tuple(dims), "strides_bytes": tuple(strides), "box": box[::-1],
        "address": found.address if address is None else address,
    } | options  # fmt: skip


def metadata(array: Any) -> Metadata:
    """Pointer, shape, strides and type of whatever array this is."""
    for read in (_from_numpy, _from_torch, _from_interface, _from_dlpack):
        found = read(array)
        if found is not None:
            return found
    raise TensorMapError([_problem(
        "array-interface", "array", f"a {type(array).__name__}",
        "an array with __array_interface__, __cuda_array_interface__ or __dlpack__", "Give a numpy, torch, cupy or jax array.",
    )])  # fmt: skip


def _from_numpy(array: Any) -> Metadata | None:
    if not isinstance(array, np.ndarray):
        return None
    return Metadata(array.ctypes.data, array.shape, array.strides, _element(array.dtype), array.itemsize)


def _from_torch(array: Any) -> Metadata | None:
    if not all(hasattr(array, name) for name in ("data_ptr", "stride", "element_size", "dtype", "shape")):
        return None
    size = array.element_size()
    strides = tuple(int(step) * size for step in array.stride())
    return Metadata(array.data_ptr(), tuple(map(int, array.shape)), strides, _element(array.dtype), size)


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
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


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
}  # fmt: skip  DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 7 to 17 narrow floats


def _from_dlpack(array: Any) -> Metadata | None:
    if not hasattr(array, "__dlpack__"):
        return None
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer(capsule, b"dltensor"))  # unconsumed, the capsule frees it
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    size = tensor.bits // 8
    name = _DLPACK_TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise TensorMapError(
            [unknown_name("DLPack type", "array", f"code {tensor.code}, {tensor.bits} bits", _DLPACK_TYPES.values())]
        )
    packed = _packed_strides(shape, size)
    strides = tuple(tensor.strides[axis] * size for axis in range(tensor.ndim)) if tensor.strides else packed
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
    except ValueError:
        raise TensorMapError([_problem(
            "array-type", "array", f"elements of {shortened(str(dtype))}", "a type that TMA can move",
            "View it as an unsigned integer of the same size, such as uint8 or uint64.",
        )]) from None  # fmt: skip


def _undescribable(found: Metadata, data_type: DataType) -> list[Violation]:
    problems = []
    if not found.shape:
        problems.append(_problem("rank", "array", "0 dimensions", "a tiled map has 1 to 5", "Use array.reshape(1)."))
    elif len(found.shape) > 5:
        problems.append(_problem(
            "rank", "array", f"{len(found.shape)} dimensions", "a tiled map has at most 5",
            "Merge contiguous axes with reshape, or index the leading ones away.",
        ))  # fmt: skip
    if any(step < 0 and extent > 1 for step, extent in zip(found.strides_bytes, found.shape, strict=True)):
        problems.append(_problem(
            "array-strides", "array", f"strides {found.strides_bytes} bytes", "strides of at least 0",
            "Use np.ascontiguousarray, or flip the coordinates instead of the array.",
        ))  # fmt: skip
    if found.shape and found.shape[-1] > 1 and found.strides_bytes[-1] != found.element_bytes:
        unit = [axis for axis, step in enumerate(found.strides_bytes) if step == found.element_bytes]
        fix = f"Move axis {unit[0]} last (np.moveaxis)." if unit else "Use np.ascontiguousarray."
        problems.append(_problem(
            "array-strides", "array", f"elements of the last axis are {found.strides_bytes[-1]} bytes apart",
            f"the innermost dimension steps one element, {found.element_bytes} bytes", fix,
        ))  # fmt: skip
    if found.data_type.is_packed and data_type.is_packed:
        problems.append(_problem(
            "array-type", "array", f"an array of {found.data_type.name}, which numpy keeps in a byte each",
            f"{data_type.name} wants {8 // data_type.bits if 8 % data_type.bits == 0 else 16} values packed together",
            'Pack the values into a uint8 array and pass data_type, or move the bytes with data_type="uint8".',
        ))  # fmt: skip
    return problems


def _problem(rule_name: str, argument: str, found: str, limit: str, fix: str) -> Violation:
    return Violation(rule_name, "error", argument, found, limit, fix)
