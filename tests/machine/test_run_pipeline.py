"""KernelRun.pipeline: what the warps of a run did, as a pipeline that ts.simulate proves, or whose mistake it names.

ring.ptx: warp 1 copies six tiles through two stages, warp 0 adds them up.
"""

import json
import pickle
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from kernel_recording import ERRORS, NAMES, PATHS, argument, recording, run_again

import tilescope as ts
from tilescope.cli import run as command
from tilescope.machine.proof import recorder as event_log
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop, flatten_steps
from tilescope.pipeline.toml_text import toml_text
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline

RING = Path(__file__).with_name("ring.ptx").read_text()
HEAD = ".version 8.0 .target sm_90 .address_size 64"
# Warp specialisation, TMA and wgmma by nvcc, Triton and Gluon, clusters, cp.async, atomics, rings that wrap.
QUICK = (
    "attention",
    "cp_async",
    "cp_async_barrier",
    "emitted_gemm_f16",
    "gluon_specialised",
    "histogram",
    "mm_tma_f16",
    "multicast",
    "named_barriers",
    "ring",
    "softmax",
    "triton_clustered",
    "triton_extremes",
)
NO_PIPELINE = {
    "atomics_forms": "flag or lock",
    "atomics_shared": "flag or lock",
    "bulk_copies": "from shared memory to the shared memory",
    "bulk_reductions": "from shared memory to the shared memory",
    "cluster_arrivals": "flag or lock",
    "cluster_memory": "flag or lock",
    "flags": "flag or lock",
    "mbarrier_forms": "complete_tx",
    "store_async": "arrives later",
}


def run_ring(*changes, **options):
    """A run of the ring whose text has other words."""
    text = RING
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    sums = np.zeros(32, np.float32)
    return ts.Kernel(text).run(1, 64, [np.arange(192, dtype=np.float32), sums], **options)


@cache
def run_first_block(name):
    """A run of a recorded kernel's first block, or of its cluster."""
    return run_recorded(name)


def run_recorded(name, *changes):
    """A run of the first block of a recorded kernel whose text has other words, the first time they stand there."""
    text = PATHS[name].with_suffix(".ptx").read_text()
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, count=1, flags=re.MULTILINE)
        assert count == 1
    found = recording(name)
    memory = ts.Memory()
    addresses = [memory.place(held.copy()) for held in found.before]
    return ts.Kernel(text, entry=found.launch["entry"]).run(
        grid=found.launch["grid"],
        block=found.launch["block"],
        args=[argument(parameter, addresses) for parameter in found.launch["params"]],
        memory=memory,
        smem_bytes=found.launch["smem_bytes"],
        cluster=found.launch.get("cluster"),
        blocks=[(0, 0, 0)],
    )


def run_body(body, threads=64):
    return ts.Kernel(f"{HEAD} .visible .entry k() {{ {body} ret; }}").run(1, threads)


def actions(pipeline):
    """What every agent does, without the steps that say so."""
    program = UnrolledPipeline(pipeline)
    return [[replace(action, step=None) for action in program.actions(agent)] for agent in program.agents]


def test_a_ring_becomes_two_roles_around_staged_barriers_and_slots():
    pipeline = run_ring().pipeline()
    assert (
        toml_text(pipeline)
        == """\
name = "ring"
basis = "measured"

[barriers]
full = {count = 1, stages = 2}
empty = {count = 32, stages = 2}

[slots]
tile = {stages = 2, bytes = 128}

[[roles]]
name = "warp 0"
threads = 32
steps = [
    {init = ["full"], at = "ring.cu:5"},
    {init = ["empty"], at = "ring.cu:5"},
    {sync = 0, threads = 64, at = "ring.cu:6"},
    {loop = "i", count = 6, steps = [
        {wait = "full[i % 2]", parity = "i / 2 % 2", at = "ring.cu:10"},
        {read = ["tile[i % 2]"], tile = "i / 2", at = "ring.cu:11"},
        {arrive = "empty[i % 2]", count = 32, at = "ring.cu:12"},
    ]},
]

[[roles]]
name = "warp 1"
threads = 32
steps = [
    {sync = 0, threads = 64, at = "ring.cu:6"},
    {loop = "i", count = 6, steps = [
        {wait = "empty[i % 2]", parity = "i / 2 % 2 ^ 1", at = "ring.cu:17"},
        {expect = "full[i % 2]", bytes = 128, at = "ring.cu:18"},
        {copy = "tile[i % 2]", bytes = 128, by = "bulk", tile = "i / 2", barrier = "full[i % 2]", at = "ring.cu:19"},
    ]},
]
"""
    )


def test_a_right_ring_is_proven():
    assert ts.simulate(run_ring().pipeline()).verdict == "proven"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_pipeline_of_a_ring_depends_on_no_schedule(seed):
    assert run_ring(seed=seed).pipeline() == run_ring().pipeline()


EARLY_RELEASE = (
    ("    ld.shared.f32 %f2, [%r7];\n    add.f32 %f1, %f1, %f2;\n", ""),
    (
        "    mbarrier.arrive.shared.b64 _, [%r6];\n",
        "    mbarrier.arrive.shared.b64 _, [%r6];\n    ld.shared.f32 %f2, [%r7];\n    add.f32 %f1, %f1, %f2;\n",
    ),
)


SLOT_OF_STAGE_0 = [("shl.b32 %r7, %r3, 7;\n    shl.b32 %r8", "mov.u32 %r7, 0;\n    shl.b32 %r8")]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("changes", "outcome", "rule", "subject"),
    [
        (EARLY_RELEASE, "finished", "pipeline-race", "tile[0]"),
        ([("    bar.sync 0;\n", "")], "finished", "pipeline-init", "empty[0]"),
        (SLOT_OF_STAGE_0, "finished", "pipeline-stale", "tile"),
        ([("@!%p2 bra WAIT_FULL;", "")], "hang", "pipeline-late", "empty"),
        ([("[%r6], 128;", "[%r6], 144;")], "hang", "pipeline-bytes", "full"),
        ([("[full], 1;", "[full], 2;")], "hang", "pipeline-arrivals", "full"),
        ([("xor.b32 %r4, %r4, 1;", "")], "hang", "pipeline-arrivals", "full"),
    ],
    ids=["early-release", "no-barrier-after-init", "slot", "no-loop", "bytes-off-by-16", "count", "parity"],
)
def test_a_mistake_in_the_ring_is_named(changes, outcome, rule, subject):
    run = run_ring(*changes)
    assert run.outcome == outcome
    mistake = ts.simulate(run.pipeline()).mistake
    assert (mistake.rule, mistake.subject) == (rule, subject)


def test_the_way_into_a_mistake_has_source_lines():
    mistake = ts.simulate(run_ring(*EARLY_RELEASE).pipeline()).mistake
    assert mistake.way[-1].startswith("warp 1: copy into tile[0]")
    assert "128 bytes" in mistake.way[-1]
    assert mistake.way[-1].endswith("(ring.cu:19)")


# their threads exchange data in global memory, or edit tensor maps
SHARE_GLOBAL_MEMORY = {
    "atomics_global",
    "grid_barrier",
    "histogram",
    "look_back",
    "map_edits",
    "split_k_atomics",
    "split_k_semaphore",
    "tables",
    "triton_in_turn",
    "triton_persistent",
    "wide_access",
}


def verdict_on(name):
    return "synchronization proven" if name in SHARE_GLOBAL_MEMORY | set(ERRORS) else "proven"


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", QUICK)
def test_recorded_kernels_are_proven(name):
    simulation = ts.simulate(run_first_block(name).pipeline())
    assert simulation.verdict == verdict_on(name), simulation.sentence


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NO_PIPELINE])
def test_all_recorded_kernels_are_proven(name, seed):
    run, _ = run_again(name, seed=seed)
    simulation = ts.simulate(run.pipeline())
    assert simulation.verdict == verdict_on(name), simulation.sentence


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "atomics_shared" else ()) for name in NO_PIPELINE]
)
def test_what_no_step_says_is_refused(name):
    run = run_first_block(name)
    with pytest.raises(ts.RuleError, match=NO_PIPELINE[name]) as error:
        run.pipeline()
    assert error.value.violations[0].rule == "run-no-step"


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "pattern", "rule"),
    [
        ("mm_tma_f16", r"^\s*fence\.proxy\.async[^;]*;", "pipeline-fence"),
        ("mm_tma_f16", r"^\s*@!complete bra[^;]*;", "pipeline-race"),
        ("cp_async", r"^\s*cp\.async\.wait_group[^;]*;", "pipeline-race"),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("emitted_gemm_f16", r"^\s*wgmma\.wait_group\.sync\.aligned 1;", "pipeline-race"),
                ("ring", r"^\s*wgmma\.wait_group[^;]*;", "pipeline-race"),
            )
        ),
    ],
)
def test_a_recorded_kernel_without_one_instruction_is_no_longer_proven(name, pattern, rule):
    run = run_recorded(name, (pattern, ""))
    assert ts.simulate(run.pipeline()).mistake.rule == rule


@pytest.mark.slow
def test_a_block_may_end_while_its_own_stores_are_pending():
    simulation = ts.simulate(run_recorded("mm_tma_f16", (r"^.*cp\.async\.bulk\.wait_group[^;]*;", "")).pipeline())
    warnings = {warning.rule for warning in simulation.warnings}  # one for each warp that stores
    assert (simulation.verdict, warnings) == ("proven", {"pipeline-exit"})
    strict = ts.simulate(replace(simulation.pipeline, basis="documented"))
    assert (strict.verdict, strict.mistake.rule) == ("mistake", "pipeline-exit")


def test_one_thread_may_release_what_four_warps_multiplied():
    # The emitted GEMM arrives by one thread of 128: its four warps meet behind the wait for their product.
    pipeline = run_first_block("emitted_gemm_f16").pipeline()
    counts = {barrier.name: barrier.count for barrier in pipeline.barriers}
    assert counts == {"full": 1, "empty": 2}
    release = next(step for role in pipeline.roles for step in role.all_steps() if step.op == "arrive")
    assert "count" not in release.arguments


def test_warps_that_all_arrive_do_not_meet_behind_a_product():
    # ring: every thread arrives, so that nothing is taken for granted.
    pipeline = run_first_block("ring").pipeline()
    syncs = {step.target for role in pipeline.roles for step in role.all_steps() if step.op == "sync"}
    assert syncs == {0}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["emitted_gemm_f16", "gluon_specialised", "ring", "mm_tma_f16"])
def test_loops_do_what_the_steps_did_one_by_one(name, monkeypatch):
    run = run_first_block(name)
    folded = run.pipeline()
    assert any(isinstance(step, Loop) for role in folded.roles for step in role.steps)
    monkeypatch.setattr("tilescope.machine.proof.described_pipeline.fold_steps", lambda steps, _: tuple(steps))
    assert actions(run.pipeline()) == actions(folded)


def test_warps_that_did_the_same_are_instances_of_one_role():
    pipeline = run_first_block("ring").pipeline()
    assert [(role.name, role.instances) for role in pipeline.roles] == [
        ("warp 0", 1),
        ("warps 1-3", 3),
        ("warp 4", 1),
        ("warps 5-7", 3),
    ]


def test_a_multicast_is_one_copy_for_several_blocks():
    pipeline = run_first_block("multicast").pipeline()
    assert pipeline.blocks == 4
    masks = {step.arguments.get("mask") for role in pipeline.roles for step in role.all_steps() if step.op == "copy"}
    assert masks - {None}


PEERS = """
    .shared .align 8 .b64 ready; .reg .pred %p<3>; .reg .b32 %r<6>;
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [ready], 1;
    fence.mbarrier_init.release.cluster;
    READY: barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire; @%p1 bra LAST;
    mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mov.u32 %r4, ready;
    mapa.shared::cluster.u32 %r5, %r4, %r3;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [ready], 0; @!%p2 bra WAIT;
    LAST: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
"""


def run_peers(old="", new=""):
    """Two blocks that arrive at each other's barrier."""
    body = PEERS.replace(old, new) if old else PEERS
    return ts.Kernel(f"{HEAD} .visible .entry k() .reqnctapercluster 2 {{ {body} ret; }}").run(2, 64)


def test_an_arrival_at_another_blocks_barrier_has_its_mask():
    pipeline = run_peers().pipeline()
    arrivals = {
        (role.mask, step.arguments["mask"])
        for role in pipeline.roles
        for step in role.all_steps()
        if step.op == "arrive"
    }
    assert arrivals == {(0b01, 0b10), (0b10, 0b01)}
    assert ts.simulate(pipeline).verdict == "proven"


def test_a_release_at_the_clusters_barrier_covers_the_inits_before_it():
    fenced = "fence.mbarrier_init.release.cluster;\n    READY: barrier.cluster.arrive.relaxed;"
    run = run_peers(fenced, "READY: barrier.cluster.arrive.release;")
    assert [finding.rule for finding in run.findings if finding.severity != "note"] == []
    assert "run-init-fence" in [finding.rule for finding in run.findings]
    assert ts.simulate(run.pipeline()).verdict == "proven"


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("fence.mbarrier_init.release.cluster;", "", "pipeline-init"),
        ("READY: barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;", "READY: bar.sync 0;", "pipeline-init"),
        ("[ready], 1;", "[ready], 2;", "pipeline-arrivals"),
    ],
)
def test_a_mistake_between_blocks_is_named(old, new, rule):
    assert ts.simulate(run_peers(old, new).pipeline()).mistake.rule == rule


def test_a_relaxed_arrival_behind_an_access_orders_no_data():
    relaxed = (
        ".shared .b32 x; .reg .b32 %r1; .reg .pred %p1; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;"
        " @%p1 st.shared.b32 [x], 1; barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire; ld.shared.b32 %r1, [x];"
    )
    assert ts.simulate(run_body(relaxed).pipeline()).mistake.rule == "pipeline-scope"
    assert ts.simulate(run_body(relaxed.replace("relaxed", "release")).pipeline()).verdict == "proven"


def test_a_relaxed_arrival_at_an_mbarrier_behind_an_access_is_refused():
    relaxed = (
        ".shared .b32 x; .shared .align 8 .b64 bar; mbarrier.init.shared.b64 [bar], 32; bar.sync 0;"
        " st.shared.b32 [x], 1; mbarrier.arrive.relaxed.cta.shared.b64 _, [bar];"
    )
    with pytest.raises(ts.RuleError, match="relaxed"):
        run_body(relaxed, threads=32).pipeline()


def test_a_cluster_that_never_meets_is_a_hang_of_its_pipeline():
    run = run_body(
        ".reg .pred %p1; .reg .b32 %r1; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra B;"
        " barrier.cluster.arrive; barrier.cluster.wait; B: bar.sync 1, 64;"
    )
    assert run.outcome == "hang"
    assert ts.simulate(run.pipeline()).verdict == "mistake"


ONE_LANE_WAITS = """
    .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 full; .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd1;
    ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra READ;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
    mov.u32 %r2, tile; mov.u32 %r3, full;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r3];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra WAIT;
    READ: {meeting}
    shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; ld.shared.b32 %r2, [%r3];
"""


def run_one_lane_waits(meeting, seed=None):
    body = ONE_LANE_WAITS.replace("{meeting}", meeting)
    kernel = ts.Kernel(f"{HEAD} .visible .entry k(.param .u64 a) {{ {body} ret; }}")
    return kernel.run(1, 32, [np.zeros(32, np.float32)], seed=seed)


def test_a_warp_may_read_what_one_of_its_lanes_waited_for_once_they_have_met():
    run = run_one_lane_waits("bar.warp.sync 0xffffffff;")
    assert ts.simulate(run.pipeline()).verdict == "proven"


def test_lanes_that_read_what_another_lane_waited_for_are_never_proven():
    told = set()
    for seed in range(8):
        try:
            told.add(ts.simulate(run_one_lane_waits("", seed).pipeline()).mistake.rule)
        except ts.RuleError as error:
            told.add(error.violations[0].rule)
    # by who comes first
    assert told == {"pipeline-race", "pipeline-unfilled", "run-no-step"}


@pytest.mark.parametrize(("barrier", "verdict"), [("bar.sync 0;", "proven"), ("", "mistake")])
def test_an_edit_of_a_map_in_shared_memory_is_an_access(barrier, verdict):
    run = run_body(f"""
        .shared .align 128 .b8 map[128]; .reg .pred %p1; .reg .b32 %r<3>; .reg .b64 %rd1;
        mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 32; shl.b32 %r2, %r1, 2; @%p1 bra NEXT;
        st.shared.b32 [map+32], 0;
        NEXT: {barrier} setp.ne.u32 %p1, %r1, 0; @%p1 bra LAST;
        mov.u64 %rd1, map; tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd1], 1; LAST:
    """)
    assert run.outcome == "finished"
    assert ts.simulate(run.pipeline()).verdict == verdict


def test_atomics_of_several_warps_do_not_race_with_each_other():
    body = """
        .shared .b32 sum; .reg .b32 %r1; .reg .pred %p1;
        mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
        @%p1 bra READY; st.shared.b32 [sum], 0; READY: {barrier}
        atom.shared.add.u32 %r1, [sum], 1;
        bar.sync 0; ld.shared.b32 %r1, [sum];
    """
    right = run_body(body.replace("{barrier}", "bar.sync 0;"))
    wrong = run_body(body.replace("{barrier}", ""))
    assert ts.simulate(right.pipeline()).verdict == "proven"
    assert ts.simulate(wrong.pipeline()).mistake.rule in ("pipeline-race", "pipeline-unfilled")


@pytest.mark.parametrize(("value", "verdict"), [("7", "proven"), ("%tid.x", "mistake")])
def test_warps_race_at_one_place_unless_they_write_the_same(value, verdict):
    run = run_body(f".shared .b32 x; .reg .b32 %r1; mov.u32 %r1, {value}; st.shared.b32 [x], %r1;")
    assert ts.simulate(run.pipeline()).verdict == verdict


def test_warps_that_write_bytes_of_their_own_do_not_race():
    run = run_body("""
        .shared .b8 x[64]; .reg .b32 %r1; .reg .b32 %r2;
        mov.u32 %r1, %tid.x; mov.u32 %r2, x; add.u32 %r2, %r2, %r1; st.shared.b8 [%r2], %r1;
    """)
    assert [slot.bytes for slot in run.pipeline().slots] == [32, 32]
    assert ts.simulate(run.pipeline()).verdict == "proven"


def test_a_block_that_waits_at_a_barrier_for_ever_is_a_hang_of_its_pipeline():
    run = run_body(
        ".reg .pred %p1; .reg .b32 %r1; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra B; bar.sync 1, 64; B:"
    )
    assert run.outcome == "hang"
    mistake = ts.simulate(run.pipeline()).mistake
    assert (mistake.rule, mistake.outcome) == ("pipeline-sync", "hang")


def test_a_barrier_that_lives_twice_is_two_barriers():
    run = run_body(
        """
        .shared .b64 b; .reg .pred %p1;
        mbarrier.init.shared.b64 [b], 32; mbarrier.arrive.shared.b64 _, [b];
        W1: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W1; mbarrier.inval.shared.b64 [b];
        mbarrier.init.shared.b64 [b], 32; mbarrier.arrive.shared.b64 _, [b];
        W2: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W2;
    """,
        threads=1,
    )
    assert run.outcome == "hang"  # one thread of the 32 that it counts
    assert [barrier.name for barrier in run.pipeline().barriers] == ["b"]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda: run_ring(record=False), "nothing was recorded"),
        (lambda: run_ring(max_steps=200), "stopped"),
        (lambda: run_ring(("[empty], 32", "[empty], 16")), "fault"),
    ],
    ids=["not-recorded", "stopped", "fault"],
)
def test_a_run_without_a_whole_record_has_no_pipeline(run, reason):
    with pytest.raises(ts.RuleError, match=reason) as error:
        run().pipeline()
    assert error.value.violations[0].rule == "run-not-recorded"


def test_a_log_that_was_cut_is_refused(monkeypatch):
    monkeypatch.setattr(event_log, "ROWS_KEPT", 10)
    with pytest.raises(ts.RuleError, match="more than is kept"):
        run_ring().pipeline()


def test_the_record_is_no_part_of_the_runs_data():
    run = run_ring()
    assert run.to_dict() == run_ring(record=False).to_dict()
    assert pickle.loads(pickle.dumps(run)).pipeline() == run.pipeline()


def test_a_step_keeps_its_source_line():
    data = {"barriers": {"full": {"count": 1}}, "roles": [{"name": "p", "steps": [{"arrive": "full", "at": "a.cu:7"}]}]}
    pipeline = Pipeline.from_dict(data)
    (step,) = flatten_steps(pipeline.roles[0].steps)
    assert step.at == "a.cu:7"
    assert Pipeline.from_dict(pipeline.to_dict()) == pipeline
    assert replace(step, at="").plain() == {"arrive": "full"}


LAUNCH = ["--grid", "1", "--block", "64", "--arg", "f32:192:arange", "--arg", "f32:32:zeros"]


def asked(tmp_path, capsys, text, *words):
    path = tmp_path / "ring.ptx"
    path.write_text(text)
    status = command(["run", str(path), *LAUNCH, *words])
    return status, capsys.readouterr().out


def test_prove_says_the_verdict(tmp_path, capsys, wording):
    status, out = asked(tmp_path, capsys, RING, "--prove")
    assert status == 0
    assert "43 actions" in out
    wording("a proof", re.search(r"ring as a pipeline: .*?\.", out)[0])


def test_prove_names_the_mistake_with_its_lines_and_exits_with_1(tmp_path, capsys):
    wrong = RING
    for old, new in EARLY_RELEASE:
        wrong = wrong.replace(old, new)
    assert asked(tmp_path, capsys, wrong)[0] == 1  # the run itself has found it
    status, out = asked(tmp_path, capsys, wrong, "--prove")
    assert status == 1
    assert "tile[0]" in out
    assert "warp 1 (bulk copy)" in out
    assert "warp 0 (threads)" in out
    assert "warp 0: read tile[0] (ring.cu:12)" in out


def test_prove_says_why_there_is_no_pipeline(tmp_path, capsys):
    status, out = asked(tmp_path, capsys, RING.replace("ld.shared.f32", "ld.volatile.shared.f32"), "--prove")
    assert status == 1
    assert "run-no-step: ring.cu:11:" in out


def test_the_timeline_stands_in_place_of_the_lines(tmp_path, capsys):
    svg = tmp_path / "ring.svg"
    status, out = asked(tmp_path, capsys, RING, "--draw", "timeline", "--svg", str(svg))
    assert status == 0
    assert "Timeline (37 nominal ticks)" in out
    assert "What ran, by source line" not in out
    assert "full[0]" in svg.read_text()


def test_json_has_the_proof(tmp_path, capsys):
    status, out = asked(tmp_path, capsys, RING, "--prove", "--json")
    proof = json.loads(out)["extra"]["proof"]
    assert (status, proof["verdict"], proof["pipeline"]["name"]) == (0, "proven", "ring")


def test_atomics_of_one_warp_alone_have_a_slot():
    run = run_body("""
        .shared .align 128 .b8 s[256]; .reg .b32 %r<5>;
        mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
        st.shared.u32 [%r2], %r1; atom.shared.add.u32 %r4, [%r2], 1;
    """)
    pipeline = run.pipeline()
    slots = {slot.name for slot in pipeline.slots}
    assert {name for role in pipeline.roles for step in role.steps for name in step.target} <= slots
    assert ts.simulate(pipeline).verdict == "proven"
