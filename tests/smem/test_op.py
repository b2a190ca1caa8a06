import typing

import pytest

from tilescope.errors import RuleError
from tilescope.smem.op import SMEM_OP, SmemOp, SmemOpName


def test_the_names_of_the_type_are_those_of_the_table():
    assert typing.get_args(SmemOpName) == tuple(SMEM_OP)


@pytest.mark.parametrize("op", SMEM_OP.values(), ids=str)
def test_a_group_takes_one_line(op):
    assert op.lanes_per_group * op.cell_bytes == 128
    assert op.groups * op.lanes_per_group == op.lanes


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("LDS", "ld.b32"),
        ("LDS.U8", "ld.b8"),
        ("sts.128", "st.b128"),
        ("ld.shared.u16", "ld.b16"),
        ("ld.shared::cta.b128", "ld.b128"),
        ("ld.volatile.shared.v2.f32", "ld.b64"),
        ("st.shared.v4.b32", "st.b128"),
        ("st.shared.v2.f64", "st.b128"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", "stmatrix.x2"),
        ("cp.async", "cp.async.16"),
        ("cp.async.ca.shared.global.8", "cp.async.8"),
        ("cp.async.ca.shared::cta.global.4", "cp.async.4"),
        ("LDGSTS.E.128", "cp.async.16"),
        ("LDGSTS.E", "cp.async.4"),
        ("ldmatrix.sync.aligned.x4.trans.m8n8.shared::cta.b16", "ldmatrix.x4.trans"),
    ],
)
def test_ptx_and_sass_spellings_are_understood(spelled, name):
    assert SmemOp.named(spelled) is SMEM_OP[name]


@pytest.mark.parametrize("name", ["cp.async.cg", "cp.async.cg.shared.global.16", "LDGSTS.E.BYPASS.128"])
def test_a_copy_past_l1_is_refused_with_the_reason(name):
    with pytest.raises(RuleError, match=r"copy-past-l1: .*quick.*8 lanes.*128 bytes"):
        SmemOp.named(name)


@pytest.mark.parametrize(
    "name",
    [
        "ld.b256",
        "cp.async.32",
        "ld",
        "",
        "ldmatrix",
        "ldmatrix.x3",
        "ldmatrix.m16n16.x1.trans.b8",
        "st.v4.b64",
        "atom.b32",
        None,
        4,
        ["ld.b32"],
    ],
)
def test_an_unknown_operation_is_refused_with_the_known_ones(name):
    with pytest.raises(RuleError, match=r"unknown-name: operation .*; known: ld\.b8, "):
        SmemOp.named(name)
