"""The GEMM programs for Blackwell that are compiled, run by the machine and proven, and how one of them is run.

Shapes are small, and large enough: every block, or pair, takes two tiles or more, so that both accumulators are used, and the
ring of stages wraps at least twice.
"""

from math import prod
from typing import NamedTuple

import ml_dtypes
import numpy as np
from emitter_toolchain import nvrtc_ptx

import tilescope as ts
from tilescope.emitter.emission import device_half
from tilescope.emitter.gemm_program import gemm_program

NUMPY = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}
ELEMENTS = {"mxfp8": "e4m3", "mxfp4": "e2m1", "nvfp4": "e2m1"}  # of formats with scale factors
E2M1 = {0: 0, 1: 2, 2: 4, -1: 10, -2: 12}  # the bits of small whole numbers
SCALE_BITS = {"mxfp8": (126, 127, 128), "mxfp4": (126, 127, 128), "nvfp4": (0x30, 0x38, 0x40)}  # of 1/2, 1 and 2
GLOBAL_SCALE = 0.25  # of nvfp4
K_OF_A_TILE = {
    "mxfp8": 128,
    "mxfp4": 256,
    "nvfp4": 256,
    "tf32": 32,
    "e4m3": 128,
    "e5m2": 128,
    "s8": 128,
    "u8": 128,
}  # others 64


class Program(NamedTuple):
    """A product, and how it is planned."""

    arch: str
    shape: tuple[int, int, int]
    data_type: str
    options: dict

    @property
    def name(self):
        """What tells it from the others."""
        said = [f"{name}={value}" for name, value in self.options.items() if name not in ("sms", "stages")]
        return "-".join([self.arch, "x".join(map(str, self.shape)), self.data_type, *said]).replace(" ", "")

    def plan(self):
        """The plan of the product."""
        return ts.plan_gemm(*self.shape, self.data_type, arch=self.arch, **self.options)


def program(arch, shape, data_type, tile, **options):
    """A program with two stages for one block, or one pair, unless the options say otherwise."""
    m, n = shape
    k = K_OF_A_TILE.get(data_type, 64)
    if arch == "sm_120":  # mma, without pairs
        options = {"stages": 2, "sms": 1} | options
    else:
        options = {"cta_group": 1, "stages": 2} | options
        along_m, along_n = options.get("multicast", (1, 1))
        options["sms"] = options.get("sms", options["cta_group"] * along_m * along_n)
    return Program(arch, (m, n, 5 * k), data_type, {"tile": (*tile, k), **options})


def programs():
    """Types, one block and pairs, odd shapes, majornesses, types of C, swapped operands, orders of the tiles."""
    yield program("sm_100", (256, 128), "bf16", (128, 64))
    yield program("sm_100", (512, 128), "bf16", (256, 64), cta_group=2)
    yield program("sm_103", (500, 200), "f16", (256, 64), cta_group=2)
    yield program("sm_100", (200, 136), "f16", (128, 64))
    for data_type in ("tf32", "e4m3", "e5m2"):
        yield program("sm_100", (256, 128), data_type, (128, 64))
        yield program("sm_103", (512, 64), data_type, (256, 32), cta_group=2)
    yield program("sm_100", (256, 128), "s8", (128, 64), output_type="s32")
    yield program("sm_100", (512, 128), "u8", (256, 64), cta_group=2, output_type="s32")
    for output_type in ("f32", "f16", "e4m3"):
        yield program("sm_100", (256, 128), "bf16", (128, 64), output_type=output_type)
        yield program("sm_100", (512, 128), "bf16", (256, 64), cta_group=2, output_type=output_type)
    for a_major, b_major in (("MN", "K"), ("K", "MN"), ("MN", "MN")):
        yield program("sm_100", (256, 128), "bf16", (128, 64), a_major=a_major, b_major=b_major)
        yield program("sm_103", (512, 128), "bf16", (256, 64), cta_group=2, a_major=a_major, b_major=b_major)
    yield program("sm_100", (256, 128), "tf32", (128, 64), a_major="MN", b_major="MN")
    yield program("sm_100", (256, 128), "e4m3", (128, 64), a_major="MN", b_major="MN")
    for n in (16, 48, 96, 192, 224, 256):
        yield program("sm_100", (256, 2 * n), "bf16", (128, n))
    for n in (32, 96, 160, 192, 224, 256):
        yield program("sm_100", (512, 2 * n), "bf16", (256, n), cta_group=2)
    yield program("sm_103", (256, 256), "bf16", (256, 128))  # two instructions along m
    yield program("sm_103", (256, 256), "bf16", (256, 256), stages=1, output_type="e4m3")  # one accumulator
    yield program("sm_100", (128, 128), "bf16", (64, 64))  # 64 rows in 16 of every 32 lanes
    for output_type in ("bf16", "f32"):
        yield program("sm_100", (40, 256), "bf16", (32, 128), swapped=True, output_type=output_type)
        yield program("sm_103", (64, 512), "bf16", (32, 256), swapped=True, cta_group=2, output_type=output_type)
    yield program("sm_100", (24, 200), "e4m3", (16, 128), swapped=True)
    yield program("sm_100", (520, 200), "bf16", (128, 64), group=2, stages=3)
    yield program("sm_100", (520, 200), "f16", (128, 64), group=2, sms=2, stages=4)
    yield program("sm_103", (1032, 72), "f16", (256, 32), cta_group=2, group=2, stages=3, sms=4)
    yield program("sm_100", (512, 128), "bf16", (128, 64), dynamic=True)  # cluster launch control
    yield program("sm_103", (1000, 72), "f16", (256, 64), cta_group=2, dynamic=True)
    for odd in ((1, 8), (129, 8), (257, 72), (333, 104)):
        yield program("sm_100", odd, "bf16", (128, 32), stages=3)
        yield program("sm_103", odd, "bf16", (256, 32), cta_group=2, stages=3)


def multicast_programs():
    """Clusters of several tiles, which share B along m, A along n, or both; with tiles outside the matrix, too."""
    yield program("sm_100", (512, 128), "bf16", (128, 64), multicast=(2, 1))
    yield program("sm_100", (1024, 128), "bf16", (256, 64), cta_group=2, multicast=(2, 1))
    yield program("sm_103", (512, 256), "f16", (256, 64), cta_group=2, multicast=(1, 2))
    yield program("sm_103", (1032, 200), "bf16", (256, 64), cta_group=2, multicast=(2, 2))  # a pair beyond the last row
    yield program("sm_100", (512, 136), "e4m3", (128, 64), multicast=(4, 1), output_type="f32")
    yield program("sm_100", (512, 256), "bf16", (128, 64), multicast=(2, 1), a_major="MN", b_major="MN")
    yield program("sm_103", (1024, 128), "bf16", (256, 64), cta_group=2, multicast=(2, 1), b_major="MN")
    yield program("sm_103", (40, 1024), "bf16", (32, 256), swapped=True, cta_group=2, multicast=(1, 2))
    yield program("sm_100", (1544, 72), "bf16", (256, 32), cta_group=2, multicast=(2, 1), group=4, sms=8, stages=3)
    yield program("sm_100", (2048, 64), "bf16", (256, 64), cta_group=2, multicast=(2, 1), dynamic=True)
    yield program("sm_103", (1024, 136), "nvfp4", (256, 128), cta_group=2, multicast=(2, 1))
    yield program("sm_100", (256, 512), "mxfp8", (128, 128), multicast=(1, 2))


def scaled_programs():
    """Formats with scale factors, by tcgen05."""
    for data_type in ("mxfp8", "mxfp4", "nvfp4"):
        yield program("sm_100", (256, 256), data_type, (128, 128))
        yield program("sm_103", (520, 136), data_type, (256, 128), cta_group=2)
    yield program("sm_100", (136, 264), "nvfp4", (128, 256))  # two atoms of columns, one accumulator
    yield program("sm_100", (512, 264), "nvfp4", (256, 256), cta_group=2, output_type="f32")
    yield program("sm_103", (264, 136), "mxfp4", (256, 128))  # two instructions along m
    yield program("sm_100", (256, 136), "e5m2", (128, 128), scales="mxfp8")
    yield program("sm_103", (1032, 136), "nvfp4", (256, 128), cta_group=2, dynamic=True)
    yield program(
        "sm_100", (256, 392), "mxfp8", (128, 192)
    )  # tiles that begin in the middle of an atom of scale factors
    yield program("sm_103", (512, 576), "nvfp4", (256, 192), cta_group=2)
    yield program("sm_100", (256, 136), "mxfp4", (128, 64))
    yield program("sm_100", (72, 256), "mxfp8", (64, 128), swapped=True)
    yield program("sm_103", (136, 512), "nvfp4", (64, 256), swapped=True, cta_group=2)
    yield program("sm_100", (130, 512), "mxfp4", (64, 256), swapped=True)  # two instructions along n


def warp_programs():
    """Programs by mma, without pairs."""
    yield program("sm_120", (128, 128), "bf16", (64, 64))
    yield program("sm_120", (136, 72), "bf16", (64, 32), stages=3)
    yield program("sm_120", (136, 72), "f16", (64, 32), b_major="MN")
    for data_type in ("e4m3", "e5m2", "s8"):
        yield program("sm_120", (128, 128), data_type, (64, 64))
    for data_type in ("nvfp4", "mxfp4", "mxfp8"):
        yield program("sm_120", (136, 200), data_type, (64, 64))  # two tiles along m in an atom of scale factors
    yield program("sm_120", (264, 136), "nvfp4", (128, 32))


PROGRAMS = {each.name: each for each in (*programs(), *multicast_programs(), *scaled_programs(), *warp_programs())}


class Launch(NamedTuple):
    """A kernel, what it is given, and what it should leave in C."""

    kernel: ts.Kernel
    blocks: int
    threads: int
    arguments: list
    options: dict
    c: np.ndarray
    expected: np.ndarray

    def run(self, seed=1, *, advice="fixes"):
        """The kernel run by the machine; with advice="none" no fix is tried for what is found, which takes longer than the run."""
        options = {**self.options, "seed": seed, "advice": advice}
        return self.kernel.run(self.blocks, self.threads, self.arguments, **options)

    def is_right(self):
        """Whether C is the product, bit for bit."""
        return (self.c.astype(np.float64) == self.expected.astype(np.float64)).all()


def ptx_of(program, source=None):
    """The PTX of a program's device half."""
    if source is None:
        source = device_half(ts.emit(program.plan(), "cuda"))
    return nvrtc_ptx(source, f"{program.arch}a").rstrip("\0")


def launch_of(program, ptx=None, rows=None):
    """The launch of a program on small whole numbers; `rows` in place of the plan's m, which the kernel takes as an argument."""
    gemm = program.plan()
    m, n, k = program.shape
    m = rows or m
    random = np.random.default_rng(1)
    least = 0 if program.data_type == "u8" else -2
    matrices = {"a_major": random.integers(least, 3, (m, k)), "b_major": random.integers(least, 3, (n, k))}
    stored = [_stored(each, gemm.data_type.ptx, program.options.get(name)) for name, each in matrices.items()]
    a, b = matrices.values()
    scale_maps = []
    if gemm.scales is not None:
        factors = [random.integers(0, 3, (rows, -(-k // gemm.scales.block))) for rows in (m, n)]
        a, b = (_scaled(each, factor, gemm.scales.block) for each, factor in zip((a, b), factors, strict=True))
        bits = np.array(SCALE_BITS[gemm.scales.name], np.uint8)
    c = np.full((m, n), 77, NUMPY[gemm.output_type.ptx])
    memory = ts.Memory()
    if gemm.scales is not None:
        scale_maps = [
            plan.tensor_map(memory.place(ts.pack_scales(bits[factor])), len(factor), k)
            for plan, factor in zip(gemm.scale_plans, factors, strict=True)
        ]
    arguments = [
        gemm.a.tensor_map(memory.place(stored[0]), (m, k)),
        gemm.b.tensor_map(memory.place(stored[1]), (n, k)),
        *scale_maps,
        gemm.epilogue.tensor_map(memory.place(c), (n, m) if gemm.schedule.swapped else (m, n)),
    ]
    arguments.append(np.int32(m))
    global_scale = 1.0
    if gemm.scales is not None and gemm.scales.name == "nvfp4":
        global_scale = GLOBAL_SCALE
        arguments.append(np.float32(global_scale))
    in_a_cluster = prod(gemm.schedule.cluster)
    return Launch(
        ts.Kernel(ptx or ptx_of(program), "gemm_kernel"),
        gemm.blocks_on(gemm.sms),
        gemm_program(gemm).work.threads,
        arguments,
        {
            "memory": memory,
            "smem_bytes": gemm.smem_bytes,
            "cluster": (in_a_cluster, 1, 1) if in_a_cluster > 1 else None,
        },
        c,
        (a @ b.T * global_scale).astype(c.dtype),
    )


def _stored(matrix, data_type, major):
    """A matrix as it lies in global memory; of 4 bits, two elements to a byte."""
    if data_type == "e2m1":
        bits = np.vectorize(E2M1.get)(matrix).astype(np.uint8)
        return np.ascontiguousarray(bits[:, ::2] | bits[:, 1::2] << 4)
    return np.ascontiguousarray((matrix.T if major == "MN" else matrix).astype(NUMPY[data_type]))


def _scaled(matrix, factors, block):
    """The values of a matrix: every block of k times 1/2, 1 or 2."""
    return matrix * np.repeat(0.5 * 2.0**factors, block, axis=1)[:, : matrix.shape[1]]
