"""Kernels of CUDA C++ libraries and repositories, launched by their own host code or by a driver of ours in drivers/.

`folders` names the checkouts: "learn-cuda", "thunderkittens", "deepgemm". CUB, libcu++ and CUTLASS come from NVIDIA's wheels.
"""

import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
from cuda_host import aligned, build
from public_launch import Outcome, Result

DRIVERS = Path(__file__).parent / "drivers"
STORAGE = np.zeros(1 << 20, np.uint8)  # temporary storage of CUB
BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn


@dataclass(frozen=True)
class CudaLaunch:
    """A function of a driver, its compiler options, and what makes arguments and expected results."""

    source: str  # the library or repository
    name: str
    driver: str
    function: str
    prepare: Callable  # () → (arguments, results)
    arch: str = "sm_90a"
    options: tuple = ()
    includes: tuple = ()  # folders below the checkout that its files are included from

    def launch(self, folders, cache):
        """Build the driver, call it, and compare."""
        options = [*self.options, f"-I{DRIVERS}"]
        options += [f"-I{folders[self.source] / folder}" for folder in self.includes]
        if self.source in ("CUTLASS", "DeepGEMM"):
            include = cutlass_include()
            options += [
                f"-I{include}",
                f"-I{include.parent / 'tools' / 'util' / 'include'}",
                "--expt-relaxed-constexpr",
            ]
        program = build(DRIVERS / self.driver, arch=self.arch, options=options, cache=cache)
        arguments, results = self.prepare()
        code = program.call(self.function, *arguments)
        if code:
            raise RuntimeError(f"the host code returned {code}")
        return Outcome(program.runs, results)


def cutlass_include():
    """The headers of the nvidia-cutlass wheel."""
    place = importlib.util.find_spec("cutlass_library").submodule_search_locations[0]
    return Path(place) / "source" / "include"


def _integers(shape, dtype, least=-2, most=3, seed=0):
    """Small integers, of which sums of products are exact in float32."""
    return aligned(np.random.default_rng(seed).integers(least, most, shape).astype(dtype))


def _uniform(shape, seed=0):
    return aligned(np.random.default_rng(seed).random(shape).astype(np.float32))


def _zeros(shape, dtype):
    return aligned(np.zeros(shape, dtype))


def _transposed_product(m, n, k, dtype, result_type=None):
    """D = A B^T, exact."""
    a, b = _integers((m, k), dtype), _integers((n, k), dtype, seed=1)
    d = _zeros((m, n), result_type or dtype)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(d.dtype)
    return [a, b, d, m, n, k], [Result(d, expected)]


def _square_product(size, dtype, tolerance=0.0):
    a, b, c = _integers((size, size), dtype), _integers((size, size), dtype, seed=1), _zeros((size, size), dtype)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    return [a, b, c, size], [Result(c, expected, tolerance)]


def _plain_product(m, n, k):
    a, b, c = _integers((m, k), np.float32), _integers((k, n), np.float32, seed=1), _zeros((m, n), np.float32)
    return [a, b, c, m, n, k], [Result(c, a @ b)]


def _scaled_product(m, n, k):
    """Scales for each row and 128 columns of A, and for each 128 x 128 block of B."""
    a, b = _integers((m, k), E4M3), _integers((n, k), E4M3, seed=1)
    d = _zeros((m, n), BF16)
    scales_a, scales_b = _uniform((k // 128, m), 2), _uniform((n // 128, k // 128), 3)
    expected = np.zeros((m, n), np.float32)
    for block in range(k // 128):
        span = slice(128 * block, 128 * (block + 1))
        part = a[:, span].astype(np.float32) @ b[:, span].astype(np.float32).T
        expected += part * scales_a[block][:, None] * np.repeat(scales_b[:, block], 128)[None, :]
    return [a, b, d, scales_a, scales_b, m, n, k], [Result(d, expected, 0.01)]


def _running_sums():
    values, sums = _integers(5000, np.int32), _zeros(5000, np.int32)
    return [values, sums, aligned(STORAGE), 5000], [Result(sums, np.cumsum(values))]


def _running_maxima():
    values, maxima = _uniform(5000), _zeros(5000, np.float32)
    expected = np.concatenate([[-1], np.maximum.accumulate(values)[:-1]])
    return [values, maxima, aligned(STORAGE), 5000], [Result(maxima, expected)]


def _total():
    values, total = _integers(20000, np.int32), _zeros(1, np.int32)
    return [values, total, aligned(STORAGE), 20000], [Result(total, values.sum())]


def _segment_totals():
    values, sums = _integers(1000, np.float32), _zeros(5, np.float32)
    offsets = aligned(np.array([0, 10, 10, 400, 999, 1000], np.int32))
    expected = [values[start:end].sum() for start, end in itertools.pairwise(offsets)]
    return [values, sums, offsets, aligned(STORAGE), 5], [Result(sums, expected)]


def _sorted_pairs():
    keys = aligned(np.random.default_rng(0).integers(0, 1 << 32, 3000, np.uint32))
    values = aligned(np.arange(3000, dtype=np.int32))
    sorted_keys, sorted_values = _zeros(3000, np.uint32), _zeros(3000, np.int32)
    order = np.argsort(keys, kind="stable")
    arguments = [keys, sorted_keys, values, sorted_values, _zeros(1 << 24, np.uint8), 3000]
    return arguments, [Result(sorted_keys, keys[order]), Result(sorted_values, values[order])]


def _even_values():
    values, selected, count = _integers(3000, np.int32, 0, 100), _zeros(3000, np.int32), _zeros(1, np.int32)
    even = values[values % 2 == 0]
    results = [Result(selected[: len(even)], even), Result(count, [len(even)])]
    return [values, selected, count, aligned(STORAGE), 3000], results


def _counts():
    samples, counts = _uniform(3000), _zeros(16, np.int32)
    expected = np.bincount((samples * 16).astype(int), minlength=16)
    return [samples, counts, aligned(STORAGE), 16, 3000], [Result(counts, expected)]


def _sorted_blocks(blocks):
    keys, found = _integers(512 * blocks, np.int32, -1000, 1000), _zeros(512 * blocks, np.int32)
    return [keys, found, blocks], [Result(found, np.sort(keys.reshape(blocks, 512), 1).reshape(-1))]


def _sorted_warps():
    keys, found = _integers(512, np.int32, -1000, 1000), _zeros(512, np.int32)
    return [keys, found], [Result(found, np.sort(keys.reshape(4, 128), 1).reshape(-1))]


def _doubled():
    values, found = _integers(2048, np.int32), _zeros(2048, np.int32)
    return [values, found, 2], [Result(found.reshape(2, 1024), 2 * values.reshape(2, 1024)[:, ::-1])]


def _summed_batches():
    values, sums = _integers((6, 128), np.float32), _zeros(128, np.float32)
    return [values, sums, 6], [Result(sums, values.sum(0)[::-1])]


def _messages():
    data, flags, received = _zeros(128, np.int32), _zeros(1, np.int32), _zeros(128, np.int32)
    return [data, flags, received], [Result(received, 3 * np.arange(128))]


def _counted():
    counters = _zeros(1, np.int32)
    return [counters, 3], [Result(counters, [4 * 3])]


def _row_sums():
    values, sums = _integers((3, 1024), np.float32), _zeros(3, np.float32)
    return [values, sums, 3, 1024, 512, 128], [Result(sums, values.sum(1))]


def _softmax():
    values, found = _uniform((3, 1000)), _zeros((3, 1000), np.float32)
    powers = np.exp(values.astype(np.float64))
    return [values, found, _zeros(4096, np.float32), 3, 1000], [
        Result(found, powers / powers.sum(1, keepdims=True), 1e-5)
    ]


def _attention():
    q, k, v = (aligned(np.random.default_rng(seed).standard_normal((1, 128, 128)).astype(BF16)) for seed in range(3))
    o = _zeros((1, 128, 128), BF16)
    wide = [array.astype(np.float64) for array in (q, k, v)]
    scores = np.exp(wide[0] @ wide[1].transpose(0, 2, 1) / np.sqrt(128))
    expected = scores / scores.sum(2, keepdims=True) @ wide[2]
    return [q, k, v, o, 1, 128, 128, 128], [Result(o, expected, 0.02)]


_cub = partial(CudaLaunch, "CUB")
RELAXED = ("--expt-relaxed-constexpr",)
WITH_TUPLES = (*RELAXED, "-include", "tuple")  # which torch's header includes
# Its headers take char for signed, which it is not on every host.
_KITTENS = (
    "-std=c++20",
    "--expt-extended-lambda",
    *RELAXED,
    "-DNDEBUG",
    "-Xcompiler",
    "-fsigned-char",
    "-Xcudafe",
    "--signed_chars",
)


def _cutlass(name, shape):
    make = partial(_transposed_product, *shape, np.float16)
    return CudaLaunch(
        "CUTLASS", f"collective {name}", "cutlass_gemm.cu", name, make, "sm_90a", ("-DHOPPER", "-DARCH=Sm90")
    )


def _deepgemm(name, kernel, flag, function, prepare, arch="sm_90a"):
    options = ("-std=c++20", f'-DKERNEL="deep_gemm/impls/{kernel}.cuh"', f"-D{flag}")
    return CudaLaunch("DeepGEMM", name, "deepgemm.cu", function, prepare, arch, options, ("deep_gemm/include",))


def _kittens(level, size, generation, element="__nv_bfloat16", tolerance=0.0):
    arch, flag, folder = {
        "H100": ("sm_90a", "-DKITTENS_HOPPER", "educational_h100"),
        "B200": ("sm_100a", "-DKITTENS_BLACKWELL", "educational_b200"),
    }[generation]
    options = (
        *_KITTENS,
        flag,
        f'-DLEVEL="kernels/gemm/{folder}/level_{level:02}.cu"',
        f"-DELEMENT={element}",
        "-DKITTENS_TIMINGS=0",
    )
    prepare = partial(_square_product, size, np.float32 if element == "float" else BF16, tolerance)
    return CudaLaunch(
        "ThunderKittens",
        f"{generation} level {level}",
        "kittens.cu",
        "product",
        prepare,
        arch,
        options,
        (".", "include"),
    )


def _learn(folder, file, kind, function, prepare, arch="sm_90a", more=()):
    options = (f'-DSOURCE="{file}.cu"', f"-D{kind}={function}", *more)
    return CudaLaunch("learn-cuda", f"{folder} {function}", "learn_cuda.cu", "run", prepare, arch, options, (folder,))


def _bf16(m, n, k):
    return partial(_transposed_product, m, n, k, BF16)


def _packed_scales(m, n, k):
    """D = A B^T of e4m3, with powers of two for every 128 elements of k: four exponents to a word, rows beside each other."""

    def prepare():
        a, b = _integers((m, k), E4M3), _integers((n, k), E4M3, seed=1)
        d = _zeros((m, n), BF16)
        exponents = [
            np.random.default_rng(seed).integers(126, 129, (rows, k // 128)) for seed, rows in ((2, m), (3, n))
        ]
        wide = [
            matrix.astype(np.float64) * np.repeat(2.0 ** (scale - 127), 128, axis=1)
            for matrix, scale in zip((a, b), exponents, strict=True)
        ]
        packed = [aligned(np.ascontiguousarray(scale.astype(np.uint8)).view(np.uint32).T.copy()) for scale in exponents]
        expected = (wide[0] @ wide[1].T).astype(BF16)
        return [a, b, d, *packed, m, n, k], [Result(d, expected)]

    return prepare


CUTE_BLACKWELL = (  # tutorials of the wheel, and a product of which every cluster has one tile
    ("01_mma_sm100", (128, 256, 128)),
    ("02_mma_tma_sm100", (128, 256, 128)),
    ("03_mma_tma_multicast_sm100", (512, 1024, 128)),
    ("04_mma_tma_2sm_sm100", (512, 1024, 128)),
    ("05_mma_tma_epi_sm100", (512, 1024, 128)),
)


def _cute_blackwell(file, shape):
    place = cutlass_include().parent / "examples" / "cute" / "tutorial" / "blackwell"
    options = (f'-DTUTORIAL="{place / file}.cu"', f"-I{place}", "-std=c++17", "-DCUTLASS_ARCH_MMA_SM100_SUPPORTED")
    prepare = partial(_transposed_product, *shape, np.float16, np.float32)
    return CudaLaunch("CUTLASS", f"cute {file}", "cute_blackwell.cu", "product", prepare, "sm_100a", options)


CUDA_LAUNCHES = (
    _cub("DeviceScan::InclusiveSum", "cub_scan.cu", "inclusive_sum", _running_sums),
    _cub("DeviceScan::ExclusiveScan", "cub_scan.cu", "exclusive_maximum", _running_maxima),
    _cub("DeviceReduce::Sum", "cub_reduce.cu", "sum", _total),
    _cub("DeviceSegmentedReduce::Sum", "cub_reduce.cu", "segmented_sum", _segment_totals),
    _cub("DeviceRadixSort::SortPairs", "cub_sort.cu", "sort_pairs", _sorted_pairs),
    _cub("DeviceSelect::If", "cub_select.cu", "select_even", _even_values),
    _cub("DeviceHistogram::HistogramEven", "cub_select.cu", "histogram", _counts),
    _cub("BlockRadixSort", "cub_block.cu", "run_sort_block", partial(_sorted_blocks, 2)),
    _cub("WarpMergeSort", "cub_block.cu", "run_sort_warps", _sorted_warps),
    CudaLaunch("libcu++", "memcpy_async_tx", "libcudacxx.cu", "run_copy_by_bulk", _doubled),
    CudaLaunch("libcu++", "pipeline", "libcudacxx.cu", "run_sum_by_pipeline", _summed_batches),
    CudaLaunch("libcu++", "atomic_ref", "libcudacxx.cu", "run_pass_messages", _messages),
    CudaLaunch("libcu++", "binary_semaphore", "libcudacxx.cu", "run_count_by_semaphore", _counted),
    _cutlass("warp_specialized", (128, 256, 192)),
    _cutlass("pingpong", (128, 256, 192)),
    _cutlass("cooperative", (256, 128, 192)),
    CudaLaunch(
        "CUTLASS",
        "multistage",
        "cutlass_sm80.cu",
        "multistage",
        partial(_transposed_product, 128, 128, 96, np.float16),
        "sm_80",
    ),
    _deepgemm("sm90 bf16", "sm90_bf16_gemm", "SM90_BF16", "bf16", _bf16(256, 128, 256)),
    _deepgemm("sm90 bf16 multicast", "sm90_bf16_gemm", "SM90_BF16", "bf16_multicast", _bf16(256, 128, 256)),
    _deepgemm("sm90 fp8 1d2d", "sm90_fp8_gemm_1d2d", "SM90_FP8", "fp8", partial(_scaled_product, 256, 128, 256)),
    _deepgemm("sm100 bf16", "sm100_bf16_gemm", "SM100_BF16", "bf16", _bf16(256, 128, 256), "sm_100a"),
    _deepgemm("sm100 bf16 pair", "sm100_bf16_gemm", "SM100_BF16", "bf16_pair", _bf16(256, 128, 256), "sm_100a"),
    _deepgemm("sm100 fp8", "sm100_fp8_fp4_gemm_1d1d", "SM100_FP8", "fp8", _packed_scales(256, 128, 512), "sm_100a"),
    _deepgemm(
        "sm100 fp8 pair", "sm100_fp8_fp4_gemm_1d1d", "SM100_FP8", "fp8_pair", _packed_scales(256, 128, 512), "sm_100a"
    ),
    *(_cute_blackwell(*row) for row in CUTE_BLACKWELL),
    _kittens(1, 64, "H100", "float"),
    _kittens(2, 64, "H100", tolerance=0.02),
    _kittens(3, 64, "H100", tolerance=0.02),
    _kittens(4, 128, "H100"),
    _kittens(5, 128, "H100"),
    _kittens(6, 128, "H100"),
    _kittens(7, 128, "H100"),
    _kittens(8, 256, "H100"),
    _kittens(6, 256, "B200"),
    _kittens(7, 256, "B200"),
    _kittens(8, 512, "B200"),
    _kittens(9, 512, "B200"),
    _learn("02a_matmul_simt", "matmul", "GEMM", "matmul_v3", partial(_plain_product, 128, 128, 32)),
    _learn("02a_matmul_simt", "matmul", "GEMM", "matmul_v6b", partial(_plain_product, 128, 128, 32)),
    _learn("02b_matmul_sm80", "matmul_v1", "GEMM", "matmul_v3", _bf16(128, 128, 128), "sm_80", RELAXED),
    _learn("02b_matmul_sm80", "matmul_v6", "GEMM", "matmul_v6", _bf16(128, 128, 128), "sm_80", RELAXED),
    _learn(
        "02c_matmul_sm120",
        "matmul_v3",
        "GEMM",
        "matmul_v3_bf16",
        _bf16(256, 256, 128),
        "sm_120a",
        WITH_TUPLES,
    ),
    _learn("02e_matmul_sm100", "matmul_v0", "GEMM", "matmul_v0", _bf16(128, 128, 256), "sm_100a", RELAXED),
    _learn(
        "02e_matmul_sm100", "matmul_v1", "GEMM", "matmul_v1a", _bf16(256, 256, 512), "sm_100a"
    ),  # square: its map of B has M rows
    _learn("02e_matmul_sm100", "matmul_v1", "GEMM", "matmul_v1b", _bf16(128, 256, 512), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v2", "GEMM", "matmul_v2a", _bf16(256, 256, 512), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v2", "GEMM", "matmul_v2b", _bf16(128, 256, 512), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v3", "GEMM", "matmul_v3", _bf16(128, 256, 512), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v4", "GEMM", "matmul_v4", _bf16(128, 128, 640), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v5", "GEMM", "matmul_v5", _bf16(256, 256, 640), "sm_100a"),
    _learn("02e_matmul_sm100", "matmul_v6", "GEMM", "matmul_v6", _bf16(256, 256, 640), "sm_100a", WITH_TUPLES),
    *(
        _learn("02e_matmul_sm100", "matmul_v7", "GEMM", name, _bf16(256, 512, 640), "sm_100a", WITH_TUPLES)
        for name in ("matmul_v7a", "matmul_v7b", "matmul_v7c")
    ),
    _learn("03_sum", "sum", "SUM", "sum_v3", _row_sums),
    _learn("03_sum", "sum", "SUM", "sum_v4c", _row_sums),
    _learn("03_sum", "sum", "SUM", "sum_v5", _row_sums),
    _learn("03_sum", "sum", "SUM", "sum_v6", _row_sums),
    _learn("04_softmax", "softmax", "SOFTMAX", "softmax_naive", _softmax),
    _learn("04_softmax", "softmax", "SOFTMAX", "softmax_online", _softmax),
    _learn("04_softmax", "softmax", "SOFTMAX", "softmax_online_split", _softmax),
    _learn("07_attention", "attention_v2", "ATTENTION", "attention_v2", _attention, "sm_80"),
    _learn("07_attention", "attention_v5", "ATTENTION", "attention_v5", _attention, "sm_80"),
)
