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
from tilescope.sentence import counted, shortened
from tilescope.tensor_map.checking import stated
from tilescope.tensor_map.rules.tensor import RANK
from tilescope.tensor_map.samples import CUDA_H

_ARRAY = "ts.TensorMap.from_array({}, (64, 64))"
array_interface = stated(
    "array-interface",
    "An array says where its elements are: __array_interface__, __cuda_array_interface__ or __dlpack__.",
    "a {type}{why}",
    "an array with __array_interface__, __cuda_array_interface__ or __dlpack__",
    "Use a numpy, torch, cupy or jax array.",
    argument="array",
    source="the array protocols",
    subjects=("array",),
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("[0, 1]"),
)
array_strides = stated(
    "array-strides",
    "The last axis of an array steps one element, and no axis steps backwards.",
    argument="array",
    source="cuda.h, cuTensorMapEncodeTiled: dim 0 has no stride",
    subjects=("array",),
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("np.zeros((128, 64), 'f2').T"),
)
array_box = stated(
    "array-box",
    "box_shape has one entry for each axis of the array, in its order.",
    "{has} for an array of {axes}",
    "one entry for every axis of the array",
    "Use {takes}, in the order of the array's shape.",
    argument="box_shape",
    source=CUDA_H,
    subjects=("array",),
    passing=_ARRAY.format("np.zeros((128, 64), 'f2')"),
    failing=_ARRAY.format("np.zeros(64, 'f2')"),
)


class Metadata(NamedTuple):
    """What a map needs to know of an array."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    data_type: DataType
    element_bytes: int


def described(
    array: Any, box_shape: Any, address: int | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Violation, ...]]:
    """Arguments of TensorMap for the array, as far as there are any, and every reason why it cannot be described."""
    whole = metadata(array)
    data_type = DataType.named(options.get("data_type", whole.data_type)).tma
    box = integers("box_shape", box_shape)
    problems = tuple(_problems(whole, data_type, box))
    if not whole.shape:
        return {}, problems
    dims = (whole.shape[-1] * whole.element_bytes * 8 // data_type.bits, *whole.shape[-2::-1])
    strides = tuple(
        rounded_up(max(stride, 0), 32)
        if extent == 1 and stride % 32
        else stride  # the step of a single index is never taken
        for stride, extent in zip(whole.strides_bytes[-2::-1], dims[1:], strict=True)
    )
    place = whole.address if address is None else address
    arguments = {"dims": dims, "strides_bytes": strides, "box": box[::-1], "address": place}
    return arguments | {**options, "data_type": data_type}, problems


def metadata(array: Any) -> Metadata:
    """Pointer, shape, strides and type of whatever array this is.

    >>> metadata(np.zeros((4, 8), "float16"))[1:3]
    ((4, 8), (16, 2))
    """
    refused = ""
    for read in (_from_numpy_or_torch, _from_interface, _from_dlpack):
        try:
            if (whole := read(array)) is not None:
                return whole
        except RuleError:
            raise
        except Exception as error:  # noqa: BLE001  a foreign array may raise whatever it likes
            refused = f" ({type(error).__name__}: {shortened(str(error))})"
    raise TensorMapError([array_interface.told(type=type(array).__name__, why=refused)])


def _from_numpy_or_torch(array: Any) -> Metadata | None:
    if isinstance(array, np.ndarray):
        return Metadata(array.ctypes.data, array.shape, array.strides, _element(array.dtype), array.itemsize)
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
    strides = tuple(map(int, interface.get("strides") or _packed_strides(shape, dtype.itemsize)))
    address = int((interface.get("data") or (0,))[0])
    element = getattr(array, "dtype", dtype)  # typestr spells ml_dtypes as raw bytes; dtype knows better
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
    shape = tuple(tensor.shape[: tensor.ndim])
    name = _DLPACK_TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        what = f"DLPack type code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise _untyped(what, code=tensor.code, bits=tensor.bits, lanes=tensor.lanes)
    size = tensor.bits // 8
    steps = tensor.strides[: tensor.ndim] if tensor.strides else _packed_strides(shape, 1)
    strides = tuple(step * size for step in steps)
    return Metadata((tensor.data or 0) + tensor.byte_offset, shape, strides, DataType.named(name), size)


def _packed_strides(shape: tuple[int, ...], element_bytes: int) -> tuple[int, ...]:
    return tuple(accumulate((element_bytes, *shape[:0:-1]), mul))[::-1] if shape else ()


def _element(dtype: Any) -> DataType:
    try:
        return DataType.named(dtype)
    except RuleError as error:
        if error.violations[0].rule == ARRAY_TYPE.name:
            raise TensorMapError(error.violations) from None
        raise _untyped(shortened(str(dtype))) from None


def _untyped(what: str, **values: int) -> TensorMapError:
    limit = "a type that TMA can move"
    fix = "View it as an unsigned integer of the same size, such as uint8 or uint64."
    return TensorMapError([ARRAY_TYPE.violation("array", f"elements of {what}", limit, fix, **values)])


def _problems(whole: Metadata, data_type: DataType, box: tuple[int, ...]) -> Iterator[Violation]:
    """What is wrong with an array, in the array's own words."""
    rank, strides, size = len(whole.shape), whole.strides_bytes, whole.element_bytes
    axes = counted(rank, "dimension")
    if not 1 <= rank <= 5:
        fix = "Merge contiguous axes with reshape, or index the leading ones away." if rank else "Use array.reshape(1)."
        yield RANK.rule.violation("array", axes, "a tiled map has 1 to 5", fix, rank=rank)
    if any(step < 0 and extent > 1 for step, extent in zip(strides, whole.shape, strict=True)):
        fix = "Use np.ascontiguousarray, or flip the coordinates instead of the array."
        facts = {"found": f"strides {strides} bytes", "limit": "strides of at least 0", "strides_bytes": strides}
        yield array_strides.told(fix=fix, **facts)
    if rank and whole.shape[-1] > 1 and abs(strides[-1]) != size:
        fix = f"Move axis {strides.index(size)} last (np.moveaxis)." if size in strides else "Use np.ascontiguousarray."
        limit, numbers = f"the innermost dimension steps one element, {size} bytes", {"stride_bytes": strides[-1]}
        found = f"elements of the last axis are {strides[-1]} bytes apart"
        yield array_strides.told(found=found, limit=limit, fix=fix, element_bytes=size, **numbers)
    row_bytes = whole.shape[-1] * size if rank else 0
    if whole.data_type.is_packed and data_type.is_packed:
        found = f"an array of {whole.data_type.name}, which numpy keeps in a byte each"
        limit = f"{data_type.name} wants its values packed together"
        fix = 'Pack the values into a uint8 array and pass data_type, or move the bytes with data_type="uint8".'
        yield ARRAY_TYPE.violation("array", found, limit, fix)
    elif row_bytes * 8 % data_type.bits:
        limit, numbers = f"whole elements of {data_type.name}, {data_type.bits} bits each", {"row_bytes": row_bytes}
        fix = f'Use data_type="{whole.data_type.name}", the array\'s own.'
        yield ARRAY_TYPE.violation(
            "array", f"rows of {row_bytes} bytes", limit, fix, element_bits=data_type.bits, **numbers
        )
    if len(box) != rank:
        has, takes = (counted(count, "entry", "entries") for count in (len(box), rank))
        yield array_box.told(has=has, takes=takes, axes=axes, entries=len(box), dimensions=rank)
