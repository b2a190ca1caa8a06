"""Sums of a warp that all lanes store to one word: lanes that round differently are no race, lanes with other sums are."""

import numpy as np
import pytest

import tilescope as ts

SUM_OF_SQUARES = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [a];
    mad.wide.u32 %d2, %r1, 4, %d1;
    ld.global.b32 %r2, [%d2];
    mul.f32 %r3, %r2, %r2;
    shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1;
    fma.rn.f32 %r5, %r2, %r2, %r4;
    shfl.sync.bfly.b32 %r4, %r5, 8, 31, -1;
    add.f32 %r5, %r5, %r4;
    shfl.sync.bfly.b32 %r4, %r5, 4, 31, -1;
    add.f32 %r5, %r5, %r4;
    shfl.sync.bfly.b32 %r4, %r5, 2, 31, -1;
    add.f32 %r5, %r5, %r4;
    shfl.sync.bfly.b32 %r4, %r5, 1, 31, -1;
    add.f32 %r5, %r5, %r4;
    ld.param.u64 %d3, [out];
    st.global.b32 [%d3], %r5;
    ret;
}
"""


def findings_of(text):
    numbers = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    out = np.zeros(1, np.float32)
    run = ts.Kernel(text).run(1, 32, [numbers, out])
    np.testing.assert_allclose(out, (numbers**2).sum(), rtol=0.9)
    return [(finding.rule, finding.severity) for finding in run.findings]


def test_lanes_that_round_differently_are_a_note():
    assert findings_of(SUM_OF_SQUARES) == [("run-rounded-sum", "note")]


def test_lanes_that_round_alike_are_no_finding():
    assert findings_of(SUM_OF_SQUARES.replace("fma.rn.f32 %r5, %r2, %r2, %r4;", "add.rn.f32 %r5, %r3, %r4;")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "%r4, %r5, 1, 31, -1;\n    add.f32 %r5, %r5, %r4;",
            "%r4, %r5, 1, 31, -1;",
        ),  # even lanes have another sum than odd ones
        (
            "st.global.b32 [%d3], %r5;",
            "or.b32 %r6, %r5, %r1; st.global.b32 [%d3], %r6;",
        ),  # no sum, although close to one
    ],
)
def test_other_values_of_one_store_are_a_race(old, new):
    assert findings_of(SUM_OF_SQUARES.replace(old, new)) == [("run-race", "error")]
