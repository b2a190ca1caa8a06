"""Remedies: what a finding tells to insert was inserted and run, and the finding was gone."""

import numpy as np
import pytest
from kernel_recording import PATHS
from pair_kernels import run, variant
from pair_table import TABLE
from ptx_texts import kernel as kernel_of

import tilescope as ts
from tilescope.machine import kernel_launch as kernel_module
from tilescope.machine.edits import remedy, trial
from tilescope.machine.memory import GlobalMemory

KERNELS = {pairs.name: pairs for pairs in TABLE}
CLUSTER_BARRIER = "barrier.cluster.arrive; barrier.cluster.wait;"
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
MAP_RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
MAP_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [map], 128;"
ANOTHER_SEED = 5  # that no trial has


def wait_loop(barrier, parity):
    """A loop that waits for a phase of an mbarrier."""
    return (
        "{ .reg .pred tilescope_seen; tilescope_wait:"
        f" mbarrier.try_wait.parity.shared::cta.b64 tilescope_seen, {barrier}, {parity};"
        " @!tilescope_seen bra tilescope_wait; }"
    )


# Kernel, mistake, and what the first error that has a remedy tells to insert: text, place, instruction beside it.
REMEDIES = [
    ("tma_load", "no-wait", [(wait_loop("[full]", 0), "before", "ld.shared.u32 value, [place]")]),
    ("tma_load", "wrong-barrier", [(wait_loop("[full]", 0), "before", "ld.shared.u32 value, [place]")]),
    ("tma_load", "init-unseen", [("bar.sync 0;", "before", "@!first bra wait")]),
    ("tma_one_waits", "no-barrier", [("bar.sync 0;", "before", "ld.shared.u32 value, [place]")]),
    ("tma_reload", "no-barrier", [("bar.sync 0;", "before", "@!first bra wait")]),
    ("tma_store", "no-fence", [("fence.proxy.async;", "before", "bar.sync 0")]),
    ("tma_store", "no-barrier", [("bar.sync 0;", "before", "@!first bra end")]),
    (
        "store_source_reused",
        "no-wait",
        [("cp.async.bulk.wait_group.read 0;", "behind", "@first cp.async.bulk.commit_group")],
    ),
    ("store_source_reused", "no-barrier", [("bar.sync 0;", "before", "st.shared.u32 [place], value")]),
    ("store_then_flag", "source-only", [("cp.async.bulk.wait_group 0;", "behind", "cp.async.bulk.commit_group")]),
    (
        "stmatrix_store",
        "no-syncwarp",
        [("bar.warp.sync 0xffffffff;", "behind", "stmatrix.sync.aligned.m8n8.x4.shared.b16")],
    ),
    (
        "wgmma_stores",
        "no-wgmma-fence",
        [("wgmma.fence.sync.aligned;", "before", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")],
    ),
    ("wgmma_stores", "no-wait", [("wgmma.wait_group.sync.aligned 0;", "before", "st.global.v2.f32 [to], {d0, d1}")]),
    (
        "wgmma_stores",
        "no-commit",
        [
            (
                "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
                "before",
                "st.global.v2.f32 [to], {d0, d1}",
            )
        ],
    ),
    (
        "wgmma_two_groups",
        "no-wait",
        [("wgmma.wait_group.sync.aligned 0;", "behind", "wgmma.commit_group.sync.aligned")],
    ),
    ("cp_async", "no-wait", [("cp.async.wait_all;", "before", "bar.sync 0")]),
    ("cp_async", "no-barrier", [("bar.sync 0;", "before", "ld.shared.v4.u32 {w0, w1, w2, w3}, [place]")]),
    ("cp_async_own", "no-wait", [("cp.async.wait_all;", "before", "ld.shared.v4.u32 {w0, w1, w2, w3}, [place]")]),
    (
        "ring_wgmma",
        "no-full-wait",
        [(wait_loop("[full_at]", "parity"), "before", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")],
    ),
    (
        "ring_wgmma",
        "release-too-early",
        [("wgmma.wait_group.sync.aligned 0;", "behind", "wgmma.commit_group.sync.aligned")],
    ),
    ("ring_readers", "no-syncwarp", [("bar.warp.sync 0xffffffff;", "behind", "ld.shared.u32 value, [place]")]),
    ("multicast", "no-init-fence", [(INIT_FENCE, "behind", "@first mbarrier.init.shared::cta.b64")]),
    (
        "multicast",
        "init-unseen",
        [
            (INIT_FENCE, "behind", "@first mbarrier.init.shared::cta.b64"),
            (CLUSTER_BARRIER, "before", "@!sends bra wait"),
        ],
    ),
    ("remote_reads", "no-cluster-barrier", [(CLUSTER_BARRIER, "before", "ld.shared::cluster.u32 value, [place]")]),
    ("remote_reads", "leaves-too-soon", [(CLUSTER_BARRIER, "before", "ret")]),
    ("map_edited", "no-release", [(MAP_RELEASE, "behind", "tensormap.replace.tile.global_address.global.b1024.b64")]),
    (
        "map_edited",
        "no-fences",
        [
            (MAP_RELEASE, "behind", "tensormap.replace.tile.global_address.global.b1024.b64"),
            (MAP_ACQUIRE, "before", "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"),
        ],
    ),
    ("sync_mirror", "no-first-barrier", [("bar.sync 0;", "before", "ld.shared.u32 y, [other]")]),
    ("shuffle_is_no_barrier", "shuffle", [("bar.warp.sync 0xffffffff;", "before", "ld.shared.u32 x, [other]")]),
    ("flag_release", "relaxed-store", [("fence.acq_rel.gpu;", "before", "@first st.relaxed.gpu.global.u32 [sign], 1")]),
    ("shared_flag", "relaxed-load", [("fence.acq_rel.cta;", "behind", "ld.relaxed.cta.shared.u32 seen, [flag]")]),
    (
        "grid_barrier",
        "relaxed-spin",
        [("fence.acq_rel.gpu;", "behind", "ld.relaxed.gpu.global.u32 seen, [counter]")],
    ),  # behind the atomic only some blocks know
    (
        "last_block_sums",
        "no-fences",
        [
            ("fence.acq_rel.gpu;", "before", "@first atom.relaxed.gpu.global.inc.u32"),
            ("fence.acq_rel.gpu;", "behind", "@first atom.relaxed.gpu.global.inc.u32"),
        ],
    ),
]
WITHOUT_REMEDY = [
    ("bulk_two_copies", "one-target"),
    ("ring_wgmma", "reads-other-slot"),
    ("ring_readers", "release-before-read"),  # an arrival must move
    ("ring_writers", "relaxed"),
    ("arrive_and_sync", "arrive-before-write"),
    ("ping_pong", "no-turns"),
    ("shared_counts", "plain-in-shared"),  # needs an atomic
    ("flag_release", "no-wait"),
    ("grid_barrier", "three-of-four"),
    ("spin_lock", "given-back-too-early"),
    ("map_edited_again", "edited-in-flight"),
]
RACE = """
    .shared .align 4 .b8 s[256];
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, s;
    mad.lo.u32 %r2, %r1, 4, %r2;
    st.shared.u32 [%r2], %r1;
    ld.shared.u32 %r3, [s+128];
    ld.shared.u32 %r4, [s+4];
    add.u32 %r3, %r3, %r4;
    mad.wide.u32 %d2, %r1, 4, %d1;
    ld.global.u32 %r4, [%d2];
    add.u32 %r3, %r3, %r4;
    st.global.u32 [%d2], %r3;
    ret;
"""


def errors(result):
    return [finding for finding in result.findings if finding.severity == "error"]


def with_insertions(text, finding):
    """A text with what a finding tells to insert."""
    for one in sorted(finding.change["insert_ptx"], key=lambda one: one["offset"], reverse=True):
        text = f"{text[: one['offset']]} {one['text']} {text[one['offset'] :]}"
    return text


def counted_runs(monkeypatch):
    """Where every run of a grid is noted from now on: those that were asked for, and those that try a remedy."""
    runs = []

    def noting(module, name):
        run_grid = module.run_grid

        def noted(*args):
            runs.append(name)
            return run_grid(*args)

        monkeypatch.setattr(module, "run_grid", noted)

    noting(kernel_module, "asked")
    noting(remedy, "trial")
    return runs


@pytest.mark.parametrize(("name", "mistake", "inserted"), REMEDIES)
def test_a_remedy_is_told_with_its_place(name, mistake, inserted):
    pairs = KERNELS[name]
    text = variant(pairs.text, mistake)
    result, _ = run(pairs, ts.Kernel(text), None, advice="fixes")
    finding = next(one for one in errors(result) if one.change is not None)
    lines = text.splitlines()
    for one, (words, place, instruction) in zip(finding.change["insert_ptx"], inserted, strict=True):
        assert (one["text"], one["place"]) == (words, place)
        assert lines[one["line"] - 1].strip().startswith(instruction)
    assert "tried" in finding.fix
    assert all(f"`{words}`" in finding.fix for words, _, _ in inserted)


@pytest.mark.parametrize(("name", "mistake"), [row[:2] for row in REMEDIES])
def test_a_remedy_holds_with_a_seed_that_was_not_tried(name, mistake):
    pairs = KERNELS[name]
    text = variant(pairs.text, mistake)
    result, _ = run(pairs, ts.Kernel(text), None, advice="fixes")
    finding = next(one for one in errors(result) if one.change is not None)
    cured, _ = run(pairs, ts.Kernel(with_insertions(text, finding)), ANOTHER_SEED)
    assert cured.outcome == "finished"
    assert (finding.rule, finding.values["where"], finding.values.get("before_where")) not in {
        (one.rule, one.values["where"], one.values.get("before_where")) for one in errors(cured)
    }


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("name", "mistake"), WITHOUT_REMEDY)
def test_the_general_fix_stays_where_nothing_helps(name, mistake):
    pairs = KERNELS[name]
    kernel = ts.Kernel(variant(pairs.text, mistake))
    result, _ = run(pairs, kernel, None, advice="fixes")
    untried, _ = run(pairs, kernel, None, advice="none")
    assert errors(result)
    assert result.findings == untried.findings


@pytest.mark.parametrize("name", ["tma_load", "ring_wgmma", "sync_mirror", "multicast_ring", "grid_barrier"])
def test_a_right_kernel_runs_once(monkeypatch, name):
    runs = counted_runs(monkeypatch)
    run(KERNELS[name], ts.Kernel(variant(KERNELS[name].text)), None, advice="fixes")
    assert runs == ["asked"]


@pytest.mark.parametrize(("steps_of_a_round", "most_trials"), [(trial._STEPS_OF_A_ROUND, 45), (400, 10)])
def test_threads_that_ask_for_releases_use_up_the_budget_of_trials(monkeypatch, steps_of_a_round, most_trials):
    """Threads of two blocks ask what many atomics of the other one release; they share walks, and there are 45 trials.

    If a round of a walk counted as hundreds of instructions, there would be few.
    """
    monkeypatch.setattr(trial, "_STEPS_OF_A_ROUND", steps_of_a_round)
    trials = []
    make_trial = remedy.make_trial
    monkeypatch.setattr(
        remedy, "make_trial", lambda *args, **options: trials.append(args) or make_trial(*args, **options)
    )
    text = PATHS["atomics_global"].with_suffix(".ptx").read_text()
    address = "shl.b32 \t%r41, %r14, 4;"
    assert text.count(address) == 1
    run = ts.Kernel(text.replace(address, "")).run(2, 32, [np.zeros(4096, np.uint32) for _ in range(5)])
    assert {finding.rule for finding in run.findings if finding.severity == "error"} == {"run-race"}
    assert 1 <= len(trials) <= most_trials
    assert (len(trials) == 45) is (most_trials == 45)


def test_warnings_are_no_reason_to_run_again(monkeypatch):
    runs = counted_runs(monkeypatch)
    pairs = KERNELS["remote_scope"]
    result, _ = run(pairs, ts.Kernel(variant(pairs.text, "arrival-default")), None, advice="fixes")
    assert {finding.severity for finding in result.findings} == {"warning"}
    assert runs == ["asked"]


def test_one_barrier_is_told_for_all_that_it_cures(wording):
    result = kernel_of(RACE).run(1, 64, [np.zeros(64, np.uint32)])
    (finding,) = errors(result)
    wording("a barrier that cures two findings", finding)
    assert finding.values["others_gone"] == 1
    assert finding.values["other_lines"] == ("PTX line 20",)
    assert finding.values["ptx_lines"] == (19, 18, 20)


def test_arrays_keep_what_the_kernel_left(monkeypatch):
    runs = counted_runs(monkeypatch)
    array = np.arange(64, dtype=np.uint32)
    untried = array.copy()
    kernel_of(RACE).run(1, 64, [untried], advice="none")
    assert runs == ["asked"]
    kernel_of(RACE).run(1, 64, [array])
    # as the run went, and with two other seeds; no run finds who reaches which place: all threads execute straight code
    assert runs[1:] == ["asked", "trial", "trial", "trial"]
    np.testing.assert_array_equal(array, untried)
    assert array[0] == 32 + 1  # added once


def test_nothing_is_tried_for_more_memory_than_is_copied(monkeypatch):
    runs = counted_runs(monkeypatch)
    monkeypatch.setattr(kernel_module, "COPIED_BYTES", 255)
    result = kernel_of(RACE).run(1, 64, [np.zeros(64, np.uint32)])
    assert runs == ["asked"]
    assert errors(result)[0].change is None


def test_nothing_is_tried_for_a_run_that_was_stopped(monkeypatch):
    runs = counted_runs(monkeypatch)
    endless = RACE.replace("ret;", "again: add.u32 %r3, %r3, 1; bra again;")
    result = kernel_of(endless).run(1, 64, [np.zeros(64, np.uint32)], max_steps=500)
    assert result.outcome == "stopped"
    assert "run-race" in {finding.rule for finding in errors(result)}
    assert runs == ["asked"]


def test_trials_end_when_their_steps_are_used_up_and_the_finding_says_so(monkeypatch, wording):
    monkeypatch.setattr(trial, "SHORT_STEPS", 60)  # reading the kernel once counts for its instructions, 14
    monkeypatch.setattr(trial, "STEPS_OF_ALL_TRIALS", 1)
    runs = counted_runs(monkeypatch)
    result = kernel_of(RACE).run(1, 64, [np.zeros(64, np.uint32)])
    assert runs == ["asked", "trial"]
    finding = errors(result)[0]
    assert finding.change is None
    assert "113 steps" in finding.fix
    wording("trials that end", finding.fix)
    assert finding.values["trial_steps"] == 113  # those of the run: 13, and 100 for its block


def test_every_error_has_its_turn():
    apart = "\n".join(
        f"st.shared.u32 [%r2+{256 * number}], %r1; ld.shared.u32 %r3, [s+{256 * number + 128}];"
        " st.global.u32 [%d1], %r3;"
        for number in range(7)
    )
    body = RACE.replace("s[256]", "s[2048]").replace("st.shared.u32 [%r2], %r1;", f"st.shared.u32 [%r2], %r1; {apart}")
    result = kernel_of(body).run(1, 64, [np.zeros(64, np.uint32)])
    assert len(errors(result)) > 5
    assert all(finding.change is not None for finding in errors(result))


def test_a_finding_with_a_remedy_survives_json():
    finding = errors(kernel_of(RACE).run(1, 64, [np.zeros(64, np.uint32)]))[0]
    assert ts.Violation.from_dict(finding.to_dict()) == finding


def test_arrays_that_share_bytes_are_not_copied():
    memory = GlobalMemory()
    whole = np.zeros(8, np.uint8)
    memory.place(whole[2:4])
    assert memory.copy_within(100) is not None
    memory.place(whole)
    assert memory.copy_within(100) is None


def test_a_copy_of_memory_keeps_addresses_and_shares_what_nobody_writes():
    memory = GlobalMemory()
    constant = np.arange(4, dtype=np.uint8)
    constant.flags.writeable = False
    first, second = memory.place(np.zeros(4, np.uint8)), memory.place(constant)
    copy = memory.copy_within(4)
    assert copy.allocations == memory.allocations
    assert np.shares_memory(copy.bytes_at(second, 4), constant)
    assert not np.shares_memory(copy.bytes_at(first, 4), memory.bytes_at(first, 4))


LED = """
    .shared .align 16 .b8 tile[512];
    .shared .align 8 .b64 met;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r2, %r2, 128, %r1;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [met], 1;
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 4, %r3;
    and.b32 %r5, %r1, 32;
    setp.eq.u32 %p2, %r5, 0;
    @%p2 bra $end;
    st.shared.u32 [%r4], %r1;
    xor.b32 %r6, %r1, 31;
    mad.lo.u32 %r4, %r6, 4, %r3;
    ld.shared.u32 %r5, [%r4];
    ld.param.u64 %d1, [out];
    mad.wide.u32 %d1, %r2, 4, %d1;
    st.global.u32 [%d1], %r5;
$end:
    ret;
"""


@pytest.mark.parametrize("blocks", [1, 16])
def test_visits_of_blocks_that_could_follow_a_leader_are_counted(blocks):
    """Where all lanes of a warp come is known from a run in which every block takes its own steps."""
    (finding,) = kernel_of(LED).run(blocks, 128, [np.zeros(128 * blocks, np.uint32)]).findings
    assert finding.rule == "run-race"
    assert finding.fix.startswith("Put `bar.warp.sync 0xffffffff;` before")
