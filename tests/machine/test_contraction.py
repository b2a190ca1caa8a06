"""Products that are added without being rounded, where the card's compiler makes mul and add one instruction."""

import json
from pathlib import Path

import numpy as np
import pytest
from ptx_texts import HEADER

from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel
from tilescope.ptx import read_module
from tilescope.ptx.contraction import contractions

RECORDED = np.load(Path(__file__).parents[1] / "golden" / "contraction.npz")
BODIES = json.loads(str(RECORDED["bodies"]))
OPERANDS = {"f64": "f64", "f16": "f16", "f16x2": "f16", "bf16": "bf16"}  # of the kernels that are not of f32
APPROXIMATE = "approx_then_mul_add"

ENTRY = """
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<6>;
    .reg .f32 %f<20>;
    .reg .f64 %g<20>;
    .reg .b16 %h<20>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 32;
    add.s64 %rd4, %rd1, %rd3;
    mul.wide.u32 %rd5, %r1, 8;
    add.s64 %rd6, %rd2, %rd5;
"""


def stored(name):
    """What the machine stores for a recorded kernel."""
    operands = RECORDED[OPERANDS.get(name, "f32")].copy()
    out = np.zeros((256, 2), np.uint32)
    run = Kernel(HEADER + ENTRY + BODIES[name] + " ret; }").run(1, 256, [operands, out])
    assert run.outcome == "finished"
    return out


@pytest.mark.parametrize("name", [name for name in BODIES if name != APPROXIMATE])
def test_sums_of_products_are_rounded_as_on_the_card(name):
    np.testing.assert_array_equal(stored(name), RECORDED[f"after_{name}"])


def test_a_product_of_an_approximation_is_close():
    found = stored(APPROXIMATE)[:, 0].view(np.float32)
    np.testing.assert_allclose(found, RECORDED[f"after_{APPROXIMATE}"][:, 0].view(np.float32), rtol=1e-4, atol=1e-5)


def test_factors_that_are_overwritten_before_the_sum_count_as_they_were():
    """%f1 is 3 when it is multiplied, and 100 when the product is added."""
    text = (
        ENTRY
        + """
        mov.f32 %f1, 0f40400000;
        mov.f32 %f2, 0f40A00000;
        mul.f32 %f3, %f1, %f2;
        mov.f32 %f1, 0f42C80000;
        add.f32 %f4, %f3, %f1;
        st.global.f32 [%rd6], %f4;
        ret; }
    """
    )
    out = np.zeros((1, 2), np.float32)
    Kernel(HEADER + text).run(1, 1, [np.zeros(8, np.float32), out])
    assert out[0, 0] == 115


BETWEEN = {
    "st.shared.u32 [%r1], %r1;": True,
    "@%p1 st.shared.u32 [%r1], %r1;": False,
    "cp.async.bulk.commit_group;": True,
    "@%p1 cp.async.bulk.commit_group;": False,
    "@%p1 add.u32 %r2, %r1, %r1;": True,
    "fence.acq_rel.gpu;": False,
    "fence.proxy.async;": True,
    "div.rn.f32 %f4, %f4, %f5;": False,
    "div.full.f32 %f4, %f4, %f5;": True,
    "rem.u64 %rd3, %rd1, %rd2;": False,
}


@pytest.mark.parametrize("between", BETWEEN)
def test_what_ptxas_makes_a_branch_of_keeps_a_product_and_its_sum_apart(between):
    """As the machine code of ptxas 12.9 and 13.4 has it; the guarded bulk copy was seen on an H200, too."""
    body = f"mul.bf16x2 %r5, %r3, %r4; {between} sub.bf16x2 %r6, %r4, %r5; st.global.u32 [%rd6], %r6; ret; }}"
    [entry] = read_module(HEADER + ENTRY + body).entries
    assert bool(contractions(entry.instructions)) == BETWEEN[between]


@pytest.mark.parametrize("name", ["rem", "div", "sqrt", "rcp"])
def test_an_instruction_without_a_type_is_refused(name):
    with pytest.raises(RuleError) as refused:
        Kernel(f"{HEADER}.visible .entry k() {{ .reg .b32 a; {name} a, a, a; ret; }}")
    assert {violation.rule for violation in refused.value.violations} == {"ptx-unsupported"}
