"""Questions people ask lead to the symptom they mean, and every cause can be tested as it says."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.cli import run
from tilescope.mma import operand_diagnosis, tmem_agreement
from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.questions import topic_questions
from tilescope.swizzle import Swizzle
from tilescope.symptoms import CAUSE, ERRORS, SEEN, SYMPTOM, Cause, Symptom, diagnose

PAGE = Path(__file__).parents[2] / "docs" / "symptoms.md"

# What people typed in public threads, in our own words, and the symptom that answers it.
ASKED = {
    "715": "illegal instruction (715)",
    "illegal instruction": "illegal instruction (715)",
    "CUDA error: an illegal instruction was encountered": "illegal instruction (715)",
    "cudaErrorIllegalInstruction": "illegal instruction (715)",
    "misaligned address": "misaligned address (716)",
    "CUDA_EXCEPTION_6, Warp Misaligned Address": "misaligned address (716)",
    "must be aligned to 128B, but got mod 128 = 64": "a check requires a tensor map aligned to 128 bytes",
    "CUtensorMap must be aligned to 128B": "a check requires a tensor map aligned to 128 bytes",
    "hang": "the kernel hangs",
    "kernel never finishes": "the kernel hangs",
    "stuck in mbarrier try_wait": "the kernel hangs",
    "deadlock after 4 stages": "it hangs after as many steps as there are stages",
    "hangs with cluster size 2": "it hangs with multicast only",
    "setmaxnreg hang": "it hangs before any load",
    "CUDA_ERROR_INVALID_VALUE": "an invalid argument, of whichever call (1)",
    "Failed to initialize the TMA descriptor 1": "the encode call returns INVALID_VALUE (1)",
    "Failed to initialize the TMA descriptor 715": "the encode call returns 700, 715, 716 or 719",
    "garbage in every second row": "garbage in every second row",
    "every other row is wrong": "garbage in every second row",
    "8-way bank conflict": "bank conflicts are reported",
    "ncu reports bank conflicts but my layout is swizzled": "Nsight Compute shows conflicts that theory does not have",
    "Xid 13": "Xid 13",
    "NVRM: Xid (PCI:0000:01:00): 31, MMU Fault": "illegal address (700)",
    "an illegal memory access was encountered": "illegal address (700)",
    "unspecified launch failure": "unspecified launch failure (719)",
    "CUDA_ERROR_LAUNCH_FAILED": "unspecified launch failure (719)",
    "NaNs at the edge of the output": "NaN in the result",
    "TMA slower than cp.async": "TMA is slow",
    "results are transposed": "the result is transposed, or right for square input only",
    "87.5% of elements mismatch": "about 87 % of the elements are wrong",
    "wrong results only with CUDA graphs": "wrong in CUDA graphs or on the second call",
    "works on H100 but fails on B200": "it works on Hopper and fails on Blackwell",
    "first tile correct, the rest wrong": "the first tile is right, later ones are wrong",
    "no kernel image is available": "no image for the device, or PTX that does not load (98, 200, 209, 218, 222)",
    "LBO and SBO confusion": "8 x 8 blocks are right inside and misplaced",
    "race condition": "wrong elements that differ from run to run",
    "store overwrites the neighbouring tensor": "neighbouring data is overwritten",
    "output is all zeros": "zeros in the result",
}


@pytest.mark.parametrize(("mode", "right"), [("64B", "rows 0 and 7"), ("32B", "rows 0, 2, 5 and 7")])
def test_a_swizzle_computed_from_the_row_is_right_in_the_rows_that_are_named(mode, right):
    swizzle = Swizzle.named(mode)
    starts = [row * swizzle.span_bytes for row in range(8)]
    by_row = [start ^ row * 16 % swizzle.span_bytes for row, start in enumerate(starts)]
    rows = [row for row in range(8) if swizzle.apply(starts[row]) == by_row[row]]
    assert rows == [int(number) for number in re.findall(r"\d+", right)]
    assert right in CAUSE["swizzle-by-row"].tell


@pytest.mark.parametrize(("question", "symptom"), ASKED.items())
def test_a_question_leads_to_its_symptom(question, symptom):
    assert diagnose(question).symptoms[0].name == symptom


@pytest.mark.parametrize("name", SYMPTOM)
def test_a_symptom_is_found_by_its_own_name_and_every_phrase(name):
    for phrase in (name, *SYMPTOM[name].phrases):
        assert name in [symptom.name for symptom in diagnose(phrase).symptoms], phrase


@pytest.mark.parametrize(
    "question", ["how do I boil an egg", "", "qwertz", "the of and", "🙂", "\x00" * 1000, "lorem ipsum"]
)
def test_a_question_without_a_known_word_names_nothing(question):
    assert diagnose(question).symptoms == diagnose(question).suggested == ()


@given(st.text(max_size=200))
def test_any_text_is_answered(question):
    found = diagnose(question)
    assert all(isinstance(symptom, Symptom) for symptom in (*found.symptoms, *found.suggested))
    assert found == type(found).from_dict(found.to_dict())
    assert found.text() is not None


def test_every_cause_is_a_symptoms_or_what_compatible_names():
    pointed = {name for symptom in SYMPTOM.values() for name in symptom.causes}
    compared = {*get_args(operand_diagnosis.Cause), *get_args(tmem_agreement.TmemCause)}
    assert pointed | compared == set(CAUSE)
    assert all(Cause.named(name) is CAUSE[name] for name in CAUSE)


@pytest.mark.parametrize(
    "name", sorted({*CAUSE, *get_args(operand_diagnosis.Cause), *get_args(tmem_agreement.TmemCause)})
)
def test_every_cause_that_is_printed_is_explained_by_its_name(name):
    explained = topic_questions.find(name)
    assert (explained.name, explained.group) == (name, "causes")
    facts = dict(explained.facts)
    assert CAUSE[name].mechanism in (explained.meaning, facts.get("as a cause"))
    assert facts["fix"] == CAUSE[name].fix


@pytest.mark.parametrize("name", get_args(operand_diagnosis.Cause))
def test_the_command_of_a_descriptors_cause_prints_that_cause(name, capsys):
    arguments = shlex.split(CAUSE[name].command)[1:]
    if arguments[:2] == ["mma", "check"]:
        assert run(arguments) == 1
        assert capsys.readouterr().out.startswith(f"The descriptor reads something else ({name}): ")
    else:
        assert name in ("pair-half", "atom-order")  # of ts.compatible alone


def test_every_cause_has_a_command_that_tests_it():
    assert [name for name, cause in CAUSE.items() if not cause.command] == []


@pytest.mark.parametrize("name", CAUSE)
def test_the_command_of_a_cause_runs(name):
    program, *arguments = shlex.split(CAUSE[name].command)
    assert program == "tilescope"
    assert run(arguments) in (0, 1)


@pytest.mark.parametrize("name", CAUSE)
def test_threads_name_a_repository_and_a_number(name):
    for thread in CAUSE[name].threads:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread), thread


def test_a_copied_map_is_a_cause_of_an_illegal_address():
    found = diagnose("an illegal memory access was encountered")
    assert "map-placement" in [cause.name for cause in found.causes]
    assert "700" in CAUSE["map-placement"].tell
    assert "copied" in CAUSE["map-placement"].mechanism


def test_overwritten_neighbours_are_first_what_a_store_rounds_up():
    causes = diagnose("data next to my tensor is overwritten").causes
    assert causes[0].name == "store-rounds-to-16"
    assert "16 bytes" in causes[0].mechanism
    assert "freed-or-short-tensor" in [cause.name for cause in causes]


def test_tensor_memory_that_is_used_up_is_not_about_registers():
    found = diagnose("out of resource: tensor memory, Required: 640, Hardware limit: 512")
    assert [cause.name for cause in found.causes] == ["tensor-memory-columns", "tensor-memory"]
    assert f"{TMEM_COLUMNS} columns" in CAUSE["tensor-memory-columns"].mechanism


def test_the_fence_of_maps_is_not_the_fence_of_tiles():
    of_maps, of_tiles = topic_questions.find("fence.proxy.tensormap"), topic_questions.find("fence.proxy.async")
    assert of_maps.name != of_tiles.name
    assert "fence.proxy.tensormap" not in of_tiles.meaning
    assert "not fence.proxy.async" in of_maps.meaning
    assert ".acquire" in of_maps.meaning


def test_no_answer_gives_scatter4_to_sm_120():
    assert not ARCH["sm_120"].has("scatter4")
    assert ARCH["sm_120"].has("gather4")
    said = topic_questions.find("scatter4").meaning
    assert "sm_120 does not" in said
    for name in ("sm_100", "sm_103", "sm_110"):
        assert ARCH[name].has("scatter4")
        assert name in said
    assert "scatter4" not in topic_questions.find("sm_120").meaning
    assert "scatter4 on sm_100, sm_103, sm_110." in topic_questions.find("gather-arch").demand


def test_causes_that_are_named_in_notes_exist():
    named = {word for symptom in SEEN.values() for word in re.findall(r"\bbarrier-\w+", symptom.note)}
    assert named
    assert named <= set(CAUSE)


def page():
    """The page of the documentation: every symptom with its causes, then every cause."""
    lines = [
        "# Symptoms",
        "",
        "Symptoms, their causes, and a command that tests each cause. `tilescope explain` takes the same words, an error code or",
        "an error's name:",
        "",
        "```console",
        "$ tilescope explain 715",
        '$ tilescope explain "garbage in every second row"',
        "```",
        "",
        "| symptom | causes, most likely first |",
        "|---|---|",
    ]
    for symptom in SEEN.values():
        causes = ", ".join(f"[{name}](#{name})" for name in symptom.causes) or symptom.note
        lines.append(f"| {symptom.name} | {causes} |")
    lines += [
        "",
        "## CUDA errors",
        "",
        "The other errors of CUDA's driver and runtime, by number or by either name:",
        "",
    ]
    lines += ["| error | what it means |", "|---|---|"]
    lines += [f"| {symptom.name} | {symptom.note} |" for symptom in ERRORS.values()]
    lines += ["", "## Causes"]
    for cause in CAUSE.values():
        lines += [
            "",
            f"### {cause.name}",
            "",
            cause.mechanism,
            "",
            f"- How to tell: {cause.tell}",
            f"- Fix: {cause.fix}",
        ]
        lines += [f"- Test: `{cause.command}`"]
        lines += [f"- Basis: {cause.basis}." + (f" Seen in {', '.join(cause.threads)}." if cause.threads else "")]
    return "\n".join(lines) + "\n"


def test_the_driver_that_sets_the_size_flag_is_told_in_one_sentence():
    """The rule about a map's arguments, the one about a descriptor's bits, and the cause say the same of versions."""
    small = ts.TensorMap("bf16", (64, 64), (256,), (64, 64))
    (of_arguments,) = ts.TensorMap.check("bf16", (64, 64), (256,), (64, 64), arch="sm_100")
    words = bytearray(small.encode())
    words[8 + 21 // 8] |= 1 << 21 % 8
    (of_bits,) = ts.inspect_tensor_map(bytes(words)).violations
    assert of_arguments.limit == of_bits.limit
    assert CAUSE["map-small-tensor-flag"].mechanism == f"{of_bits.limit}."
    assert CAUSE["map-small-tensor-flag"].fix == of_arguments.fix == of_bits.fix
    assert "595.71.05 and 595.91.07, and no version" in of_bits.limit


def test_the_alignment_of_a_map_is_told_for_both_headers():
    """cuda.h: alignas(64) up to CUDA 12, alignas(128) from CUDA 13 on."""
    both = "CUDA 12, to 128 from CUDA 13"
    assert both in ts.RULES["map-address"].demand
    assert both in CAUSE["map-alignment"].mechanism
    assert "alignas(128)" in CAUSE["map-alignment"].fix


def test_every_quotation_of_a_cause_is_filled_in():
    for cause in CAUSE.values():
        assert "{" not in cause.mechanism + cause.tell + cause.fix, cause.name


def test_the_page_lists_every_symptom_and_cause():
    assert PAGE.read_text("utf-8") == page(), "run: .venv/bin/python tests/symptoms/test_symptoms.py --write"


@pytest.mark.parametrize(
    "line",
    [
        "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE",
        "cuTensorMapEncodeTiled failed with CUDA_ERROR_INVALID_VALUE",
        "cuTensorMapEncodeIm2col returns cudaErrorInvalidValue",
        "CUDA_ERROR_INVALID_VALUE in cuTensorMapEncodeTiled for an fp8 tensor",
    ],
)
def test_a_refused_encode_call_has_arguments_to_blame(line):
    assert diagnose(line).causes[0].name == "stride-16-bytes"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
