"""Titles and error lines of public threads lead to what was wrong, and their numbers are answered with arithmetic.

pasted_lines.tsv holds the lines as their authors wrote them, what may answer them first, and the thread. In
lines_with_numbers.tsv every line has its answer first, with what has to be said of its numbers ("-": nothing is asserted).
"""

import re
from functools import cache
from pathlib import Path

import pytest

from tilescope.arch import ARCH
from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.questions import topic_questions
from tilescope.symptoms import CAUSE, SYMPTOM, TERMS, Diagnosis, diagnose
from tilescope.symptoms.line_arithmetic import numbers_read
from tilescope.symptoms.symptom_diagnosis import is_certain

LINES = [line.split("\t") for line in Path(__file__).with_name("pasted_lines.tsv").read_text("utf-8").splitlines()[1:]]
WITH_NUMBERS = [
    line.split("\t")
    for line in Path(__file__).with_name("lines_with_numbers.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
TITLES = {*CAUSE, *SYMPTOM, *(term.name for term in TERMS), *ARCH, "128B"}


@cache
def answered_first(line):
    """The names of what answers a line first: a topic, or a symptom and its first cause; none where it is refused."""
    try:
        found = topic_questions.find(line)
    except RuleError:
        return set()
    if not isinstance(found, Diagnosis):
        return {found.name}
    return {row.name for row in (*found.symptoms[:1], *found.causes[:1])}


def test_the_right_cause_is_first_for_nine_of_ten_lines():
    missed = [line for line, answers, _ in LINES if not answered_first(line) & set(answers.split(", "))]
    assert len(LINES) >= 140
    assert len(missed) <= len(LINES) // 10, missed


@pytest.mark.parametrize(("line", "answer", "said"), [row[:3] for row in WITH_NUMBERS])
def test_a_line_with_numbers_is_answered_first_and_with_its_numbers(line, answer, said):
    assert answer in answered_first(line)
    found = topic_questions.find(line)
    told = " ".join((*found.arithmetic, *(symptom.note for symptom in found.symptoms[:1])))
    assert said == "-" or said in told


def test_the_remainder_alone_is_answered(capsys):
    assert run(["explain", "mod 128 = 64"]) == 0
    assert capsys.readouterr().out.startswith("A remainder of 64 by 128: ")


def test_an_xid_that_follows_from_another_goes_behind_it():
    found = diagnose("Xid (PCI:0000:dc:00): 45, Ch 00000001 caused by previous Xid 31")
    assert [symptom.name for symptom in found.symptoms[:2]] == ["illegal address (700)", "Xid 45"]


def test_no_two_symptoms_have_the_same_xid():
    xids = [xid for symptom in SYMPTOM.values() for xid in symptom.xids]
    assert len(xids) == len(set(xids))


def test_expected_answers_exist():
    assert {answer for _, answers, _ in LINES for answer in answers.split(", ")} <= TITLES


def test_no_line_is_refused_as_an_unknown_name():
    assert [line for line, _, _ in LINES if not answered_first(line)] == []


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("CUDA_ERROR_ILLEGAL_INSTRUCTION after I added cute.printf", "too-few-registers"),
        ("an illegal instruction was encountered: block offset start must be 16-byte aligned", "coordinate-16-bytes"),
        ("misaligned address in ldmatrix", "thread-access"),
        ("misaligned address, CUtensorMap in a struct without alignas(64)", "map-alignment"),
        ("hang in try_wait, expect_tx has the wrong byte count", "barrier-bytes"),
        ("illegal memory access, tensor map passed by value without __grid_constant__", "map-placement"),
    ],
)
def test_the_cause_that_the_words_name_goes_before_the_likeliest_of_the_symptom(line, cause):
    assert diagnose(line).causes[0].name == cause


def test_the_other_causes_of_the_symptom_follow():
    found = diagnose("misaligned address in ldmatrix")
    assert found.causes[1:] == tuple(CAUSE[name] for name in found.symptoms[0].causes if name != "thread-access")


@pytest.mark.parametrize(
    ("line", "symptom"),
    [
        ("NVRM: Xid (PCI:0000:31:00): 79, pid=1896, GPU has fallen off the bus.", "Xid 79"),
        ("NVRM: Xid (PCI:0000:79:00): 31, pid=1896, MMU Fault", "illegal address (700)"),
        ("Xid 109 CTX SWITCH TIMEOUT", "Xid 109"),
        ("kernel: NVRM: Xid (PCI:0000:01:00): 69, Class Error: ChId 0005", "Xid 69"),
        ("NVRM: Xid (PCI:0000:13:00): 94, Contained: SM (0x1)", "Xid 94"),
        ("Xid 777", "another Xid"),
    ],
)
def test_the_number_of_an_xid_line_is_not_that_of_its_bus(line, symptom):
    assert diagnose(line).symptoms[0].name == symptom


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        (
            (
                "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or "
                "`num_stages` may help"
            ),
            (
                "131072 29696 101376 sm_86 sm_89 sm_120",
                "3 4 2 3 1 2",
                "65536",
            ),
        ),
        (
            "out of resource: shared memory, Required: 294912, Hardware limit: 232448 (num_stages=4)",
            (
                "294912 62464 232448 sm_90 sm_100 sm_103 sm_110",
                "3 4",
                "147456",
            ),
        ),
        (
            "Required: 524288, Hardware limit: 65536 shared memory, num_stages=3",
            (
                "524288 458752 65536 sm_75",
                "3",
                "1 8 65536",
            ),
        ),
        (
            "ptxas error   : Entry function 'k' uses too much shared data (0x1c400 bytes, 0xc000 max)",
            (("115712 66560 49152 sm_80 sm_90 sm_100 sm_103 sm_110"),),
        ),
        (
            "out of resource: tensor memory, Required: 640, Hardware limit: 512",
            (("640 128 512 f32 2n"),),
        ),
        (
            "CUtensorMap must be aligned to 128B, but got (&map) mod 128 = 64",
            ("64 128 64 64 128",),
        ),
        (
            "CUDA_ERROR_INVALID_VALUE: globalStrides[0] = 8200",
            ("8200 512 16 8 16 8208",),
        ),
        (
            "stride 4100 must be a multiple of 16",
            (("4100 256 16 4 16 4112 2 8200 512 16 8"),),
        ),
        (
            "INVALID_VALUE with fp32 rows of stride 12",
            (("12 0 16 12 16 16 4 48"),),
        ),
        (
            "how many stages fit into shared memory on an RTX 5090 with 128x64x64 fp16",
            (("128 64 64 128 64 64 2 24576 4 16 101376 sm_120"),),
        ),
        ("a 128x128x64 tile in fp16 on sm_90", ()),
        (
            "boxDim[0] = 512 is too large",
            ("0 512 256 2 256",),
        ),
        (
            "misaligned address 0x7f0000000048",
            (("0x7f0000000048 8 16 16 128"),),
        ),
        (
            "tensor map 128B swizzle inner dimension 256 bytes",
            ("256 128B 2 128",),
        ),
        ("128B swizzle, an inner dimension of 128 bytes", ()),
        (
            "'.tile::scatter4' not supported on .target sm_120a",
            (
                "scatter4 sm_100a sm_103a sm_110a sm_120",
                "",
            ),
        ),
        (
            "Instruction 'tensormap.replace' not supported on .target 'sm_121'",
            ("sm_90a sm_100a sm_103a sm_110a sm_120a sm_121a",),
        ),
        (
            "ptxas fatal   : Value 'sm_101a' is not defined for option 'gpu-name'",
            (
                "sm_101a 8.6 12.7 12.8",
                "12.9 sm_101a 13 sm_110",
            ),
        ),
        (
            "Instruction 'wgmma.fence' not supported on .target 'sm_90'",
            ("sm_90a sm_90a",),
        ),
        (
            "ptxas fatal   : Unsupported .version 8.7; current version is '8.5'",
            ("8.7 12.8 8.5 12.5",),
        ),
        (
            "ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'",
            ("sm_103a 8.8 12.9",),
        ),
    ],
)
def test_numbers_are_answered_with_arithmetic(line, numbers, wording):
    found = diagnose(line).arithmetic
    assert tuple(" ".join(re.findall(r"\w*\d[\w.]*", sentence)).rstrip(".") for sentence in found) == numbers
    wording(f"arithmetic of {line}", "\n".join(found))


@pytest.mark.parametrize(
    "line",
    [
        "Required: 1000, Hardware limit: 2000 shared memory",  # fits
        "assert k % 128 == 0",  # no remainder is told
        "stride 4096 must be a multiple of 16",  # it is
        "box 64 is wrong",
        "error at 0x7f00",  # too short for an address, and nothing speaks of alignment
        "wgmma on sm_90a is slow",
        "",
    ],
)
def test_numbers_that_are_sound_are_not_spoken_of(line):
    assert numbers_read(line) == ()


def test_the_command_prints_the_arithmetic_above_the_causes(capsys):
    assert run(["explain", "out of resource: shared memory, Required: 131072, Hardware limit: 101376"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.index("3 instead of 4") < said.index("1. shared-memory-cap")


@pytest.mark.parametrize(
    ("typed", "cause", "said"),
    [
        ("can I use TMA with stride 24 bytes", "stride-16-bytes", "24 bytes is 1 x 16 + 8"),
        ("a tensor map whose box is 512", "box-limits", "more than 256"),
    ],
)
def test_numbers_that_break_a_limit_of_maps_go_before_the_terms_around_them(typed, cause, said):
    found = topic_questions.find(typed)
    assert found.named[0].name == cause
    assert said in found.arithmetic[0]


def test_a_stride_of_shared_memory_breaks_no_limit_of_maps():
    assert not is_certain("ldmatrix from rows with a stride 72")


def test_a_term_has_what_the_numbers_beside_it_come_to(capsys):
    assert run(["explain", "what is a box of 512"]) == 0
    first, *below = capsys.readouterr().out.splitlines()
    assert first.startswith("box: A box of 512 elements")
    assert "256" in first
    assert "The tile that one TMA" in " ".join(below)


def test_numbers_are_answered_where_the_words_beside_them_name_nothing():
    told = topic_questions.find("my pointer is 0x7f0000000008")
    assert "a multiple of 8, not of 16" in told.arithmetic[0]


@pytest.mark.parametrize(
    ("number", "error", "arch"), [("100", "NO_DEVICE", "sm_100"), ("101", "INVALID_DEVICE", "sm_101")]
)
def test_a_bare_number_is_the_error_before_the_architecture(number, error, arch):
    told = topic_questions.find(number)
    assert error in told.symptoms[0].name
    assert told.rival == arch
    assert topic_questions.find(arch).name == arch


def test_a_number_of_cublas_is_none_of_cuda():
    line = "!!!! kernel execution error. (batch: 60, m: 64, n: 1025, k: 1025, error: 14)"
    assert topic_questions.find(line).symptoms[0].name == "a status of cuBLAS or cuDNN"


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("my TMA store writes wrong rows", "the result is wrong"),
        ("TMA with fp4 padded operands: multiply the coordinate by 2", "coordinate-16-bytes"),
        ("Invalid __shared__ write of size 16 bytes, address is misaligned", "misaligned address (716)"),
        ("a module emits block-scaled MMA that non-a targets do not support on sm_120", "architecture"),
    ],
)
def test_what_a_line_says_goes_before_what_stands_around_it(typed, first):
    assert first in answered_first(typed)


def test_an_invalid_argument_of_no_call_says_what_it_can_be(capsys):
    run(["explain", "-q", "RuntimeError: CUDA error: invalid argument"])
    said, advice = capsys.readouterr().out.splitlines()
    assert "makes a tensor map" in said
    assert "cudaFuncSetAttribute" in said
    assert advice.startswith("Find the call: ")


@pytest.mark.parametrize(
    ("typed", "symptom"),
    [
        ("TMA descriptor: invalid argument", "the encode call returns INVALID_VALUE (1)"),
        ("cuTensorMapEncodeTiled returned 1", "the encode call returns INVALID_VALUE (1)"),
        ("kernel launch: invalid argument", "too much shared memory, or an invalid value at launch (1, 9)"),
        ("1", "an invalid argument, of whichever call (1)"),
    ],
)
def test_an_invalid_argument_is_that_of_the_call_beside_it(typed, symptom):
    assert diagnose(typed).symptoms[0].name == symptom


@pytest.mark.parametrize(
    "typed",
    [
        "CUDA Illegal Instruction during CUDA Graph capture",  # what CUDA says goes before what happens around it
        "an illegal instruction was encountered in a captured graph",
    ],
)
def test_an_error_in_cudas_words_goes_before_what_stands_around_it(typed):
    assert diagnose(typed).symptoms[0].name == "illegal instruction (715)"


def test_a_line_of_ptxas_that_no_phrase_has_is_about_the_instruction():
    line = "ptxas /tmp/tmpxft_0005-6_k.ptx, line 3617; error   : Vector type too large, exceeds 128 bit limit"
    assert (
        topic_questions.find(line).symptoms[0].name
        == "ptxas: the instruction does not take these types, shapes or arguments"
    )


def test_what_a_change_does_is_not_what_it_is_about():
    assert topic_questions.find("Update grouped gemm to use TLX TMA descriptors").name == "grouped GEMM"
