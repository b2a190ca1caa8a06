"""Arrays of the host as numpy arrays that share their bytes: numpy's own, and torch's on the CPU.

torch is not imported. A tensor says where its bytes are and of what type they are, and that is enough, also for bfloat16 and
the narrow floats, which `tensor.numpy()` refuses.
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
from tilescope.sentence import printed

Array = npt.NDArray[Any]

HOST_ARRAY = rule(
    "host-array",
    "Memory of a kernel that runs here is a C-contiguous array of numbers: numpy's, or a torch tensor on the CPU.",
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
    """Whether an argument is memory, not a number: numpy's scalars have an array interface too.

    >>> is_array(np.zeros(4)), is_array(np.float32(1.0)), is_array(7)
    (True, False, False)
    """
    if isinstance(argument, np.ndarray):
        return argument.ndim > 0
    if is_tensor(argument):
        return True
    return hasattr(argument, "__array__") and not isinstance(argument, np.generic)


def is_tensor(argument: object) -> bool:
    """Whether an argument is a tensor of torch, or of a library that imitates it."""
    return all(hasattr(argument, name) for name in ("data_ptr", "dtype", "shape", "is_contiguous"))


def host_array(argument: Any) -> Array:
    """The argument as a C-contiguous numpy array that shares its bytes; a RuleError if it cannot be one."""
    if is_tensor(argument):
        return _tensor_array(argument)
    if not isinstance(argument, np.ndarray) and not hasattr(argument, "__array__"):
        raise HOST_ARRAY.error(shown=printed(argument))
    held = np.asarray(argument)
    if held.dtype.hasobject:
        raise NOT_NUMBERS.error()
    if not held.flags.c_contiguous:
        raise NOT_CONTIGUOUS.error(shape=held.shape, data_type=str(held.dtype))
    return held


def _tensor_array(tensor: Any) -> Array:
    device = str(getattr(tensor, "device", "cpu"))
    if device != "cpu":
        raise OTHER_DEVICE.error(device=device)
    shape = tuple(map(int, tensor.shape))
    if not tensor.is_contiguous():
        raise NOT_CONTIGUOUS.error(shape=shape, data_type=str(tensor.dtype))
    dtype = tensor_dtype(tensor)
    size_bytes = prod(shape) * dtype.itemsize
    content = (ctypes.c_uint8 * size_bytes).from_address(int(tensor.data_ptr()) if size_bytes else 0)
    content.tensor = tensor  # type: ignore[attr-defined]  # which owns the bytes, and lives as long as the array does
    return np.frombuffer(memoryview(content), dtype).reshape(shape)


def tensor_dtype(tensor: Any) -> np.dtype[Any]:
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
