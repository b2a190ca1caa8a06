"""The program of attention: run by the machine it gives a plain softmax, bit for bit, and nothing is found wrong with it."""

import struct

import ml_dtypes
import numpy as np
import pytest
from emitter_toolchain import nvrtc_ptx

import tilescope as ts
from tilescope.emitter.emission import device_half
from tilescope.emitter.program_launch import describe_program_launch

BF16 = ml_dtypes.bfloat16
NAMES = ("attention-forward-64", "attention-forward-64-causal", "attention-forward-128", "attention-forward-128-causal")
SHAPES = [  # batches, heads, heads of K and V, queries, keys; seed
    (1, 2, 1, 200, 300, None),  # heads that share keys, rows that end inside a tile, a ring that wraps
    (2, 1, 1, 70, 513, 1),
    (1, 1, 1, 300, 140, 2),  # causal: the first queries see no key
    (1, 2, 2, 1, 129, None),
]


def whole_numbers(random, shape, share):
    """-1 and 1, each in `share` of all cases, else 0: scores are whole numbers, and sums of their powers of two are exact."""
    drawn = random.random(shape)
    return np.where(drawn < share, 1, np.where(drawn < 2 * share, -1, 0))


def plain_attention(q, k, v, causal):
    """A softmax with base 2 in double precision, and the kernel's last two roundings."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k).astype(np.float64)
    queries, keys = scores.shape[-2:]
    if causal:
        scores[..., np.arange(keys) > np.arange(queries)[:, None] + keys - queries] = -np.inf
    peak = scores.max(-1, keepdims=True)
    weights = np.exp2(scores - np.where(np.isinf(peak), 0, peak))
    total = weights.sum(-1, keepdims=True).astype(np.float32)
    inverse = np.divide(np.float32(1), total, out=np.zeros_like(total), where=total > 0)
    return ((weights @ v).astype(np.float32) * inverse).astype(BF16)


def run(name, shape, edit=lambda source: source):
    """O, the expected O, and the run of the program's kernel."""
    *sizes, seed = shape
    batches, heads, kv_heads, queries, keys = sizes
    plan = ts.plan_kernel(name)
    kernel = ts.Kernel(nvrtc_ptx(edit(device_half(ts.emit(plan, "cuda"))), "sm_90a").rstrip("\0"), "attention_kernel")
    rows, head_dim = plan.kernel.tile("Q").shape
    keys_of_tile = plan.kernel.tile("K").shape[0]
    random = np.random.default_rng(5)
    q = whole_numbers(random, (batches, heads, queries, head_dim), 1 / 32)
    k = whole_numbers(random, (batches, kv_heads, keys, head_dim), 1 / 8)
    v = whole_numbers(random, (batches, kv_heads, keys, head_dim), 3 / 8)
    o = np.full(q.shape, 77, BF16)
    memory = ts.Memory()
    arrays = [*(np.ascontiguousarray(array.astype(BF16)) for array in (q, k, v)), o]
    boxes = [rows, keys_of_tile, keys_of_tile, 64]
    maps = [memory.map(array, (64, box, 1, 1), swizzle="128B") for array, box in zip(arrays, boxes, strict=True)]
    query_tiles = -(-queries // rows)
    tiles = query_tiles * batches * heads
    problem = struct.pack("<5if3i", *sizes, 1.0, query_tiles, tiles, max(1, batches * heads - 1))
    launch = describe_program_launch(plan)
    made = kernel.run(
        min(tiles, 2), launch.block, [*maps, problem], memory=memory, smem_bytes=launch.smem_bytes, seed=seed
    )
    return o, plain_attention(q, k, v, "causal" in name), made


@pytest.mark.thinned(16)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(name, shape, marks=() if shape is SHAPES[0] else pytest.mark.slow)
        for name in NAMES
        for shape in SHAPES
    ],
)
def test_the_program_is_exact_and_nothing_is_found(name, shape):
    o, expected, made = run(name, shape)
    assert made.outcome == "finished"
    assert {finding.rule for finding in made.findings} <= {"run-ring-not-wrapped"}  # a note of shapes with few keys
    assert o.view(np.uint16).tolist() == expected.view(np.uint16).tolist()


@pytest.mark.slow
def test_a_key_that_is_not_masked_is_seen():
    """The comparison notices one key too many."""
    o, expected, _ = run(
        NAMES[3], SHAPES[1], lambda source: source.replace("> last[i / 2 % 2]", "> last[i / 2 % 2] + 1")
    )
    assert (o != expected).any()


@pytest.mark.slow
def test_a_stage_that_is_given_back_too_early_is_found():
    early = "wgmma_wait<1>();  // the scores are there"
    _, _, made = run(NAMES[2], SHAPES[0], lambda source: source.replace(early, "wgmma_wait<2>();"))
    assert any(finding.severity == "error" for finding in made.findings)


@pytest.mark.parametrize("name", NAMES)
def test_offsets_counts_and_registers_are_the_plans(name):
    plan = ts.plan_kernel(name)
    source = ts.emit(plan, "cuda")
    for tile in plan.tiles:
        assert f"constexpr int {tile.name}_OFFSET = {tile.offset_bytes}, {tile.name}_BYTES = " in source
    for barrier in plan.barriers:
        ring = f" + 8 * stage, {barrier.count})" if barrier.stages > 1 else f", {barrier.count})"
        assert f"mbarrier_init({barrier.name.lower()}{ring}" in source
    for use, direction in zip(plan.registers, ("dec", "inc"), strict=True):
        assert f"setmaxnreg.{direction}.sync.aligned.u32 {use.registers};" in source
    assert f"constexpr int SMEM_BYTES = {plan.smem_bytes};" in source
    assert ts.simulate(plan.pipeline).verdict == "proven"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"D": 32}, "a head dimension of 32"),
        ({"M": 64}, "64 queries for 2 warpgroups"),
        ({"N": 24}, "K 24 x 128"),
    ],
)
def test_a_kernel_that_the_program_does_not_compute_is_refused(changed, said):
    plan = ts.plan_kernel("attention-forward-128", sizes=changed)
    with pytest.raises(ts.RuleError) as error:
        ts.emit(plan, "cuda")
    assert any(said in violation.found for violation in error.value.violations)
    assert {violation.rule for violation in error.value.violations} == {"emit"}
