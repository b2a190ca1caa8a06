"""The driver from which Triton gets its target, its device and its launcher.

    triton.runtime.driver.set_active(make_driver(…))

Triton caches compiled kernels by the number of the device. A device here is numbered by its architecture (90, 100), so
kernels of different architectures are never in one cache entry, and none is used for a card.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Protocol

import numpy as np

from tilescope.arch import WARP_LANES, Arch
from tilescope.card import Card
from tilescope.errors import DeviceError
from tilescope.machine.kernel import Kernel
from tilescope.triton.host_tensor import HostTensor, tensor
from tilescope.triton.register_estimate import REGISTERS_PER_SM, estimate_registers
from tilescope.triton.streams import DeviceInterface
from tilescope.triton.triton_launcher import Launcher, LaunchRequest, LoadedKernel, Source

STAGES_KEY = "tilescope-ptx-1"  # marks kernels whose last stage is PTX in Triton's cache of compiled kernels
BINARY_STAGE = "cubin"
_MOST_THREADS = 1024
_ASSUMED_SMS = 132  # of an architecture without a card in the table
_ASSUMED_CLOCK_MHZ = 1700
Stages = dict[str, Callable[[str, object], object]]
StagesHook = Callable[..., tuple[str, str] | None]


class DeviceState(Protocol):
    """The interface of the device that the driver needs."""

    arch: Arch
    card: Card | None

    def run(self, request: LaunchRequest) -> None:
        """Run a launch."""

    def bench(self, function: Callable[[], object], **options: object) -> object:
        """Answer a benchmark."""


def device_number(arch: Arch) -> int:
    """The number of a device in Triton's caches.

    >>> device_number(Arch.named("sm_90")), device_number(Arch.named("sm_100"))
    (90, 100)
    """
    major, minor = arch.compute_capability
    return 10 * major + minor


class DriverUtils:
    """The functions that Triton's own driver has in C: loading kernels, and properties of the device."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state

    def load_binary(
        self, name: str, binary: bytes, _shared_bytes: int, _device: int
    ) -> tuple[None, LoadedKernel, int, int, int]:
        """(module, function, registers, spilled registers, most threads); there is no module that needs unloading."""
        loaded = load_kernel(name, binary)
        required = loaded.kernel.program.entry.required_threads
        threads = _MOST_THREADS if required is None else prod(required)
        return None, loaded, estimate_registers(loaded.ptx, threads), 0, _MOST_THREADS

    def unload_module(self, _module: object) -> None:
        """Nothing is loaded on a card."""

    def set_printf_fifo_size(self, _size_bytes: int) -> None:
        """The output of device_print has a separate limit."""

    def get_device_properties(self, _device: int = 0) -> dict[str, int]:
        """The properties of the card, by Triton's names; rates in kHz."""
        card = self._state.card
        clock_mhz = _ASSUMED_CLOCK_MHZ if card is None or card.clock_mhz is None else card.clock_mhz
        memory_gb_per_s = 0 if card is None else card.memory_gb_per_s
        bus_bits = 5120
        return {
            "max_shared_mem": self._state.arch.smem_per_block_bytes,
            "max_num_regs": REGISTERS_PER_SM,
            "multiprocessor_count": _ASSUMED_SMS if card is None else card.sms,
            "warpSize": WARP_LANES,
            "sm_clock_rate": clock_mhz * 1000,
            "mem_clock_rate": memory_gb_per_s * 8 * 1_000_000 // bus_bits // 2,
            "mem_bus_width": bus_bits,
        }


@functools.lru_cache(maxsize=512)
def load_kernel(name: str, binary: bytes) -> LoadedKernel:
    """The assembled kernel of a PTX text; a RuleError names what cannot be run."""
    ptx = binary.decode()
    return LoadedKernel(Kernel(ptx, name), ptx)


class DriverMethods:
    """The methods that Triton calls of a driver."""

    def __init__(self, triton: ModuleType, state: DeviceState) -> None:
        self._triton = triton
        self._state = state
        self._number = device_number(state.arch)
        self.utils = DriverUtils(state)

    @classmethod
    def is_active(cls) -> bool:
        """Whether it can be used: always."""
        return True

    def launcher_cls(self, source: Source, metadata: object) -> Launcher:
        """The launcher of a compiled kernel, which Triton caches: it gets the active driver at each launch."""
        return Launcher(self._triton, source, metadata, functools.partial(run_on_active_device, self._triton))

    def run_launch(self, request: LaunchRequest) -> None:
        """Run a launch on the device."""
        __tracebackhide__ = True
        self._state.run(request)

    def map_python_to_cpp_type(self, written: str) -> str:
        """The type of a parameter, for tools that print it."""
        return written

    def get_current_target(self) -> object:
        """The architecture that kernels are compiled for."""
        return self._triton.backends.compiler.GPUTarget("cuda", self._number, WARP_LANES)

    def get_current_device(self) -> int:
        """The number under which Triton keeps compiled kernels."""
        return self._number

    def set_current_device(self, _device: object) -> None:
        """There is one device."""

    def get_current_stream(self, _device: object = None) -> int:
        """The one stream."""
        return 0

    def get_device_capability(self, _device: object = None) -> tuple[int, int]:
        """Major and minor number of the architecture."""
        return self._state.arch.compute_capability

    def get_active_torch_device(self) -> object:
        """The device of tensors: the CPU."""
        torch = sys.modules.get("torch")
        return "cpu" if torch is None else torch.device("cpu")

    def get_device_interface(self) -> type[DeviceInterface]:
        """Streams and events that do nothing."""
        return DeviceInterface

    def get_benchmarker(self) -> Callable[..., object]:
        """What autotuners would time kernels with."""
        return self._state.bench

    def get_empty_cache_for_benchmark(self) -> HostTensor:
        """A buffer to clear between timed runs; nothing is timed."""
        return tensor(np.zeros(1, np.int32))

    def clear_cache(self, _cache: object) -> None:
        """There is no cache to clear."""


def make_driver(triton: ModuleType, state: DeviceState) -> object:
    """The driver of a device, as an instance of Triton's base class."""
    from triton.backends.driver import DriverBase

    driver: object = type("TilescopeDriver", (DriverMethods, DriverBase), {})(triton, state)
    return driver


def run_on_active_device(triton: ModuleType, request: LaunchRequest) -> None:
    """Run a launch on the device that is Triton's driver now; a DeviceError if there is none."""
    __tracebackhide__ = True
    active = triton.runtime.driver._active
    if not isinstance(active, DriverMethods):
        raise DeviceError(
            "This kernel was compiled under tilescope's driver, which has ended: launch it inside the with block."
        )
    active.run_launch(request)


def make_stages_hook(previous: StagesHook | None) -> StagesHook:
    """The hook that ends compilation at PTX, under a separate cache key; a hook of the program is called first."""

    def inspect_stages(
        backend: object = None,
        stages: Stages | None = None,
        options: object = None,
        language: object = None,
        capability: object = None,
    ) -> tuple[str, str] | None:
        if stages is None:
            key, digest = ("", "") if previous is None else previous() or ("", "")
            return f"{key}{STAGES_KEY}", f"{digest}{STAGES_KEY}"
        if previous is not None:
            previous(backend, stages, options, language, capability)
        stages[BINARY_STAGE] = keep_ptx
        return None

    return inspect_stages


def keep_ptx(ptx: str, _metadata: object) -> bytes:
    """The last stage of the compilation: PTX in place of a binary."""
    return ptx.encode()
