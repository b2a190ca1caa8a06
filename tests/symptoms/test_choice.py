"""What explain answers to sentences: three candidates, a strength, and no generic symptom before a cause that the line names."""

import json
import os
import subprocess
import sys

import pytest
from fit_choice import PACKAGE, text_of_lines

from tilescope.arch import ARCH
from tilescope.cli import run
from tilescope.data_type import DATA_TYPE
from tilescope.questions import topic_questions
from tilescope.questions.computed_answers import is_question
from tilescope.questions.row_topics import arch_topic, field_topic, swizzle_topic, type_topic
from tilescope.questions.topic_questions import find, may_name_a_row
from tilescope.swizzle import SWIZZLE
from tilescope.symptoms import CAUSE, SYMPTOM, TERMS, Diagnosis
from tilescope.symptoms.choice import SIGNALS, is_sure
from tilescope.symptoms.line_words import index_lines
from tilescope.symptoms.own_data import command_for
from tilescope.symptoms.symptom_diagnosis import question_words
from tilescope.tensor_map import field_topics


def test_line_words_are_those_of_the_labelled_lines():
    assert (PACKAGE / "line_words.json").read_text("utf-8") == text_of_lines(), "run fit_choice.py"


def test_every_signal_has_a_weight():
    assert set(json.loads((PACKAGE / "choice.json").read_text("utf-8"))["weights"]) == set(SIGNALS)


def test_a_line_that_is_left_out_does_not_vouch_for_itself():
    lines = index_lines([({"alone"}, {"parity"}), ({"other"}, {"gap"})])
    for speaks in (lines.scores, lines.neighbours):
        assert speaks({"alone"})["parity"] > 0
        assert speaks({"alone"}, {0}) == {}


def test_the_lines_most_like_a_sentence_speak_for_their_topics():
    lines = index_lines([({"a", "b", "c"}, {"parity"}), ({"a", "x", "y"}, {"gap"}), ({"z"}, {"fill"})])
    found = lines.neighbours({"a", "b"})
    assert found["parity"] > found["gap"]
    assert "fill" not in found


@pytest.mark.parametrize(
    "behind", ["", ", corrupting output", ", and the result is wrong", ", so it hangs", "; it works on Hopper"]
)
def test_a_generic_symptom_does_not_outrank_the_cause_in_the_same_line(behind):
    found = find(f"The epilogue releases the accumulator stage before reading it{behind}")
    assert found.causes[0].name in ("accumulator-released", "early-release")


@pytest.mark.parametrize(
    "line",
    ["missing __syncthreads", "I forgot a __syncthreads", "no barrier between the write and the read of shared memory"],
)
def test_a_missing_barrier_is_named_before_causes_of_asynchronous_copies(line):
    assert find(line).causes[0].name == "missing-barrier"


def test_a_sentence_has_three_candidates_each_with_what_tells_it():
    found = find("wrong output after I changed the number of consumer warpgroups in the pipeline")
    assert len(found.candidates) == 3
    assert all(tell for _, tell in found.candidates)


@pytest.mark.parametrize("typed", ["715", "CUDA_ERROR_MISALIGNED_ADDRESS", "LBO", "parity", "what is a swizzle"])
def test_a_code_or_a_term_is_answered_alone(typed):
    found = find(typed)
    assert (found.candidates, found.strength) == ((), 1.0)


def test_a_weak_match_says_so_and_gives_no_fix_first(capsys):
    question = "strange behaviour after switching the tensor to another layout on the second card"
    found = find(question)
    assert not is_sure(found.strength)
    run(["explain", "-q", question])
    first, tell = capsys.readouterr().out.splitlines()
    assert first.startswith("Not sure: ")
    assert all(cause.fix not in tell for cause in CAUSE.values())


def test_a_symptom_of_many_causes_names_them_in_order_and_no_fix(capsys):
    run(["explain", "-q", "RuntimeError: an illegal memory access was encountered while running the test suite"])
    first, tell = capsys.readouterr().out.splitlines()
    assert first.startswith("illegal address (700): look first at ")
    assert "Find" not in tell
    assert CAUSE["freed-or-short-tensor"].fix not in tell


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("insufficient register resources for the wgmma pipeline in function 'k'", "wgmma-registers"),
        (
            "non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage",
            "serialised-wgmma",
        ),
    ],
)
def test_a_quoted_reason_wins(reason, cause):
    line = (
        f"ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to {reason}"
    )
    found = find(line)
    assert found.causes[0].name == cause
    assert is_sure(found.strength)


@pytest.mark.parametrize("typed", ["CUDA error '98'", "the launch failed with '98'"])
def test_a_quoted_code_is_read(typed):
    assert 98 in find(typed).symptoms[0].codes


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("the descriptor of wgmma has a wrong LBO", "matrixdescriptor"),
        ("the descriptor that TMA prefetches", "tensormap"),
        ("the barrier's parity is wrong", "mbarrier"),
        ("bar.sync on the same barrier", "named"),
    ],
)
def test_a_word_means_what_its_neighbours_say(typed, word):
    assert word in question_words(typed)


@pytest.mark.parametrize(
    ("question", "command"),
    [
        ("how do I choose a swizzle for fp8?", "tilescope plan 128x64 e4m3"),
        ("Which swizzle should I use with bf16 tiles?", "tilescope plan 128x64 bf16"),
        ("how do I avoid bank conflicts with ldmatrix?", "tilescope banks 64x64 bf16 --pattern ldmatrix.x4 --fix"),
        (
            "How are LBO and SBO computed, i.e. how do I compute the leading dimension offset?",
            "tilescope mma descriptors 128x64 bf16",
        ),
    ],
)
def test_a_question_gets_the_command_that_computes_its_answer(question, command, capsys):
    assert find(question).facts[0] == ("computed by", f"`{command}`")
    run(["explain", "-q", question])
    assert command in capsys.readouterr().out
    assert run([*_words(command), "-q"]) == 0


def _words(command):
    return command.split()[1:]


def test_a_question_that_joins_two_nouns_gets_the_entry_that_has_both():
    found = find("do all destination blocks need expect_tx?")
    assert "multicast-receiver" in [name for name, _ in found.candidates]


@pytest.mark.parametrize(
    ("typed", "is_asked"),
    [("is this a hard requirement?", True), ("[QST] how do I", True), ("the kernel hangs", False)],
)
def test_questions_are_told_from_reports(typed, is_asked):
    assert is_question(typed) == is_asked


@pytest.mark.parametrize(
    ("typed", "topic"),
    [
        ("__syncwarp", "warp-synchronous code"),
        ("is __syncwarp missing between the write and the read of shared memory", "missing-syncwarp"),
        ("__syncthreads inside a divergent branch", "divergent-barrier"),
        ("the flag is volatile and the data behind it is stale", "volatile-flag"),
        ("kernel reads uninitialized shared memory", "uninitialised-smem"),
        ("wait on an mbarrier that was never initialized", "barrier-not-initialised"),
        ("grouped gemm crashes on an empty tensor", "empty-tensor"),
        ("both blocks of the pair store the same tile", "stored-twice"),
        ("scope of mbarrier arrive in a cluster", "arrival-scope"),
        ("accumulator stage released early by the epilogue", "accumulator-released"),
        ("TMA store overwrites neighbouring rows", "store-rounds-to-16"),
        ("how do I transpose a tile", "transposing a tile"),
        ("tcgen05.ld returns zeros", "tmem-load-order"),
    ],
)
def test_what_was_missing_has_its_topic(typed, topic):
    found = find(typed)
    first = {found.causes[0].name} if isinstance(found, Diagnosis) else {found.name}
    assert topic in first | {name for name, _ in found.candidates}


def test_every_topic_has_a_command_for_the_users_own_data():
    names = [*CAUSE, *SYMPTOM, *(term.name for term in TERMS)]
    assert [name for name in names if not command_for(name).startswith("tilescope ")] == []


def test_an_answer_ends_with_the_command_for_the_users_own_data(capsys):
    run(["explain", "the kernel hangs in try_wait"])
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last.startswith("On your own data: tilescope ")


def test_every_row_may_be_named():
    """Modes, types, architectures and fields are looked for only where words may name one."""
    names = [*SWIZZLE, *DATA_TYPE, *ARCH, *field_topics.TOPIC_SPELLINGS, *field_topics.topics()]
    names += [row.ptx for row in DATA_TYPE.values()]
    found = [name for name in names if any(find(name) for find in (swizzle_topic, type_topic, arch_topic, field_topic))]
    assert found
    assert [name for name in found if not may_name_a_row(name)] == []


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    "typed",
    ["the kernel hangs in the epilogue", "715", "swizzle", "tcgen05.ld returns zeros", "misaligned address"],
)
def test_what_people_see_is_explained_without_numpy(typed):
    program = f"import sys; from tilescope.cli import run; run(['explain', '-q', {typed!r}]); sys.exit('numpy' in sys.modules)"
    environment = os.environ | {"PYTHONWARNINGS": ""}
    assert subprocess.run([sys.executable, "-c", program], check=False, env=environment).returncode == 0


def test_answers_come_back_from_json_with_their_candidates():
    found = find("wrong output after I changed the number of consumer warpgroups in the pipeline")
    assert type(found).from_dict(found.to_dict()) == found
    assert topic_questions.summarize_topic(found).sentence


LOG = 'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\nRuntimeError: CUDA error: misaligned address\n'


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_log_in_a_file_is_explained(command, tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text(LOG)
    assert run([command, "-q", str(log)]) == 0
    assert capsys.readouterr().out.startswith("misaligned address (716): ")


def test_check_explains_a_pasted_line_without_a_map(capsys):
    assert run(["check", "-q", "RuntimeError: CUDA error: misaligned address"]) == 0
    assert capsys.readouterr().out.startswith("misaligned address (716): ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k.ptx", ".version 8.0\n.target sm_90\n.visible .entry k() { ret; }"),
        ("k.cu", 'extern "C" __global__ void k() {}'),
        ("k.py", "import triton\n\n@triton.jit\ndef k(): pass"),
    ],
)
def test_of_a_kernel_explain_says_run(name, text, tmp_path, capsys):
    file = tmp_path / name
    file.write_text(text)
    assert run(["explain", str(file)]) == 2
    assert f"tilescope run {file}" in " ".join(capsys.readouterr().err.split())
