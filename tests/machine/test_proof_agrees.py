"""The proof of a run's pipeline and the run agree: a wrong kernel is never called proven, and a right one has no mistake."""

import json

import numpy as np
import pytest
from pair_kernels import run, variant
from pair_table import TABLE

import tilescope as ts
from tilescope.cli import run as command
from tilescope.pipeline.description import Pipeline

SAMPLE = TABLE[::6]
MAX_STATES = 1000
# Rules of a run about barriers and waits: a proof passes over no error of these.
SYNCHRONIZATION = {
    "run-barrier-init",
    "run-barrier-lifetime",
    "run-convergence",
    "run-copy-wait",
    "run-hang",
    "run-refill",
}
HEAD = ".version 8.6 .target sm_90a .address_size 64"


def prove(result):
    """The verdict on a run, and the rule of its mistake; "refused" if no pipeline describes it."""
    try:
        simulation = ts.simulate(result.pipeline(), max_states=MAX_STATES)
    except ts.RuleError:
        return "refused", ""
    return simulation.verdict, simulation.mistake.rule if simulation.mistake else ""


def check(pairs):
    for mistake in (None, *pairs.mistakes):
        result, _ = run(pairs, ts.Kernel(variant(pairs.text, mistake)), None)
        errors = {finding.rule for finding in result.findings if finding.severity == "error"}
        verdict, _ = prove(result)
        if errors:
            assert verdict != "proven", (pairs.name, mistake)
        else:
            assert verdict != "mistake", (pairs.name, mistake)
        if errors & SYNCHRONIZATION:
            assert verdict != "synchronization proven", (pairs.name, mistake)


@pytest.mark.parametrize("pairs", SAMPLE, ids=lambda pairs: pairs.name)
def test_run_and_proof_agree(pairs):
    check(pairs)


@pytest.mark.slow
def test_run_and_proof_agree_on_all_pairs():
    for pairs in TABLE:
        check(pairs)


def kernel(body, cluster=1):
    blocks = f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    return f"""{HEAD}
        .visible .entry k(.param .u64 a, .param .u64 b) {blocks} {{
            .reg .pred first, some, done;
            .reg .b32 tid, at, value;
            .reg .b64 from, to;
            .shared .align 16 .b8 data[256];
            .shared .align 8 .b64 full;
            mov.u32 tid, %tid.x;
            setp.eq.u32 first, tid, 0;
            ld.param.u64 from, [a];
            ld.param.u64 to, [b];
            mad.lo.u32 at, tid, 4, 0;
            mov.u32 value, data;
            add.u32 at, at, value;
            {body}
            ret;
        }}"""


def run_kernel(body, cluster=1):
    return ts.Kernel(kernel(body, cluster)).run(cluster, 64, [np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)])


def rules(result):
    return {finding.rule for finding in result.findings if finding.severity == "error"}


INIT = "@first mbarrier.init.shared::cta.b64 [full], 1;"
INVAL = "@first mbarrier.inval.shared::cta.b64 [full];"
COPY = """mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [from], 256, [full];"""
WAIT = """wait: mbarrier.try_wait.parity.shared::cta.b64 done, [full], 0;
    @!done bra wait;"""
LOAD = "ld.shared.u32 value, [at];"


def loaded(*, pending="", then=""):
    """A block loads 256 bytes, and all its threads wait for them."""
    return f"{INIT} bar.sync 0; @!first bra wait; {COPY} {pending} {WAIT} {LOAD} {then}"


# ---- the lifetime of an mbarrier

LIFETIMES = {
    "invalidated after a barrier": (loaded(then=f"bar.sync 0; {INVAL}"), "proven", ""),
    "invalidated while others wait": (loaded(then=INVAL), "mistake", "pipeline-init"),
    "invalidated while a copy is pending": (loaded(pending=INVAL), "mistake", "pipeline-init"),
    "used after it is invalidated": (
        loaded(then=f"bar.sync 0; {INVAL} @first mbarrier.arrive.shared::cta.b64 _, [full];"),
        "mistake",
        "pipeline-init",
    ),
    "initialised twice": (loaded(then=f"bar.sync 0; {INIT}"), "mistake", "pipeline-init"),
    "initialised again after inval": (loaded(then=f"bar.sync 0; {INVAL} {INIT}"), "proven", ""),
    "overwritten after its last use": (loaded(then="bar.sync 0; @first st.shared.u32 [full], 7;"), "proven", ""),
    "overwritten while others wait": (loaded(then="@first st.shared.u32 [full], 7;"), "mistake", "pipeline-init"),
    "overwritten while it counts": (loaded(pending="st.shared.u32 [full], 7;"), "mistake", "pipeline-init"),
}


@pytest.mark.parametrize("name", LIFETIMES)
def test_the_proof_follows_the_lifetime_of_an_mbarrier(name):
    body, verdict, rule = LIFETIMES[name]
    assert prove(run_kernel(body)) == (verdict, rule)


@pytest.mark.parametrize(
    "store", ["st.shared.u32 [data], 7;", "st.shared.u32 [data], 0;", "mbarrier.init.shared::cta.b64 [data+8], 1;"]
)
def test_a_store_over_a_pending_copy_is_a_race_whatever_it_stores(store):
    assert prove(run_kernel(loaded(pending=store))) == ("mistake", "pipeline-race")


def test_warps_that_read_uneven_parts_of_a_bulk_copy_are_proven():
    body = loaded(
        then="@first ld.shared.u32 value, [data]; setp.gt.u32 some, tid, 40; @some ld.shared.u32 value, [at];"
    )
    assert prove(run_kernel(body)) == ("proven", "")


def test_a_wait_for_a_phase_that_the_same_lanes_have_seen_is_a_wait_again():
    result = run_kernel(loaded(then=WAIT.replace("wait", "again").replace("try_again", "try_wait")))
    waits = [step for role in result.pipeline().roles for step in role.all_steps() if step.op == "wait"]
    assert len(waits) == 4  # two of each warp


# ---- arrivals at the cluster's barrier


def cluster_kernel(*, fence="@first fence.mbarrier_init.release.cluster;", arrive=".relaxed.aligned"):
    """Blocks of a cluster that know each other's mbarriers before they use them."""
    return f"""{INIT} {fence}
        barrier.cluster.arrive{arrive};
        barrier.cluster.wait.acquire.aligned;
        @!first bra wait; {COPY} {WAIT} {LOAD}
        barrier.cluster.arrive.relaxed.aligned;
        barrier.cluster.wait.acquire.aligned;"""


def test_a_relaxed_arrival_hands_on_inits_behind_their_fence():
    result = run_kernel(cluster_kernel(), cluster=2)
    assert (rules(result), prove(result)) == (set(), ("proven", ""))
    arrivals = [step for role in result.pipeline().roles for step in role.all_steps() if step.target == "arrive"]
    assert all(step.arguments == {"relaxed": True} for step in arrivals)


def test_a_relaxed_arrival_alone_hands_on_no_init():
    result = run_kernel(cluster_kernel(fence=""), cluster=2)
    assert (rules(result), prove(result)) == ({"run-barrier-init"}, ("mistake", "pipeline-init"))


def test_an_arrival_that_releases_hands_on_inits_without_a_fence():
    result = run_kernel(cluster_kernel(fence="", arrive=".release.aligned"), cluster=2)
    assert (rules(result), prove(result)) == (set(), ("proven", ""))


def elected_kernel(arrive):
    """One lane copies and waits, while the other lanes of its warp run ahead to the barrier of the cluster."""
    return f"""{INIT} @first fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive.release.aligned;
        barrier.cluster.wait.acquire.aligned;
        @!first bra issued; {COPY} {WAIT}
        issued:
        barrier.cluster.arrive{arrive};
        barrier.cluster.wait;
        {LOAD}"""


def test_a_warp_arrives_at_the_cluster_barrier_with_its_last_lane():
    result = run_kernel(elected_kernel(""), cluster=2)
    assert (result.outcome, rules(result), prove(result)) == ("finished", set(), ("proven", ""))
    first_warp = result.pipeline().roles[0]
    assert [step.op for step in first_warp.all_steps()].count("cluster") == 4  # two arrivals, two waits
    ops = [step.op for step in first_warp.all_steps()]
    assert ops.index("copy") < len(ops) - 1 - ops[::-1].index("cluster")


def test_a_relaxed_arrival_hands_on_no_data():
    result = run_kernel(elected_kernel(".relaxed"), cluster=2)
    assert (rules(result), prove(result)) == ({"run-copy-wait"}, ("mistake", "pipeline-scope"))


def test_a_fence_before_a_relaxed_arrival_makes_it_a_release():
    body = elected_kernel(".relaxed").replace("issued:", "issued: bar.warp.sync 0xffffffff; fence.acq_rel.cluster;")
    result = run_kernel(body, cluster=2)
    assert (rules(result), prove(result)) == (set(), ("proven", ""))


# ---- what is not covered

ARGUMENTS = ("--arg", "u32:64", "--arg", "u32:64")
NOT_COVERED = {
    "nothing": ("", []),
    "a store that nobody reads": ("mad.wide.u32 to, tid, 4, to; st.global.u32 [to], tid;", []),
    "words that are written and read": (
        "@first st.global.u32 [to], 1; bar.sync 0; ld.global.u32 value, [to];",
        ["global memory that the kernel writes and reads"],
    ),
    "an atomic": ("red.global.add.u32 [to], 1;", ["global memory that threads share by atomics or flags"]),
    "a flag": ("ld.acquire.gpu.global.u32 value, [to];", ["global memory that threads share by atomics or flags"]),
}


@pytest.mark.parametrize("name", NOT_COVERED)
def test_a_proof_says_which_global_memory_it_does_not_cover(name):
    then, reasons = NOT_COVERED[name]
    simulation = ts.simulate(run_kernel(loaded(then=then)).pipeline())
    assert [reason.partition(" (")[0] for reason in simulation.not_covered] == reasons
    assert simulation.verdict == ("synchronization proven" if reasons else "proven")
    assert bool(simulation) == (not reasons)
    assert Pipeline.from_dict(simulation.pipeline.to_dict()) == simulation.pipeline


@pytest.mark.parametrize(
    ("then", "verdict", "status"),
    [
        ("", "proven", 0),
        ("red.global.add.u32 [to], 1;", "synchronization proven", 0),
        ("st.global.u32 [to], tid;", "synchronization proven", 1),  # threads race
    ],
)
def test_prove_fails_where_the_run_has_an_error(tmp_path, capsys, then, verdict, status):
    path = tmp_path / "k.ptx"
    path.write_text(kernel(loaded(then=then)))
    arguments = ["run", str(path), "--grid", "1", "--block", "64", *ARGUMENTS, "--prove", "--json"]
    assert command(arguments) == status
    assert json.loads(capsys.readouterr().out)["extra"]["proof"]["verdict"] == verdict
