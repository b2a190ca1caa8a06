"""verify kernels: random PTX programs are the same for a seed, sound, and cut down to what a difference depends on."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.gpu.verify.programs.doubtful import is_doubtful
from tilescope.gpu.verify.programs.instruction_forms import forms_by_name
from tilescope.gpu.verify.programs.program_generator import generate_program
from tilescope.gpu.verify.programs.program_inputs import BITS_OF_KIND, numbers
from tilescope.gpu.verify.programs.program_run import run_here
from tilescope.gpu.verify.programs.random_program import Input, Program, Register, Step, module_text
from tilescope.gpu.verify.programs.whole_kernels import KERNEL_NAMES, draw_kernel, launch_of, run_kernel_here
from tilescope.gpu.verify.suites import Outcome, suite_named
from tilescope.gpu.verify.suites.kernel_suite import smallest_program

# Descriptors and shared memory of random programs are random: that no two elements share a place is not asked for.
ABOUT_LAYOUTS = {"run-swizzle-mismatch", "run-operand-overlap"}
GOLDEN = Path(__file__).parent.parent / "golden"


def test_a_seed_gives_one_program():
    first = generate_program(5)
    generate_program.cache_clear()
    again = generate_program(5)
    assert again is not first
    assert again == first
    assert again.text() == first.text()
    assert generate_program(6).text() != first.text()


@pytest.mark.parametrize("seed", range(100, 106))
def test_programs_run_without_error_findings(seed):
    ran = run_here(generate_program(seed), findings=True)
    errors = [finding for finding in ran.run.findings if finding.severity == "error"]
    assert ran.run.outcome == "finished"
    assert [finding for finding in errors if finding.rule not in ABOUT_LAYOUTS] == []
    assert ran.run.inexact == ()


@pytest.mark.slow
def test_many_programs_run_without_error_findings():
    for seed in range(300, 420):
        test_programs_run_without_error_findings(seed)


def test_together_programs_use_all_kinds_of_instructions():
    text = "".join(generate_program(seed).text() for seed in range(60))
    for word in ("shfl", "vote", "match", "redux", "elect", "bar.red", "mbarrier", "atom.shared", "red.global"):
        assert word in text, word
    for word in (
        "cp.async.c",
        "cp.async.bulk.tensor",
        "cp.reduce",
        "ldmatrix",
        "stmatrix",
        "mma.sync",
        "wgmma",
        "wmma.load",
        "wmma.store",
    ):
        assert word in text, word


def test_scalar_forms_are_those_that_were_recorded_on_a_card():
    recorded = np.load(GOLDEN / "instructions.npz")["forms"].tobytes().decode().split("\n")
    opcodes = {line.partition("\t")[0] for line in recorded}
    drawn = {form.opcode for forms in forms_by_name().values() for form in forms}
    unrecorded = {opcode for opcode in drawn - opcodes if not opcode.startswith("setp.")}
    assert unrecorded == set()
    assert len(drawn & opcodes) > 1250


@pytest.mark.parametrize("kind", BITS_OF_KIND)
def test_numbers_of_a_register_do_not_depend_on_how_many_are_asked_for(kind):
    found = numbers(kind, 64, 9)
    assert found.dtype.itemsize * 8 == BITS_OF_KIND[kind]
    assert found.size == 64
    assert np.array_equal(found, numbers(kind, 64, 9))
    assert not np.array_equal(found, numbers(kind, 64, 10))


def spoiled(case):
    """What a card gives that differs from us in thread 3 of the last register that is kept; and that register's number."""
    suite = suite_named("kernels")
    pieces = suite.predict(case)
    program = generate_program(case["program"])
    number = len(program.kept) - 1
    words = pieces[number].numbers.copy()
    words[3] ^= 1
    parts = [piece.numbers for piece in pieces]
    parts[number] = words
    return Outcome(b"".join(part.tobytes() for part in parts)), number


def test_a_difference_names_the_line_the_thread_and_both_values():
    suite = suite_named("kernels")
    (case,) = suite.cases(1, 3, "sm_90")
    outcome, number = spoiled(case)
    program = generate_program(case["program"])
    words = suite.difference(case, outcome)
    line = int(words.split()[1].rstrip(","))
    assert words.startswith("line ")
    assert f"{program.kept[number].name}, thread 3: card 0x" in words
    assert program.kept[number].name in program.text().split("\n")[line - 1]
    assert suite.difference(case, suite.expected(case)) == ""


def test_the_smallest_program_gives_the_same_result_with_fewer_steps():
    suite = suite_named("kernels")
    (case,) = suite.cases(1, 3, "sm_90")
    outcome, number = spoiled(case)
    program = generate_program(case["program"])
    smallest = smallest_program(case, outcome)
    assert len(smallest.steps) < len(program.steps)
    register = program.kept[number]
    assert register in smallest.kept
    whole = run_here(program).after.results
    part = run_here(smallest).after.results
    size_bytes = register.stored_bytes * program.threads
    at = program.places(program.kept)[number]
    own = smallest.places(smallest.kept)[smallest.kept.index(register)]
    assert np.array_equal(whole[at : at + size_bytes], part[own : own + size_bytes])
    assert smallest.text() in suite.note([case], [outcome])


def test_only_the_program_that_was_captured_is_compared():
    suite = suite_named("kernels")
    (case,) = suite.cases(1, 3, "sm_90")
    with pytest.raises(Exception, match="capture-program"):
        suite.predict(case | {"digest": "0" * 16})


def program_of(*steps, kept=()):
    inputs = (Input(Register(0, 32, "u32"), "u32"),)
    return Program(
        seed=1, threads=32, inputs=inputs, steps=steps, kept=kept, tensors=(), scratch_bytes=128, smem_bytes=0
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("abs.s32 %r1, %r0;", "cvt.rm.f32.u32 %r2, %r1;"),
        ("abs.s32 %r1, %r0;", "sub.cc.s32 %r2, %r0, %r1;"),
        ("abs.s32 %r1, %r0;", "rem.s32 %r2, %r1, %r0;"),
        ("cvt.rm.bf16.f16 %r1, %r0;", "cvt.rzi.sat.s32.f16 %r2, %r1;"),
        ("lop3.b32 %r1, %r0, %r0, %r0, 72;", "or.b32 %r2, %r0, %r1;"),
        ("copysign.f32 %r1, %r0, %r0;", "xor.b32 %r2, %r1, 0x80000000;"),
        ("cvt.f16.f16 %r1, %r0;", "cvt.rzi.sat.u64.f16 %r2, %r1;"),
        ("cvt.f16.bf16 %r1, %r0;", "cvt.rzi.sat.u64.f16 %r2, %r1;"),
        ("mul.f32 %r1, %r0, %r0;", "slct.u32.f32 %r2, %r0, %r0, %r1;"),
        ("mul.ftz.f16 %r1, %r0, %r0;", "add.ftz.sat.f16 %r2, %r0, %r1;"),
        ("cnot.b32 %r1, %r0;", "cvt.rn.f32.u32 %r2, %r1;"),
        ("mul.f32 %r1, %r0, %r0;", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%r2};"),
        ("mul.f16x2 %r1, %r0, %r0;", "add.f16x2 %r2, %r1, %r0;"),
        ("cvt.rn.satfinite.relu.e4m3x2.f32 %h1, %r0, %r0;", "mov.b32 %r2, {%h1, %h0};"),
        ("cnot.b32 %r1, %r0;", "red.shared.add.noftz.f16x2 [%t0], %r1;"),
        ("mov.b64 {%r1, %r3}, %d0;", "atom.shared.add.noftz.bf16x2 %r2, [%t0], %r1;"),
    ],
)
def test_what_compilers_join_in_their_own_way_is_drawn_again(first, second):
    r0, r1, r2 = (Register(number, 32, "u32") for number in range(3))
    writer = Step(lines=(first,), reads=(r0,), writes=(r1,))
    reader = Step(lines=(second,), reads=(r1, r0), writes=(r2,))
    other = Step(lines=(second,), reads=(r0,), writes=(r2,))
    assert is_doubtful(program_of(writer, reader, kept=(r1, r2)))
    assert not is_doubtful(program_of(writer, other, kept=(r1, r2)))


def test_scratch_memory_that_no_step_changes_is_shown_with_the_whole_program():
    suite = suite_named("kernels")
    cases = suite.cases(40, 3, "sm_90")
    case = next(case for case in cases if "program" in case and not any(step.scratch for step in grown_steps(case)))
    parts = [piece.numbers.copy() for piece in suite.predict(case)]
    scratch = len(generate_program(case["program"]).kept)
    parts[scratch][5] ^= 1
    assert smallest_program(case, Outcome(b"".join(part.tobytes() for part in parts))) == generate_program(
        case["program"]
    )


def grown_steps(case):
    return generate_program(case["program"]).steps


@pytest.fixture(scope="module")
def own_launches():
    """A case and its launch of every kernel of the package; the first GEMM of a seed."""
    pytest.importorskip("cuda.bindings.nvrtc")
    found = {}
    source = random.Random(4)
    while len(found) < len(KERNEL_NAMES):
        try:
            case = draw_kernel(source)
        except ts.RuleError:
            continue
        found.setdefault(case["kernel"], case)
    return found


def finished(case):
    launch = launch_of(case)
    assert run_kernel_here(launch) == "finished"
    return launch


def words(launch, name, dtype="<u4"):
    return launch.arrays[name].view(dtype)


def test_block_sums_add_up(own_launches):
    launch = finished(own_launches["block_sums"])
    assert words(launch, "sums").sum(dtype=np.uint32) == words(launch, "numbers").sum(dtype=np.uint32)


def test_histograms_count_every_byte(own_launches):
    launch = finished(own_launches["histogram"])
    counted = np.bincount(launch.arrays["bytes"][: launch.parameters[-1]], minlength=256)
    assert np.array_equal(words(launch, "bins"), counted)


@pytest.mark.slow
def test_whole_kernels_compute_what_they_say(own_launches):
    launch = finished(own_launches["running_sums"])
    of_blocks = words(launch, "numbers").reshape(launch.blocks, -1)
    assert np.array_equal(
        words(launch, "sums").reshape(launch.blocks, -1), np.cumsum(of_blocks, axis=1, dtype=np.uint32)
    )
    launch = finished(own_launches["transposed"])
    width = 32 * launch.parameters[-1]
    matrix, turned = (words(launch, name).reshape(width, width) for name in ("matrix", "turned"))
    assert np.array_equal(turned, matrix.T)
    launch = finished(own_launches["cluster_turn"])
    clusters = words(launch, "numbers").reshape(-1, 2 * launch.threads)
    assert np.array_equal(words(launch, "turned").reshape(clusters.shape), clusters[:, ::-1])
    launch = finished(own_launches["last_block"])
    parts = np.bitwise_xor.reduce(words(launch, "numbers", "<u8").reshape(launch.blocks, -1)[:, :32], axis=1)
    total = 0
    for part in parts.tolist():
        total = (3 * total + part) % 2**64
    assert words(launch, "total", "<u8").tolist() == [total]
    launch = finished(own_launches["divergent_floats"])
    assert len(set(words(launch, "turns").tolist())) > 5


@pytest.mark.slow
def test_emitted_gemms_are_close_to_a_plain_product(own_launches):
    case = own_launches["gemm"]
    launch = finished(case)
    m, n, k = case["shape"]
    row = ts.DataType.named(case["data_type"])
    a, b = (launch.arrays[name].view(row.numpy).astype(np.float64) for name in "AB")
    major = case["options"]
    a = a.reshape(m, k) if major["a_major"] == "K" else a.reshape(k, m).T
    b = b.reshape(n, k) if major["b_major"] == "K" else b.reshape(k, n).T
    output = ts.DataType.named(major["output_type"]).numpy
    c = launch.arrays["C"].view(output).astype(np.float64).reshape(m, n)
    assert np.abs(c - a @ b.T).max() <= 2**-7 * np.abs(a @ b.T).max()


def test_a_whole_kernel_that_differs_is_told_by_its_array(own_launches):
    suite = suite_named("kernels")
    case = own_launches["running_sums"]
    parts = [piece.numbers.copy() for piece in suite.predict(case)]
    parts[1][9] ^= 1
    outcome = Outcome(b"".join(part.tobytes() for part in parts))
    assert suite.difference(case, outcome).startswith("running_sums: sums, byte 9: card 0x")
    assert suite.note([case], [outcome]) == ""
    assert suite.difference(case, suite.expected(case)) == ""


def test_one_case_of_some_is_a_whole_kernel():
    cases = suite_named("kernels").cases(60, 1, "sm_90")
    assert 1 <= sum("kernel" in case for case in cases) <= 6


@pytest.mark.slow
def test_ptxas_assembles_programs(tmp_path):
    found = [path for root in map(Path, sys.path) for path in root.glob("nvidia/*/bin/ptxas")]
    if not found:
        pytest.skip("needs ptxas (the wheel nvidia-cuda-nvcc)")
    source = tmp_path / "programs.ptx"
    source.write_text(module_text(generate_program(seed).entry_text(f"program{seed}").text for seed in range(40)))
    command = [found[0], "-arch=sm_90a", "-O1", "-o", tmp_path / "programs.cubin", source]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:500]


def test_two_products_that_add_to_the_same_register_are_drawn_again():
    def product(accumulator, source):
        lines = (
            f"xor.b32 %r{accumulator}, %r{source}, 0x80000000;",
            "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8;",
        )
        return Step(lines=lines, reads=(Register(source, 32, "u32"),), writes=(Register(accumulator, 32, "u32"),))

    assert is_doubtful(program_of(product(2, 0), product(3, 0)))
    assert not is_doubtful(program_of(product(2, 0), product(3, 1)))
