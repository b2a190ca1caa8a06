"""The known kernels come out as their public sources have them."""

import math
import re

import numpy as np
import pytest
from emitter_toolchain import nvrtc, nvrtc_ptx, run

import tilescope as ts
from tilescope.arithmetic import rounded_up
from tilescope.emitter.kernel_program import kernel_target
from tilescope.kernel_plan.known_kernels import known_kernel_names, known_kernel_text
from tilescope.pipeline.simulation import PROVEN

BLOCK_BYTES = 232448  # of sm_90 and sm_100

# Bytes of tiles as the sources add them up, without barriers; bf16 has 2 bytes, float32 has 4.
TILE_BYTES = {
    # Q + 2 K + 2 V (+ P), O over V: hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp:308-320
    "flash-attention-3-forward-64": 2 * (192 * 64 + 4 * 192 * 64 + 192 * 192),
    "flash-attention-3-forward-64-causal": 2 * (192 * 64 + 4 * 128 * 64),
    "flash-attention-3-forward-96": 2 * (192 * 96 + 4 * 144 * 96 + 192 * 144),
    "flash-attention-3-forward-128": 2 * (128 * 128 + 4 * 176 * 128),
    "flash-attention-3-forward-128-causal": 2 * (128 * 128 + 4 * 128 * 128),
    "flash-attention-3-forward-192": 2 * (128 * 192 + 4 * 112 * 192),
    "flash-attention-3-forward-256": 2 * (128 * 256 + 4 * 80 * 256),
    # K, V, dQ, 2 Q, 2 dO, 2 lse, 2 dpsum, 2 dS: hopper/mainloop_bwd_sm90_tma_gmma_ws.hpp:280-289
    "flash-attention-3-backward-128": 2 * (2 * 128 * 128 + 4 * 80 * 128 + 2 * 80 * 128) + 4 * (80 * 128 + 4 * 128),
    "flash-attention-3-backward-128-causal": 2 * (2 * 128 * 128 + 4 * 64 * 128 + 2 * 64 * 128)
    + 4 * (64 * 128 + 4 * 64),
    # 2 Q, 2 O, stages of K and V, scales: flash_attn/cute/flash_fwd_sm100.py:392-405, 757-793
    "flash-attention-4-forward-64": 2 * (4 * 128 * 64 + 10 * 128 * 64) + 4 * 2 * 128 * 2,
    "flash-attention-4-forward-128": 2 * (4 * 128 * 128 + 3 * 128 * 128) + 4 * 2 * 128 * 2,
    # O over Q; two large slots and a small one
    "flash-attention-4-forward-192": 2 * (2 * 128 * 192 + 2 * 128 * 192 + 128 * 128) + 4 * 2 * 128 * 2,
    # 2 Q, 4 K, 4 V of a block of the pair, sums: sm100_hd256_2cta_fmha_forward.py:779-791
    "flash-attention-4-forward-256": 2 * (2 * 128 * 128 + 8 * 64 * 128) + 4 * 128,
    # csrc/sm90/decode/dense/traits.h:77-89
    "flash-mla-decode": 2 * (3 * 64 * 576 + 64 * 64) + 4 * 5 * 64,
    # D, stages of A, B and SFA, SFB of 56 k tiles for each warpgroup here
    "deepgemm-fp8": 2 * 128 * 128 + 5 * (2 * 128 * 128 + 4 * 128) + 2 * 4 * 56,
    "cutlass-57-grouped": 4 * (256 + 128) * 128 + 2 * 4 * 128 * 32 + 4 * 128,
    "gluon-convolution": 3 * 2 * 2 * 128 * 64,
    # X, B, Bt, C, P, Y, cumsum, delta: mamba2_ssd.py:551-592
    "mamba2-ssd": 2 * (2 * 128 * 64 + 5 * 128 * 128 + 64 * 128 + 2 * 128 * 32 + 2 * 128) + 4 * 2 * 128,
}
STAGES = {
    "flash-attention-4-forward-64": {"KV": (224 * 1024 - 4 * 128 * 64 * 2) // (128 * 64 * 2)},  # flash_fwd_sm100.py:401
    "flash-attention-4-forward-128": {"KV": (224 * 1024 - 4 * 128 * 128 * 2) // (128 * 128 * 2)},
    "flash-attention-4-forward-192": {"KV": 3},  # line 404
    "deepgemm-fp8": {"A_B_SFA": (BLOCK_BYTES - 2 * 128 * 128 - 256 - 224) // (2 * 128 * 128 + 4 * 128)},  # sm90.hpp:180
    "cutlass-57-grouped": {"A_B": 4},
    "gluon-convolution": {"A_B": 3, "acc": 2},
}
COLUMNS = {
    "flash-attention-4-forward-64": 2 * 128 + 2 * 64,  # flash_fwd_sm100.py:344-349
    "flash-attention-4-forward-128": 512,
    "flash-attention-4-forward-192": 512,
    "flash-attention-4-forward-256": 256 + 256,  # sm100_hd256_2cta_fmha_forward.py:145-147
    "gluon-convolution": 2 * 128,
    "mamba2-ssd": 2 * 128 + 64 + 64 + 64 + 64,  # mamba2_ssd.py:2465-2470
}
# Registers of a thread that setmaxnreg asks for; None: those at entry.
_FLASH_3_OF_2 = {"producer": 24, "consumer": 240}  # hopper/flash_fwd_kernel_sm90.h:82-83, two warpgroups
_FLASH_3_OF_3 = {"producer": 32, "consumer": 160}
_FLASH_3_BACKWARD = {"producer": 24, "add_dq": 24, "idle": 24, "consumer": 240}  # hopper/flash_bwd_kernel_sm90.h:64-65


def _flash_4(softmax, correction, other=None):
    """The roles of flash_fwd_sm100.py; the other warps have what is left of 512, as line 378 has it."""
    rest = 512 - 2 * softmax - correction if other is None else other
    roles = {"softmax0": softmax, "softmax1": softmax, "correction": correction}
    return roles | dict.fromkeys(("mma", "epilogue", "load", "empty"), rest)


REGISTERS = {
    "flash-attention-3-forward-64": _FLASH_3_OF_3,
    "flash-attention-3-forward-64-causal": _FLASH_3_OF_3,
    "flash-attention-3-forward-96": _FLASH_3_OF_3,
    "flash-attention-3-forward-128": _FLASH_3_OF_2,
    "flash-attention-3-forward-128-causal": _FLASH_3_OF_2,
    "flash-attention-3-forward-192": _FLASH_3_OF_2,
    "flash-attention-3-forward-256": _FLASH_3_OF_2,
    "flash-attention-3-backward-128": _FLASH_3_BACKWARD,
    "flash-attention-3-backward-128-causal": _FLASH_3_BACKWARD,
    "flash-attention-4-forward-64": _flash_4(200, 64, 48),  # flash_fwd_sm100.py:365-367
    # one block is for causal masks (interface.py:822-836), so the rows (False, True, …) of _TUNING_CONFIG hold
    "flash-attention-4-forward-128": _flash_4(192, 72),  # line 102
    "flash-attention-4-forward-192": _flash_4(192, 72),  # line 104
    # sm100_hd256_2cta_fmha_forward.py:151-153, flash_fwd_sm100.py:109-110
    "flash-attention-4-forward-256": {"softmax": 256, "correction": 160, "mma": 32, "load": 32, "empty": 32},
    "flash-mla-decode": {"group0": None, "group1": None},  # launch bounds alone: splitkv_mla.cuh:960
    "deepgemm-fp8": {"producer": 40, "consumer": 232},  # sm90_fp8_gemm_1d2d.cuh:146-147, 256 math threads
    "cutlass-57-grouped": {"producer": 40, "consumer": 232},  # sm90_gemm_array_…_cooperative.hpp:188-189
    # 02-conv-fprop.py:401; warps are filled up to a warpgroup by AllocateWarpGroups.cpp:39-83
    "gluon-convolution": {"epilogue": None, "mma": 24, "load": 24, "idle": 24},
    # mamba2_ssd.py:68, 160-161
    "mamba2-ssd": dict.fromkeys(("mma_inter", "mma_intra", "load_bc", "load_x"), 32)
    | {"pre_inter": 168, "pre_intra": 208, "epilogue": 104},
}
OWN = ("gemm", "attention-forward-")  # what their names begin with
KNOWN = [name for name in known_kernel_names() if not name.startswith(OWN)]


def test_every_known_kernel_has_its_sum():
    assert sorted(TILE_BYTES) == sorted(REGISTERS) == KNOWN


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_are_those_of_the_source(name):
    plan = ts.plan_kernel(name)
    barriers = 8 * sum(row.stages for row in plan.barriers) + (4 if plan.columns else 0)
    least = TILE_BYTES[name] + barriers
    assert least <= plan.smem_bytes <= BLOCK_BYTES
    # small tiles are padded to 16 or 128 bytes, the struct to 1,024
    assert plan.smem_bytes <= rounded_up(least + 128 * len(plan.tiles), 1024)


@pytest.mark.parametrize("name", STAGES)
def test_stages_are_those_of_the_source(name):
    found = dict(ts.plan_kernel(name).alternatives[0].stages)
    assert {ring: found[ring] for ring in STAGES[name]} == STAGES[name]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_those_of_the_source(name):
    assert ts.plan_kernel(name).tmem_columns == COLUMNS[name]


@pytest.mark.parametrize("name", KNOWN)
def test_registers_are_those_of_the_source(name):
    plan = ts.plan_kernel(name)
    assert {role.name: role.registers for role in plan.kernel.roles} == REGISTERS[name]
    has = {use.role: use.registers for use in plan.registers}
    assert has == {role: asked or plan.entry_registers for role, asked in REGISTERS[name].items()}


@pytest.mark.parametrize(("name", "fits", "exceeds"), [("128", 192, 208), ("192", 112, 120), ("256", 80, 88)])
def test_tiles_of_flash_attention_3_reach_the_limit_where_its_comments_say(name, fits, exceeds):
    kernel = f"flash-attention-3-forward-{name}"
    assert ts.plan_kernel(kernel, sizes={"N": fits}).left_bytes >= 0
    with pytest.raises(ts.PlanError, match="kernel-smem"):
        ts.plan_kernel(kernel, sizes={"N": exceeds})


@pytest.mark.parametrize("name", known_kernel_names())
def test_pipeline_is_proven(name):
    assert ts.simulate(ts.plan_kernel(name).pipeline).verdict in PROVEN


@pytest.mark.parametrize("name", KNOWN)
def test_file_names_its_source_by_commit_and_line(name):
    text = known_kernel_text(name)
    assert re.search(r"^# .*commit [0-9a-f]{40}", text, re.MULTILINE)
    assert re.search(r"\d+-\d+|:\d+", text)


@pytest.mark.thinned(24)
@pytest.mark.parametrize("name", known_kernel_names())
def test_cuda_compiles(name):
    plan = ts.plan_kernel(name)
    source = ts.emit(plan, "cuda")
    assert nvrtc(source, kernel_target(plan))
    for place, step in enumerate(plan.kernel.steps):
        if step.operation not in ("load", "store"):
            uses = 0 if plan.kernel.program else 2  # a whole program has no gaps; one is defined, and called once
            assert source.count(f"gap_{step.role}_{place}(") == uses, step.title


def test_maps_have_the_rank_of_their_tensor():
    plan = ts.plan_kernel("flash-attention-3-forward-128")
    tensor_map = plan.tile("K").tensor_map
    assert tensor_map.dims == (128, 4096, 16, 4)
    assert tensor_map.box == (64, 176, 1, 1)
    assert tensor_map.strides_bytes == (2 * 16 * 128, 2 * 128, 2 * 4096 * 16 * 128)


def without(steps, is_dropped):
    """Steps, and those of loops inside, without some of them."""
    return [
        step | {"steps": without(step["steps"], is_dropped)} if "loop" in step else step
        for step in steps
        if not is_dropped(step)
    ]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "is_dropped"),
    [
        # both warpgroups read both halves of dS
        ("flash-attention-3-backward-128", lambda step: step.get("threads") == 256),
        # the correction warps have O before each product with V, and behind the loop once more
        ("flash-attention-4-forward-128", lambda step: step.get("wait") == "acc0_full"),
        ("flash-attention-4-forward-128", lambda step: "_rounds - 1" in str(step.get("parity"))),
    ],
)
def test_what_rescaling_and_exchange_wait_for_is_needed(name, is_dropped):
    pipeline = ts.plan_kernel(name).pipeline.to_dict()
    roles = [role | {"steps": without(role["steps"], is_dropped)} for role in pipeline["roles"]]
    assert roles != pipeline["roles"]
    assert ts.simulate(pipeline | {"roles": roles}).verdict == "mistake"


def test_one_stage_of_an_exchanged_tile_is_proven_too():
    text = known_kernel_text("flash-attention-3-backward-128").replace("stages = 2, per_instance", "per_instance")
    assert ts.simulate(ts.plan_kernel(text).pipeline).verdict == "proven"


def changed(steps, change):
    """Steps, and those of loops inside, each as `change` gives it."""
    return [change(step) | ({"steps": changed(step["steps"], change)} if "loop" in step else {}) for step in steps]


PAIR = "flash-attention-4-forward-256"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "step", "key"),
    [
        (PAIR, "copy", "barrier_rank"),  # the bytes of both blocks count at the first one
        (PAIR, "commit", "mask"),  # what the first block's products have done is told to both
        (PAIR, "arrive", "mask"),  # threads of both blocks tell the first one
        ("deepgemm-fp8", "copy", "mask"),
        ("deepgemm-fp8", "arrive", "mask"),  # a slot is free if the consumers of both blocks say so
        ("cutlass-57-grouped", "copy", "mask"),
        ("cutlass-57-grouped", "arrive", "mask"),
    ],
)
def test_blocks_of_a_cluster_reach_each_other_as_the_proof_needs(name, step, key):
    pipeline = ts.plan_kernel(name).pipeline.to_dict()
    assert ts.simulate(pipeline).verdict == "proven"
    within = [
        role
        | {
            "steps": changed(
                role["steps"],
                lambda row: {field: value for field, value in row.items() if step not in row or field != key},
            )
        }
        for role in pipeline["roles"]
    ]
    assert within != pipeline["roles"]
    assert ts.simulate(pipeline | {"roles": within}).verdict == "mistake"


def test_blocks_wait_for_the_last_commits():
    pipeline = ts.plan_kernel(PAIR).pipeline.to_dict()
    roles = [role | {"steps": without(role["steps"], lambda step: "tail" in step)} for role in pipeline["roles"]]
    assert ts.simulate(pipeline | {"roles": roles}).verdict == "mistake"


def test_barriers_of_a_cluster_have_the_counts_of_their_sources():
    rows = {name: {row.name: row for row in ts.plan_kernel(name).barriers} for name in (PAIR, "deepgemm-fp8")}
    assert rows["deepgemm-fp8"]["A_B_SFA_empty"].count == 2 * 256 // 32  # sm90_fp8_gemm_1d2d.cuh:136
    assert rows[PAIR]["K_full"].bytes == 2 * 64 * 128 * 2  # of both blocks
    assert rows[PAIR]["P0_full"].count == 2 * 4  # sm100_hd256_2cta_fmha_forward.py:669, of warps here


# What the empty gaps of a kernel leave undone: outputs that nobody computes, all stored at the same coordinates.
UNDONE = {
    PAIR: set(),
    "deepgemm-fp8": {"run-race"},
    "cutlass-57-grouped": {"run-race"},
    "flash-attention-4-forward-128": {"run-race"},
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", UNDONE)
def test_emitted_synchronization_runs_in_the_machine(name):
    plan = ts.plan_kernel(name)
    source = ts.emit(plan, "cuda")
    memory = ts.Memory()
    maps = []
    for tile in plan.tiles:
        if f"Map map_{tile.name}" in source:
            described = tile.tensor_map
            shape = (*(1 for _ in range(described.rank - 2)), *plan.kernel.tile(tile.name).shape)
            array = np.zeros(shape, described.data_type.numpy)
            maps.append(memory.map(array, described.box, swizzle=described.swizzle.name))
    parts = [
        np.zeros(tile.stage_bytes, np.uint8) for tile in plan.tiles if f"global_{tile.name}" in source
    ]  # without a map
    rounds = [np.int32(loop.count) for loop in plan.kernel.loops]
    kernel = ts.Kernel(nvrtc_ptx(source, kernel_target(plan)).rstrip("\0"), "kernel")
    blocks = plan.kernel.cluster
    made = kernel.run(
        blocks, plan.kernel.threads, [*maps, *parts, *rounds], memory=memory, smem_bytes=plan.smem_bytes, cluster=blocks
    )
    assert made.outcome == "finished"
    assert {finding.rule for finding in made.findings if finding.severity == "error"} == UNDONE[name]


@pytest.mark.parametrize("stride", [1, 2])
def test_the_convolution_has_the_im2col_map_of_its_source(stride):
    sizes = {"H": 57, "W": 40, "R": 3, "S": 5, "PAD": 2}
    text = known_kernel_text("gluon-convolution").replace('padding = "PAD"', f'padding = "PAD", stride = {stride}')
    plan = ts.plan_kernel(text, sizes=sizes)
    tile = plan.tile("A")
    x = tile.tensor_map
    assert (x.dims, x.element_strides) == ((128, 40, 57, 16), (1, stride, stride, 1))  # 02-conv-fprop.py:511
    assert (x.channels_per_pixel, x.pixels_per_column, x.transaction_bytes) == (64, 128, 128 * 64 * 2)
    for place, (extent, taps) in enumerate(((40, 5), (57, 3))):  # W, H
        out = (extent + 2 * 2 - taps) // stride + 1  # line 474
        assert tile.convolution.output_shape[2 - place] == out
        assert x.lower_corner[place] == -2  # line 512
        window = extent + x.upper_corner[place] - x.lower_corner[place]
        assert (window - 1) // stride + 1 == out  # lines 494-498
        if stride == 1:
            assert x.upper_corner[place] == (out - 1) * stride + 1 - extent - 2  # lines 500-501
    assert tile.convolution.offsets[2][4] == (4, 2)  # of tap (r, s), in the order W, H
    assert next(row.bytes for row in plan.barriers if row.name == "A_B_full") == 2 * 128 * 64 * 2  # line 196


@pytest.mark.slow
def test_the_host_encodes_the_maps_of_the_plan(tmp_path):
    source = ts.emit(ts.plan_kernel("gluon-convolution"), "cuda")
    assert "cuTensorMapEncodeIm2col" in source
    (tmp_path / "convolution.cu").write_text(source)
    run(
        "nvcc",
        "-std=c++17",
        "-gencode=arch=compute_100a,code=sm_100a",
        "-c",
        "-o",
        tmp_path / "convolution.o",
        tmp_path / "convolution.cu",
    )


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (('shape = ["M", "K"]', 'shape = [512, "K"]'), "tiles.A.shape[0]"),
        (('filter = ["R", "S"]', 'filter = ["R"]'), "tiles.A.tensor.filter"),
        (
            ('stages = "STAGES", tensor = {shape = ["B', 'multicast = "first", tensor = {shape = ["B'),
            "tiles.A.multicast",
        ),
    ],
)
def test_images_that_one_copy_cannot_load_are_refused(change, argument):
    with pytest.raises(ts.RuleError) as error:
        ts.plan_kernel(known_kernel_text("gluon-convolution").replace(*change))
    assert argument in [violation.argument for violation in error.value.violations]


TENSORS = {  # the shape, the dimension of the rows, and the map's dims: the tile's two, then the others from the inside
    "rows": ([4096, 128], 0, (128, 4096)),
    "packed lengths": ([9999, 16, 128], 0, (128, 9999, 16)),
    "batches of heads": ([4, 4096, 16, 128], 1, (128, 4096, 16, 4)),
    "pages": ([2, 300, 64, 8, 128], 2, (128, 64, 8, 300, 2)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_maps_of_two_to_five_dimensions_are_planned_and_compiled(name):
    shape, rows, dims = TENSORS[name]
    text = known_kernel_text("flash-attention-3-forward-128-causal")
    written = 'tensor = {shape = [4, 4096, 16, "D"], rows = 1}'
    assert text.count(written) == 4
    plan = ts.plan_kernel(text.replace(written, f"tensor = {{shape = {shape}, rows = {rows}}}"))
    strides = {extent: math.prod(shape[place + 1 :]) * 2 for place, extent in enumerate(shape)}
    for tile in ("Q", "K", "V", "O"):
        x = plan.tile(tile).tensor_map
        assert (x.dims, x.box) == (dims, (64, plan.kernel.tile(tile).shape[0], *(1 for _ in dims[2:])))
        assert x.strides_bytes == tuple(strides[extent] for extent in dims[1:])
    source = ts.emit(plan, "cuda")
    assert f"cp.async.bulk.tensor.{len(dims)}d.shared::cluster" in source
    assert nvrtc(source, kernel_target(plan))
