"""Mutants: one thing is changed, it has a name and a line, and the rest of the text stays as it was."""

import importlib.util
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from kernel_recording import NAMES, PATHS, kernel, recording, run_with
from mutants_table import judged_mutants
from pair_kernels import variant
from pair_table import TABLE
from ptx_texts import HEADER
from ptx_texts import kernel as kernel_of

import tilescope as ts
from tilescope.machine.edits.mutations import replace_swizzle

RING = kernel_of(
    """
    .shared .align 8 .b64 full[2];
    .shared .align 128 .b8 tiles[4096];
    .loc 1 3 0
    mov.u32 %r1, full;
    mov.u32 %r2, tiles;
    mov.u32 %r3, 0;
    mov.u32 %r20, 3;
    mbarrier.init.shared.b64 [%r1], 1;
    mbarrier.init.shared.b64 [%r1+8], %r20;
    fence.proxy.async;
    bar.sync 0;
$next:
    and.b32 %r4, %r3, 1;
    shl.b32 %r5, %r4, 11;
    add.s32 %r6, %r2, %r5;
    shl.b32 %r7, %r4, 3;
    add.s32 %r8, %r1, %r7;
    shr.u32 %r9, %r3, 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%d1], 2048, [%r8];
    {
    .reg .pred complete;
$wait:
    mbarrier.try_wait.parity.shared.b64 complete, [%r8], %r9;
    @!complete bra $wait;
    }
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 4;
    @%p1 bra $next;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;
    ret;
    """,
    before='.file 1 "ring.cu"',
)


def texts(of, kind):
    """The changed lines of every mutant of a kind, by name."""
    changed = {}
    for mutant in of.mutants():
        if mutant.kind == kind:
            pairs = zip(of.ptx.splitlines(), mutant.ptx.splitlines(), strict=True)
            changed[mutant.name] = [new.strip() for old, new in pairs if old != new]
    return changed


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("fence", [["/* fence.proxy.async; */"]]),
        ("barrier", [["/* bar.sync 0; */"]]),
        ("commit", [["/* cp.async.bulk.commit_group; */"]]),
        ("arrival", [["/* mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 2048; */"]]),
        ("wait", [["/* cp.async.bulk.wait_group.read 1; */"], ["cp.async.bulk.wait_group.read 2;"]]),
        ("wait loop", [["setp.eq.u32 complete, 0, 0;"], ["/* @!complete bra $wait; */"]]),
        (
            "bytes",
            [
                ["mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 2064;"],
                ["mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 2032;"],
            ],
        ),
        (
            "count",
            [
                ["mbarrier.init.shared.b64 [%r1], 2;"],
                [
                    (
                        "{ .reg .b32 tilescope_changed; add.s32 tilescope_changed, %r20, 1;"
                        " mbarrier.init.shared.b64 [%r1+8], tilescope_changed; }"
                    )
                ],
                [
                    (
                        "{ .reg .b32 tilescope_changed; add.s32 tilescope_changed, %r20, -1;"
                        " mbarrier.init.shared.b64 [%r1+8], tilescope_changed; }"
                    )
                ],
            ],
        ),
        (
            "parity",
            [
                [
                    (
                        "{ .reg .b32 tilescope_changed; xor.b32 tilescope_changed, %r9, 1;"
                        " mbarrier.try_wait.parity.shared.b64 complete, [%r8], tilescope_changed; }"
                    )
                ]
            ],
        ),
        (
            "slot",
            [
                ["mbarrier.arrive.expect_tx.shared.b64 _, [%r8+8], 2048;"],
                ["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6+2048], [%d1], 2048, [%r8];"],
                ["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%d1], 2048, [%r8+8];"],
                ["mbarrier.try_wait.parity.shared.b64 complete, [%r8+8], %r9;"],
            ],
        ),
    ],
)
def test_each_kind_changes_one_line(kind, lines):
    assert list(texts(RING, kind).values()) == lines


def names_of(body):
    return [mutant.name.partition(",")[0] for mutant in kernel_of(body).mutants()]


ONLY_WGMMA_BETWEEN = """
    .reg .f32 %f<5>;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 1, 1, 0, 0;
    add.s64 %d1, %d1, 2;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 1, 1, 0, 0;
    ret;
"""


@pytest.mark.parametrize(
    ("between", "fences"),
    [
        ("add.s64 %d1, %d1, 2;", 1),
        ("mov.f32 %f4, 0f00000000;", 2),  # an accumulator is written: the second fence orders it
        ("@%p1 bra $there; $there:", 2),  # the second fence may be reached without the first
    ],
)
def test_a_wgmma_fence_that_orders_nothing_stays(between, fences):
    names = names_of(ONLY_WGMMA_BETWEEN.replace("add.s64 %d1, %d1, 2;", between))
    assert names.count("wgmma.fence.sync.aligned removed") == fences
    assert "all wgmma fences removed" in names


@pytest.mark.parametrize(
    ("others", "count"),
    [
        ("", 0),
        ("barrier.cluster.arrive; barrier.cluster.wait;", 0),
        ("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", 1),
    ],
)
def test_the_fence_for_other_blocks_is_removed_where_nothing_else_releases_the_init(others, count):
    names = names_of(
        f".shared .b64 full; mbarrier.init.shared.b64 [full], 1; fence.mbarrier_init.release.cluster; {others} ret;"
    )
    assert names.count("fence.mbarrier_init.release.cluster removed") == count


def test_a_name_says_what_and_where():
    mutant = next(mutant for mutant in RING.mutants() if mutant.kind == "barrier")
    assert (mutant.name, mutant.source_line) == (f"bar.sync removed, line {mutant.line} (ring.cu:3)", "ring.cu:3")
    assert RING.ptx.splitlines()[mutant.line - 1].strip() == "bar.sync 0;"
    assert str(mutant) == mutant.name


def test_all_of_a_kind_are_removed_together():
    two = kernel_of("bar.sync 0; bar.warp.sync -1; ret;")
    mutant = next(mutant for mutant in two.mutants() if mutant.line is None)
    assert mutant.name == "all barriers removed"
    assert mutant.kernel.instructions == ("ret",)


def test_an_arrival_and_its_wait_at_the_clusters_barrier_are_removed_together():
    two = kernel_of("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;")
    named = {mutant.name.partition(",")[0]: mutant for mutant in two.mutants()}
    assert named["barrier.cluster.arrive and wait removed"].kernel.instructions == ("ret",)


def test_an_arrival_whose_token_is_read_stays():
    token = kernel_of(".shared .b64 m; mbarrier.arrive.shared.b64 %d1, [m]; mbarrier.arrive.shared.b64 _, [m]; ret;")
    removed = [mutant.kernel.instructions for mutant in token.mutants() if mutant.kind == "arrival"]
    assert removed == [("mbarrier.arrive.shared.b64 %d1, [m]", "ret")]


def test_an_instruction_of_several_lines_takes_as_many():
    long = kernel_of("bar.sync\n0,\n128;\nret;")
    (mutant,) = long.mutants()
    assert mutant.ptx.splitlines().index("ret;") == long.ptx.splitlines().index("ret;")


def test_a_guard_stays_with_a_changed_instruction():
    guarded = kernel_of(".shared .b64 m; @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [m], %r1; ret;")
    more = next(mutant for mutant in guarded.mutants() if mutant.kind == "bytes")
    assert more.kernel.instructions[1].startswith("@%p1 mbarrier.expect_tx")


def test_a_wait_leaves_no_more_groups_than_the_instruction_can_say():
    most = kernel_of("wgmma.wait_group.sync.aligned 7; ret;")
    assert [mutant.name.partition(",")[0] for mutant in most.mutants()] == ["wgmma.wait_group.sync.aligned removed"]


def test_a_loop_that_waits_for_a_flag_is_left_after_one_poll():
    spin = kernel_of("""
        ld.param.u64 %d1, [out];
    A:  ld.acquire.gpu.global.u32 %r1, [%d1];
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra A;
        ret;
    """)
    (mutant,) = spin.mutants()
    assert (mutant.kind, mutant.kernel.instructions[-2:]) == ("wait loop", ("setp.eq.u32 %p1, %r1, 0", "ret"))


@pytest.mark.parametrize(
    "body",
    [
        "A: atom.global.cas.b32 %r1, [%d1], %r2, %r3; setp.ne.u32 %p1, %r1, %r2; @%p1 bra A;",  # not a wait: it adds
        "A: ld.volatile.global.u32 %r1, [%d1]; st.global.u32 [%d1], %r1; setp.eq.u32 %p1, %r1, 0; @%p1 bra A;",
    ],
)
def test_a_loop_that_does_more_than_wait_stays(body):
    assert list(kernel_of(f"ld.param.u64 %d1, [out]; {body} ret;").mutants()) == []


def test_the_thread_number_is_no_slot():
    threads = kernel_of("""
        .shared .align 16 .b8 tile[65536];
        mov.u32 %r1, %tid.x;
    $next:
        shl.b32 %r2, %r1, 9;
        cp.async.cg.shared.global [%r2], [%d1], 16;
        add.s32 %r1, %r1, 32;
        setp.lt.u32 %p1, %r1, 64;
        @%p1 bra $next;
        ret;
    """)
    assert texts(threads, "slot") == {}


def test_a_descriptor_moves_by_a_slot_and_gets_another_swizzle():
    product = kernel_of("""
        .reg .f32 %f<5>;
    $next:
        shl.b32 %r2, %r1, 11;
        shr.u32 %r3, %r2, 4;
        cvt.u64.u32 %d2, %r3;
        or.b64 %d3, %d2, 4611686293305294848;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d3, %d4, 1, 1, 1, 0, 0;
        mov.u32 %r1, 0;
        add.s32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 4;
        @%p1 bra $next;
        ret;
    """)
    (slot,) = texts(product, "slot").values()
    assert "add.s64 tilescope_changed, %d3, 128;" in slot[0]
    first, second = texts(product, "swizzle").values()
    assert "xor.b64 tilescope_changed, %d3, 4611686018427387904;" in first[0]
    assert "xor.b64 tilescope_changed, %d4, 4611686018427387904;" in second[0]


MAP = ts.TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")


@pytest.mark.parametrize(
    ("argument", "swizzle"),
    [
        (MAP, "none"),
        (MAP.encode(), "none"),
        (MAP.with_fields(swizzle="none"), "128B"),
    ],
)
def test_a_map_gets_another_swizzle(argument, swizzle):
    assert replace_swizzle(argument).swizzle == swizzle


@pytest.mark.parametrize("argument", [7, bytes(128), np.zeros(3)])
def test_what_is_no_map_stays(argument):
    assert replace_swizzle(argument) is argument


def test_a_map_among_the_arguments_is_changed_at_the_launch():
    name = "transpose_tma"
    mutant = next(mutant for mutant in kernel(name).mutants() if mutant.name.startswith("args[0]"))
    right, _ = run_with(kernel(name), name)
    run, arrays = run_with(mutant.kernel, name, advice="none")
    assert mutant.kernel.ptx == mutant.ptx == kernel(name).ptx
    assert [one.swizzle for one in run.maps] != [one.swizzle for one in right.maps]
    assert list(recording(name).differences(arrays)) != []


def test_functions_that_do_not_run_are_not_read_again_and_not_lost():
    text = f"{HEADER}.entry other() {{ bar.sync 1; ret; }}\n.entry k() {{ bar.sync 0; ret; }}"
    (mutant,) = ts.Kernel(text, entry="k").mutants()
    assert mutant.kernel.entries == ("other", "k")
    assert mutant.kernel.module.functions["other"].instructions == ()
    assert "bar.sync 1;" in mutant.ptx
    assert mutant.kernel.instructions == ("ret",)


def test_instructions_of_called_functions_are_changed_too():
    text = f"{HEADER}.func meet() {{ bar.sync 0; ret; }}\n.entry k() {{ call.uni meet; ret; }}"
    (mutant,) = ts.Kernel(text).mutants()
    assert mutant.kernel.instructions == ("call.uni meet", "ret", "ret")


def test_several_instructions_of_a_line_are_told_apart():
    line = kernel_of("bar.sync 0; /* bar.sync 0; */ bar.sync 0; @%p1 bar.sync 0; ret;")
    names = [mutant.name for mutant in line.mutants() if mutant.line]
    assert len(names) == len(set(names)) == 3
    kept = [mutant.kernel.instructions for mutant in line.mutants() if mutant.line]
    assert kept[0] == kept[1] == ("bar.sync 0", "@%p1 bar.sync 0", "ret")
    assert kept[2] == ("bar.sync 0", "bar.sync 0", "ret")


@pytest.mark.parametrize("name", NAMES)
def test_mutants_of_recorded_kernels_have_names_and_lines_of_their_own(name):
    mutants = list(kernel(name).mutants())
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    lines = kernel(name).ptx.splitlines()
    for mutant in mutants:
        changed = mutant.ptx.splitlines()
        assert len(changed) == len(lines)
        if mutant.line is not None:
            assert changed[mutant.line - 1 :] != lines[mutant.line - 1 :]


@pytest.mark.parametrize("name", ["mm_tma_f16", "transpose_tma"])
def test_a_lost_wait_leaves_wrong_bytes(name):
    """The machine does asynchronous work as late as its wait allows: without the wait, too late."""
    mutant = next(mutant for mutant in kernel(name).mutants() if mutant.name.startswith("mbarrier.try_wait"))
    run, arrays = run_with(mutant.kernel, name, advice="none")
    assert run.outcome != "finished" or list(recording(name).differences(arrays))


def kinds_of_change(names):
    """One mutant for every form of change: (kernel, mutant)."""
    seen = set()
    for name in names:
        for mutant in kernel(name).mutants():
            form = re.sub(r"[0-9]+ bytes|,? line.*", "", mutant.name)
            if form not in seen:
                seen.add(form)
                yield name, mutant


@pytest.mark.slow
def test_ptxas_takes_every_form_of_mutant(tmp_path):
    wheels = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    ptxas = next(path for root in wheels for path in root.glob("*/bin/ptxas"))
    source = tmp_path / "mutant.ptx"
    refused = []
    for name, mutant in kinds_of_change(PATHS):
        source.write_text(
            re.sub(r"^\s*\.loc[^\n]*", "", mutant.ptx, flags=re.MULTILINE)
        )  # recordings have no debug strings
        target = kernel(name).module.target
        command = [ptxas, f"-arch={target}", "-O1", "-o", tmp_path / "mutant.cubin", source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            refused.append(f"{name}: {mutant.name}: {done.stderr}")
    assert refused == []


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "name",
    [
        "block_reduction",
        "cluster_memory",
        "arith_wgmma_m64n16k16_bf16_f32",
        pytest.param("cp_async", marks=pytest.mark.slow),
    ],
)
def test_every_mutant_of_a_kernel_without_anything_too_much_is_found(name):
    rows = list(judged_mutants(name))
    assert rows != []
    assert [row["mutant"] for row in rows if not row["is_found"]] == []


@pytest.mark.parametrize("findings", [False, True])
def test_a_box_that_is_wider_than_its_tile_with_another_swizzle_faults(findings):
    pairs = next(pairs for pairs in TABLE if pairs.name == "im2col_load")
    mutant = next(mutant for mutant in ts.Kernel(variant(pairs.text)).mutants() if mutant.map_argument == 0)
    memory = ts.Memory()
    args = [
        argument(memory) if callable(argument) else argument for argument in pairs.make(np.random.default_rng(17)).args
    ]
    run = mutant.kernel.run(pairs.grid, pairs.block, args, memory=memory, findings=findings, advice="none")
    assert run.outcome == "fault"
    assert "run-out-of-bounds" in {finding.rule for finding in run.findings}
