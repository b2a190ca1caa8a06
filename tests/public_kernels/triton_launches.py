"""Kernels of Triton's repository and how they are launched, small.

Arguments are words, as on the command line of `tilescope run`: f32:64x64, 7, 1.5; desc:f16:128x64/64x32 is a descriptor of the host over
an array, and its block. Types of the signature follow from them.
"""

from dataclasses import dataclass, field
from functools import partial

TUTORIALS = "python/tutorials"
GLUON = "python/tutorials/gluon"
UNIT = "python/test/unit/language"


@dataclass(frozen=True)
class TritonLaunch:
    file: str
    kernel: str
    grid: object
    arguments: str
    constants: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    reference: object = None  # (arguments before the launch) → expected arrays by their position
    source: str = "Triton"

    @property
    def arch(self):
        return self.options.get("arch", "sm_90")

    @property
    def name(self):
        file = self.file.rpartition("/")[2].removesuffix(".py")
        said = ", ".join(f"{name}={value}" for name, value in self.options.items() if name != "arch")
        return f"{file} {self.kernel}" + (f" ({said})" if said else "")


def named(name, function):
    """A constant that the kernel's own file defines, such as tl.float32 or an aggregate."""
    found = function.__globals__
    for part in name.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def of_file(name):
    return partial(named, name)


MATMUL = "f16:128x64 f16:64x128 f16:128x128:zeros 128 128 64 64 1 128 1 128 1"
TILES = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
TILES_OF_TESTS = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "low_precision_acc": 0, "num_stages": 3}
DESCRIPTORS = "desc:f16:128x64/64x32 desc:f16:128x64/64x32 desc:f16:128x128:zeros/64x64 128 128 64"
tutorial = partial(lambda folder, file, *rest, **more: TritonLaunch(f"{folder}/{file}.py", *rest, **more), TUTORIALS)
gluon = partial(lambda folder, file, *rest, **more: TritonLaunch(f"{folder}/{file}.py", *rest, **more), GLUON)
unit = partial(lambda folder, file, *rest, **more: TritonLaunch(f"{folder}/{file}.py", *rest, **more), UNIT)
ON_SM_80 = {"arch": "sm_80"}
GLUON_ADD = "f32:128x256 f32:128x256 f32:128x256:zeros 128 256 256 1 256 1 256 1"
GLUON_TMA_ADD = "desc:f32:64x128/32x64 desc:f32:64x128/32x64 desc:f32:64x128:zeros/32x64 64 128"
GLUON_MATMUL = "desc:f16:128x128/64x64 desc:f16:128x128/64x64 desc:f16:128x128:zeros/64x64"

TRITON_LAUNCHES = (
    tutorial("01-vector-add", "add_kernel", 4, "f32:1000 f32:1000 f32:1000:zeros 1000", {"BLOCK_SIZE": 256}),
    tutorial("01-vector-add", "add_kernel", 4, "f32:1000 f32:1000 f32:1000:zeros 1000", {"BLOCK_SIZE": 256}, ON_SM_80),
    tutorial(
        *("02-fused-softmax", "softmax_kernel", 2, "f32:4x200:zeros f32:4x200 200 200 4 200"),
        {"BLOCK_SIZE": 256, "num_stages": 2},
    ),
    tutorial("03-matrix-multiplication", "matmul_kernel", 4, MATMUL, TILES | {"ACTIVATION": ""}),
    tutorial(
        "03-matrix-multiplication", "matmul_kernel", 4, MATMUL, TILES | {"ACTIVATION": "leaky_relu"}, {"num_warps": 8}
    ),
    tutorial("03-matrix-multiplication", "matmul_kernel", 4, MATMUL, TILES | {"ACTIVATION": ""}, ON_SM_80),
    tutorial(
        *(
            "03-matrix-multiplication",
            "matmul_kernel",
            4,
            MATMUL.replace("f16:128x64 f16:64x128", "e5m2:128x64 e5m2:64x128"),
        ),
        TILES | {"ACTIVATION": ""},
    ),
    tutorial("04-low-memory-dropout", "_dropout", 4, "f32:500 s32:500 f32:500:zeros 500 0.5", {"BLOCK_SIZE": 128}),
    tutorial("04-low-memory-dropout", "_seeded_dropout", 4, "f32:500 f32:500:zeros 500 0.5 123", {"BLOCK_SIZE": 128}),
    tutorial(
        *(
            "05-layer-norm",
            "_layer_norm_fwd_fused",
            3,
            "f16:3x200 f16:3x200:zeros f16:200 f16:200 f32:3:zeros f32:3:zeros 200 200 0.00001",
        ),
        {"BLOCK_SIZE": 128},
    ),
    tutorial(
        *("05-layer-norm", "_layer_norm_bwd_dx_fused", 4),
        "f16:4x512:zeros f16:4x512 f16:2x512:zeros f16:2x512:zeros f16:4x512 f16:512 f32:4 f32:4 s32:4:zeros 512 512",
        {"GROUP_SIZE_M": 2, "BLOCK_SIZE_N": 512},
    ),
    tutorial(
        *("05-layer-norm", "_layer_norm_bwd_dwdb", 2, "f16:16x128 f16:16x128 f16:128:zeros f16:128:zeros 16 128"),
        {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64},
    ),
    tutorial(
        *("06-fused-attention", "_attn_fwd", (2, 2)),
        "0.5 f32:256:zeros 1 2 desc:f16:256x64/64x64 desc:f16:256x64/32x64 desc:f16:256x64/32x64 desc:f16:256x64:zeros/64x64 128",
        {
            "HEAD_DIM": 64,
            "BLOCK_M": 64,
            "BLOCK_N": 32,
            "FP8_OUTPUT": False,
            "STAGE": 3,
            "warp_specialize": False,
            "IS_HOPPER": True,
        },
    ),
    tutorial(
        *("06-fused-attention", "_attn_bwd_preprocess", (2, 2), "f16:256x64 f16:256x64 f32:256:zeros 1 2 128"),
        {"BLOCK_M": 64, "HEAD_DIM": 64},
    ),
    tutorial(
        *("06-fused-attention", "_attn_bwd", (1, 1, 1)),
        "f16:128x64 f16:128x64 f16:128x64 0.5 f16:128x64 f16:128x64:zeros f16:128x64:zeros f16:128x64:zeros "
        "f32:128 f32:128 8192 8192 64 1 1 128",
        {
            "BLOCK_M1": 32,
            "BLOCK_N1": 128,
            "BLOCK_M2": 128,
            "BLOCK_N2": 32,
            "BLK_SLICE_FACTOR": 2,
            "HEAD_DIM": 64,
            "CAUSAL": True,
        },
    ),
    tutorial("07-extern-functions", "asin_kernel", 2, "f32:200 f32:200:zeros 200", {"BLOCK_SIZE": 128}),
    tutorial("09-persistent-matmul", "matmul_kernel", 4, MATMUL, TILES),
    tutorial(
        *("09-persistent-matmul", "matmul_kernel_tma", 4, DESCRIPTORS),
        TILES | {"FP8_OUTPUT": False, "WARP_SPECIALIZE": False},
    ),
    tutorial("09-persistent-matmul", "matmul_kernel_persistent", 2, MATMUL, TILES | {"NUM_SMS": 2}),
    tutorial(
        *("09-persistent-matmul", "matmul_kernel_tma_persistent", 2, DESCRIPTORS.replace("zeros/64x64", "zeros/64x32")),
        TILES | {"FP8_OUTPUT": False, "EPILOGUE_SUBTILE": True, "NUM_SMS": 2, "WARP_SPECIALIZE": False},
    ),
    tutorial(
        *(
            "09-persistent-matmul",
            "matmul_kernel_descriptor_persistent",
            2,
            "f16:128x64 f16:128x64 f16:128x128:zeros 128 128 64",
        ),
        TILES | {"EPILOGUE_SUBTILE": False, "NUM_SMS": 2, "WARP_SPECIALIZE": False, "FLATTEN": True},
    ),
    tutorial(
        *("11-programmatic-dependent-launch", "add_kernel", 4, "f32:1000 f32:1000 f32:1000:zeros 1000"),
        {"BLOCK_SIZE": 256, "USE_GDC": True},
    ),
    gluon("01-intro", "copy_scalar_kernel", 1, "f32:1 f32:1:zeros"),
    gluon("01-intro", "memcpy_kernel", 4, "f32:200 f32:200:zeros 200", {"XBLOCK": 64}),
    gluon(
        *("02-layouts", "memcpy_1d_kernel", 2, "f32:500 f32:500:zeros 500"),
        {"XBLOCK": 256, "layout": lambda function: named("gl.BlockedLayout", function)([1], [32], [4], [0])},
    ),
    gluon(
        *("02-layouts", "memcpy_2d_kernel", (2, 2), "f32:64x128 f32:64x128:zeros 64 128 128 1 128 1"),
        {
            "XBLOCK": 32,
            "YBLOCK": 64,
            "layout": lambda function: named("gl.BlockedLayout", function)([1, 1], [1, 32], [1, 4], [1, 0]),
        },
    ),
    gluon(
        *("02-layouts", "memcpy_2d_inout_kernel", (2, 2), "f32:64x128 f32:128x64:zeros 64 128 1 64 128 1"),
        {
            "XBLOCK": 32,
            "YBLOCK": 64,
            "layout_in": lambda function: named("gl.BlockedLayout", function)([1, 1], [32, 1], [4, 1], [0, 1]),
            "layout_out": lambda function: named("gl.BlockedLayout", function)([1, 1], [1, 32], [1, 4], [1, 0]),
        },
    ),
    gluon("03-async-copy", "memcpy_1d_cpasync_kernel", 4, "f32:500 f32:500:zeros 500", {"XBLOCK": 128}),
    gluon("03-async-copy", "elementwise_add_kernel", 4, GLUON_ADD, {"XBLOCK": 32, "YBLOCK": 64}),
    gluon("04-tma", "memcpy_1d_tma_kernel", 2, "desc:f32:128/64 desc:f32:128:zeros/64", {"XBLOCK": 64}),
    gluon("04-tma", "elementwise_add_tma_kernel", 2, GLUON_TMA_ADD, {"XBLOCK": 32, "YBLOCK": 64, "num_buffers": 2}),
    gluon(
        *("03-async-copy", "elementwise_add_cpasync_kernel", 4, GLUON_ADD),
        {
            "XBLOCK": 32,
            "YBLOCK": 64,
            "smem_layout": lambda function: named("gl.SwizzledSharedLayout", function)(1, 1, 1, [1, 0]),
        },
    ),
    gluon(
        *("03-async-copy", "elementwise_add_pipelined_kernel", 4, GLUON_ADD),
        {
            "XBLOCK": 32,
            "YBLOCK": 64,
            "num_buffers": 2,
            "smem_layout": lambda function: named("gl.SwizzledSharedLayout", function)(1, 1, 1, [1, 0]),
        },
    ),
    gluon(
        *(
            "05-wgmma",
            "small_mma_kernel",
            1,
            "desc:f16:64x32/64x32 desc:f16:32x32/32x32 desc:f32:64x32/64x32 desc:f32:64x32:zeros/64x32",
        ),
        {"LHS_IN_REG": False, "INSTR_SHAPE_N": 16, "num_warps": 4},
    ),
    gluon(
        *(
            "05-wgmma",
            "small_mma_kernel",
            1,
            "desc:f16:64x32/64x32 desc:f16:32x32/32x32 desc:f32:64x32/64x32 desc:f32:64x32:zeros/64x32",
        ),
        {"LHS_IN_REG": True, "INSTR_SHAPE_N": 16, "num_warps": 4},
    ),
    gluon("05-wgmma", "blocked_matmul_kernel", (2, 2), GLUON_MATMUL, {"TRANSPOSE_B": True, "num_warps": 4}),
    gluon("05-wgmma", "blocked_matmul_kernel", (2, 2), GLUON_MATMUL, {"TRANSPOSE_B": False, "num_warps": 4}),
    gluon("05-wgmma", "blocked_matmul_pipelined_kernel", (2, 2), GLUON_MATMUL, {"num_warps": 4}),
    gluon(
        *("07-persistence", "matmul_pipelined_kernel", (2, 2), GLUON_MATMUL),
        {"MMAImpl": of_file("WGMMA"), "num_buffers": 3, "num_warps": 4},
    ),
    gluon(
        *("07-persistence", "persistent_matmul_kernel", 2, GLUON_MATMUL),
        {
            "MMAImpl": of_file("WGMMA"),
            "SchedulerImpl": of_file("PersistentTileScheduler"),
            "num_buffers": 3,
            "num_warps": 4,
        },
    ),
    gluon(
        *("08-warp-specialization", "elementwise_add_warp_specialized_kernel", 2, GLUON_TMA_ADD),
        {"XBLOCK": 32, "YBLOCK": 64, "num_load_buffers": 2, "num_store_buffers": 2, "num_warps": 4},
    ),
    gluon(
        "14-multicta",
        "multicta_softmax_kernel",
        2,
        "f32:2x1024 f32:2x1024:zeros 1024 1024",
        {"BLOCK_N": 1024},
        {"num_ctas": 2},
    ),
    unit("test_core", "test_addptr.kernel", 1, "f32:256 f32:256:zeros", {"ORDER": 0, "SIZE": 256}),
    unit("test_core", "test_broadcast.broadcast_kernel", 1, "f32:32 f32:64 f32:32x64:zeros", {"M": 32, "N": 64}),
    unit(
        *("test_core", "test_where.where_kernel", 2, "u8:200 f32:200 f32:200 f32:200:zeros 200"),
        {"BLOCK_SIZE": 128, "TEST_POINTERS": False, "TEST_SCALAR_POINTERS": False},
    ),
    unit("test_core", "test_math_fma_op.kernel", 1, "f32:128:zeros f32:128 f32:128 f32:128", {"SIZE": 128}),
    unit("test_core", "test_math_erf_op.kernel", 1, "f32:128:zeros f32:128", {"SIZE": 128, "MEMBER_FN": False}),
    unit("test_core", "test_transpose.kernel", 1, "f32:64x64:zeros f32:64x64", {"SIZE": 64}),
    unit("test_core", "test_umulhi.kernel", 1, "s32:128 s32:128 s32:128:zeros", {"N": 128}),
    unit("test_core", "test_join.kernel", 1, "s32:128 s32:128 s32:128x2:zeros", {"N": 128}),
    unit("test_core", "test_join_with_mma.kernel", 1, "f32:32x32 f32:64x64:zeros"),
    unit("test_core", "test_split.kernel", 1, "s32:256 s32:128:zeros s32:128:zeros", {"N": 256}),
    unit("test_core", "test_interleave.kernel", 1, "s32:256:zeros", {"N": 128}),
    unit("test_core", "test_tensor_atomic_rmw_block.kernel", 2, "f32:8x8:ones", {"SHAPE0": 8, "SHAPE1": 8}),
    unit(
        "test_core",
        "test_atomic_cas.serialized_add",
        4,
        "f32:128:zeros s32:1:zeros",
        {"triton_dtype": of_file("tl.int32"), "SEM": "acq_rel"},
    ),
    unit(
        "test_core",
        "test_tensor_atomic_cas.change_value",
        2,
        "s32:8:zeros",
        {"BLOCK_SIZE": 4, "sem": "acq_rel", "dtype": of_file("tl.int32")},
    ),
    unit("test_core", "test_atomic_min_max_neg_zero.kernel", 1, "f32:1 f32:1 f32:1"),
    unit("test_core", "test_histogram.histogram_kernel", 1, "s32:256 s32:32:zeros", {"M": 256, "N": 32}),
    unit("test_core", "test_scan_1d.scan_kernel", 1, "s32:2x32:zeros s32:32", {"M": 32, "N": 2}),
    unit(
        "test_core",
        "test_generic_reduction.var_mean_kernel",
        1,
        "f32:512:arange f32:1 f32:1 f32:1 f32:1",
        {"BLOCK": 512},
    ),
    unit("test_core", "test_permute.kernel", 1, "f32:64x32 32 1 f32:64x64:zeros 1 64", {"BLOCK_M": 64, "BLOCK_N": 32}),
    unit(
        "test_core",
        "test_dot_mulbroadcasted.kernel",
        1,
        "f32:32x32:zeros f32:32x32 f32:32x32",
        {"M": 32, "N": 32, "K": 32, "BM": 32, "BN": 32, "BK": 16},
    ),
    unit("test_core", "test_arange._kernel", 1, "s32:128:zeros", {"BLOCK": 128, "START": 0, "END": 128}),
    unit(
        *("test_core", "test_masked_load_shared_memory._kernel", 1),
        "f16:32x32 f16:32x16 f32:32x16:zeros 32 16 16 1024 512 512",
        {"M": 32, "N": 16, "K": 32},
    ),
    unit("test_core", "test_load_cache_modifier._kernel", 1, "f32:128:zeros f32:128", {"CACHE": ".cg"}),
    unit("test_core", "test_store_eviction_policy._kernel", 1, "f32:128:zeros f32:128", {"POLICY": "evict_last"}),
    unit("test_core", "test_inline_asm.kernel", 1, "s32:128 s32:128 s32:128:zeros", {"n": 5, "BLOCK": 128}),
    unit("test_core", "test_inline_asm_packed.kernel", 1, "s8:512 s8:512:zeros", {"BLOCK": 512}),
    unit("test_core", "test_inline_asm_with_pointers.kernel", 1, "s8:512 s8:512:zeros", {"BLOCK": 512}),
    unit("test_core", "test_map_elementwise.kernel", 1, "f32:128 f32:128 s32:128:zeros", {"BLOCK": 128}),
    unit("test_core", "test_nested_if_else_return.kernel", 1, "s32:1 s32:1 s32:1 s32:1 s32:1 s32:1 s32:1"),
    unit("test_core", "test_while.kernel", 1, "s32:1:ones s32:1:ones s32:1:ones s32:1 s32:1 s32:1"),
    unit("test_core", "test_nested_while.nested_while", 1, "f32:1:zeros s32:1:ones"),
    unit("test_core", "test_constexpr_if_return.kernel", 4, "s32:1:zeros s32:1:zeros", {"total": 4}),
    unit(
        "test_core",
        "test_num_threads.kernel",
        1,
        "s32:256:zeros",
        {"get_num_threads": of_file("tl.extra.cuda.num_threads")},
    ),
    unit("test_core", "test_smid.kernel", 4, "s32:4:zeros", {"get_smid": of_file("tl.extra.cuda.smid")}),
    unit(
        "test_core",
        "test_clamp.kernel",
        1,
        "f32:128 f32:128 f32:128 f32:128:zeros f32:128:zeros 128",
        {"BLOCK_SIZE": 128},
    ),
    unit("test_core", "test_temp_var_in_loop.temp_in_loop", 1, "s32:32:zeros", {"N": 3, "BLOCK": 32}),
    unit("test_core", "test_indirect_load.indirect_load", 1, "s64:128:arange f32:128 f32:128:zeros", {"SIZE": 128}),
    unit(
        "test_core",
        "matmul_kernel",
        4,
        "f16:128x64 f16:64x128 f32:128x128:zeros 128 128 64 64 1 128 1 128 1",
        TILES_OF_TESTS,
    ),
    unit(
        "test_standard",
        "test_sort.sort_kernel",
        1,
        "f32:8x32 32 f32:8x32:zeros 32",
        {"M": 8, "N": 32, "k": 8, "descending": True},
    ),
    unit(
        "test_standard", "test_flip.flip_kernel", 1, "f32:4x8x16 f32:4x8x16:zeros", {"M": 4, "N": 8, "K": 16, "dim": 1}
    ),
    unit("test_random", "test_randn.kernel", 2, "f32:1024:zeros 1000 7", {"dtype": of_file("tl.int32")}),
    unit(
        "test_tensor_descriptor",
        "test_tensor_descriptor_load.kernel",
        1,
        "f16:32x32:zeros f16:64x128 64 128",
        {"M_BLOCK": 32, "N_BLOCK": 32},
    ),
    unit(
        "test_tensor_descriptor",
        "test_tensor_descriptor_store.kernel",
        (2, 2),
        "f16:64x64:zeros f16:64x64 64 64",
        {"M_BLOCK": 32, "N_BLOCK": 32},
    ),
    unit(
        *(
            "test_tensor_descriptor",
            "matmul_kernel_make_tensor_descriptor",
            (2, 2),
            "f16:128x64 f16:64x128 f16:128x128:zeros 128 128 64",
        ),
        {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32},
    ),
    unit(
        *(
            "test_tensor_descriptor",
            "batched_gemm_3d_tma_kernel",
            2,
            "f16:2x64x64 f16:2x64x64 f16:2x64x64:zeros 2 64 64 64",
        ),
        {"dtype": of_file("tl.float16"), "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "NUM_SMS": 2},
    ),
    unit(
        "test_tensor_descriptor",
        "test_host_tensor_descriptor_load.kernel",
        1,
        "f16:32x32:zeros desc:f16:64x128/32x32 64 128",
        {"M_BLOCK": 32, "N_BLOCK": 32},
    ),
    unit(
        "test_tensor_descriptor",
        "matmul_kernel_host_tensor_descriptor",
        (2, 2),
        "desc:f16:128x64/64x32 desc:f16:64x128/32x64 desc:f16:128x128:zeros/64x64",
    ),
)
