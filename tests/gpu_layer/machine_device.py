"""The machine in a card's place: kernels of the suites, compiled for it and run without a GPU."""

from functools import cache

import numpy as np

import tilescope as ts
from tilescope.gpu.driver.nvrtc import kernel_source


def compiled_ptx(source, target):
    """The PTX that NVRTC makes of a source for a target such as "sm_100a"."""
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{target.removeprefix('sm_')}".encode(), b"--std=c++17"]
    assert int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) == int(status) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode().rstrip("\0")


@cache
def kernel_of(place, target):
    """A kernel such as "copies:to_shared", compiled by NVRTC to PTX."""
    file, entry = place.split(":")
    return ts.Kernel(compiled_ptx(kernel_source(file), target), entry)


class MachineDevice:
    """What suites ask of a device, done by the machine."""

    def __init__(self, target):
        self.target = target
        self.memory = ts.Memory()
        self.placed = {}

    def upload(self, array):
        """The address of a copy of an array."""
        held = np.ascontiguousarray(array).copy()
        address = self.memory.place(held.view(np.uint8).reshape(-1))
        self.placed[address] = held
        return address

    def allocate(self, size_bytes):
        """The address of memory."""
        return self.upload(np.zeros(max(size_bytes, 16), np.uint8))

    def download(self, address, array):
        """The array, filled with what lies in memory."""
        array.view(np.uint8).reshape(-1)[:] = self.placed[address].view(np.uint8).reshape(-1)[: array.nbytes]
        return array

    def free(self):
        """Forget what was uploaded."""

    def launch(self, place, *values, out=(), blocks, threads, smem_bytes=0):
        """Run a kernel; arrays of `out` then hold what it wrote."""
        kernel = kernel_of(place, self.target)
        pointers = [self.upload(array) for array in out]
        arguments = [self.upload(value) if isinstance(value, np.ndarray) else value for value in values]
        run = kernel.run(
            blocks, threads, [*arguments, *pointers], memory=self.memory, smem_bytes=smem_bytes, findings=False
        )
        assert run.outcome == "finished", run.outcome
        for array, pointer in zip(out, pointers, strict=True):
            self.download(pointer, array)
