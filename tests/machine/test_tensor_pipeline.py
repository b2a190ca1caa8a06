"""KernelRun.pipeline of kernels with tcgen05: products, commits, tensor memory and its fences as steps that ts.simulate proves."""

import json
from pathlib import Path

import numpy as np
import pytest
from blackwell_launches import LAUNCHES
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, text

import tilescope as ts
from tilescope.pipeline.toml_text import toml_text

GOLDEN = Path(__file__).parents[1] / "golden" / "blackwell"
RECORDED = json.loads((GOLDEN / "launches.json").read_text())
COLUMNS = 64
WORD = ts.InstructionDescriptor("f16", 128, 32, a_type="f16")
A = Operand(np.ones((128, 16), np.uint16), SMEM, swizzle="32B")
B = Operand(np.ones((32, 16), np.uint16), SMEM + 0x8000, swizzle="32B")
MMA = f"mov.b32 %r8, {WORD.encode():#x}; tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p6;"
RIGHT = text(MMA, COLUMNS, blocks=1, arguments=2, target="sm_100a")
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];"
WAIT_FOR_DONE = "mbarrier.try_wait.parity.shared.b64 %p5, [done], 0;\n    @!%p5 bra DONE;"
LAST_BARRIER = "bar.sync 0;\n    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    @%p2 tcgen05.dealloc"


def pipeline_of(kernel_text):
    """The pipeline of one block that stores, multiplies and loads tensor memory."""
    arrays = [np.zeros(SMEM_BYTES, np.uint8), np.zeros((128, COLUMNS), np.uint32), np.zeros((128, COLUMNS), np.uint32)]
    run = ts.Kernel(kernel_text).run(
        1, 128, [*arrays, A.word, B.word], smem_bytes=SMEM + SMEM_BYTES, findings=False, advice="none"
    )
    return run.pipeline()


def recorded_pipeline(name):
    launch = LAUNCHES[name]()
    launched = RECORDED[name]
    run = ts.Kernel((GOLDEN / f"{name}.ptx").read_text()).run(
        launch.grid,
        launched["threads"],
        launch.arguments,
        memory=launch.memory,
        smem_bytes=launched["smem_bytes"],
        cluster=launch.cluster,
        blocks=[(0, 0, 0)],
        findings=False,
    )
    return run.pipeline()


def mistake(changed):
    """The rule and the words of the mistake of a changed kernel."""
    result = ts.simulate(pipeline_of(changed))
    assert result.mistake is not None
    return result.mistake.rule, str(result)


def without(piece, place=-1):
    """The right kernel without a piece of its text, the last of them or the one in that place."""
    parts = RIGHT.split(piece)
    assert len(parts) > 1
    cut = place % (len(parts) - 1)
    return piece.join(parts[: cut + 1]) + piece.join(["", *parts[cut + 1 :]])[len(piece) :]


def test_products_commits_and_fences_become_steps():
    steps = toml_text(pipeline_of(RIGHT))
    assert 'tmem_0x0 = {space = "tmem"}' in steps
    assert 'unit = "tcgen05", into = "tmem_0x0"' in steps
    assert '{commit = "done"' in steps
    assert '{fence = "tcgen05.before"' in steps


def test_a_right_kernel_is_proven_and_says_that_tcgen05_is_documented(wording):
    result = ts.simulate(pipeline_of(RIGHT))
    assert result.verdict == "proven"
    wording("a proof with tcgen05", result)


@pytest.mark.parametrize(
    "name",
    [
        "pair",  # cta_group::2: a multicast commit, and copies that tell the leader's mbarrier
        pytest.param("product", marks=pytest.mark.slow),
        pytest.param("attention", marks=pytest.mark.slow),  # A in tensor memory
        pytest.param("nvfp4", marks=pytest.mark.slow),  # tcgen05.cp of scale factors
    ],
)
def test_kernels_of_triton_are_proven(name):
    assert ts.simulate(recorded_pipeline(name)).verdict == "proven"


def test_a_load_before_the_commit_is_done_is_a_race():
    rule, words = mistake(RIGHT.replace(WAIT_FOR_DONE, ""))
    assert rule == "pipeline-race"
    assert "warp 0 (tcgen05)" in words


def test_a_commit_that_is_missing_is_an_arrival_too_few():
    rule, words = mistake(RIGHT.replace(COMMIT, ""))
    assert rule == "pipeline-arrivals"
    assert "phase 0 of done" in " ".join(words.split())


def test_columns_that_others_still_load_are_not_freed():
    rule, _ = mistake(RIGHT.replace(LAST_BARRIER, "@%p2 tcgen05.dealloc"))
    assert rule == "pipeline-race"


def test_a_fence_that_is_missing_is_worth_a_look_where_the_kernel_has_others():
    found = ts.simulate(pipeline_of(without("tcgen05.fence::after_thread_sync;")))
    assert found.verdict == "proven"
    assert {warning.rule for warning in found.warnings} == {"pipeline-fence"}
    assert "tcgen05.fence::after_thread_sync" in str(found)


def test_a_kernel_without_any_fence_of_tcgen05_needs_none():
    bare = RIGHT.replace("tcgen05.fence::after_thread_sync;", "").replace("tcgen05.fence::before_thread_sync;", "")
    assert ts.simulate(pipeline_of(bare)).verdict == "proven"


@pytest.mark.parametrize("move", ["ld", "st"])
def test_a_move_that_is_still_under_way_at_a_barrier_is_refused(move):
    with pytest.raises(ts.RuleError) as raised:
        pipeline_of(RIGHT.replace(f"tcgen05.wait::{move}.sync.aligned;", ""))
    (violation,) = raised.value.violations
    assert violation.rule == "run-no-step"
    assert f"tcgen05.{move}," in violation.values["what"]
    assert f"tcgen05.wait::{move}" in violation.values["what"]


def test_a_shift_is_refused_by_its_name():
    shift = "tcgen05.shift.cta_group::1.down [%r1];"
    with pytest.raises(ts.RuleError) as raised:
        pipeline_of(RIGHT.replace(COMMIT, f"{shift} {COMMIT}"))
    assert [violation.values["what"] for violation in raised.value.violations] == ["tcgen05.shift"]


CLUSTER = ".version 8.0 .target sm_90 .address_size 64 .visible .entry k()"


def test_a_wait_for_the_cluster_that_nobody_arrived_for_is_no_proof():
    run = ts.Kernel(f"{CLUSTER} {{ barrier.cluster.wait; ret; }}").run(2, 64, cluster=2)
    assert run.outcome == "hang"
    assert ts.simulate(run.pipeline()).verdict == "mistake"


def test_a_second_arrival_at_the_cluster_without_a_wait_is_refused():
    twice = "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;"
    run = ts.Kernel(f"{CLUSTER} {{ {twice} ret; }}").run(2, 64, cluster=2, advice="none")
    with pytest.raises(ts.RuleError) as raised:
        run.pipeline()
    assert "barrier.cluster.arrive again, without barrier.cluster.wait" in str(raised.value)
