"""Tensor copies in kernels against the card's recordings, and maps that a kernel edits itself."""

from pathlib import Path

import numpy as np
import pytest
from ptx_texts import fault_code, finished, kernel

import tilescope as ts
from tilescope.machine.launch import launch as launch_module
from tilescope.machine.memory import Memory

GOLDEN = Path(__file__).parent.parent / "golden"
SEEDS = [None, 0, 1]
DYNAMIC = ".extern .shared .align 1024 .b8 dynamic[];"
WAIT = """
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
        @!%p2 bra WAIT;
"""


def splitmix_bytes(seed, count):
    index = np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        word = (np.uint64(seed) << np.uint64(32)) + index * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (word ^ (word >> np.uint64(31))).view(np.uint8)[:count].copy()


TYPES = (
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f64",
    "bf16",
    "float32_ftz",
    "tfloat32",
    "tfloat32_ftz",
)


def recorded_map(cases, i, address):
    rank = int(cases["rank"][i])
    common = {
        "data_type": TYPES[cases["data_type"][i]],
        "dims": cases["dims"][i][:rank].tolist(),
        "strides_bytes": cases["strides_bytes"][i][: rank - 1].tolist(),
        "element_strides": cases["element_strides"][i][:rank].tolist(),
        "interleave": ("none", "16B", "32B")[cases["interleave"][i]],
        "swizzle": ("none", "32B", "64B", "128B")[cases["swizzle"][i]],
        "oob_fill": ("zero", "nan")[cases["oob_fill"][i]],
        "address": address,
    }
    if "box" in cases:
        return ts.TensorMap(**common, box=cases["box"][i][:rank].tolist())
    return ts.Im2colMap(
        **common,
        lower_corner=cases["lower_corner"][i][: rank - 2].tolist(),
        upper_corner=cases["upper_corner"][i][: rank - 2].tolist(),
        channels_per_pixel=int(cases["channels_per_pixel"][i]),
        pixels_per_column=int(cases["pixels_per_column"][i]),
    )


TENSOR_START = """
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, dynamic;
    ld.param.u32 %r3, [smem_offset];
    add.u32 %r3, %r3, %r2;
    ld.param.u32 %r4, [length];
    mov.b64 %d1, map;
    ld.param.u64 %d2, [memory];
    mul.wide.u32 %d3, %r1, 16;
    add.s64 %d2, %d2, %d3;
    ld.param.u32 %r50, [coords];
    ld.param.u32 %r51, [coords+4];
    ld.param.u32 %r52, [coords+8];
    ld.param.u32 %r53, [coords+12];
    ld.param.u32 %r54, [coords+16];
    ld.param.u16 %h1, [offsets];
    ld.param.u16 %h2, [offsets+2];
    ld.param.u16 %h3, [offsets+4];
    setp.eq.u32 %p1, %r1, 0;
    shl.b32 %r5, %r1, 4;
"""
TENSOR_PARAMETERS = (
    ".param .align 64 .b8 map[128], .param .u64 memory, .param .u32 smem_offset, .param .u32 length, "
    ".param .u32 transaction, .param .align 4 .b8 coords[20], .param .align 2 .b8 offsets[6]"
)


def loading_kernel(rank, mode):
    """Fills shared memory with 0xEE, loads one box, and writes `length` bytes of shared memory to `memory`."""
    coords = ", ".join(f"%r{50 + axis}" for axis in range(rank))
    taps = f", {{{', '.join(f'%h{axis + 1}' for axis in range(rank - 2))}}}" if mode == "im2col" else ""
    return kernel(
        f"""
        .shared .align 8 .b64 barrier;
        {TENSOR_START}
        mov.u32 %r6, 0xEEEEEEEE;
        mov.u32 %r7, %r5;
    FILL:
        setp.ge.u32 %p2, %r7, %r4;
        @%p2 bra FILLED;
        add.u32 %r8, %r3, %r7;
        st.shared.v4.u32 [%r8], {{%r6, %r6, %r6, %r6}};
        add.u32 %r7, %r7, 4096;
        bra FILL;
    FILLED:
        mov.u32 %r9, barrier;
        @%p1 mbarrier.init.shared::cta.b64 [%r9], 1;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        ld.param.u32 %r10, [transaction];
        @!%p1 bra WAIT;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], %r10;
        cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [%r3], [%d1, {{{coords}}}], [%r9]{taps};
    WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9], 0;
        @!%p3 bra WAIT;
        mov.u32 %r7, %r5;
    SHOW:
        setp.ge.u32 %p2, %r7, %r4;
        @%p2 ret;
        add.u32 %r8, %r3, %r7;
        ld.shared.v4.u32 {{%r11, %r12, %r13, %r14}}, [%r8];
        st.global.v4.u32 [%d2], {{%r11, %r12, %r13, %r14}};
        add.s64 %d2, %d2, 4096;
        add.u32 %r7, %r7, 4096;
        bra SHOW;
        """,
        TENSOR_PARAMETERS,
        before=DYNAMIC,
    )


def packed_ints(values, count, dtype):
    return np.pad(np.array(values, np.int64), (0, count - len(values))).astype(dtype).tobytes()


@pytest.fixture
def every_nth(pytestconfig):
    """Of how many recorded copies the machine makes one; tests/tma makes all of them without a kernel."""
    return 20 if pytestconfig.getoption("--thinned") else 5


@pytest.mark.parametrize("name", ["tma_loads.npz", "tma_im2col_loads.npz", "tma_im2col_interleaved_loads.npz"])
def test_tensor_loads_leave_in_shared_memory_what_the_card_left(name, every_nth):
    with np.load(GOLDEN / name) as file:
        cases = {key: file[key] for key in file.files}
    source = splitmix_bytes(1, 1 << 20)
    ends = np.cumsum(cases["smem_bytes"].astype(np.int64))
    mode = "tile" if "box" in cases else "im2col"
    kernels = {}
    outcomes = set()
    for i in range(0, len(ends), every_nth):
        rank = int(cases["rank"][i])
        if rank not in kernels:
            kernels[rank] = loading_kernel(rank, mode)
        memory = Memory()
        a = recorded_map(cases, i, memory.place(source) + int(cases["source_offset"][i]))
        length = int(cases["smem_bytes"][i])
        smem_offset = int(cases["smem_address"][i]) % 1024  # where the swizzle's pattern starts
        out = np.zeros(-(-length // 16) * 16, np.uint8)
        taps = cases["im2col_offsets"][i][: rank - 2] if mode == "im2col" else ()
        arguments = [
            a,
            out,
            smem_offset,
            len(out),
            int(cases["transaction_bytes"][i]),
            packed_ints(cases["coords"][i][:rank], 5, np.int32),
            packed_ints(taps, 3, np.uint16),
        ]
        run = kernels[rank].run(1, 256, arguments, memory=memory, smem_bytes=200_000)
        outcomes.add(run.outcome)
        if cases["status"][i] != 1:
            assert run.findings[0].values["code"] == 715, i
            continue
        assert run.outcome == "finished", (i, run.findings)
        np.testing.assert_array_equal(out[:length], cases["smem"][ends[i] - length : ends[i]], err_msg=str((i, a)))
    assert "finished" in outcomes


def storing_kernel(rank, operation):
    """Fills shared memory with the `length` bytes of `memory`, and stores or reduces one box."""
    coords = ", ".join(f"%r{50 + axis}" for axis in range(rank))
    family, reduction = ("cp", "") if operation == "store" else ("cp.reduce", f".{operation}")
    return kernel(
        f"""{TENSOR_START}
        mov.u32 %r7, %r5;
    FILL:
        setp.ge.u32 %p2, %r7, %r4;
        @%p2 bra FILLED;
        add.u32 %r8, %r3, %r7;
        ld.global.v4.u32 {{%r11, %r12, %r13, %r14}}, [%d2];
        st.shared.v4.u32 [%r8], {{%r11, %r12, %r13, %r14}};
        add.s64 %d2, %d2, 4096;
        add.u32 %r7, %r7, 4096;
        bra FILL;
    FILLED:
        fence.proxy.async.shared::cta;
        bar.sync 0;
        @!%p1 ret;
        {family}.async.bulk.tensor.{rank}d.global.shared::cta{reduction}.tile.bulk_group [%d1, {{{coords}}}], [%r3];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        ret;""",
        TENSOR_PARAMETERS,
        before=DYNAMIC,
    )


def test_tensor_stores_and_reductions_leave_in_memory_what_the_card_left(every_nth):
    with np.load(GOLDEN / "tma_stores.npz") as file:
        cases = {key: file[key] for key in file.files}
    names = cases.pop("operations").tolist()
    windows = cases["tensor_bytes"].astype(np.int64) + 256
    ends = np.cumsum(windows)
    longest = int((cases["memory_offset"] + windows).max())
    kernels = {}
    for i in range(0, len(ends), every_nth):
        rank = int(cases["rank"][i])
        operation = names[cases["operation"][i]]
        if (rank, operation) not in kernels:
            kernels[rank, operation] = storing_kernel(rank, operation)
        memory = Memory()
        target = splitmix_bytes(int(cases["memory_seed"][i]), longest)
        offset = int(cases["memory_offset"][i])
        wanted = target.copy()
        wanted[offset : offset + int(windows[i])] ^= cases["memory_change"][ends[i] - windows[i] : ends[i]]
        a = recorded_map(cases, i, memory.place(target) + offset)
        smem_address = int(cases["smem_address"][i])
        smem = splitmix_bytes(int(cases["smem_seed"][i]), int(cases["smem_bytes"][i]))[smem_address:]
        smem = np.pad(smem, (0, -len(smem) % 16))
        coords = packed_ints(cases["coords"][i][:rank], 5, np.int32)
        arguments = [a, smem, smem_address % 1024, len(smem), 0, coords, bytes(6)]
        finished(kernels[rank, operation], 256, arguments, memory=memory, smem_bytes=200_000)
        np.testing.assert_array_equal(target, wanted, err_msg=str((i, operation, a)))


MATRIX = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
LOAD_BOX = """
    .shared .align 8 .b64 barrier;
    .shared .align 1024 .b8 box[1024];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, box;
    mov.u32 %r3, barrier;
    ld.param.u64 %d2, [out];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r3], 1;
    bar.sync 0;
"""
SHOW_BOX = """
    mad.lo.u32 %r4, %r1, 16, %r2;
    mul.wide.u32 %d3, %r1, 16;
    add.s64 %d3, %d2, %d3;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
    st.global.v4.u32 [%d3], {%r5, %r6, %r7, %r8};
"""
MAP_AND_OUT = ".param .align 64 .b8 map[128], .param .u64 out"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cta_mask", [0b01, 0b10, 0b11])
def test_a_tensor_multicast_reaches_the_blocks_of_its_mask(cta_mask, seed):
    """Block 1 issues it; each receiving block's own barrier counts the bytes."""
    memory = Memory()
    a = memory.map(MATRIX.copy(), (64, 8), swizzle="128B")
    out = np.zeros((2, 1024), np.uint8)
    cast = kernel(
        f"""{LOAD_BOX}
        mov.b64 %d1, map;
        mov.u32 %r9, %cluster_ctarank;
        mul.wide.u32 %d4, %r9, 1024;
        add.s64 %d2, %d2, %d4;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1024;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        setp.eq.and.u32 %p2, %r9, 1, %p1;
        mov.b16 %h1, {cta_mask};
        mov.u32 %r10, 16;
        mov.u64 %d5, 0;
        @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
            [%r2], [%d1, {{0, %r10}}], [%r3], %h1, %d5;
        shr.u32 %r11, {cta_mask}, %r9;
        and.b32 %r11, %r11, 1;
        setp.eq.u32 %p3, %r11, 0;
        @%p3 bra END;
        {WAIT}{SHOW_BOX}
    END:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ret;""",
        MAP_AND_OUT,
    )
    finished(cast, 64, [a, out], blocks=2, cluster=2, memory=memory, seed=seed)
    for rank in range(2):
        wanted = ts.load(a, MATRIX, (0, 16)) if cta_mask >> rank & 1 else np.zeros(1024, np.uint8)
        np.testing.assert_array_equal(out[rank], wanted)


def test_a_load_that_nobody_waited_for_has_not_come():
    memory = Memory()
    a = memory.map(MATRIX.copy(), (64, 8), swizzle="128B")
    out = np.full(1024, 7, np.uint8)
    early = kernel(
        f"""{LOAD_BOX}
        mov.b64 %d1, map;
        mov.u32 %r10, 16;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1024;
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1, {{0, %r10}}], [%r3];
        {SHOW_BOX} ret;""",
        MAP_AND_OUT,
    )
    finished(early, 64, [a, out], memory=memory)
    assert not out.any()


def test_copies_are_written_down_with_their_map_and_barrier(launches):
    memory = Memory()
    a = memory.map(MATRIX.copy(), (64, 8), swizzle="128B")
    both = kernel(
        f"""{LOAD_BOX}
        mov.b64 %d1, map;
        mov.u32 %r10, 16;
        @!%p1 ret;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1024;
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1, {{0, %r10}}], [%r3];
        {WAIT}
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {{0, 0}}], [%r2];
        cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 64;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        ret;""",
        MAP_AND_OUT,
    )
    out = np.zeros(64, np.uint8)
    finished(both, 32, [a, out], memory=memory)
    load, store, bulk = launches[0].copies
    assert (load.kind, load.bytes, load.coords, load.map_number, load.shared_address) == (
        "load",
        1024,
        (0, 16),
        0,
        0x800,
    )
    assert load.barrier == 0x400
    assert (store.kind, store.coords, store.barrier) == ("store", (0, 0), None)
    assert (bulk.kind, bulk.bytes, bulk.other_address, bulk.map_number) == ("store", 64, memory.place(out), None)
    assert launches[0].maps == [a]
    assert [(phase.bytes, phase.number) for phase in launches[0].phases] == [(1024, 0)]


@pytest.mark.parametrize(
    ("copy", "code"),
    [
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {4, 0}], [%r3];",
            715,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+64], [%d1, {0, 0}], [%r3];",
            716,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+64], [%d1, {4, 0}], [%r3];",
            715,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {0, 0}], [%r3+4];",
            716,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1+32, {0, 0}], [%r3];",
            716,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d2, {0, 0}], [%r3];",
            715,
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {0, 0, 0}], [%r3];",
            715,
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+512], [%d1, {0, 0}], [%r3];",
            700,
        ),
        ("cp.async.bulk.tensor.2d.global.shared::cta.im2col_no_offs.bulk_group [%d1, {0, 0}], [%r2];", 715),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {0, -1}], [%r2];", 715),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.inc.bulk_group [%d1, {0, 0}], [%r2];", 715),
    ],
)
def test_what_the_card_answers_to_a_wrong_tensor_copy(copy, code):
    memory = Memory()
    a = memory.map(MATRIX.copy(), (64, 8), swizzle="128B")
    made = kernel(f"{LOAD_BOX} mov.b64 %d1, map; add.s64 %d4, %d1, 32; @!%p1 ret; {copy} ret;", MAP_AND_OUT)
    assert fault_code(made, 32, [a, np.full(1024, 0xAB, np.uint8)], memory=memory) == code


def test_a_box_over_memory_that_no_array_holds_is_fault_700():
    memory = Memory()
    matrix = MATRIX[:32].copy()
    a = ts.TensorMap("u16", (64, 64), (128,), (64, 8), address=memory.place(matrix))
    load = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {{0, {row}}}], [%r3];"
    )
    for row, code in ((24, None), (25, 700), (64, None)):  # row 64 lies outside the tensor: filled, never read
        made = kernel(f"{LOAD_BOX} mov.b64 %d1, map; @!%p1 ret; {load.format(row=row)} ret;", MAP_AND_OUT)
        run = made.run(1, 32, [a, np.zeros(16, np.uint8)], memory=memory)
        codes = [finding.values["code"] for finding in run.findings if "code" in finding.values]
        assert codes == ([] if code is None else [code])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_map_made_in_the_kernel_is_copied_through(seed):
    """A map of zeros in shared memory, edited field by field, published to global memory, and loaded through."""
    matrix = MATRIX.copy()
    workspace = np.zeros(128, np.uint8)
    out = np.zeros(1024, np.uint8)
    fields = [
        "global_address.shared::cta.b1024.b64 [%r9], %d5",
        "rank.shared::cta.b1024.b32 [%r9], 1",
        "box_dim.shared::cta.b1024.b32 [%r9], 0, 64",
        "box_dim.shared::cta.b1024.b32 [%r9], 1, %r10",
        "global_dim.shared::cta.b1024.b32 [%r9], 0, 64",
        "global_dim.shared::cta.b1024.b32 [%r9], 1, 64",
        "global_stride.shared::cta.b1024.b64 [%r9], 0, 128",
        "element_stride.shared::cta.b1024.b32 [%r9], 0, 1",
        "element_stride.shared::cta.b1024.b32 [%r9], 1, 1",
        "elemtype.shared::cta.b1024.b32 [%r9], 1",
        "interleave_layout.shared::cta.b1024.b32 [%r9], 0",
        "swizzle_mode.shared::cta.b1024.b32 [%r9], 3",
        "fill_mode.shared::cta.b1024.b32 [%r9], 0",
    ]
    edits = "\n".join(f"@%p1 tensormap.replace.tile.{field};" for field in fields)
    edited = kernel(
        f"""{LOAD_BOX}
        .shared .align 128 .b8 map[128];
        mov.u32 %r9, map;
        mov.u32 %r10, 8;
        mov.u64 %d6, 77;
        @%p1 st.shared.u64 [%r9+64], %d6;
        ld.param.u64 %d1, [workspace];
        ld.param.u64 %d5, [matrix];
        {edits}
        bar.sync 0;
        setp.ge.u32 %p3, %r1, 32;
        @%p3 bra WAIT;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%r9], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
        @!%p1 bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1024;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {{0, 8}}], [%r3];
        {WAIT}{SHOW_BOX} ret;""",
        ".param .u64 workspace, .param .u64 matrix, .param .u64 out",
    )
    memory = Memory()
    memory.place(matrix)
    finished(edited, 64, [workspace, matrix, out], memory=memory, seed=seed)
    a = memory.map(matrix, (64, 8), swizzle="128B")
    np.testing.assert_array_equal(out, ts.load(a, matrix, (0, 8)))
    assert workspace.view(np.uint64)[8] == 77  # the bytes of the box, which no edit touches and no copy asks for


@pytest.mark.parametrize("prefetch", ["tensor.2d.L2.global.tile [%d1, {0, 0}]", "L2.global [%d2], 64"])
def test_prefetches_change_nothing(prefetch):
    memory = Memory()
    a = memory.map(MATRIX.copy(), (64, 8))
    out = np.full(64, 7, np.uint8)
    made = kernel(f"{LOAD_BOX} mov.b64 %d1, map; cp.async.bulk.prefetch.{prefetch}; ret;", MAP_AND_OUT)
    finished(made, 32, [a, out], memory=memory)
    assert (out == 7).all()


@pytest.mark.parametrize(
    "instruction",
    [
        "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {0, 0}], [%r3]",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r2], [%d2], 16, 0, 0, [%r3]",
        "cp.async.cg.shared.global [%r2], [%d2], 8",
        "cp.async.wait_group %r2",
        "tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%r2], 1",
        "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 5, 1",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.f32 [%d2], [%r2], 16",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r3]",
    ],
)
def test_what_the_machine_has_not_is_refused_when_the_kernel_is_made(instruction):
    with pytest.raises(ts.RuleError) as refused:
        kernel(f"{LOAD_BOX} mov.b64 %d1, map; {instruction}; ret;", MAP_AND_OUT)
    assert [violation.rule for violation in refused.value.violations] == ["ptx-unsupported"]


def test_maps_beyond_those_that_are_kept_work_all_the_same(launches, monkeypatch):
    monkeypatch.setattr(launch_module, "MAPS_KEPT", 1)
    memory = Memory()
    maps = [memory.map(np.full((64, 64), value, np.uint16), (64, 8)) for value in (1, 2)]
    out = np.zeros(1024, np.uint8)
    load = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1, {0, 0}], [%r3];"
    both = kernel(
        f"""{LOAD_BOX}
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 2048;
        mov.b64 %d1, map;
        @%p1 {load}
        mov.b64 %d1, other;
        @%p1 {load}
        {WAIT}{SHOW_BOX} ret;""",
        f"{MAP_AND_OUT}, .param .align 64 .b8 other[128]",
    )
    finished(both, 64, [maps[0], out, maps[1]], memory=memory)
    assert set(out.view(np.uint16).tolist()) == {2}
    assert launches[0].maps == [maps[1]]


def edit_findings(field, ordinal, value, width="b32"):
    """Findings of a kernel that writes a value of its parameter into a map of rank 2."""
    edit = kernel(
        f"""
        ld.param.u64 %d1, [map];
        ld.param.u64 %d2, [value];
        cvt.u32.u64 %r1, %d2;
        tensormap.replace.tile.{field}.global.b1024.{width} [%d1], {ordinal} {"%r1" if width == "b32" else "%d2"};
        ret;
        """,
        ".param .u64 map, .param .u64 value",
    )
    content = np.frombuffer(ts.TensorMap("f16", (64, 64), (128,), (64, 8)).encode(), np.uint8).copy()
    return edit.run(1, 1, [content, value]).findings


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "width", "kept", "instead"),
    [
        ("global_stride", "0,", 120, "b64", 112, 128),
        (
            "global_stride",
            "0,",
            (1 << 40) + 16,
            "b64",
            16,
            1099511627760,
        ),
        ("box_dim", "1,", 300, "b32", 44, 256),
        ("element_stride", "1,", 9, "b32", 1, 8),
        ("global_address", "", (1 << 57) + 64, "b64", 64, (1 << 57) - 16),
    ],
)
def test_an_edit_that_the_map_does_not_keep_is_told(field, ordinal, value, width, kept, instead, wording):
    (finding,) = edit_findings(field, ordinal, value, width)
    assert (finding.rule, finding.severity) == ("run-map-edit", "error")
    assert [finding.values[name] for name in ("value", "kept", "instead")] == [value, kept, instead]
    wording(f"an edit of {field} to {value}", finding)


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "width"),
    [
        ("global_stride", "0,", 144, "b64"),
        ("global_stride", "1,", 120, "b64"),  # of no dimension of the map
        ("box_dim", "1,", 256, "b32"),
        ("box_dim", "4,", 0, "b32"),
        ("global_dim", "1,", 0, "b32"),  # an empty group, which nobody loads
    ],
)
def test_an_edit_that_the_map_keeps_or_no_copy_reads_is_not_told(field, ordinal, value, width):
    assert edit_findings(field, ordinal, value, width) == ()


def test_a_store_of_a_box_beyond_shared_memory_is_told_at_the_store_and_not_at_its_wait(wording):
    store = kernel(
        """
        .shared .align 128 .b8 tile[1024];
        mov.b64 %d1, map;
        mov.u32 %r1, tile;
        add.u32 %r1, %r1, 512;
        mov.u32 %r2, 0;
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r2, %r2}], [%r1];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        ret;
        """,
        ".param .align 64 .b8 map[128]",
    )
    memory = Memory()
    run = store.run(1, 1, [memory.map(np.zeros((8, 64), np.float16), (8, 64))], memory=memory)
    finding = run.findings[0]
    assert finding.rule == "run-out-of-bounds"
    assert "cp.async.bulk.tensor" in finding.values["where"]
    assert finding.values["address"] == 0x600
    assert "512 bytes" in finding.found
    assert "takes 1024" in finding.found
    wording("a store of a box beyond shared memory", finding)
