"""The first GPU of this machine: its memory, its driver's verdict on tensor maps, and launches of our kernels.

Everything goes through cuda.bindings. An error of CUDA's is raised with its number; after a fault (715, 716, 719) the
process is spent, which is why this runs in child processes (see isolation.py).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import DeviceError
from tilescope.tensor_map import AnyMap
from tilescope.tensor_map.limits import MAX_RANK
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.text.argument_dump import TABLES

_MAP_ALIGNMENT_BYTES = 64
_Array: TypeAlias = npt.NDArray[Any]
# what a kernel gets: a number, the address of a copy of an array, or bytes by value, such as a tensor map's
KernelValue: TypeAlias = int | np.integer[Any] | npt.NDArray[Any] | bytes


class CardFacts(TypedDict):
    """Facts about a card, which captures and benchmarks store."""

    card: str
    arch: str
    driver: str
    cuda: str
    sms: int
    clock_mhz: int  # the highest of the SMs
    memory_clock_mhz: int
    l2_bytes: int


CInteger = TypeVar("CInteger", ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32)


class CudaError(Exception):
    """CUDA answered with an error: its argument is the number."""


class Device:
    """The card, with a context in this process. `cubins` is a folder with compiled files of kernels."""

    def __init__(self, cubins: Path | None = None) -> None:
        self.cubins = cubins
        self.driver = _driver()
        self._number = require_success(self.driver.cuDeviceGet(0))
        require_success(
            self.driver.cuCtxSetCurrent(require_success(self.driver.cuDevicePrimaryCtxRetain(self._number)))
        )
        self._modules: dict[str, Any] = {}  # loaded files of kernels
        self._held: list[int] = []
        self._library = ctypes.CDLL("libcuda.so.1")
        major = self._attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR")
        minor = self._attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR")
        cuda = require_success(self.driver.cuDriverGetVersion())
        self.facts: CardFacts = {
            "card": require_success(self.driver.cuDeviceGetName(128, self._number)).split(b"\0")[0].decode(),
            "arch": f"sm_{major}{minor}",
            "driver": _driver_version(),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "sms": self._attribute("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"),
            "clock_mhz": self._attribute("CU_DEVICE_ATTRIBUTE_CLOCK_RATE") // 1000,
            "memory_clock_mhz": self._attribute("CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE") // 1000,
            "l2_bytes": self._attribute("CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE"),
        }

    def encode(self, arguments: Mapping[str, Any]) -> tuple[int, bytes]:
        """The driver's result code and 128 bytes for a map's arguments, whether or not they keep the rules."""
        storage = ctypes.create_string_buffer(DESCRIPTOR_BYTES + _MAP_ALIGNMENT_BYTES)
        place = rounded_up(ctypes.addressof(storage), _MAP_ALIGNMENT_BYTES)
        tensor = (
            ctypes.c_void_p(place),
            DataType.named(arguments["data_type"]).tma.driver_code,
            len(arguments["dims"]),
            ctypes.c_void_p(arguments["address"]),
            _c_array(ctypes.c_uint64, arguments["dims"]),
            _c_array(ctypes.c_uint64, arguments["strides_bytes"]),
        )
        element_strides = _c_array(ctypes.c_uint32, arguments["element_strides"])
        options = [TABLES[name][arguments[name]].driver_code for name in TABLES if name != "data_type"]
        if "box" in arguments:
            box = _c_array(ctypes.c_uint32, arguments["box"])
            result = self._library.cuTensorMapEncodeTiled(*tensor, box, element_strides, *options)
        else:
            result = self._library.cuTensorMapEncodeIm2col(
                *tensor,
                _c_array(ctypes.c_int32, arguments["lower_corner"]),
                _c_array(ctypes.c_int32, arguments["upper_corner"]),
                arguments["channels_per_pixel"],
                arguments["pixels_per_column"],
                element_strides,
                *options,
            )
        return result, ctypes.string_at(place, DESCRIPTOR_BYTES)

    def encode_map(self, tensor_map: AnyMap, address: int) -> bytes:
        """The driver's 128 bytes of a map whose tensor is at this address of the card."""
        arguments = {name: getattr(tensor_map, name) for name in tensor_map.readers} | {"address": address}
        result, blob = self.encode(arguments)
        if result:
            raise CudaError(result)
        return blob

    def upload(self, array: _Array) -> int:
        """The address of a copy of an array, held until `free`."""
        pointer = self.allocate(array.nbytes)
        dense = np.ascontiguousarray(array)
        require_success(self.driver.cuMemcpyHtoD(pointer, dense.ctypes.data, dense.nbytes))
        return pointer

    def allocate(self, size_bytes: int) -> int:
        """The address of memory on the card, held until `free`."""
        self._held.append(int(require_success(self.driver.cuMemAlloc(max(size_bytes, 16)))))
        return self._held[-1]

    def download(self, pointer: int, array: _Array) -> _Array:
        """The array, filled with the card's data."""
        require_success(self.driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
        return array

    def free(self) -> None:
        """Give back all that was uploaded or allocated."""
        for pointer in self._held:
            self.driver.cuMemFree(pointer)
        self._held.clear()

    def launch(self, place: str, *values: KernelValue, out: Sequence[_Array] = (), **sizes: int) -> None:
        """Run a kernel such as "copies:to_shared" on `blocks` of `threads` with `smem_bytes`; a fault is raised here.

        Of an array the kernel gets the address of a copy. Those of `out` come last, and then hold what it wrote.
        """
        pointers = [self.upload(array) for array in out]
        self._prepare_launch(place, *values, *pointers, **sizes)()
        require_success(self.driver.cuCtxSynchronize())
        for array, pointer in zip(out, pointers, strict=True):
            self.download(pointer, array)

    def load(self, image: str | bytes) -> str:
        """Load a cubin, or a PTX text, which the driver compiles; gives the name for `launch`, "name:entry"."""
        contents = image.encode() + b"\0" if isinstance(image, str) else image
        name = f"text {len(self._modules)}"
        self._modules[name] = require_success(self.driver.cuModuleLoadData(contents))
        return name

    def seconds(self, place: str, *values: KernelValue, **sizes: int) -> float:
        """The median time of five launches of a kernel, after one that is not counted."""
        start_kernel = self._prepare_launch(place, *values, **sizes)
        start_kernel()
        start = require_success(self.driver.cuEventCreate(0))
        end = require_success(self.driver.cuEventCreate(0))
        times = []
        for _ in range(5):
            require_success(self.driver.cuEventRecord(start, 0))
            start_kernel()
            require_success(self.driver.cuEventRecord(end, 0))
            require_success(self.driver.cuEventSynchronize(end))
            times.append(require_success(self.driver.cuEventElapsedTime(start, end)) / 1e3)
        for event in (start, end):
            self.driver.cuEventDestroy(event)
        return float(np.median(times))

    def _prepare_launch(
        self, place: str, *values: KernelValue, blocks: int, threads: int, smem_bytes: int = 0
    ) -> Callable[[], None]:
        """Load the kernel's module on first use, and return the function that launches it with these values."""
        file, kernel = place.split(":")
        if file not in self._modules:
            assert self.cubins is not None
            image = np.fromfile(self.cubins / f"{file}.cubin", np.uint8)
            self._modules[file] = require_success(self.driver.cuModuleLoadData(image.ctypes.data))
        function = require_success(self.driver.cuModuleGetFunction(self._modules[file], kernel.encode()))
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        require_success(self.driver.cuFuncSetAttribute(function, attribute, smem_bytes))
        contents = [self._content(value) for value in values]
        sizes = (blocks, 1, 1, threads, 1, 1, smem_bytes)
        return partial(self._start, function, sizes, contents)

    def _content(self, value: KernelValue) -> bytes:
        """The bytes of a parameter; one of 32 bits is the lower half of its number."""
        if isinstance(value, bytes):
            return value
        return np.uint64(self.upload(value) if isinstance(value, np.ndarray) else int(value)).tobytes()

    def _start(self, function: object, sizes: tuple[int, ...], contents: Sequence[bytes]) -> None:
        arrays = [np.frombuffer(content, np.uint8) for content in contents]
        pointers = np.array([content.ctypes.data for content in arrays], np.uint64)
        require_success(self.driver.cuLaunchKernel(function, *sizes, 0, pointers.ctypes.data, 0))

    def _attribute(self, name: str) -> int:
        attribute = getattr(self.driver.CUdevice_attribute, name)
        return int(require_success(self.driver.cuDeviceGetAttribute(attribute, self._number)))


def _c_array(integer: type[CInteger], numbers: Sequence[int]) -> ctypes.Array[CInteger]:
    """An array as the driver reads it, which has room for the largest rank."""
    return (integer * MAX_RANK)(*numbers[:MAX_RANK])


def _driver() -> Any:
    """cuda.bindings' driver, initialised; DeviceError where a package, the driver or a card is missing."""
    try:
        from cuda.bindings import driver

        (result,) = driver.cuInit(0)
        count = 0 if int(result) else require_success(driver.cuDeviceGetCount())
    except ModuleNotFoundError as error:
        raise DeviceError(f"This needs the package {error.name}: pip install 'tilescope[gpu]'.") from error
    except Exception as error:  # any exception of the loader without a driver
        raise DeviceError("This needs an NVIDIA GPU, and this machine has no NVIDIA driver.") from error
    if count == 0:
        raise DeviceError(f"This needs an NVIDIA GPU, and the driver finds none (cuInit: {int(result)}).")
    return driver


def require_success(answer: tuple[Any, ...]) -> Any:
    """Return the value of a driver call; raise CudaError unless its result is CUDA_SUCCESS."""
    result, *values = answer
    if int(result):
        raise CudaError(int(result))
    return values[0] if values else None


def _driver_version() -> str:
    """The version of the kernel driver, such as 580.159.04; "unknown" where the system does not tell."""
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return "unknown"
    version = re.search(r"\d+(?:\.\d+)+", path.read_text("utf-8"))
    return version[0] if version else "unknown"
