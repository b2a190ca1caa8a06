"""Waits at mbarriers ask for a parity: what right kernels may do, and which waits could pass or block by chance."""

import pytest
from ptx_texts import kernel

INIT = """
    .shared .align 8 .b64 met;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [met], COUNT;
    bar.sync 0;
"""


def wait(parity, label):
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p2, [met], {parity}; @!%p2 bra {label};\n"


def rules(body, count=1, threads=64, seed=None):
    """The rules that a kernel of one block breaks."""
    run = kernel(INIT.replace("COUNT", str(count)) + body, "").run(1, threads, [], seed=seed)
    assert run.outcome == "finished", run.findings
    return [finding.rule for finding in run.findings if finding.severity == "error"]


ARRIVE = "mbarrier.arrive.shared.b64 _, [met];\n"
ALONE = "@!%p1 bra END;\n"


def test_a_thread_that_ends_two_phases_itself_knows_which_one_it_waits_for():
    assert rules(ALONE + ARRIVE + ARRIVE + wait(1, "W") + "END: ret;") == []


def test_a_fresh_barrier_at_the_place_of_an_old_one_has_no_phases_to_know_of():
    used = "@!%p1 bra MET;\n" + 3 * ARRIVE
    again = "mbarrier.inval.shared.b64 [met]; mbarrier.init.shared.b64 [met], 1; MET: bar.sync 0;\n"
    assert rules(used + again + "@%p1 " + ARRIVE + wait(0, "W")) == []


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_rounds_in_which_everybody_arrives_and_waits_are_right(seed):
    rounds = "".join(ARRIVE + wait(phase % 2, f"R{phase}") for phase in range(4))
    assert rules(rounds, count=64, seed=seed) == []


def test_a_barrier_of_threads_tells_who_waited():
    body = wait(1, "W") + "bar.sync 0;\n@%p1 " + ARRIVE
    assert rules(body) == []


COLLECTIVES = {
    "shuffle": "shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;",
    "vote": "vote.sync.any.pred %p3, %p1, 0xffffffff;",
    "ldmatrix": "mov.u32 %r3, tile; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r3];",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_lanes_that_wait_for_each_other_know_of_their_waits(name):
    tile = ".shared .align 128 .b8 tile[128];\n"
    assert rules(tile + wait(1, "W") + COLLECTIVES[name] + "@%p1 " + ARRIVE, threads=32) == []


def test_half_a_warp_that_comes_together_does_not_speak_for_the_other():
    halves = "setp.lt.u32 %p3, %r1, 16; @!%p3 bra LAST; shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff; LAST:\n"
    assert rules(wait(1, "W") + halves + "@%p1 " + ARRIVE, threads=32) == ["run-phase-parity"]


def test_a_warp_comes_together_behind_its_halves():
    halves = (
        "setp.lt.u32 %p3, %r1, 16; @!%p3 bra SECOND; shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff; bra WHOLE;"
        " SECOND: shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff0000; WHOLE:\n"
    )
    assert rules(wait(1, "W") + halves + COLLECTIVES["shuffle"] + "@%p1 " + ARRIVE, threads=32) == []


def test_a_shuffle_before_the_wait_tells_nothing_of_it():
    body = COLLECTIVES["shuffle"] + wait(1, "W") + "@%p1 " + ARRIVE
    assert rules(body, threads=32) == ["run-phase-parity"]


def test_a_wait_that_nobody_hears_of_is_told_with_both_instructions(wording):
    run = kernel(INIT.replace("COUNT", "1") + wait(1, "W") + "@%p1 " + ARRIVE, "").run(1, 64)
    (told,) = [finding for finding in run.findings if finding.rule == "run-phase-parity"]
    assert "try_wait" in told.argument
    assert "(0, 0, 0) ends" in told.found
    wording("a wait that an arrival does not follow", told)
    assert told.values["who"].startswith("thread ")
    assert "(0, 0, 0)" not in told.values["who"].partition(" of ")[0]


def test_a_wait_for_a_later_phase_alone_may_pass_too_early():
    """Thread 0 ends two phases behind a barrier that only orders their begin; the others wait for the second one alone."""
    first = ARRIVE + wait(0, "A") + ARRIVE + wait(1, "B")
    body = "@!%p1 bra REST;\n" + first + "bra END;\nREST:\n" + wait(1, "W") + "END: ret;"
    found = set()
    for seed in (None, 0, 1, 2, 3):
        found.update(rules(body, seed=seed))
    assert found == {"run-phase-parity"}
