"""The first GPU of this machine: its memory, its driver's verdict on tensor maps, and launches of our kernels.

Everything goes through cuda.bindings. An error of CUDA's is raised with its number; after a fault (715, 716, 719) the
process is spent, which is why this runs in child processes (see isolation.py).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import DeviceError
from tilescope.swizzle import Swizzle
from tilescope.tensor_map import AnyMap, Im2colMap, TensorMap
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.value import Value

_MAP_ALIGNMENT_BYTES = 64
_DEFAULT_SMEM_BYTES = 40 * 1024  # more, with static shared memory up to 48 KiB, needs an attribute of the kernel
_LIBRARY = "libcuda.so.1"
_ARRAYS = {
    "dims": ctypes.c_uint64,
    "strides_bytes": ctypes.c_uint64,
    "box": ctypes.c_uint32,
    "element_strides": ctypes.c_uint32,
    "lower_corner": ctypes.c_int32,
    "upper_corner": ctypes.c_int32,
}
_OPTIONS: dict[str, Any] = {
    "interleave": Interleave,
    "swizzle": Swizzle,
    "l2_promotion": L2Promotion,
    "oob_fill": OobFill,
}


class CudaError(Exception):
    """CUDA answered with an error; `.code` is its number."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"CUDA error {code}")


class Device:
    """The card, with a context of its own process. `cubins` is a folder with compiled files of kernels."""

    def __init__(self, cubins: Path | None = None) -> None:
        self.cubins = cubins
        self._driver = _driver()
        self._number = _value(self._driver.cuDeviceGet(0))
        _value(self._driver.cuCtxSetCurrent(_value(self._driver.cuDevicePrimaryCtxRetain(self._number))))
        major, minor = (self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.arch = f"sm_{major}{minor}"
        self.sms = self._attribute("MULTIPROCESSOR_COUNT")
        self.clock_mhz = self._attribute("CLOCK_RATE") // 1000  # the highest of the SMs
        self._functions: dict[str, Any] = {}
        self._held: list[int] = []
        self._library = ctypes.CDLL(_LIBRARY)

    def facts(self) -> dict[str, Any]:
        """What captures and benchmarks say about where they were made."""
        cuda = _value(self._driver.cuDriverGetVersion())
        return {
            "card": _value(self._driver.cuDeviceGetName(128, self._number)).split(b"\0")[0].decode(),
            "arch": self.arch,
            "driver": _driver_version(),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "sms": self.sms,
            "clock_mhz": self.clock_mhz,
            "memory_clock_mhz": self._attribute("MEMORY_CLOCK_RATE") // 1000,
            "l2_bytes": self._attribute("L2_CACHE_SIZE"),
        }

    def encode(self, kind: type[AnyMap], arguments: Mapping[str, Any]) -> tuple[int, bytes]:
        """The driver's result code and 128 bytes for a map's arguments, whether or not they keep the rules."""
        storage = ctypes.create_string_buffer(128 + _MAP_ALIGNMENT_BYTES)
        place = -(-ctypes.addressof(storage) // _MAP_ALIGNMENT_BYTES) * _MAP_ALIGNMENT_BYTES
        spread = {name: (integer * 5)(*arguments.get(name, ())[:5]) for name, integer in _ARRAYS.items()}
        head = (
            ctypes.c_void_p(place),
            DataType.named(arguments["data_type"]).tma.driver_code,
            len(arguments["dims"]),
            ctypes.c_void_p(arguments["address"]),
            spread["dims"],
            spread["strides_bytes"],
        )
        options = (named.named(arguments[name]).driver_code for name, named in _OPTIONS.items())
        tail = (spread["element_strides"], *options)
        if issubclass(kind, TensorMap):
            result = self._library.cuTensorMapEncodeTiled(*head, spread["box"], *tail)
        else:
            corners = spread["lower_corner"], spread["upper_corner"]
            columns = arguments["channels_per_pixel"], arguments["pixels_per_column"]
            result = self._library.cuTensorMapEncodeIm2col(*head, *corners, *columns, *tail)
        return result, ctypes.string_at(place, 128)

    def encoded(self, tensor_map: TensorMap | Im2colMap, address: int) -> bytes:
        """The driver's 128 bytes of a map whose tensor lies at this address of the card."""
        arguments = {name: getattr(tensor_map, name) for name in tensor_map.readers} | {"address": address}
        result, blob = self.encode(type(tensor_map), arguments)
        if result:
            raise CudaError(result)
        return blob

    def upload(self, rows: Any, dtype: npt.DTypeLike | None = None) -> int:
        """The address of a copy of an array, or of rows of numbers as one, held until `free`."""
        host = np.ascontiguousarray(rows, dtype)
        pointer = self.allocate(host.nbytes)
        _value(self._driver.cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes))
        return pointer

    def allocate(self, size_bytes: int) -> int:
        """The address of memory on the card, held until `free`."""
        pointer = int(_value(self._driver.cuMemAlloc(max(size_bytes, 16))))
        self._held.append(pointer)
        return pointer

    def download(self, pointer: int, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """An array read from the card; what went wrong in launches before it is raised here."""
        array = np.empty(tuple(shape), dtype)
        _value(self._driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
        return array

    def free(self) -> None:
        """Give back all that was uploaded or allocated."""
        for pointer in self._held:
            self._driver.cuMemFree(pointer)
        self._held.clear()

    def launch(self, place: str, *values: Any, blocks: int, threads: int, smem_bytes: int = 0) -> None:
        """Run a kernel such as "copies:to_shared" and wait for it; a fault is raised here.

        Addresses are ints, numbers numpy scalars.
        """
        self._start(place, values, blocks, threads, smem_bytes)
        _value(self._driver.cuCtxSynchronize())

    def _start(self, place: str, values: Sequence[Any], blocks: int, threads: int, smem_bytes: int) -> None:
        function = self._function(place, smem_bytes)
        held = [np.atleast_1d(np.uint64(value) if isinstance(value, int) else value) for value in values]
        pointers = np.array([value.ctypes.data for value in held], np.uint64)
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        _value(self._driver.cuLaunchKernel(function, *grid, *block, smem_bytes, 0, pointers.ctypes.data, 0))

    def seconds(self, place: str, *values: Any, blocks: int, threads: int, smem_bytes: int = 0) -> float:
        """The median time of five launches of a kernel, after one that is not counted."""
        self.launch(place, *values, blocks=blocks, threads=threads, smem_bytes=smem_bytes)
        start, end = (_value(self._driver.cuEventCreate(0)) for _ in range(2))
        times = []
        for _ in range(5):
            _value(self._driver.cuEventRecord(start, 0))
            self._start(place, values, blocks, threads, smem_bytes)
            _value(self._driver.cuEventRecord(end, 0))
            _value(self._driver.cuEventSynchronize(end))
            times.append(_value(self._driver.cuEventElapsedTime(start, end)) / 1e3)
        for event in (start, end):
            self._driver.cuEventDestroy(event)
        return float(np.median(times))

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_value(self._driver.cuDeviceGetAttribute(attribute, self._number)))

    def _function(self, place: str, smem_bytes: int) -> Any:
        file, kernel = place.split(":")
        if file not in self._functions:
            assert self.cubins is not None
            image = np.fromfile(self.cubins / f"{file}.cubin", np.uint8)
            self._functions[file] = _value(self._driver.cuModuleLoadData(image.ctypes.data))
        if place not in self._functions:
            self._functions[place] = _value(self._driver.cuModuleGetFunction(self._functions[file], kernel.encode()))
        function = self._functions[place]
        if smem_bytes > _DEFAULT_SMEM_BYTES:
            attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _value(self._driver.cuFuncSetAttribute(function, attribute, smem_bytes))
        return function


def _driver() -> Any:
    """cuda.bindings' driver, initialised; DeviceError where there is no driver or no card."""
    from cuda.bindings import driver

    try:
        (result,) = driver.cuInit(0)
        count = 0 if int(result) else _value(driver.cuDeviceGetCount())
    except Exception as error:  # whatever the loader raises where there is no driver
        raise DeviceError("This needs an NVIDIA GPU, and this machine has no NVIDIA driver.") from error
    if count == 0:
        raise DeviceError(f"This needs an NVIDIA GPU, and the driver finds none (cuInit: {int(result)}).")
    return driver


def _value(answer: tuple[Any, ...]) -> Any:
    """The value in a binding's answer, once its result is success."""
    result, *values = answer
    if int(result):
        raise CudaError(int(result))
    return values[0] if values else None


def _driver_version() -> str:
    """The version of the kernel driver, such as 580.159.04; "unknown" where the system does not tell."""
    with suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text("utf-8")
        if version := re.search(r"\d+(\.\d+)+", text):
            return version[0]
    return "unknown"


def read_map(data: Mapping[str, Any]) -> TensorMap | Im2colMap:
    """The map of a case."""
    tensor_map = Value.from_dict(data)
    assert isinstance(tensor_map, TensorMap | Im2colMap)
    return tensor_map
