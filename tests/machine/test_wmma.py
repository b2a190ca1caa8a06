"""wmma runs as an H200 ran it: every form, bit for bit (golden/wmma.md); a kernel of nvcuda::wmma, and its mistakes."""

import re
from functools import lru_cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sparse_products import BITS, digest, packed
from wmma_recording import (
    CASES,
    MEMORY_BYTES,
    MOVES,
    PRODUCTS,
    STRIDED,
    WARP,
    extents,
    move_entry,
    numbered_memory,
    numbered_registers,
    operands,
    product_entry,
    register_bits,
    registers,
)

from tilescope import Kernel, RuleError, fragment
from tilescope.mma.wmma_access import wmma_accesses

HERE = Path(__file__).parent
RECORDED = np.load(HERE.parent / "golden" / "wmma.npz")
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
DIGEST_OF_MOVE = dict(zip([form.name for form in MOVES], RECORDED["digests"].tolist(), strict=False))
DIGESTS_OF_PRODUCTS = RECORDED["digests"][len(MOVES) :].reshape(len(PRODUCTS), CASES).tolist()
QUICKLY = {"findings": False, "record": False}
EIGHT = "{%r, %r, %r, %r, %r, %r, %r, %r}"
GENERIC = [form for form in MOVES if form.space == "generic"]


def held_by(form):
    return fragment(f"wmma.{form.shape}", form.operand.upper(), form.data_type)


def numbers_in_memory(form):
    """Which element of memory each element of the matrix is."""
    row, column = np.indices(extents(form.shape, form.operand))
    return row * form.stride + column if form.layout == "row" else column * form.stride + row


def loaded_by_fragment(form):
    """The registers after a load, made of `fragment` alone."""
    bits = BITS[form.data_type]
    numbers = held_by(form).distribute(numbers_in_memory(form)).astype(np.uint64)
    if bits >= 32:
        return np.ascontiguousarray(numbers.T.astype(f"u{bits // 8}")[None])
    digits = [numbers >> np.uint64(bits * step) & np.uint64((1 << bits) - 1) for step in range(form.passes)]
    return np.ascontiguousarray(np.stack([packed(digit, bits).T for digit in digits]))


def stored_by_fragment(form):
    """The memory after a store, made of `fragment` alone."""
    held = held_by(form)
    memory = np.full((1, MEMORY_BYTES), 0xFF, np.uint8)
    elements = memory.view(f"u{BITS[form.data_type] // 8}")[0]
    elements[numbers_in_memory(form)] = held.collect(np.arange(WARP * held.values).reshape(WARP, -1))
    return memory


@lru_cache(maxsize=2)
def moving_kernel(text):
    return Kernel(HEADER + text)


def moved_by_machine(form, **options):
    memory = numbered_memory(form)
    words = np.zeros((form.passes, form.registers, WARP), f"u{register_bits(form.data_type) // 8}")
    if form.operand == "d":
        words = numbered_registers(form)
    run = moving_kernel(move_entry(form)).run(form.passes, WARP, [memory, form.stride, words], **options)
    assert run.outcome == "finished", run.findings
    return memory if form.operand == "d" else words


def multiplied_by_machine(form, **options):
    d = np.zeros((CASES, registers(form.shape, "d", form.d), WARP), f"u{register_bits(form.d) // 8}")
    run = Kernel(HEADER + product_entry(form)).run(CASES, WARP, [*operands(form), d], **options)
    assert run.outcome == "finished", run.findings
    return d


def test_the_recording_is_of_these_forms():
    assert str(RECORDED["forms"]).split("\n") == [form.name for form in (*MOVES, *PRODUCTS)]
    assert len(RECORDED["digests"]) == len(MOVES) + CASES * len(PRODUCTS) == 3234


@pytest.mark.parametrize("operand", "abcd")
def test_every_fragment_is_the_cards(operand):
    made_by = stored_by_fragment if operand == "d" else loaded_by_fragment
    forms = [form for form in GENERIC if form.operand == operand]
    assert len(forms) >= 66
    assert [form.name for form in forms if digest(made_by(form)) != DIGEST_OF_MOVE[form.name]] == []


@pytest.mark.parametrize("form", MOVES[::257], ids=lambda form: form.name)
def test_some_forms_move_as_recorded(form):
    assert digest(moved_by_machine(form)) == DIGEST_OF_MOVE[form.name]


@pytest.mark.slow
@pytest.mark.parametrize("operand", "abcd")
def test_every_form_moves_as_recorded(operand):
    forms = [form for form in MOVES if form.operand == operand]
    wrong = [form.name for form in forms if digest(moved_by_machine(form, **QUICKLY)) != DIGEST_OF_MOVE[form.name]]
    assert wrong == []


def assert_multiplies_as_recorded(number, **options):
    form = PRODUCTS[number]
    assert [digest(case) for case in multiplied_by_machine(form, **options)] == DIGESTS_OF_PRODUCTS[number], form.name


@pytest.mark.parametrize("number", range(5, len(PRODUCTS), 53), ids=lambda number: PRODUCTS[number].name)
def test_some_forms_multiply_as_recorded(number):
    assert_multiplies_as_recorded(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PRODUCTS)), ids=lambda number: PRODUCTS[number].name)
def test_every_form_multiplies_as_recorded(number):
    assert_multiplies_as_recorded(number, **QUICKLY)


def test_accesses_are_as_wide_as_alignment_shows():
    """An address, or a stride in shared memory, that is less aligned than the widest access is misaligned on the card."""
    wrong = []
    for line in str(RECORDED["alignments"]).split("\n"):
        entry, offset, stride, answer = line.split()
        form = STRIDED[entry]
        by_ldmatrix = form.space == "shared" and form.operand in "ab"
        accesses = wmma_accesses(held_by(form), form.layout, by_ldmatrix=by_ldmatrix)
        widest_bytes = accesses[0].elements * BITS[form.data_type] // 8
        is_aligned = int(offset) % widest_bytes == 0
        if by_ldmatrix or BITS[form.data_type] in (8, 64):  # elsewhere the card rounds the stride down
            is_aligned = is_aligned and int(stride) * BITS[form.data_type] // 8 % widest_bytes == 0
        if is_aligned != (answer == "ok"):
            wrong.append(line)
    assert wrong == []


def load(stride, space, opcode="wmma.load.a.sync.aligned.row.m16n16k16", data_type="f16"):
    """A kernel that loads one matrix; of shared memory all is written first."""
    where = "%d" if space == "global" else "s"
    held = ", ".join(f"%r{number}" for number in range(8))
    return Kernel(
        f"{HEADER}.visible .entry k(.param .u64 a) {{ .shared .align 128 .b8 s[8192]; .reg .b32 %r<8>; .reg .b32 %t<2>;"
        " .reg .b64 %d; .reg .pred %p; ld.param.u64 %d, [a]; mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 2; mov.u32 %t1, s;"
        " add.u32 %t0, %t0, %t1; add.u32 %t1, %t1, 8192; FILL: st.shared.b32 [%t0], 0; add.u32 %t0, %t0, 128;"
        f" setp.lt.u32 %p, %t0, %t1; @%p bra FILL; bar.sync 0; {opcode}.{space}.{data_type} {{{held}}}, [{where}], {stride};"
        " ret; }"
    )


@pytest.mark.parametrize(
    ("stride", "wavefronts"),
    [(64, 32), (72, 4), (24, 4), (32, 16)],  # ldmatrix.x4: rows of 128, 144, 48 and 64 bytes
)
def test_a_load_from_shared_memory_costs_what_its_ldmatrix_costs(stride, wavefronts):
    run = load(stride, "shared").run(1, 32, [np.zeros(4096, np.uint8)])
    row = next(row for row in run.instructions if "wmma.load" in row.ptx_text)
    assert (row.wavefronts, row.least_wavefronts) == (wavefronts, 4)


def test_a_load_from_global_memory_costs_its_sectors():
    run = load(16, "global").run(1, 32, [np.zeros(4096, np.uint8)])
    row = next(row for row in run.instructions if "wmma.load" in row.ptx_text)
    assert (row.sectors, row.least_sectors) == (4 * 8, 4 * 4)  # a word of each of 8 rows is half of its sector


@pytest.mark.parametrize(
    ("stride", "space", "word"),
    [
        (
            17,
            "global",
            "4 bytes",
        ),
        (
            20,
            "shared",
            "16 bytes",
        ),
    ],
)
def test_a_stride_that_tears_words_apart_is_misaligned(stride, space, word, wording):
    run = load(stride, space).run(1, 32, [np.zeros(4096, np.uint8)])
    assert run.outcome == "fault"
    assert [finding.rule for finding in run.findings] == ["run-misaligned"]
    assert f"{stride} elements of 16 bits" in run.findings[0].found
    assert f"the {word} " in run.findings[0].found
    wording(f"a stride of {stride} elements", run.findings[0])


def test_a_matrix_that_ends_behind_its_array_is_out_of_bounds():
    run = load(16, "global").run(1, 32, [np.zeros(500, np.uint8)])
    assert [finding.rule for finding in run.findings] == ["run-out-of-bounds"]


GEMM = (HERE / "wmma_gemm.ptx").read_text()
BARRIER = re.compile(r"\tbar\.sync \t0;\n")


def gemm_run(kernel):
    """What came out, and what should have."""
    random = np.random.default_rng(7)
    a = random.integers(-4, 5, (64, 48)).astype(np.float16)
    b = random.integers(-4, 5, (48, 32)).astype(np.float16)
    c = random.integers(-9, 10, (64, 32)).astype(np.float32)
    expected = 2 * (a.astype(np.float32) @ b.astype(np.float32)) + c
    run = kernel.run((1, 2), 128, [a, b, c, 64, 32, 48, 2.0, 1.0], advice="none")
    assert run.outcome == "finished", run.findings
    return run, np.array_equal(c, expected)


def test_a_gemm_of_nvcuda_wmma_is_right():
    run, is_right = gemm_run(Kernel(GEMM))
    assert (is_right, run.findings) == (True, ())


@pytest.mark.parametrize("barrier", [0, 1])
def test_a_gemm_without_a_barrier_has_its_race(barrier):
    places = [found.span() for found in BARRIER.finditer(GEMM)]
    start, end = places[barrier]
    run, _ = gemm_run(Kernel(GEMM[:start] + GEMM[end:]))
    assert [finding.rule for finding in run.findings] == ["run-race", "run-race"]
    assert ["a_tile" in run.findings[0].found, "b_tile" in run.findings[1].found] == [True, True]


@pytest.mark.parametrize(("between", "rules"), [("", ["run-race"]), ("bar.warp.sync 0xffffffff;", [])])
def test_a_store_orders_nothing_for_other_lanes(between, rules):
    text = (
        f"{HEADER}.visible .entry k() {{ .shared .align 128 .b8 s[1024]; .reg .b32 %r; .reg .b32 %t<2>; mov.u32 %t0, %tid.x;"
        f" shl.b32 %t0, %t0, 2; mov.u32 %t1, s; add.u32 %t0, %t0, %t1; mov.u32 %r, 0;"
        f" wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [s], {EIGHT}; {between} ld.shared.b32 %r, [%t0]; ret; }}"
    )
    run = Kernel(text).run(1, 32, advice="none")
    assert [finding.rule for finding in run.findings if finding.severity == "error"] == rules


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_file_that_includes_mma_h_is_compiled_and_runs(require, monkeypatch, compiler):
    from tilescope.machine.launch import cuda_compiler

    require("gxx" if compiler == "nvcc" else "nvrtc")
    require(compiler)
    if compiler == "nvrtc":
        monkeypatch.setattr(cuda_compiler, "find_nvcc", lambda: None)
    run, is_right = gemm_run(Kernel.from_cuda(HERE / "wmma_gemm.cu"))
    assert (is_right, run.findings) == (True, ())


# Shape, least and largest element, type of the elements, of the sums
TYPES = {
    "of_bf16": ((32, 8, 16), -4, 4, ml_dtypes.bfloat16, np.float32),
    "of_f16": ((16, 16, 16), -4, 4, np.float16, np.float16),
    "of_f64": ((8, 8, 4), -4, 4, np.float64, np.float64),
    "of_s8": ((8, 32, 16), -128, 127, np.int8, np.int32),
    "of_tf32": ((16, 16, 8), -4, 4, np.float32, np.float32),
    "of_s4": ((8, 8, 32), -8, 7, None, np.int32),
    "of_b1": ((8, 8, 128), 0, 1, None, np.int32),
}
NARROW_BITS = {"of_s4": 4, "of_b1": 1}


@pytest.mark.slow
def test_every_type_of_cuda_is_compiled_and_right(require):
    from tilescope.machine.launch.cuda_compiler import compile_with_nvrtc

    require("nvrtc")
    file = HERE / "wmma_types.cu"
    ptx = compile_with_nvrtc(file.read_bytes(), file.name, "sm_90a").ptx
    random = np.random.default_rng(3)
    for name, ((m, n, k), least, largest, element, of_sums) in TYPES.items():
        a = random.integers(least, largest + 1, (m, k))
        b = random.integers(least, largest + 1, (k, n))
        d = np.zeros((m, n), of_sums)
        if element is None:  # A by rows, B by columns
            bits = NARROW_BITS[name]
            parts = [np.ascontiguousarray(part) & (1 << bits) - 1 for part in (a, b.T)]
            stored = [packed(part, bits) for part in parts]
        else:  # A by columns, B by rows
            stored = [np.ascontiguousarray(part).astype(element) for part in (a.T, b)]
        run = Kernel(ptx, name).run(1, 32, [*stored, d])
        assert (name, run.outcome, run.basis) == (name, "finished", "measured")
        assert np.array_equal(d, a @ b), name


FLOATS = "{%f, %f, %f, %f, %f, %f, %f, %f}"
REFUSED = {
    f"wmma.load.a.sync.aligned.row.m16n8k16.f16 {EIGHT}, [%d]": "has no shape",
    f"wmma.load.a.sync.aligned.row.m16n16k8.f16 {EIGHT}, [%d]": "no operand A of f16",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r}, [%d]": "8 registers, not 1",
    f"wmma.load.a.sync.aligned.m16n16k16.f16 {EIGHT}, [%d]": "layout: .row or .col",
    "wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r}, [%d]": "is .row, not .col",
    f"wmma.load.d.sync.aligned.row.m16n16k16.f32 {EIGHT}, [%d]": ".a or .b or .c",
    f"wmma.store.d.sync.aligned.row.m16n16k16.bf16 [%d], {EIGHT}": "operand D of bf16",
    f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.satfinite.f32 {FLOATS}, {EIGHT}, {EIGHT}, {FLOATS}": "does not multiply f16",
    f"wmma.mma.sync.aligned.row.col.m16n16k16.f32 {FLOATS}, {EIGHT}, {EIGHT}, {FLOATS}": "types of D and C",
    "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r, %r}, {%r}, {%r}, {%r, %r}": "is .xor.popc or .and.popc",
    "wmma.fill.sync.aligned {%r}": "wmma.mma or wmma.store",
}


@pytest.mark.parametrize("instruction", REFUSED)
def test_what_no_card_has_is_refused_with_its_reason(instruction, wording):
    body = f".reg .f32 %f; .reg .b32 %r; .reg .b64 %d; {instruction}; ret;"
    with pytest.raises(RuleError) as refused:
        Kernel(f"{HEADER}.visible .entry k() {{ {body} }}")
    (violation,) = refused.value.violations
    assert (violation.rule, violation.argument) == ("ptx-unsupported", "line 4")
    assert REFUSED[instruction] in violation.limit
    wording(f"matrix in fragments: {instruction}", violation.limit)
