"""An emitted GEMM on small whole numbers in the machine, with the product that it should give."""

from math import prod

import ml_dtypes
import numpy as np
from emitter_toolchain import nvrtc_ptx

import tilescope as ts
from tilescope.emitter.emission import device_half
from tilescope.emitter.gemm_parameters import gemm_parameters
from tilescope.emitter.gemm_program import gemm_program
from tilescope.planner.gemm_maps import gemm_map, launch_rows

TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "s32": np.int32,
    "u32": np.uint32,
}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
}


def arrays_of(gemm, random, rows):
    """A, B, and the arrays and numbers of the other parameters, by name."""
    _, n, k = gemm.shape
    count = gemm.batch.count
    a_items = count if gemm.batch.stacks("a") else 1
    made = {"a": random.integers(-2, 3, (a_items, rows, k)), "b": random.integers(-2, 3, (count, n, k))}
    for each in gemm_parameters(gemm):
        if each.name == "bias":
            made["bias"] = random.integers(-3, 4, (count, n)).astype(np.float32)
        elif each.name == "residual":
            shape = (a_items, rows, gemm.fused.columns(n))
            made["residual"] = random.integers(-3, 4, shape).astype(TYPES[each.data_type])
        elif each.name == "a_scales":  # (items, blocks of k, rows and their padding, which nobody may use)
            made["a_scales"] = random.uniform(0.5, 2, (a_items, -(-k // 128), -(-rows // 4) * 4)).astype(np.float32)
            made["a_scales"][..., rows:] = np.nan
        elif each.name == "b_scales":
            made["b_scales"] = random.uniform(0.5, 2, (count, -(-n // 128), -(-k // 512) * 4)).astype(np.float32)
            made["b_scales"][..., -(-k // 128) :] = np.nan
        elif each.name == "experts" and gemm.batch.rows == "contiguous":
            made["experts"] = (
                np.sort(random.integers(0, count, rows // gemm.tile[0])).repeat(gemm.tile[0]).astype(np.int32)
            )
            made["experts"][rows - gemm.tile[0] // 2 - 1 :] = -1  # nobody's
        elif each.name == "experts":
            made["experts"] = random.integers(0, rows + 1, count).astype(np.int32)
            made["experts"][count // 2] = 0  # one without rows
        elif each.size:
            made[each.name] = np.zeros(each.size, TYPES[each.data_type])
        else:
            made[each.name] = TYPES[each.data_type](rows if each.name == "m_rows" else each.value)
    return made


def scaled_sums(gemm, made):
    """The sums of every item with scales of float32: K steps of 128 in order, each one fused multiply-add in float32.

    A step's sum of small whole numbers is exact. A product of two float32 is exact in float64, and so is its sum with d unless
    their exponents are 29 apart or more.
    """
    count, n, k = made["b"].shape
    items = np.arange(count)[:, None].repeat(made["a"].shape[1], axis=1)
    if gemm.batch.rows == "contiguous":
        items = made["experts"][None]
    a, rows = made["a"], np.arange(made["a"].shape[1])
    sums = np.zeros((*items.shape, n), np.float32)
    for block, first in enumerate(range(0, k, 128)):
        columns = slice(first, first + 128)
        for place, whose in enumerate(items):
            b = made["b"][whose][..., columns]
            step = np.einsum("rk,rnk->rn", a[place][:, columns], b).astype(np.float32)
            of_b = made["b_scales"][whose, :, block].repeat(128, axis=1)[:, :n]
            scale = made["a_scales"][place, block, rows][:, None] * of_b
            sums[place] = (step.astype(np.float64) * scale + sums[place]).astype(np.float32)
    return sums.astype(np.float64)


def expected_of(gemm, made):
    """C by numpy, in float64, items first; rows that are nobody's are NaN."""
    fused, (_, n, _) = gemm.fused, gemm.shape
    if gemm.batch.rows == "contiguous":
        sums = np.stack([made["a"][0, row] @ made["b"][item].T for row, item in enumerate(made["experts"])])[None]
        bias = made["bias"][made["experts"]][None] if fused.bias else 0
    else:
        sums = made["a"] @ made["b"].transpose(0, 2, 1)
        bias = made["bias"][:, None] if fused.bias else 0
    if gemm.block_scales:
        sums = scaled_sums(gemm, made)
    value = sums * float(made.get("alpha", 1)) + bias
    activation = ACTIVATIONS[fused.activation]
    if fused.gate == "side by side":
        value = activation(value[..., : n // 2]) * value[..., n // 2 :]
    elif fused.gate == "interleaved":
        pairs = value.reshape(*value.shape[:-1], n // 16, 2, 8)
        value = (activation(pairs[..., 0, :]) * pairs[..., 1, :]).reshape(*value.shape[:-1], n // 2)
    else:
        value = activation(value)
    if fused.residual:
        value = value + float(made["beta"]) * made["residual"].astype(np.float64)
    if gemm.batch.rows == "contiguous":
        value = np.where(made["experts"][None, :, None] >= 0, value, np.nan)
    if gemm.batch.rows == "masked":
        value = np.where(np.arange(value.shape[1])[None, :, None] < made["experts"][:, None, None], value, np.nan)
    return value


def run_gemm(gemm, *, rows=None, seed=1, source=None):
    """C, the expected product, and the run of the plan's kernel, for a launch of so many rows (None: the plan's own)."""
    rows = launch_rows(gemm) if rows is None else rows
    program = gemm_program(gemm)
    text = device_half(ts.emit(gemm, "cuda")) if source is None else source
    kernel = ts.Kernel(nvrtc_ptx(text, "sm_90a").rstrip("\0"), "gemm_kernel")
    made = arrays_of(gemm, np.random.default_rng(seed), rows)
    majors = {"a": gemm.a.problem.major, "b": gemm.b.problem.major}
    memory = ts.Memory()
    arguments = []
    for name, major in majors.items():
        stored = made[name].transpose(0, 2, 1) if major == "MN" else made[name]
        place = memory.place(np.ascontiguousarray(stored).astype(TYPES[gemm.data_type.ptx]))
        arguments.append(gemm_map(gemm, name, place, rows))
    c = np.full((made["a"].shape[0], rows, gemm.product.c_shape[1]), 77, TYPES[gemm.output_type.ptx])
    arguments.append(gemm_map(gemm, "c", memory.place(c), rows))
    for each in gemm_parameters(gemm):
        by_map = each.by_map and gemm_map(gemm, "c", memory.place(made[each.name]), rows)
        arguments.append(by_map or made[each.name])
    across = gemm.schedule.cluster_grid((-(-rows // gemm.tile[0]), -(-gemm.shape[1] // gemm.tile[1])))
    in_a_cluster = prod(gemm.schedule.cluster)
    tiles = prod(across) * in_a_cluster * made["a"].shape[0]
    grid = tiles * prod((gemm.schedule.split, gemm.schedule.parts)) if not gemm.schedule.persistent else None
    if grid is None:
        grid = gemm.sms if gemm.schedule.tail > 1 else min(tiles, gemm.sms)
    split = gemm.schedule.split
    ran = kernel.run(
        grid,
        program.work.threads,
        arguments,
        memory=memory,
        smem_bytes=gemm.smem_bytes,
        cluster=(split, 1, 1) if split > 1 else None,
    )
    return c, expected_of(gemm, made), ran
