"""Former spellings of arguments of `Kernel.run` work as before, and warn their caller."""

import numpy as np
import pytest

import tilescope as ts

RACE = ts.Kernel("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry race(.param .u64 out) {
    .shared .b32 s[64];
    .reg .b32 %r<5>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, s;
    add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r2], %r1;
    sub.u32 %r4, 252, %r2;
    add.u32 %r4, %r4, %r3;
    add.u32 %r4, %r4, %r3;
    ld.shared.u32 %r4, [%r4];
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    st.global.u32 [%d1], %r4;
    ret;
}""")
WITHOUT_RACE = ts.Kernel(RACE.ptx.replace("sub.u32", "bar.sync 0; bar.sync 0; sub.u32"))


def run(kernel, grid=1, **options):
    return kernel.run(grid, 64, [np.zeros(64, np.uint32)], **options)


def told(kernel, **options):
    """Rules and fixes of the findings."""
    return [(finding.rule, finding.fix) for finding in run(kernel, **options).findings]


@pytest.mark.parametrize("kernel", [RACE, WITHOUT_RACE], ids=["race", "idle barrier"])
@pytest.mark.parametrize(
    ("former", "present", "use"),
    [
        ({"remedies": False}, "none", 'remedies of Kernel.run will be removed: use advice="none"'),
        ({"remedies": True}, "fixes", "use advice="),
        ({"advice": True}, "all", 'advice=True of Kernel.run will be removed: use advice="all"'),
        ({"advice": False}, "fixes", "use advice="),
        ({"advice": True, "remedies": False}, "barriers", "use advice="),
    ],
)
def test_former_advice_works_and_warns(kernel, former, present, use):
    with pytest.warns(DeprecationWarning, match=use) as warned:
        found = told(kernel, **former)
    assert {warning.filename for warning in warned} == {__file__}
    assert found == told(kernel, advice=present)


FIXES = {"none": False, "fixes": True, "barriers": False, "all": True}
BARRIERS = {"none": False, "fixes": False, "barriers": True, "all": True}


def test_every_advice_looks_for_what_it_names():
    found = {advice: (told(RACE, advice=advice), told(WITHOUT_RACE, advice=advice)) for advice in FIXES}
    assert {advice: "tried" in race[0][1] for advice, (race, _) in found.items()} == FIXES
    assert {advice: bool(idle) for advice, (_, idle) in found.items()} == BARRIERS


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ({"smem_block": (1, 0, 0)}, (1, 0, 0)),
        ({"smem_at": 17}, ((0, 0, 0), 17)),
        ({"smem_block": (1, 0, 0), "smem_at": "17:1"}, ((1, 0, 0), "17:1")),
        ({"smem_block": None, "smem_at": None}, None),
    ],
)
def test_former_pictures_work_and_warn(former, present):
    with pytest.warns(DeprecationWarning, match=r"use smem=block, or smem=\(block, line\)"):
        picture = run(WITHOUT_RACE, 2, **former).smem
    assert picture == run(WITHOUT_RACE, 2, smem=present).smem
    assert (picture is None) == (present is None)


def test_a_picture_in_both_spellings_is_refused():
    with pytest.warns(DeprecationWarning, match="use smem"), pytest.raises(TypeError, match="which it replaces"):
        run(RACE, smem=(0, 0, 0), smem_at=17)


def test_what_was_never_an_argument_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_step'"):
        run(RACE, max_step=3)
    with pytest.warns(DeprecationWarning, match="remedies"), pytest.raises(ts.RuleError, match="remedies"):
        run(RACE, remedies=np.ones(2))
