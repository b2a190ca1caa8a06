"""mbarrier.inval after tcgen05.commit: the commits of one thread arrive in their order, so the last wait is enough."""

import pytest

import tilescope as ts

KERNEL = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k()
{{
    .shared .align 8 .b64 first;
    .shared .align 8 .b64 second;
    .reg .b32 %r<4>;
    .reg .pred %p<4>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mbarrier.init.shared.b64 [first], 1;
    mbarrier.init.shared.b64 [second], 1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [first];
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [second];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [{waited}], 0;
    @!%p2 bra WAIT;
    mbarrier.inval.shared.b64 [{inval_first}];
    mbarrier.inval.shared.b64 [{inval_last}];
DONE:
    ret;
}}
"""


def find_errors(**names):
    run = ts.Kernel(KERNEL.format(**names)).run(1, 32, arch="sm_100a", advice="none")
    assert run.outcome == "finished"
    return [finding.rule for finding in run.findings if finding.severity == "error"]


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_a_wait_for_the_last_commit_is_enough(names):
    assert find_errors(waited="second", inval_first=names[0], inval_last=names[1]) == []


def test_a_commit_after_the_awaited_one_may_still_arrive():
    assert find_errors(waited="first", inval_first="first", inval_last="second") == ["run-barrier-lifetime"]


def test_a_commit_without_a_space_takes_the_lower_32_bits_of_its_address():
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one"
    text = KERNEL.format(waited="second", inval_first="first", inval_last="second")
    narrow = text.replace(f"{commit}.shared::cluster.b64 [second]", f"mov.u64 %rd1, second; {commit}.b64 [%rd1]")
    assert narrow != text
    run = ts.Kernel(narrow.replace(".reg .pred", ".reg .b64 %rd<2>; .reg .pred")).run(
        1, 32, arch="sm_100a", advice="none"
    )
    assert run.outcome == "finished"
