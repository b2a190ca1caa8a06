"""The machine in the place of cuda.core and the CUDA driver: what an emitted Python program calls, without a card.

    card = machine_driver("sm_100a", monkeypatch)
    exec(program)
    card.runs  # what the machine ran: every launch outside a graph

Launches that a graph captures are counted and not run: each takes LAUNCH_US of the stand-in's time.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
from machine_device import compiled_ptx

import tilescope as ts
from tilescope.data_type import DATA_TYPE

LAUNCH_US = 12.5
_ALIGNMENT_BYTES = 256
_MAP_WORDS = 16  # of 8 bytes
_ELEMENTS = {row.driver_code: row.name for row in DATA_TYPE.values() if row.driver_code is not None}
_SWIZZLES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")  # by number
_PROMOTIONS = ("none", "64B", "128B", "256B")


class MachineDriver:
    """Calls of cuda.core and cuda.bindings.driver that emitted programs make; a call returns its status and values."""

    def __init__(self, target, sms):
        self.target = target
        self.sms = sms
        self.memory = ts.Memory()
        self.runs = []
        self.maps = []  # of which the program gets a number for bits: no card has shown those of sm_100's descriptors
        self._kernels = []
        self._arrays = {}
        self._captured = None  # launches of the graph that is being captured
        self._us = 0.0

    def compile(self, source):
        """A Program's code: kernels by name, of which a handle is one more than its place in a list."""
        ptx = compiled_ptx(source, self.target)

        def get_kernel(name):
            self._kernels.append(ts.Kernel(ptx, name))
            return SimpleNamespace(handle=len(self._kernels))

        return SimpleNamespace(get_kernel=get_kernel)

    def allocate(self, size_bytes):
        """cuMemAlloc."""
        array = np.zeros(-(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES, np.uint8)
        address = self.memory.place(array)
        self._arrays[address] = array
        return 0, address

    def copy_in(self, address, host, size_bytes):
        """cuMemcpyHtoD."""
        self._arrays[int(address)][:size_bytes] = np.frombuffer(ctypes.string_at(host, size_bytes), np.uint8)
        return (0,)

    def copy_out(self, host, address, size_bytes):
        """cuMemcpyDtoH."""
        ctypes.memmove(host, self._arrays[int(address)].ctypes.data, size_bytes)
        return (0,)

    def encode_tiled(self, data_type, _rank, address, dims, strides, box, steps, _interleave, swizzle, promotion, fill):
        """cuTensorMapEncodeTiled."""
        made = ts.TensorMap(
            _ELEMENTS[int(data_type)],
            tuple(map(int, dims)),
            tuple(map(int, strides)),
            tuple(map(int, box)),
            element_strides=tuple(map(int, steps)),
            swizzle=_SWIZZLES[int(swizzle)],
            l2_promotion=_PROMOTIONS[int(promotion)],
            oob_fill=("zero", "nan")[int(fill)],
            address=int(address),
            arch=self.target.rstrip("a"),
        )
        self.maps.append(made)
        return 0, SimpleNamespace(opaque=[len(self.maps) - 1] * _MAP_WORDS)

    def launch(self, function, *sizes_and_arguments):
        """cuLaunchKernel, of one dimension."""
        blocks, _, _, threads, _, _, smem_bytes, _, pointers, _ = sizes_and_arguments
        if self._captured is not None:
            self._captured += 1
            return (0,)
        kernel = self._kernels[int(function) - 1]
        addresses = np.frombuffer(ctypes.string_at(pointers, 8 * len(kernel.parameters)), np.uint64)
        values = [
            self._argument(ctypes.string_at(int(address), parameter.size_bytes))
            for address, parameter in zip(addresses, kernel.parameters, strict=True)
        ]
        run = kernel.run(blocks, threads, values, memory=self.memory, smem_bytes=smem_bytes)
        self.runs.append(run)
        return (0 if run.outcome == "finished" else 719,)

    def _argument(self, content):
        """The value of a kernel's parameter: a tensor map, or bytes."""
        return self.maps[content[0]] if len(content) == 8 * _MAP_WORDS else content

    def begin_capture(self, *_):
        """cuStreamBeginCapture."""
        self._captured = 0
        return (0,)

    def end_capture(self, _stream):
        """cuStreamEndCapture: the graph is how many launches it has."""
        graph, self._captured = self._captured, None
        return 0, graph

    def launch_graph(self, graph, _stream):
        """cuGraphLaunch."""
        self._us += graph * LAUNCH_US
        return (0,)

    def record_event(self, event, _stream):
        """cuEventRecord."""
        event.us = self._us
        return (0,)


def machine_driver(target, monkeypatch, sms=148):
    """Put the machine in the place of the driver for as long as the test runs."""
    import cuda.core
    from cuda.bindings import driver

    made = MachineDriver(target, sms)
    properties = SimpleNamespace(multiprocessor_count=sms)
    device = SimpleNamespace(set_current=lambda: None, properties=properties)
    monkeypatch.setattr(cuda.core, "Device", lambda: device)
    program = SimpleNamespace
    monkeypatch.setattr(cuda.core, "Program", lambda source, *_: program(compile=lambda _kind: made.compile(source)))
    calls = {
        "cuMemAlloc": made.allocate,
        "cuMemcpyHtoD": made.copy_in,
        "cuMemcpyDtoH": made.copy_out,
        "cuTensorMapEncodeTiled": made.encode_tiled,
        "cuKernelGetFunction": lambda kernel: (0, int(kernel)),
        "cuFuncSetAttribute": lambda *_: (0,),
        "cuLaunchKernel": made.launch,
        "cuCtxSynchronize": lambda: (0,),
        "cuStreamCreate": lambda _: (0, 0),
        "cuStreamBeginCapture": made.begin_capture,
        "cuStreamEndCapture": made.end_capture,
        "cuGraphInstantiate": lambda graph, _: (0, graph),
        "cuGraphLaunch": made.launch_graph,
        "cuEventCreate": lambda _: (0, SimpleNamespace()),
        "cuEventRecord": made.record_event,
        "cuEventSynchronize": lambda _: (0,),
        "cuEventElapsedTime": lambda start, end: (0, (end.us - start.us) / 1e3),
        "cuOccupancyMaxActiveClusters": lambda *_: (0, sms // 2),
    }
    for name, call in calls.items():
        monkeypatch.setattr(driver, name, call)
    return made
