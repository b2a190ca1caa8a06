"""Host arrays as numpy arrays that share their memory: numpy arrays, and torch tensors on the CPU.

as_host_array(torch.zeros(4, dtype=torch.bfloat16))     an array of ml_dtypes.bfloat16 over the tensor's memory

torch is not imported: the tensor's data_ptr, shape and dtype are enough. bfloat16 and the narrow floats, which
`tensor.numpy()` refuses, work too.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.sentence import format_value

Array = npt.NDArray[Any]

HOST_ARRAY = rule(
    "host-array",
    "Memory of a kernel that the emulator runs is a C-contiguous numeric array: of numpy, or a torch tensor on the "
    "CPU.",
    argument="array",
    found="{shown}",
    limit="a numpy array, or a torch tensor on the CPU",
    fix="Use np.array(…), and keep that array: the kernel writes to it.",
    source="numpy, the array interface; torch.Tensor.data_ptr",
    passing="ts.Memory().place(np.zeros((4, 8)))",
    failing="ts.Memory().place(np.zeros((4, 8)).T)",
)
NOT_CONTIGUOUS = HOST_ARRAY.worded(
    found="an array of shape {shape}, {data_type}, whose bytes do not follow each other",
    limit="a C-contiguous array of numbers",
    fix="Use np.ascontiguousarray(array), and read the results from that copy.",
)
NOT_NUMBERS = HOST_ARRAY.worded(
    found="an array of Python objects",
    limit="an array of numbers",
    fix="Give it a type of numbers: array.astype(np.float32), for example.",
)
OTHER_DEVICE = HOST_ARRAY.worded(
    found="a tensor on {device}",
    limit="a tensor on the CPU",
    fix="Use tensor.cpu(), and read the results from that copy.",
)


def is_array(argument: object) -> bool:
    """Whether an argument is an array in memory, not a number: numpy's scalars have an array interface too.

    >>> is_array(np.zeros(4)), is_array(np.float32(1.0)), is_array(7)
    (True, False, False)
    """
    if isinstance(argument, np.ndarray):
        return argument.ndim > 0
    if is_tensor(argument):
        return True
    return hasattr(argument, "__array__") and not isinstance(argument, np.generic)


def is_tensor(argument: object) -> bool:
    """Whether an argument is a torch tensor, or has the same interface."""
    return all(hasattr(argument, name) for name in ("data_ptr", "dtype", "shape", "is_contiguous"))


def as_host_array(argument: Any) -> Array:
    """The argument as a C-contiguous numpy array that shares its memory; a RuleError if that is impossible."""
    if is_tensor(argument):
        return _view_tensor(argument)
    if not isinstance(argument, np.ndarray) and not hasattr(argument, "__array__"):
        raise HOST_ARRAY.error(shown=format_value(argument))
    array = np.asarray(argument)
    if array.dtype.hasobject:
        raise NOT_NUMBERS.error()
    if not array.flags.c_contiguous:
        raise NOT_CONTIGUOUS.error(shape=array.shape, data_type=str(array.dtype))
    return array


def _view_tensor(tensor: Any) -> Array:
    device = str(getattr(tensor, "device", "cpu"))
    if device != "cpu":
        raise OTHER_DEVICE.error(device=device)
    shape = tuple(map(int, tensor.shape))
    if not tensor.is_contiguous():
        raise NOT_CONTIGUOUS.error(shape=shape, data_type=str(tensor.dtype))
    dtype = read_tensor_dtype(tensor)
    size_bytes = prod(shape) * dtype.itemsize
    content = (ctypes.c_uint8 * size_bytes).from_address(int(tensor.data_ptr()) if size_bytes else 0)
    content.tensor = tensor  # type: ignore[attr-defined]  # owns the memory and must outlive the array
    return np.frombuffer(memoryview(content), dtype).reshape(shape)


def read_tensor_dtype(tensor: Any) -> np.dtype[Any]:
    """The numpy type of a tensor's elements: torch.float16 is numpy's float16, torch.bfloat16 that of ml_dtypes."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        return DataType.named(name).numpy
    except RuleError:
        raise HOST_ARRAY.error(shown=f"a tensor of {tensor.dtype}") from None
