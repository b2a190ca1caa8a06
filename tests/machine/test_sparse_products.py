"""mma.sp and wgmma.sp run as an H200 ran them: every form, bit for bit (golden/sparse_products.md)."""

from pathlib import Path

import numpy as np
import pytest
from sparse_products import FORMS, digest, operands, text

from tilescope import Kernel, RuleError, compress, fragment

RECORDED = np.load(Path(__file__).parent.parent / "golden" / "sparse_products.npz")
FIRST = dict(zip([form.name for form in FORMS], np.cumsum([0, *(form.cases for form in FORMS)]), strict=False))
MMA = [form for form in FORMS if form.family == "mma"]
WGMMA = [form for form in FORMS if form.family == "wgmma"]
NARROW = [form for form in WGMMA if form.n == 8]
AT_ONCE = {"mma": 256, "wgmma": 128}  # threads of a block


def digests_of_machine(form):
    given = operands(form)
    result = np.zeros((form.cases, form.d_words, form.lanes), np.uint32)
    smem = given.smem if given.smem.size else np.zeros(16, np.uint8)
    threads = AT_ONCE[form.family]
    run = Kernel(text([form])).run(
        form.cases * form.lanes // threads, threads, [given.words, smem, given.descriptors, result]
    )
    assert run.outcome == "finished", run.findings
    return [digest(case) for case in result]


def assert_as_recorded(form):
    first = FIRST[form.name]
    assert digests_of_machine(form) == RECORDED["digests"][first : first + form.cases].tolist(), form.name


def test_the_recording_is_of_these_forms():
    assert str(RECORDED["forms"]).split("\n") == [form.name for form in FORMS]
    assert len(RECORDED["digests"]) == sum(form.cases for form in FORMS) > 3000


@pytest.mark.parametrize("form", MMA[::7] + NARROW[::4], ids=lambda form: form.name)
def test_some_forms_multiply_as_recorded(form):
    assert_as_recorded(form)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_multiplies_as_recorded(form):
    assert_as_recorded(form)


HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
FOUR = "{%f, %f, %f, %f}"
REGISTERS = "{%r, %r, %r, %r}"
REFUSED = {
    f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {FOUR}, {REGISTERS}, {REGISTERS}, {FOUR}, %r, 2": (
        "float16 is the constant 0"
    ),
    f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {FOUR}, {REGISTERS}, {REGISTERS}, {FOUR}, %r, %r": (
        "float16 is the constant 0"
    ),
    f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {FOUR}, {REGISTERS}, {REGISTERS}, {FOUR}": (
        "not 4 operands"
    ),
    f"mma.sp.sync.aligned.m16n8k64.row.col.f16.e4m3.e4m3.f16 {{%r, %r}}, {REGISTERS}, {REGISTERS}, {{%r, %r}}, %r, 0": (
        "e4m3 by e4m3"
    ),
    f"wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3 {FOUR}, %d, %d, %r, 1, 1, 1, 1": (
        "e4m3 is the constant 0"
    ),
    f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {FOUR}, %d, %d, 0": ("after B come the metadata"),
}


@pytest.mark.parametrize("instruction", REFUSED)
def test_what_no_card_has_is_refused_with_its_reason(instruction, wording):
    body = f".reg .f32 %f; .reg .b32 %r; .reg .b64 %d; {instruction}; ret;"
    with pytest.raises(RuleError) as refused:
        Kernel(f"{HEADER}.visible .entry k() {{ {body} }}")
    (violation,) = refused.value.violations
    assert (violation.rule, violation.argument) == ("ptx-unsupported", "line 4")
    assert REFUSED[instruction] in violation.limit
    wording(f"sparse product: {instruction}", violation.limit)


@pytest.mark.parametrize(
    ("k", "data_type", "selector"), [(16, "f16", 3), (32, "bf16", 1), (16, "tf32", 1), (8, "tf32", 2)]
)
def test_what_compress_gives_is_what_mma_takes(k, data_type, selector):
    form = next(each for each in MMA if (each.k, each.a, each.d, each.selector) == (k, data_type, "f32", selector))
    name = f"mma.sp.m16n8k{k}"
    random = np.random.default_rng(k)
    group = 2 if data_type == "tf32" else 4
    a = np.where(np.arange(k) % group < group // 2, random.integers(-4, 5, (16, k)), 0)
    a = np.roll(a, 1, axis=1)  # not the first places of a group
    b = random.integers(-4, 5, (k, 8))
    values, metadata = compress(a, data_type, instruction=name, selector=selector)
    numpy_type = values.dtype
    words = np.zeros((form.cases, form.words, form.lanes), np.uint32)
    a_registers = fragment(name, "A", data_type).distribute(values).view(np.uint32)
    b_registers = fragment(name, "B", data_type).distribute(b.astype(numpy_type)).view(np.uint32)
    words[0] = np.concatenate([a_registers.T, b_registers.T, np.zeros((4, 32), np.uint32), metadata[0]])
    result = np.zeros((form.cases, 4, 32), np.float32)
    unused = np.zeros(16, np.uint8)
    run = Kernel(text([form])).run(form.cases // 8, 256, [words, unused, unused, result])
    assert run.outcome == "finished", run.findings
    d = fragment(name, "D", "f32").collect(np.ascontiguousarray(result[0].T))
    assert (d == a @ b).all()
