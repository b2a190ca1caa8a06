"""Emitted GEMMs and cuBLAS on the card, interleaved: inputs rotated past the L2, graphs replayed alternately.

one graph a contender    launch on inputs 0, launch on inputs 1, …      enough inputs that the L2 holds none of them
replays                  ours, cuBLAS, cublasLt, ours, cuBLAS, …        power and clocks are shared
the answer               the median of a contender's replays, divided by its launches
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.emitter.emission import device_half, emit
from tilescope.emitter.gemm_parameters import SCALE_ARRAYS, Parameter, gemm_parameters
from tilescope.emitter.gemm_program import gemm_program
from tilescope.gpu.bench.blas import WORKSPACE_BYTES, Blas, Heuristic, Matrices
from tilescope.gpu.driver.device import Device, require_success
from tilescope.planner import GemmPlan
from tilescope.planner.gemm_maps import gemm_map, launch_rows

_ROTATED_BYTES = 128 << 20  # of inputs, more than twice the L2 of an H200
_MOST_INPUTS = 2048  # the smallest products, of 64 KB, still exceed the L2
_GRAPH_US = 400.0  # a replay takes about so long at least
_LONG_MS = 0.2  # products that take longer: a few launches are enough for a replay
_ONE = 0x3F800000  # the bits of float32
_FILL_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8")

Call = Callable[[Matrices], None]
_Addresses: TypeAlias = npt.NDArray[np.uint64]


class _Parameters(NamedTuple):
    """The parameters of a launch, and the address of each."""

    held: list[npt.NDArray[np.generic]]
    pointers: _Addresses


class Contender(NamedTuple):
    """Who multiplies: a name, and the call that starts a product in the stream."""

    name: str
    call: Call


def cubin(plan: GemmPlan) -> bytes:
    """The compiled kernel of a plan; NVRTC needs no GPU."""
    from cuda.core import Program, ProgramOptions

    source = device_half(emit(plan, "cuda"))
    target = gemm_program(plan).work.target
    return bytes(Program(source, "c++", ProgramOptions(arch=target, std="c++17")).compile("cubin").code)


class Loaded:
    """A plan's kernel on the card."""

    def __init__(self, bench: GemmTiming, plan: GemmPlan, image: bytes) -> None:
        driver = bench.driver
        self._bench = bench
        self._plan = plan
        self._image = np.frombuffer(image, np.uint8)
        self._module = require_success(driver.cuModuleLoadData(self._image.ctypes.data))
        self._function = require_success(driver.cuModuleGetFunction(self._module, b"gemm_kernel"))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        require_success(driver.cuFuncSetAttribute(self._function, attribute, plan.smem_bytes))
        self._threads = gemm_program(plan).work.threads
        self.scales: dict[str, int] = {}  # the addresses of those of A and B, if there are any
        self._extra = [self._upload(parameter) for parameter in gemm_parameters(plan)]
        self._arguments: dict[Matrices, _Parameters] = {}

    def _upload(self, parameter: Parameter) -> np.uint64 | np.int32 | np.float32:
        """A number, or the address of an array of zeros; scales are 1."""
        if not parameter.size:
            return np.float32(parameter.value) if parameter.data_type == "f32" else np.int32(parameter.value)
        size_bytes = parameter.size * DataType.named(parameter.data_type).bits // 8
        address = self._bench.device.allocate(size_bytes)
        if parameter.name in SCALE_ARRAYS:
            require_success(self._bench.driver.cuMemsetD32(address, _ONE, parameter.size))
            self.scales[parameter.name] = address
        else:
            require_success(self._bench.driver.cuMemsetD8(address, 0, size_bytes))
        return np.uint64(address)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self._plan.blocks_on(self._bench.device.facts["sms"])

    def __call__(self, matrices: Matrices) -> None:
        """Start the kernel in the stream."""
        sizes = (self.blocks, 1, 1, self._threads, 1, 1, self._plan.smem_bytes)
        pointers = self._pointers(matrices)
        if self._plan.schedule.dependent:
            require_success(
                self._bench.driver.cuLaunchKernelEx(self._dependent(), self._function, pointers.ctypes.data, 0)
            )
            return
        require_success(
            self._bench.driver.cuLaunchKernel(self._function, *sizes, self._bench.stream, pointers.ctypes.data, 0)
        )

    def _dependent(self) -> object:
        """How it is launched where it may start before the kernel before it in the stream has ended."""
        driver = self._bench.driver
        value = driver.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value = value
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._threads, 1, 1
        config.sharedMemBytes = self._plan.smem_bytes
        config.hStream = self._bench.stream
        config.attrs = [attribute]
        config.numAttrs = 1
        return config

    def _pointers(self, matrices: Matrices) -> _Addresses:
        """The kernel's parameters: the maps by value, then addresses and numbers."""
        if matrices not in self._arguments:
            plan = self._plan
            maps = [(gemm_map(plan, name), getattr(matrices, name)) for name in "abc"]
            buffers: list[npt.NDArray[np.generic]] = [
                np.frombuffer(self._bench.device.encode_map(each, address), np.uint64) for each, address in maps
            ]
            for parameter, number in zip(gemm_parameters(plan), self._extra, strict=True):
                if parameter.by_map:  # it is stored like C
                    encoded = self._bench.device.encode_map(gemm_map(plan, "c"), int(number))
                    buffers.append(np.frombuffer(encoded, np.uint64))
                else:
                    buffers.append(np.atleast_1d(number))  # an address, or a number of its type
            pointers = np.array([each.ctypes.data for each in buffers], np.uint64)
            self._arguments[matrices] = _Parameters(buffers, pointers)
        return self._arguments[matrices].pointers

    def with_scales(self, matrices: Sequence[Matrices]) -> list[Matrices]:
        """The same matrices with the kernel's own scales, for cublasLt."""
        if not self.scales:
            return list(matrices)
        of_a, of_b = (self.scales[name] for name in SCALE_ARRAYS)
        return [each._replace(scales=(of_a, of_b)) for each in matrices]

    def unload(self) -> None:
        """Give the module back."""
        require_success(self._bench.driver.cuModuleUnload(self._module))


class GemmTiming:
    """The card, a stream on it, and cuBLAS."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.driver = device.driver
        self.stream = require_success(self.driver.cuStreamCreate(1))
        self._start = require_success(self.driver.cuEventCreate(0))
        self._end = require_success(self.driver.cuEventCreate(0))
        self._workspace = require_success(self.driver.cuMemAlloc(WORKSPACE_BYTES))
        self.blas = Blas(int(self.stream), int(self._workspace))

    def matrices(self, plan: GemmPlan, *, seed: int) -> list[Matrices]:
        """Inputs of normal numbers and outputs, as many as exceed the L2; poisoned outputs reveal elements that were not written."""
        _, n, k = plan.shape
        stacked = plan.batch.count
        a_rows = launch_rows(plan) * (stacked if plan.batch.stacks("a") else 1)
        b_rows = n * stacked
        c_bytes = a_rows * plan.product.c_shape[1] * plan.output_type.bits // 8
        element_bits = plan.data_type.bits
        bytes_once = (a_rows + b_rows) * k * element_bits // 8
        count = max(2, min(_MOST_INPUTS, ceil(_ROTATED_BYTES / bytes_once)))
        matrix_sets = []
        for number in range(count):
            a = self.device.allocate(a_rows * k * element_bits // 8)
            b = self.device.allocate(b_rows * k * element_bits // 8)
            c = self.device.allocate(c_bytes)
            self._fill(a, a_rows * k, plan.data_type, 2 * number + seed)
            self._fill(b, b_rows * k, plan.data_type, 2 * number + 1 + seed)
            require_success(self.driver.cuMemsetD8(c, 0xEE, c_bytes))
            matrix_sets.append(Matrices(plan.shape, plan.data_type, plan.output_type, a, b, c))
        return matrix_sets

    def _fill(self, address: int, elements: int, data_type: DataType, seed: int) -> None:
        words = elements * data_type.bits // 32
        kind = _FILL_TYPES.index(data_type.ptx)
        self.device.launch("normal:fill_normal", address, words, kind, data_type.bits, seed, blocks=528, threads=256)

    def graph(self, call: Call, matrices: Sequence[Matrices], launches: int) -> object:
        """A graph of products, one after another, each on the next matrices."""
        driver = self.driver
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        require_success(driver.cuStreamBeginCapture(self.stream, mode))
        try:
            for number in range(launches):
                call(matrices[number % len(matrices)])
        finally:
            graph = require_success(driver.cuStreamEndCapture(self.stream))
        return require_success(driver.cuGraphInstantiate(graph, 0))

    def milliseconds(self, start: Callable[[], object]) -> float:
        """The time of what `start` puts into the stream."""
        driver = self.driver
        require_success(driver.cuEventRecord(self._start, self.stream))
        start()
        require_success(driver.cuEventRecord(self._end, self.stream))
        require_success(driver.cuEventSynchronize(self._end))
        return float(require_success(driver.cuEventElapsedTime(self._start, self._end)))

    def _replay(self, graph: object) -> None:
        require_success(self.driver.cuGraphLaunch(graph, self.stream))

    def run_once(self, call: Call, matrices: Matrices) -> None:
        """One product; a fault is raised here."""
        call(matrices)
        require_success(self.driver.cuStreamSynchronize(self.stream))

    def microseconds(
        self, contenders: Sequence[Contender], matrices: Sequence[Matrices], *, replays: int
    ) -> Mapping[str, float]:
        """The median time of one product of every contender; their replays take turns."""
        for contender in contenders:  # loads, and warms up
            self.run_once(contender.call, matrices[0])
        slowest_ms = max(self.milliseconds(partial(each.call, matrices[0])) for each in contenders)
        launches = max(len(matrices), ceil(_GRAPH_US / (1e3 * max(slowest_ms, 2e-3))))
        if slowest_ms >= _LONG_MS:
            launches = max(2, min(4, launches))
        graphs = [self.graph(each.call, matrices, launches) for each in contenders]
        times: list[list[float]] = [[] for _ in contenders]
        for turn in range(replays + 1):
            for number, graph in enumerate(graphs):
                took_ms = self.milliseconds(partial(self._replay, graph))
                if turn > 0:  # the first replay uploads the graph
                    times[number].append(took_ms * 1e3 / launches)
        for graph in graphs:
            require_success(self.driver.cuGraphExecDestroy(graph))
        return {each.name: float(np.median(took)) for each, took in zip(contenders, times, strict=True)}

    def cublas(self, matrices: Matrices) -> list[Contender]:
        """CublasGemmEx where it takes the type, and the algorithm of cublasLt's heuristic that is fastest here."""
        contenders = []
        if self.blas.takes(matrices.data_type):
            contenders.append(Contender("cublasGemmEx", self.blas.gemm_ex))
        product = self.blas.lt(matrices)
        tried = []
        for algorithm in product.algorithms:

            def call(each: Matrices, algorithm: Heuristic = algorithm) -> None:
                product.multiply(each, algorithm)

            self.run_once(call, matrices)
            tried.append((min(self.milliseconds(partial(call, matrices)) for _ in range(5)), call))
        if tried:
            contenders.append(Contender("cublasLt", min(tried, key=lambda each: each[0])[1]))
        return contenders
