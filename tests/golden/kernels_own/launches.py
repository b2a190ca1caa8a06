"""How every kernel of this folder is launched: grid, block, arrays with what they hold before, parameters.

`LAUNCHES[name]` is what stands as JSON in the recording of the same name (see tests/machine/kernel_recording.py), for the
kernels written here. The launches of emitted programs follow from their plans: `emitted` makes both.
"""

from __future__ import annotations

import itertools
import re

import tilescope as ts

SEEDS = itertools.count(1)


def array(type_name, shape, fill):
    return {"type": type_name, "shape": shape if isinstance(shape, list) else [shape], "fill": fill}


def bits(type_name, shape):
    """Random bits."""
    return array(type_name, shape, {"kind": "bits", "seed": next(SEEDS)})


def integers(type_name, shape, low, high):
    """Whole numbers from `low` up to, but not including, `high`."""
    return array(type_name, shape, {"kind": "integers", "seed": next(SEEDS), "low": low, "high": high})


def floats(type_name, shape, low=-6, high=3):
    """Floats with exponents from `low` to `high`."""
    return array(type_name, shape, {"kind": "floats", "seed": next(SEEDS), "exponents": [low, high]})


def constant(type_name, shape, value=0):
    return array(type_name, shape, {"kind": "constant", "value": value})


def tensor_map(number, data_type, dims, box, **options):
    """A map over array `number`, packed: strides follow from the dims."""
    element_bytes = ts.DataType.named(data_type).bits // 8
    strides_bytes = [element_bytes * dims[0]]
    for extent in dims[1:-1]:
        strides_bytes.append(strides_bytes[-1] * extent)
    found = {"kind": "map", "array": number, "data_type": data_type, "dims": dims, "strides_bytes": strides_bytes}
    return found | {"box": box, "swizzle": "none"} | options


def im2col_map(number, data_type, dims, **options):
    found = tensor_map(number, data_type, dims, [])
    del found["box"]
    return found | {"kind": "im2col"} | options


def launch(entry, grid, block, arrays, *others, smem_bytes=0, exact=True, **options):
    """A launch whose parameters are the arrays in their order, then `others`; maps in `others` come first."""
    maps = [other for other in others if isinstance(other, dict)]
    numbers = [{"kind": "int", "value": other} for other in others if not isinstance(other, dict)]
    mapped = {found["array"] for found in maps}
    pointers = [{"kind": "array", "array": number} for number in range(len(arrays)) if number not in mapped]
    found = {"entry": entry, "grid": list(grid), "block": list(block), "smem_bytes": smem_bytes, "exact": exact}
    return found | {"params": maps + pointers + numbers, "arrays": arrays} | options


LAUNCHES = {
    "divergence": launch("divergence", [3], [96], [bits("int32", 250), constant("int32", 250)], 250),
    "switch_table": launch(
        "switch_table",
        [2],
        [64],
        [integers("uint8", 7 * 40, 0, 18), integers("int32", 128, -999, 999), constant("int32", 256)],
        40,
    ),
    "branch_table": launch("branch_table", [2], [64], [bits("uint32", 128), constant("uint32", 128)]),
    "calls": launch("calls", [2], [64], [integers("int32", 128, -5000, 5000), constant("int32", 512)]),
    "local_arrays": launch("local_arrays", [2], [32], [integers("int32", 512, -99, 100), constant("int32", 512 + 64)]),
    "shuffles": launch("shuffles", [2], [64], [bits("uint32", 128), constant("uint32", 32 * 128)]),
    "votes": launch("votes", [2], [64], [integers("int32", 128, -20, 100), constant("uint32", 28 * 128)]),
    "atomics_global": launch(
        "atomics_global",
        [3],
        [64],
        [
            bits("uint32", 192),
            constant("uint32", 129, 0x01010101),
            constant("uint64", 56, 0x0101010101010101),
            bits("uint32", 16 * 192),
            bits("uint64", 4 * 192),
        ],
    ),
    "atomics_shared": launch("atomics_shared", [2], [96], [integers("uint32", 192, 0, 5000), constant("uint32", 128)]),
    "atomics_forms": launch(
        "atomics_forms",
        [2],
        [64],
        [
            integers("float32", 128, -50, 50),
            constant("float32", 24),
            constant("uint64", 4 * 128),
            constant("uint32", 128 + 8, 7),
        ],
    ),
    "cluster_memory": launch(
        "cluster_memory", [8], [64], [bits("uint32", 512), constant("uint32", 8 * 256)], cluster=[4]
    ),
    "cluster_arrivals": launch(
        "cluster_arrivals", [4], [32], [bits("uint32", 128), constant("uint32", 128)], 4, cluster=[2]
    ),
    "split_k_atomics": launch(
        "split_k_atomics",
        [2, 2, 4],
        [16, 4],
        [integers("float32", [8, 50], -8, 9), integers("float32", [50, 32], -8, 9), constant("float32", [8, 32])],
        32,
        50,
        13,
    ),
    "split_k_semaphore": launch(
        "split_k_semaphore",
        [2, 2, 4],
        [32],
        [
            floats("float32", [2, 50]),
            floats("float32", [50, 64]),
            constant("float32", [2, 64]),
            constant("int32", 4),
        ],
        64,
        50,
        13,
    ),
    "grid_barrier": launch(
        "grid_barrier", [6], [64], [bits("int32", 384), constant("int32", 384), constant("uint32", 1)], 384, 3
    ),
    "look_back": launch(
        "look_back",
        [5],
        [128],
        [
            integers("int32", 640, -50, 100),
            constant("int32", 640),
            constant("int32", 5),
            constant("int32", 5),
            constant("int32", 1),
        ],
    ),
    "bulk_copies": launch("bulk_copies", [4], [64], [bits("uint32", 1024), constant("uint32", 2048)], cluster=[2]),
    "bulk_reductions": launch(
        "bulk_reductions",
        [2],
        [64],
        [floats("float16", 22 * 64), floats("float16", 22 * 64), constant("uint32", 64)],
        cluster=[2],
    ),
    "tma_tiles": launch(
        "tma_tiles",
        [3, 2],
        [64],
        [
            integers("float32", [50, 80], -9, 10),
            floats("float16", [6, 10, 24]),
            constant("float32", [60, 72]),
            integers("float32", [40, 32], -9, 10),
            constant("uint32", 6 * 1536),
        ],
        tensor_map(0, "f32", [80, 50], [32, 32], swizzle="128B"),
        tensor_map(1, "f16", [24, 10, 6], [16, 8, 8], swizzle="32B", oob_fill="nan"),
        tensor_map(2, "f32", [72, 60], [32, 32]),
        tensor_map(3, "f32", [32, 40], [32, 32], swizzle="128B"),
        smem_bytes=6144,
    ),
    "im2col": launch(
        "im2col",
        [3],
        [64],
        [floats("float16", [2, 7, 9, 16]), constant("uint32", 3 * 4 * 512)],
        im2col_map(
            0,
            "f16",
            [16, 9, 7, 2],
            lower_corner=[-1, -1],
            upper_corner=[-1, -1],
            channels_per_pixel=16,
            pixels_per_column=64,
            swizzle="32B",
        ),
        smem_bytes=2048,
    ),
    "multicast": launch(
        "multicast",
        [8],
        [64],
        [floats("float32", [64, 32]), constant("uint32", 8192)],
        tensor_map(0, "f32", [32, 64], [32, 8], swizzle="128B"),
        smem_bytes=4096,
        cluster=[4],
    ),
    "cp_async": launch("cp_async", [2], [128], [bits("uint32", 1024), constant("uint32", 1024)], 100, arch="sm_90"),
    "cp_async_barrier": launch(
        "cp_async_barrier", [1], [64], [bits("uint32", 7 * 128), constant("uint32", 64)], 7, arch="sm_90"
    ),
    "ring": launch(
        "ring",
        [2, 2],
        [256],
        [floats("bfloat16", [128, 768]), floats("bfloat16", [64, 768]), constant("float32", [128, 64])],
        tensor_map(0, "bf16", [768, 128], [64, 64], swizzle="128B"),
        tensor_map(1, "bf16", [768, 64], [64, 32], swizzle="128B"),
        12,
        smem_bytes=3 * 12288,
    ),
    "ring_tokens": launch("ring_tokens", [2], [64], [bits("uint32", 2 * 640), constant("uint32", 128)], 10),
    "mbarrier_forms": launch("mbarrier_forms", [1], [32], [constant("uint32", 4), constant("uint64", 4)]),
    "named_barriers": launch("named_barriers", [2], [128], [integers("uint32", 256, 0, 260), constant("uint32", 256)]),
    "matrices": launch("matrices", [1], [32], [bits("uint32", 256), constant("uint32", 39 * 32)]),
    "mma_types": launch(
        "mma_types",
        [1],
        [32],
        [
            floats("float16", 384, -8, 6),
            floats("bfloat16", 384, -12, 12),
            floats("float32", 192 + 128, -12, 12),
            bits("uint32", 192),
            floats("float64", 128, -20, 20),
            constant("uint32", 14 * 128),
        ],
    ),
    "mma_fp8": launch(
        "mma_fp8",
        [1],
        [32],
        [floats("float8_e4m3fn", 768, -6, 7), floats("float32", 128, -10, 10), constant("float32", 512)],
    ),
    "wgmma_forms": launch(
        "wgmma_forms",
        [1],
        [128],
        [floats("float16", 2048, -8, 6), floats("float16", 1024, -8, 6), constant("float32", 5 * 1024)],
        smem_bytes=4096,
    ),
    "wgmma_types": launch(
        "wgmma_types",
        [1],
        [128],
        [
            floats("float8_e4m3fn", 2304, -6, 7),
            floats("float32", 576, -10, 10),
            floats("bfloat16", 1152, -6, 6),
            constant("uint32", 32 * 128),
        ],
        smem_bytes=3 * 2304,
    ),
    "halves": launch("halves", [2], [64], [bits("float16", 768), bits("bfloat16", 768), constant("uint32", 30 * 128)]),
    "wide_access": launch(
        "wide_access", [1], [64], [bits("uint8", 4096), constant("uint8", 8192), bits("uint64", 128)]
    ),
    "tables": launch("tables", [1], [64], [bits("uint32", 64), constant("float64", 128)], 64, smem_bytes=512),
    "printing": launch("printing", [1], [32], [integers("int32", 32, 0, 1000), constant("int32", 32)]),
    "bit_fields": launch("bit_fields", [2], [64], [bits("uint32", 384), constant("uint32", 64 * 128)]),
    "map_edits": launch(
        "map_edits",
        [3],
        [32],
        [
            floats("float32", [16, 32]),
            constant("uint8", 3 * 128),
            floats("float32", [12, 32]),
            constant("uint32", 3 * 512),
        ],
        tensor_map(0, "f32", [32, 16], [32, 4]),
    ),
    "hints": launch("hints", [2], [64], [floats("float32", 128), constant("float32", 128)], 128),
    "block_reduction": launch(
        "block_reduction",
        [3],
        [128],
        [floats("float32", [3, 500]), constant("float32", 3), constant("float32", 3), constant("int32", 3)],
        500,
    ),
    "library_barrier": launch(
        "library_barrier", [1], [128], [bits("int32", 5 * 128), constant("int32", 128)], 5, arch="sm_90"
    ),
    "maths": launch(
        "maths",
        [2],
        [64],
        [
            floats("float32", 128, -10, 12),
            constant("float32", 7 * 128),
            floats("float64", 128, -10, 5),
            constant("float64", 3 * 128),
        ],
    ),
    "approximations": launch(
        "approximations", [1], [64], [floats("float32", 64, -6, 1), constant("float32", 512)], exact=False
    ),
    "flags": launch("flags", [1], [128], [bits("uint32", 128), constant("uint32", 128)], 3),
    "store_async": launch("store_async", [2], [32], [bits("uint32", 64), constant("uint32", 320)], cluster=[2]),
    "library_maths": launch(
        "library_maths", [4], [256], [floats("float32", 1000, -30, 7), constant("float32", 10000)], 1000
    ),
}
# Options of nvcc that a kernel needs: without one, nvcc makes no branch tables.
FLAGS = {"switch_table": ["--jump-table-density=10"]}

# ts.plan's and ts.plan_gemm's arguments for the emitted programs that were recorded, and the matrix that a tile is cut from.
EMITTED_TILES = {
    "emitted_tile_bf16": (((64, 64), "bf16"), {"stages": 2}, (64, 448)),
    "emitted_tile_e4m3": (((64, 64), "e4m3"), {"stages": 3, "swizzle": "64B"}, (64, 640)),
    "emitted_tile_mn": (((64, 128), "f16"), {"major": "MN", "stages": 2, "swizzle": "64B"}, (128, 512)),
    "emitted_tile_sm80": (
        ((64, 64), "bf16"),
        {"consumer": "ldmatrix", "arch": "sm_80", "stages": 3, "copy": "cp.async"},
        (64, 448),
    ),
    "emitted_tile_threads": (((64, 32), "f32"), {"consumer": "ld.b128 columns", "stages": 2}, (64, 160)),
    "emitted_tile_store": (((64, 64), "f32"), {"direction": "store", "stages": 2}, (128, 256)),
}
EMITTED_GEMMS = {
    "emitted_gemm_bf16": ((128, 192, 512, "bf16"), {"tile": (128, 64, 64), "stages": 3}),
    "emitted_gemm_mn": ((128, 128, 256, "bf16"), {"tile": (64, 64, 64), "stages": 2, "a_major": "MN", "b_major": "MN"}),
    "emitted_gemm_e4m3": ((128, 64, 512, "e4m3"), {"tile": (64, 64, 128), "stages": 2, "output_type": "bf16"}),
    "emitted_gemm_s8": ((64, 128, 512, "s8"), {"tile": (64, 64, 128), "stages": 2, "output_type": "s32"}),
    "emitted_gemm_tf32": ((64, 64, 256, "tf32"), {"tile": (64, 64, 32), "stages": 2, "output_type": "f32"}),
    "emitted_gemm_ldmatrix": ((64, 128, 256, "f16"), {"tile": (64, 64, 64), "stages": 2, "consumer": "ldmatrix"}),
    "emitted_gemm_sm80": ((100, 72, 256, "bf16"), {"tile": (64, 64, 64), "stages": 3, "arch": "sm_80"}),
    "emitted_gemm_sm80_s8": ((64, 64, 512, "s8"), {"tile": (64, 64, 64), "stages": 3, "arch": "sm_80"}),
}
# What an emitted program's element type is called in a launch; a range of values that shows rounding.
ELEMENTS = {
    "bf16": ("bfloat16", -6, 3),
    "f16": ("float16", -6, 3),
    "f32": ("float32", -6, 3),
    "tf32": ("float32", -6, 3),
    "e4m3": ("float8_e4m3fn", -4, 3),
}
SWIZZLES = {"NONE": "none", "32B": "32B", "64B": "64B", "128B": "128B"}
BLOCKS = 2  # of an emitted GEMM's persistent grid


def elements(type_name, shape):
    if type_name in {"s8", "u8"}:
        return bits({"s8": "int8", "u8": "uint8"}[type_name], shape)
    name, low, high = ELEMENTS[type_name]
    return floats(name, shape, low, high)


def constants(source):
    """The integer constants that an emitted program declares."""
    found = {}
    for line in re.findall(r"^constexpr int (.*?);", source, re.MULTILINE):
        for name, value in re.findall(r"(\w+) = (\d+)", line):
            found[name] = int(value)
    return found


def described_maps(source):
    """The maps that an emitted program encodes: dims, strides and box as they stand in its host half."""
    dims = re.findall(r"dims\[\] = \{([^}]*)\}", source)
    strides = re.findall(r"strides_bytes\[\] = \{([^}]*)\}", source)
    boxes = re.findall(r"box\[\] = \{([^}]*)\}", source)
    swizzles = re.findall(r"CU_TENSOR_MAP_SWIZZLE_(\w+)", source)
    types = re.findall(r"CU_TENSOR_MAP_DATA_TYPE_(\w+)", source)
    for number, texts in enumerate(zip(dims, strides, boxes, swizzles, types, strict=True)):
        lists = [[int(word) for word in text.split(",")] for text in texts[:3]]
        found = {"kind": "map", "array": number, "data_type": texts[4].lower(), "dims": lists[0]}
        yield found | {"strides_bytes": lists[1], "box": lists[2], "swizzle": SWIZZLES[texts[3]]}


def emitted_gemm(name):
    (m, n, k, type_name), options = EMITTED_GEMMS[name]
    plan = ts.plan_gemm(m, n, k, type_name, **options)
    source = ts.emit(plan, "cuda")
    found = constants(source)
    output = plan.output_type.name
    arrays = [elements(type_name, [m, k]), elements(type_name, [n, k]), constant(output, [m, n])]
    maps = list(described_maps(source))
    grid = [BLOCKS]
    made = launch("gemm_kernel", grid, [found["THREADS"]], arrays, *maps, smem_bytes=found["SMEM_BYTES"])
    if options.get("arch") == "sm_80":
        made["arch"] = "sm_90"
    return source, made


def emitted_tile(name):
    (tile, type_name), options, (mn, k) = EMITTED_TILES[name]
    strided, contiguous = (mn, k) if options.get("major", "K") == "K" else (k, mn)
    shape = {"global_shape": (strided, contiguous)}
    plan = ts.plan(tile, type_name, **options, **shape).best
    source = ts.emit(plan, "cuda")
    found = constants(source)
    mn_tiles, k_tiles = -(-mn // tile[0]), -(-k // tile[1])
    arrays = [elements(type_name, [strided, contiguous])]
    others = list(described_maps(source))
    if options.get("direction") == "store":
        made = launch("tile_kernel", [mn_tiles], [found["THREADS"]], arrays, *others, k_tiles)
    else:
        result = re.search(r"using Result = ([\w ]+);", source)[1]
        result_type = {"float": "float32", "int": "int32", "unsigned short": "uint16"}.get(result, "float32")
        arrays.append(constant(result_type, [mn_tiles * tile[0], k_tiles * tile[1]]))
        made = launch("tile_kernel", [mn_tiles], [found["THREADS"]], arrays, *others, k_tiles)
        if not others:  # threads copy: matrix, rows, row_bytes, pitch_bytes, result, k_tiles
            row_bytes = contiguous * ts.DataType.named(type_name).bits // 8
            numbers = [{"kind": "int", "value": value} for value in (strided, row_bytes, row_bytes)]
            first, second, last = made["params"]
            made["params"] = [first, *numbers, second, last]
    made["smem_bytes"] = found["SMEM_BYTES"]
    if options.get("arch") == "sm_80":
        made["arch"] = "sm_90"
    return source, made


def emitted():
    """Source and launch of every emitted program, by name."""
    tiles = {name: emitted_tile(name) for name in EMITTED_TILES}
    return tiles | {name: emitted_gemm(name) for name in EMITTED_GEMMS}
