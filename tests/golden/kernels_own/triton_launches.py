"""How the Triton kernels of this folder are compiled and launched.

    python triton_launches.py FOLDER      needs Triton 3.9 and ptxas; no card

Writes NAME.ptx here, NAME.cubin and launches.json to FOLDER, as build.py does for the others.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from pathlib import Path

import build
import triton
import triton.language as tl
import triton_kernels as kernels
from launches import bits, constant, floats, integers, tensor_map
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

HERE = Path(__file__).parent
TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
}
TMA_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "uint8"}
SWIZZLES = ("none", "32B", "64B", "128B")  # by the driver's number
RING_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False)


class Block(list):
    """A descriptor of the host over the next array: the shape of its block, in numpy order."""


# kernel, grid, arguments in order (an array, a Block before its array, a number), constants, options, facts about the launch
KERNELS = {
    "triton_product_i8": (
        kernels.product,
        [2, 2],
        [bits("int8", [100, 160]), bits("int8", [160, 72]), constant("int32", [100, 72]), 100, 72, 160],
        {"ZERO": 0, "SUM": tl.int32, "BM": 64, "BN": 64, "BK": 64},
    ),
    "triton_product_e4m3": (
        kernels.product,
        [1, 2],
        [
            floats("float8_e4m3fn", [64, 128], -4, 3),
            floats("float8_e4m3fn", [128, 128], -4, 3),
            constant("float32", [64, 128]),
            64,
            128,
            128,
        ],
        {"ZERO": 0.0, "SUM": tl.float32, "BM": 64, "BN": 64, "BK": 64},
    ),
    "triton_product_f16": (
        kernels.product,
        [2, 1],
        [floats("float16", [80, 96]), floats("float16", [96, 64]), constant("float16", [80, 64]), 80, 64, 96],
        {"ZERO": 0.0, "SUM": tl.float16, "BM": 64, "BN": 64, "BK": 32},
    ),
    "triton_product_tf32": (
        kernels.product,
        [1, 1],
        [floats("float32", [64, 96]), floats("float32", [96, 64]), constant("float32", [64, 64]), 64, 64, 96],
        {"ZERO": 0.0, "SUM": tl.float32, "BM": 64, "BN": 64, "BK": 32},
    ),
    "triton_product_f64": (
        kernels.product,
        [1, 1],
        [floats("float64", [32, 32]), floats("float64", [32, 32]), constant("float64", [32, 32]), 32, 32, 32],
        {"ZERO": 0.0, "SUM": tl.float64, "BM": 32, "BN": 32, "BK": 16},
    ),
    "triton_product_sm80": (
        kernels.product,
        [2, 2],
        [floats("bfloat16", [100, 96]), floats("bfloat16", [96, 72]), constant("float32", [100, 72]), 100, 72, 96],
        {"ZERO": 0.0, "SUM": tl.float32, "BM": 64, "BN": 64, "BK": 32},
        {"arch": 80},
    ),
    "triton_persistent": (
        kernels.persistent,
        [2],
        [
            floats("float16", [128, 128]),
            floats("float16", [192, 128]),
            constant("float16", [128, 192]),
            128,
            192,
            128,
        ],
        {"BM": 64, "BN": 64, "BK": 64, "BLOCKS": 2},
    ),
    "triton_clustered": (
        kernels.clustered,
        [2, 1],
        [
            *(Block([128, 64]), floats("float16", [256, 192])),
            *(Block([128, 64]), floats("float16", [128, 192])),
            *(Block([128, 128]), constant("float16", [256, 128])),
            192,
        ],
        {"BM": 128, "BN": 128, "BK": 64},
        {"num_ctas": 2},
    ),
    "triton_added": (
        kernels.added,
        [4],
        [
            *(Block([32, 32]), integers("float32", [128, 32], -50, 50)),
            *(Block([32, 32]), integers("float32", [32, 32], -50, 50)),
        ],
        {"BM": 32},
    ),
    "triton_in_turn": (
        kernels.in_turn,
        [2, 3],
        [
            floats("float16", [64, 192]),
            floats("float16", [192, 128]),
            constant("float32", [64, 128]),
            constant("int32", 2),
            128,
            192,
        ],
        {"SPLIT": 3, "BM": 64, "BN": 64, "BK": 32},
    ),
    "triton_scans": (
        kernels.scans,
        [1],
        [bits("int64", [16, 64]), constant("int64", 1024), constant("int64", 1024), constant("int64", 1024)],
        {"ROWS": 16, "COLUMNS": 64},
    ),
    "triton_sorts": (
        kernels.sorts,
        [1],
        [floats("float32", [4, 64]), constant("float32", [4, 64]), constant("float32", [4, 8])],
        {"ROWS": 4, "COLUMNS": 64, "K": 8},
    ),
    "triton_extremes": (
        kernels.extremes,
        [1],
        [floats("float32", [16, 64], 0, 12), constant("int32", 80), constant("float32", 128)],
        {"ROWS": 16, "COLUMNS": 64},
    ),
    "triton_gathers": (
        kernels.gathers,
        [1],
        [bits("int32", [16, 64]), integers("int32", [16, 64], 0, 64), constant("int32", [16, 64])],
        {"ROWS": 16, "COLUMNS": 64},
    ),
    "triton_turned": (
        kernels.turned,
        [2, 2],
        [bits("int8", [100, 80]), constant("int8", [80, 100]), 100, 80],
        {"B": 64},
    ),
    "triton_dropped": (
        kernels.dropped,
        [2],
        [floats("float32", 900), constant("float32", 900), constant("int32", 900), 900, 1234],
        {"B": 512},
    ),
    "triton_normed": (
        kernels.normed,
        [3],
        [
            floats("float16", [3, 700]),
            constant("float16", [3, 700]),
            floats("float16", 700),
            floats("float16", 700),
            700,
            1e-5,
        ],
        {"B": 512},
        {"exact": False},
    ),
    "triton_convolved": (
        kernels.convolved,
        [1],
        [floats("float16", [8, 8, 32]), floats("float16", [9, 32, 32]), constant("float16", [8, 8, 32]), 8, 8],
        {"B": 64, "C": 32},
    ),
    "gluon_specialised": (
        kernels.specialised,
        [2, 1],
        [
            *(Block([64, 64]), floats("float16", [128, 640])),
            *(Block([64, 64]), floats("float16", [64, 640])),
            *(Block([64, 64]), constant("float16", [128, 64])),
            10,
        ],
        {"STAGES": 3},
    ),
    "triton_softmax": (
        kernels.softmax,
        [5],
        [floats("float32", [5, 781]), constant("float32", [5, 781]), 781],
        {"B": 1024},
    ),
    "triton_layer_norm": (
        kernels.layer_norm,
        [4],
        [
            floats("float32", [4, 700]),
            constant("float32", [4, 700]),
            floats("float32", 700),
            floats("float32", 700),
            constant("float32", 4),
            constant("float32", 4),
            700,
            1e-5,
        ],
        {"B": 1024},
    ),
    "triton_attention_forward": (
        kernels.attention_forward,
        [4],
        [
            *(floats("float16", [256, 64], -4, 0) for _ in range(3)),
            constant("float16", [256, 64]),
            constant("float32", 256),
            256,
            0.18033688,
        ],
        {"B": 64, "D": 64},
    ),
    "triton_attention_backward": (
        kernels.attention_backward,
        [2],
        [
            *(floats("float16", [128, 64], -4, 0) for _ in range(4)),
            *(floats("float32", 128, 1, 2), floats("float32", 128, -4, 0)),
            *(constant("float16", [128, 64]) for _ in range(3)),
            128,
            0.18033688,
        ],
        {"B": 64, "D": 64},
    ),
}


def signature(arguments):
    """Types of the arguments, as Triton writes them."""
    block = None
    for argument in arguments:
        if isinstance(argument, Block):
            block = argument
        elif isinstance(argument, dict) and block is not None:
            yield f"tensordesc<{TYPES[argument['type']]}[{','.join(map(str, block))}]"
            block = None
        elif isinstance(argument, dict):
            yield "*" + TYPES[argument["type"]]
        else:
            yield "fp32" if isinstance(argument, float) else "i32"


def compiled(function, arguments, constants, options):
    """What Triton makes of a kernel without a card."""
    types = list(signature(arguments))
    is_gluon = function is kernels.specialised
    end = f",{RING_LAYOUT!r}>" if is_gluon else ">"
    types = [text + end if text.startswith("tensordesc") else text for text in types]
    given = dict(zip(function.arg_names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
    target = GPUTarget("cuda", options.get("arch", 90), 32)
    chosen = {key: options[key] for key in ("num_ctas", "num_warps") if key in options}
    if is_gluon:
        return triton.compile(GluonASTSource(function, given, constexprs=constants), target=target, options=chosen)
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    aligned = [number for number, text in enumerate(types) if text.startswith("*")]
    aligned += [number for number, value in enumerate(numbers(arguments)) if isinstance(value, int) and value % 16 == 0]
    attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
    return triton.compile(ASTSource(function, given, places, attributes), target=target, options=chosen)


def numbers(arguments):
    """The arguments without the blocks of descriptors: one for each parameter of the kernel's source."""
    return [argument for argument in arguments if not isinstance(argument, Block)]


def parameters(arguments, made):
    """Arrays, and parameters in the order of the PTX: a descriptor is its map, its shape and its strides."""
    arrays, found, block = [], [], None
    maps = iter(made.metadata.tensordesc_meta)
    for argument in arguments:
        if isinstance(argument, Block):
            block = argument
        elif isinstance(argument, dict):
            number, shape = len(arrays), argument["shape"]
            arrays.append(argument)
            if block is None:
                found.append({"kind": "array", "array": number})
                continue
            described = next(maps)
            swizzle = SWIZZLES[described["swizzle"]]
            box = described["block_size"][::-1]
            found.append(tensor_map(number, TMA_NAMES[argument["type"]], shape[::-1], box, swizzle=swizzle))
            found += [{"kind": "int", "value": value} for value in (*shape, shape[1], 1)]
            block = None
        else:
            found.append({"kind": "float" if isinstance(argument, float) else "int", "value": argument})
    return arrays, found


def launched(arguments, grid, options, made):
    arrays, found = parameters(arguments, made)
    metadata = made.metadata
    scratch_bytes = getattr(metadata, "global_scratch_size", 0) * math.prod(grid)
    if scratch_bytes:
        found.append({"kind": "array", "array": len(arrays)})
        arrays.append(constant("uint8", scratch_bytes) | {"is_scratch": True})
    else:
        found.append({"kind": "int", "value": 0})
    found.append({"kind": "int", "value": 0})
    block = int(re.search(r"\.reqntid (\d+)", made.asm["ptx"])[1])
    launch = {"entry": metadata.name, "grid": grid, "block": [block], "smem_bytes": metadata.shared}
    launch |= {"exact": options.get("exact", True), "params": found, "arrays": arrays}
    if metadata.num_ctas > 1:
        launch |= {"grid": [grid[0] * metadata.num_ctas, *grid[1:]], "cluster": [metadata.num_ctas]}
    if options.get("arch") == 80:
        launch["arch"] = "sm_90"
    return launch


def main(folder):
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (function, grid, arguments, constants, *rest) in KERNELS.items():
        options = rest[0] if rest else {}
        made = compiled(function, arguments, constants, options)
        text = made.asm["ptx"]
        (HERE / f"{name}.ptx").write_text(build.plain(text))
        if options.get("arch") == 80:
            (folder / f"{name}.ptx").write_text(text)
            build.assembled(folder / f"{name}.ptx", "sm_90", folder / f"{name}.cubin")
            (folder / f"{name}.ptx").unlink()
        else:
            (folder / f"{name}.cubin").write_bytes(made.asm["cubin"])
        found[name] = launched(arguments, grid, options, made)
        entry = re.search(r"\.entry \w+\((.*?)\)", text, re.DOTALL)[1]
        assert len(entry.split(",\n")) == len(found[name]["params"]), (name, entry, found[name]["params"])
    (folder / "launches.json").write_text(json.dumps(found, indent=1))
    shutil.copy(HERE / "record.py", folder)
    shutil.copy(build.MACHINE_TESTS / "kernel_arrays.py", folder)


if __name__ == "__main__":
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    main(*sys.argv[1:])
