"""Public CUDA host code that launches a kernel, run without a card: the launch goes to tilescope's machine.

    program = build("driver.cu", arch="sm_90a", options=["-Iinclude"], cache=folder)
    with program.running() as launched: launched.call("run_scan", array, result, 1000)

A file of host and device code is compiled by nvcc to a shared library that holds PTX, and linked with host_runtime.cpp in place of
CUDA's runtime. Device pointers are addresses of numpy arrays, which have the same addresses on the machine. So kernels get the structs
and tensor maps that their own host code makes: CUTLASS's parameters, CUB's temporary storage, cuTensorMapEncodeTiled.
"""

import contextlib
import ctypes
import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tilescope as ts
from tilescope.data_type import DATA_TYPE
from tilescope.machine.launch.cuda_compiler import find_nvcc
from tilescope.machine.memory import contents_of

ALIGNMENT_BYTES = 256  # of arrays, as cudaMalloc aligns them
_HERE = Path(__file__).parent
_SWIZZLES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")  # by number
_EXTENTS = ctypes.POINTER(ctypes.c_uint)
_LAUNCH = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, _EXTENTS, _EXTENTS, _EXTENTS, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t
)
_MAP = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t),
    *(ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64), _EXTENTS, _EXTENTS),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
)


class BuildError(Exception):
    """nvcc's message about a file that it does not compile."""


@dataclass
class HostProgram:
    """A shared library of host code, and the PTX of its kernels."""

    library: Path
    ptx: str
    arch: str
    runs: list = field(default_factory=list)
    memory: object = None
    failure: object = None  # the exception of a launch; C++ frames lie between it and the caller
    max_seconds: float | None = None

    def call(self, function, *arguments):
        """Call a function of the library; arrays are passed as addresses. Its launches are appended to `runs`."""
        self.memory = ts.Memory()
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                contents_of(self.memory).place_at(argument.ctypes.data, argument)
        loaded = ctypes.CDLL(str(self.library), mode=os.RTLD_LAZY)
        launch, make_map = _LAUNCH(self._launch), _MAP(self._make_map)
        number = int("".join(filter(str.isdigit, self.arch)))
        loaded.set_callbacks(launch, make_map, number // 10, number % 10)
        target = getattr(loaded, function)
        target.restype = ctypes.c_int
        code = target(*[_passed(argument) for argument in arguments])
        if self.failure is not None:
            raise self.failure
        return code

    def _launch(self, name, grid, block, cluster, arguments, smem_bytes):
        with contextlib.suppress(Exception):  # an exception cannot cross the frames of C++: it is kept
            try:
                self.runs.append(self._run(name.decode(), grid, block, cluster, arguments, smem_bytes))
            except Exception as error:
                self.failure = self.failure or error
                raise

    def _run(self, name, grid, block, cluster, arguments, smem_bytes):
        if self.failure is not None:
            return None
        kernel = ts.Kernel(self.ptx, name)
        values = [
            ctypes.string_at(arguments[index], parameter.size_bytes)
            for index, parameter in enumerate(kernel.parameters)
        ]
        return kernel.run(
            tuple(grid[:3]),
            tuple(block[:3]),
            values,
            memory=self.memory,
            smem_bytes=smem_bytes,
            cluster=tuple(cluster[:3]) if cluster[0] else None,
            arch=self.arch,
            advice="none",
            max_seconds=self.max_seconds,
        )

    def _make_map(
        self,
        target,
        data_type,
        rank,
        address,
        dims,
        strides,
        box,
        element_strides,
        interleave,
        swizzle,
        promotion,
        fill,
    ):
        try:
            del interleave
            made = ts.TensorMap(
                _ELEMENT_OF_DRIVER[data_type],
                tuple(dims[:rank]),
                tuple(strides[: rank - 1]),
                tuple(box[:rank]),
                element_strides=tuple(element_strides[:rank]),
                swizzle=_SWIZZLES[swizzle],
                l2_promotion=("none", "64B", "128B", "256B")[promotion],
                oob_fill=("zero", "nan")[fill],
                address=address,
            )
            ctypes.memmove(target, made.encode(), 128)
        except Exception as error:  # noqa: BLE001  it cannot cross the frames of C++
            self.failure = self.failure or error  # raised when the host code has returned, which might abort
        return 0


def _passed(argument):
    """An argument as ctypes passes it: the address of an array, a float, a long."""
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_int(argument)


def aligned(array):
    """A copy of an array at an address that cudaMalloc could return."""
    storage = np.zeros(array.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -storage.ctypes.data % ALIGNMENT_BYTES
    copy = storage[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def build(source, *, arch, options=(), cache):
    """Compile a file, or a text of ours that includes public headers, to a library and PTX; what was built before is taken."""
    text = source.read_text() if isinstance(source, Path) else source
    content = "\0".join([text, (_HERE / "host_runtime.cpp").read_text(), arch, *options])
    folder = Path(cache) / hashlib.sha256(content.encode()).hexdigest()[:20]
    library, ptx = folder / "program.so", folder / "program.ptx"
    if not ptx.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(source if isinstance(source, Path) else _write(folder / "driver.cu", text), folder, arch, options)
        made = max(folder.glob("*.ptx"), key=lambda path: path.stat().st_size)
        made.rename(ptx)
    return HostProgram(library, ptx.read_text(), arch)


def _write(path, text):
    path.write_text(text)
    return path


def _compile(path, folder, arch, options):
    nvcc = find_nvcc()
    number = arch.removeprefix("sm_")
    cccl = nvcc.parent.parent / "include" / "cccl"
    command = [
        *(str(nvcc), "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-lineinfo"),
        f"-gencode=arch=compute_{number},code=compute_{number}",
        *("--keep", "--keep-dir", str(folder), f"-I{cccl}"),
        *options,
        *("-o", str(folder / "program.so"), str(path), str(_HERE / "host_runtime.cpp")),
    ]
    if not any(option.startswith("-std") for option in options):
        command.insert(1, "-std=c++17")
    environment = os.environ | {"PATH": f"{nvcc.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    process = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
    )
    if process.returncode:
        errors = [line for line in f"{process.stdout}\n{process.stderr}".splitlines() if "error" in line]
        raise BuildError("\n".join(errors[:12]))


_ELEMENT_OF_DRIVER = {row.driver_code: row.name for row in DATA_TYPE.values() if row.driver_code is not None}
