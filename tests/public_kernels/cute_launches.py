"""CuTe's tutorials of the nvidia-cutlass wheel: how they are compiled and launched.

Structs without members (a static shape, a static layout) have one byte, whose value nobody reads. A tuple of integers has those that are
not static; a tensor is a pointer and the integers of its layout.
"""

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tilescope as ts
from tilescope.machine.launch.cuda_compiler import compile_cuda

NOTHING = b"\0"  # a struct without members


def cutlass_source():
    """The folder of the wheel that has include, tools and examples."""
    place = importlib.util.find_spec("cutlass_library").submodule_search_locations[0]
    return Path(place) / "source"


@cache
def compiled(file, arch):
    """The PTX of a tutorial."""
    source = cutlass_source()
    includes = [f"-I{source / 'include'}", f"-I{source / 'tools' / 'util' / 'include'}", "--expt-relaxed-constexpr"]
    path = source / "examples" / "cute" / "tutorial" / f"{file}.cu"
    return compile_cuda(path, arch=arch, options=includes).ptx


@dataclass(frozen=True)
class CuteLaunch:
    """A kernel of a tutorial: part of its entry's name, its launch, and what makes its arguments."""

    file: str
    entry: str
    grid: Any
    block: int
    arguments: Any  # (memory) → the arguments of the kernel, and its result beside what it should be
    arch: str = "sm_80"
    smem_bytes: int = 0

    @property
    def name(self):
        return f"cute {self.file} {self.arguments.__name__}"

    @property
    def kernel(self):
        return ts.Kernel(compiled(self.file, self.arch), self.entry)

    def launched(self):
        """The run, the result and what it should be."""
        memory = ts.Memory()
        arguments, found, expected = self.arguments(memory)
        run = self.kernel.run(
            self.grid, self.block, arguments, memory=memory, smem_bytes=self.smem_bytes, arch=self.arch, advice="none"
        )
        return run, found, expected

    def run(self):
        return self.launched()[0]


def _matrices(dtype, k, *, is_k_major):
    """A, B and C as CuTe's gemms take them, and what C should be; C is M-major."""
    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (128, k)).astype(dtype)
    b = random.integers(-2, 3, (128, k)).astype(dtype)
    expected = np.ascontiguousarray((a.astype(np.float32) @ b.astype(np.float32).T).T).astype(dtype)
    if not is_k_major:
        a, b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    return a, b, np.zeros((128, 128), dtype), expected


def sgemm_nt(_memory):
    """(m, n, k), tiler; A, its stride, two layouts; B and C alike; alpha, beta."""
    a, b, c, expected = _matrices(np.float32, 32, is_k_major=False)
    static = (NOTHING, NOTHING)
    stride = ts.pack(extent=128)
    arguments = [
        ts.pack(m=128, n=128, k=32),
        NOTHING,
        a,
        stride,
        *static,
        b,
        stride,
        *static,
        c,
        stride,
        *static,
        1.0,
        0.0,
    ]
    return arguments, c, expected


def sgemm_tn(_memory):
    """As above; A and B have K contiguous, and their strides are k."""
    a, b, c, expected = _matrices(np.float32, 32, is_k_major=True)
    static = (NOTHING, NOTHING)
    strides = ts.pack(extent=32), ts.pack(extent=128)
    matrices = [a, strides[0], *static, b, strides[0], *static, c, strides[1], *static]
    return [ts.pack(m=128, n=128, k=32), NOTHING, *matrices, 1.0, 0.0], c, expected


def hgemm_tn(_memory):
    """As above for half, with an atom that loads fragments; alpha and beta are halves."""
    a, b, c, expected = _matrices(np.float16, 256, is_k_major=True)
    static = (NOTHING, NOTHING, NOTHING)
    strides = ts.pack(extent=256), ts.pack(extent=128)
    matrices = [a, strides[0], *static, b, strides[0], *static, c, strides[1], NOTHING, NOTHING]
    return (
        [ts.pack(m=128, n=128, k=256), NOTHING, *matrices, ts.pack(x=np.float16(1)), ts.pack(x=np.float16(0))],
        c,
        expected,
    )


def tiled_copy(memory):
    """S and D, of which the layout comes first: tiles along m and n, strides; then the copy, which is static."""
    source = np.arange(256 * 512, dtype=np.float32).reshape(512, 256)
    target = np.zeros_like(source)

    def tensor(array):
        return ts.pack(memory, tiles_m=256 // 128, tiles_n=512 // 64, stride=256, step=256 * 64, pointer=array)

    return [tensor(source), tensor(target), NOTHING], target, source


def wgmma_tma_tn(memory):
    """As above; a copy by TMA is a struct that begins with its map, and the atom of wgmma says whether it accumulates."""
    a, b, c, expected = _matrices(np.float16, 256, is_k_major=True)
    copies = [ts.pack(map=memory.map(one, (64, 128), swizzle="128B"), rest=bytes(128)) for one in (a, b)]
    halves = ts.pack(alpha=np.float16(1)), ts.pack(beta=np.float16(0))
    shape = ts.pack(m=128, n=128, k=256)
    atom = ts.pack(accumulate=1, padding=0)
    return [shape, NOTHING, a, copies[0], b, copies[1], c, ts.pack(extent=128), atom, *halves], c, expected


M_MAJOR, K_MAJOR = "fNS1_IJNS3_ILi1EEEi", "fNS1_IJiNS3_ILi1EEE"  # of A, in the name of an entry
CUTE_LAUNCHES = (
    CuteLaunch("tiled_copy", "copy_kernel_vectorized", (2, 8), 256, tiled_copy),
    CuteLaunch("sgemm_1", M_MAJOR, 1, 256, sgemm_nt),
    CuteLaunch("sgemm_1", K_MAJOR, 1, 256, sgemm_tn),
    CuteLaunch("sgemm_2", M_MAJOR, 1, 256, sgemm_nt),
    CuteLaunch("sgemm_2", K_MAJOR, 1, 256, sgemm_tn),
    CuteLaunch("sgemm_sm70", M_MAJOR, 1, 256, sgemm_nt),
    CuteLaunch("sgemm_sm80", "gemm_device", 1, 128, hgemm_tn, smem_bytes=98304),
)
# issues loads beyond k that nobody waits for, which the machine tells: not one of those that run without an error
WGMMA_TMA = CuteLaunch(
    "hopper/wgmma_tma_sm90", "IJNS3_ILi8EEENS3_ILi16", 1, 128, wgmma_tma_tn, arch="sm_90", smem_bytes=98560
)
