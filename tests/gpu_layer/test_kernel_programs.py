"""verify kernels: random PTX programs are the same for a seed, sound, and cut down to what a difference depends on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilescope.gpu.programs.doubtful import is_doubtful
from tilescope.gpu.programs.forms import forms_by_name
from tilescope.gpu.programs.growing import grown
from tilescope.gpu.programs.inputs import BITS_OF_KIND, numbers
from tilescope.gpu.programs.program import Input, Program, Register, Step, module_text
from tilescope.gpu.programs.running import run_here
from tilescope.gpu.suites import Outcome, suite_named
from tilescope.gpu.suites.kernels import smallest_program

# Descriptors and shared memory of random programs are random: that no two elements share a place is not asked for.
ABOUT_LAYOUTS = {"run-swizzle-mismatch", "run-operand-overlap"}
GOLDEN = Path(__file__).parent.parent / "golden"


def test_a_seed_gives_one_program():
    first = grown(5)
    grown.cache_clear()
    again = grown(5)
    assert again is not first
    assert again == first
    assert again.text() == first.text()
    assert grown(6).text() != first.text()


@pytest.mark.parametrize("seed", range(100, 106))
def test_programs_run_without_error_findings(seed):
    ran = run_here(grown(seed), findings=True)
    errors = [finding for finding in ran.run.findings if finding.severity == "error"]
    assert ran.run.outcome == "finished"
    assert [finding for finding in errors if finding.rule not in ABOUT_LAYOUTS] == []
    assert ran.run.inexact == ()


@pytest.mark.slow
def test_many_programs_run_without_error_findings():
    for seed in range(300, 420):
        test_programs_run_without_error_findings(seed)


def test_together_programs_use_all_kinds_of_instructions():
    text = "".join(grown(seed).text() for seed in range(60))
    for word in ("shfl", "vote", "match", "redux", "elect", "bar.red", "mbarrier", "atom.shared", "red.global"):
        assert word in text, word
    for word in ("cp.async.c", "cp.async.bulk.tensor", "cp.reduce", "ldmatrix", "stmatrix", "mma.sync", "wgmma"):
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
    program = grown(case["program"])
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
    program = grown(case["program"])
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
    program = grown(case["program"])
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
        ("cnot.b32 %r1, %r0;", "cvt.rn.f32.u32 %r2, %r1;"),
        ("mul.f32 %r1, %r0, %r0;", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%r2};"),
        ("mul.f16x2 %r1, %r0, %r0;", "add.f16x2 %r2, %r1, %r0;"),
    ],
)
def test_what_compilers_join_in_their_own_way_is_drawn_again(first, second):
    r0, r1, r2 = (Register(number, 32, "u32") for number in range(3))
    writer = Step(lines=(first,), reads=(r0,), writes=(r1,))
    reader = Step(lines=(second,), reads=(r1, r0), writes=(r2,))
    other = Step(lines=(second,), reads=(r0,), writes=(r2,))
    assert is_doubtful(program_of(writer, reader, kept=(r1, r2)))
    assert not is_doubtful(program_of(writer, other, kept=(r1, r2)))


@pytest.mark.slow
def test_ptxas_assembles_programs(tmp_path):
    found = [path for root in map(Path, sys.path) for path in root.glob("nvidia/*/bin/ptxas")]
    if not found:
        pytest.skip("needs ptxas (the wheel nvidia-cuda-nvcc)")
    source = tmp_path / "programs.ptx"
    source.write_text(module_text(grown(seed).entry_text(f"program{seed}").text for seed in range(40)))
    command = [found[0], "-arch=sm_90a", "-O1", "-o", tmp_path / "programs.cubin", source]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:500]
