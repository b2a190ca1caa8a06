"""Tensors on the host, as a Triton kernel takes them: anything with data_ptr, dtype, shape and stride.

    x = tensor(np.zeros((64, 64), np.float32))     a numpy array as an argument of kernel[grid](…)
    find_extent(x)                                 the bytes of the storage that x lies in

A kernel uses the host's own addresses. A storage is placed as a whole, so all views of it are in one placement. torch
is not imported: torch tensors have `untyped_storage`; for other tensors shape and strides determine the bytes.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from tilescope.machine.launch.host_array import HOST_ARRAY, NOT_NUMBERS, OTHER_DEVICE, read_tensor_dtype
from tilescope.sentence import format_value

NO_ADDRESS = HOST_ARRAY.worded(
    found="a tensor without memory on the host",
    limit="a tensor on the CPU that has an address",
    fix="Allocate it: meta and fake tensors have a shape only.",
)


class Storage(Protocol):
    """The memory that several tensors may share."""

    def data_ptr(self) -> int:
        """The address of its first byte."""

    def nbytes(self) -> int:
        """Its size."""


class Tensor(Protocol):
    """What a pointer argument of a Triton kernel is."""

    @property
    def shape(self) -> Sequence[int]:
        """Its extents, outermost first."""

    @property
    def dtype(self) -> object:
        """The type of its elements."""

    def data_ptr(self) -> int:
        """The address of its first element."""

    def stride(self) -> Sequence[int]:
        """Elements between neighbours along each dimension."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of the host that a kernel may access. `owner` keeps them alive."""

    address: int
    size_bytes: int
    owner: object
    is_writable: bool = True

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + self.size_bytes

    def has(self, address: int) -> bool:
        """Whether it contains an address."""
        return self.address <= address < self.end

    def view(self) -> npt.NDArray[np.uint8]:
        """The bytes as an array that shares them."""
        content = (ctypes.c_uint8 * self.size_bytes).from_address(self.address)
        content.owner = self.owner  # type: ignore[attr-defined]  # must outlive the array
        array = np.frombuffer(memoryview(content), np.uint8)
        array.flags.writeable = self.is_writable
        return array


class HostTensor:
    """A numpy array with the methods of a tensor that Triton needs; `array` is the array itself."""

    device = "cpu"

    def __init__(self, array: npt.NDArray[np.generic]) -> None:
        self.array = array

    def __repr__(self) -> str:
        return f"tilescope.triton.tensor({self.array!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents, outermost first."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Its dimensions."""
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of its elements; its name is Triton's too."""
        return self.array.dtype

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self.array.__array_interface__["data"][0])

    def stride(self, dimension: int | None = None) -> tuple[int, ...] | int:
        """Elements between neighbours along each dimension, or along one."""
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        return strides if dimension is None else strides[dimension]

    def numel(self) -> int:
        """How many elements it has."""
        return self.array.size

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.array.itemsize

    def is_contiguous(self) -> bool:
        """Whether its elements follow each other."""
        return bool(self.array.flags.c_contiguous)

    def clone(self) -> HostTensor:
        """A copy; autotuners keep one of an argument that they restore."""
        return tensor(self.array.copy())

    def copy_(self, other: HostTensor) -> HostTensor:
        """Copy the elements of another tensor here."""
        self.array[...] = other.array
        return self

    def zero_(self) -> HostTensor:
        """Set all elements to 0."""
        self.array[...] = np.zeros((), self.array.dtype)
        return self


_wrapped: WeakSet[HostTensor] = WeakSet()


def tensor(array: npt.NDArray[np.generic]) -> HostTensor:
    """A numpy array as an argument of a Triton kernel: what the kernel stores is seen in the array.

    >>> x = tensor(np.zeros((4, 8), np.float32))
    >>> x.shape, x.stride(), x.data_ptr() == x.array.ctypes.data
    ((4, 8), (8, 1), True)
    """
    if not isinstance(array, np.ndarray):
        raise HOST_ARRAY.error(shown=format_value(array))
    if array.dtype.hasobject:
        raise NOT_NUMBERS.error()
    wrapper = HostTensor(array)
    _wrapped.add(wrapper)
    return wrapper


def unwrap_view(argument: object) -> object:
    """The tensor inside triton.reinterpret(tensor, dtype); any other argument as it is."""
    if type(argument).__name__ == "TensorWrapper" and hasattr(argument, "base"):
        return argument.base
    return argument


def find_extent(argument: Tensor) -> Extent:
    """The bytes of a tensor's storage; a RuleError for a tensor that is not on the CPU."""
    inner = unwrap_view(argument)
    device = str(getattr(inner, "device", "cpu"))
    is_torch = hasattr(inner, "untyped_storage")
    if not is_torch and device != "cpu":
        raise OTHER_DEVICE.error(device=device)
    if isinstance(inner, HostTensor):
        low, high = np.lib.array_utils.byte_bounds(inner.array)
        return Extent(low, high - low, inner, is_writable=inner.array.flags.writeable)
    if is_torch:
        return _find_storage(inner)
    return _bound_strides(argument)


def _find_storage(inner: object) -> Extent:
    """The storage of a torch tensor. Under this driver "cuda" means the CPU; the storage of a true CUDA tensor is on "cuda"."""
    storage = inner.untyped_storage()  # type: ignore[attr-defined]
    storage_device = str(storage.device)
    if storage_device == "meta":
        raise NO_ADDRESS.error()
    if storage_device != "cpu":
        raise OTHER_DEVICE.error(device=storage_device)
    address = int(storage.data_ptr())
    size_bytes = int(storage.nbytes())
    if size_bytes and not address:
        raise NO_ADDRESS.error()
    return Extent(address, size_bytes, storage)


def _bound_strides(argument: Tensor) -> Extent:
    """The bytes from the first to the last element of a tensor that has no storage."""
    element_bytes = read_tensor_dtype(argument).itemsize
    if prod(argument.shape) == 0:
        return Extent(argument.data_ptr(), 0, argument)
    reach = [(extent - 1) * stride for extent, stride in zip(argument.shape, argument.stride(), strict=True)]
    low = sum(step for step in reach if step < 0) * element_bytes
    high = (sum(step for step in reach if step > 0) + 1) * element_bytes
    return Extent(argument.data_ptr() + low, high - low, argument)


def merge_extents(extents: Iterable[Extent]) -> list[Extent]:
    """Extents in the order of addresses; those that share bytes become one.

    >>> [one.size_bytes for one in merge_extents([Extent(100, 8, None), Extent(104, 8, None), Extent(200, 4, None)])]
    [12, 4]
    """
    merged: list[Extent] = []
    for extent in sorted(extents, key=lambda extent: extent.address):
        if not extent.size_bytes:
            continue
        last = merged[-1] if merged else None
        if last is None or extent.address >= last.end:
            merged.append(extent)
        elif extent.end > last.end or extent.is_writable != last.is_writable:
            size_bytes = max(last.end, extent.end) - last.address
            is_writable = last.is_writable or extent.is_writable
            merged[-1] = Extent(last.address, size_bytes, (last.owner, extent.owner), is_writable)
    return merged


def list_live_tensors() -> list[Tensor]:
    """All live tensors of the process: torch's, if torch is loaded, and those of `tensor`."""
    tensors: list[Tensor] = [*_wrapped]  # type: ignore[list-item]
    torch = sys.modules.get("torch")
    tensor_class = getattr(torch, "Tensor", None)
    if tensor_class is not None:
        tensors += [candidate for candidate in gc.get_objects() if issubclass(type(candidate), tensor_class)]
    return tensors
