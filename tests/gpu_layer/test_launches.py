"""Launches pass what the kernels take: a stand-in for the driver holds memory and looks at every parameter."""

import ctypes
import re
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from tilescope.arch import Arch
from tilescope.gpu.bench.bench_settings import SETTINGS
from tilescope.gpu.bench.stream_timing import run
from tilescope.gpu.driver import device as device_module
from tilescope.gpu.driver.device import Device
from tilescope.gpu.driver.nvrtc import kernel_source
from tilescope.gpu.verify.suites import SUITE_NAMES, suite_named

SUITES = [
    name for name in SUITE_NAMES if name not in ("emitted", "kernels", "rates")
]  # whose programs bring their own kernels
# what macros declare for the kernels of kernels/tensor_cores.cu, by how their names begin
MACROS = {"mma": "WORD* pa", "wgmma": "u32* pa", "addresses": "u64* words"}


def declared(file, kernel):
    """The parameters of a kernel as its file declares them, macros included."""
    text = re.sub(r"/\*.*?\*/|\\\n", "", kernel_source(file))
    first = MACROS[kernel.split("_")[0]] if file == "tensor_cores" else None
    pattern = rf"NAME\((const {re.escape(first)}[^)]*)\)" if first else rf"\b{kernel}\(([^)]*)\)"
    return re.search(pattern, text)[1].split(",")


class Driver:
    """Memory and modules without a card. Allocations lie far apart, and an address says which one it is in."""

    def __init__(self):
        self.memory = {}
        self.CUdevice_attribute = SimpleNamespace()
        self.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __getattr__(self, name):
        return lambda *_: (0, 0)  # what succeeds and tells nothing

    def cuMemAlloc(self, size):  # noqa: N802  the driver's name
        address = (len(self.memory) + 1) << 40
        self.memory[address] = size
        return 0, address

    def cuMemcpyDtoH(self, place, _address, size):  # noqa: N802
        ctypes.memmove(place, np.arange(size, dtype="<u4").tobytes(), size)
        return (0,)

    def holds(self, number):
        return number >> 40 << 40 in self.memory and number % (1 << 40) < self.memory[number >> 40 << 40]


@pytest.fixture
def device(monkeypatch, tmp_path):
    """A device whose launches are compared with the kernels' declarations."""
    with suppress(ImportError):  # what it loads by ctypes must come before the stand-in
        import_module("llvmlite.binding")
    driver, launched = Driver(), []
    library = SimpleNamespace(cuTensorMapEncodeTiled=lambda *_: 0, cuTensorMapEncodeIm2col=lambda *_: 0)
    monkeypatch.setattr(device_module, "_driver", lambda: driver)
    monkeypatch.setattr(device_module.ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr("shutil.which", lambda _: None)  # Nsight Compute would start a process with a card
    monkeypatch.setattr(Device, "_attribute", lambda *_: 9000)
    monkeypatch.setattr(driver, "cuDeviceGetName", lambda *_: (0, b"stand-in\0"), raising=False)
    monkeypatch.setattr(driver, "cuEventElapsedTime", lambda *_: (0, 1.0), raising=False)
    monkeypatch.setattr(device_module.np, "fromfile", lambda path, _: np.frombuffer(path.stem.encode(), np.uint8))
    monkeypatch.setattr(driver, "cuModuleGetFunction", lambda _, kernel: (0, kernel.decode()), raising=False)
    prepared = Device._prepare_launch

    def remembered(made, place, *values, **sizes):
        launched.append(place)
        return prepared(made, place, *values, **sizes)

    def start(_device, kernel, _sizes, contents):
        file = launched[-1].split(":")[0]
        parameters = declared(file, kernel)
        assert len(contents) == len(parameters), (kernel, parameters)
        for content, parameter in zip(contents, parameters, strict=True):
            number = int.from_bytes(content, "little")
            assert driver.holds(number) == ("*" in parameter), (kernel, parameter, hex(number))

    monkeypatch.setattr(Device, "_prepare_launch", remembered)
    monkeypatch.setattr(Device, "_start", start)
    made = Device(tmp_path)
    made.launched = launched
    return made


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_passes_what_its_kernels_take(device, name):
    suite = suite_named(name)
    arch = "sm_90" if Arch.named("sm_90").has(suite.feature) else "sm_100"
    cases = suite.cases(12, 1, arch)
    assert len(suite.results(device, cases)) == len(cases)
    assert {place.split(":")[0] for place in device.launched} <= set(suite.kernels)
    assert device.launched or name == "encode"


def test_streams_pass_what_their_kernels_take(device):
    cases = [SETTINGS[topic](4)[0][2] for topic in SETTINGS]
    assert len(run(device, cases)) == len(cases)
    kernels = {place.split(":")[1] for place in device.launched}
    assert kernels == {"plain_read", "plain_copy", "stream_loads", "stream_stores", "timed_accesses"}
