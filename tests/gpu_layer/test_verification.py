"""verify: cases drawn, run, compared, captured and replayed; a stand-in for the card does as tilescope says, or not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilescope.arch import Arch
from tilescope.cli import run
from tilescope.errors import DeviceError, RuleError, Violation
from tilescope.gpu.driver.isolation import CardInChildren
from tilescope.gpu.verify.suites import SUITE_NAMES, Outcome, suite_named
from tilescope.gpu.verify.verification import (
    Capture,
    SuiteResult,
    Verification,
    draw_verification,
    outlook,
    replay,
    verify,
)
from tilescope.value import Value, own_data

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("verify_*.npz"))
OPEN_POINTS = ("remote_arrivals", "rates")  # what a card did is kept: test_machine_captures.py
HOPPER = [
    name for name in SUITE_NAMES if Arch.named("sm_90").has(suite_named(name).feature) and name not in OPEN_POINTS
]
# "pipelines" judges outcomes in its own way: test_pipeline_suite.py
QUICK = [name for name in HOPPER if name not in ("faults", "plans", "emitted", "pipelines")]
FEW = ["loads", "im2col", "banks", "ldmatrix"]  # what differs there is told in words of their own
FEW_OR_QUICK = [pytest.param(FEW, id="few"), pytest.param(QUICK, id="quick", marks=pytest.mark.slow)]


def arch_of(name):
    """An architecture that has what the suite needs."""
    return "sm_90" if name in HOPPER else "sm_100"


@pytest.mark.thinned(8)
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_a_card_did_is_what_tilescope_says(path):
    capture = Capture.read(path)
    verification = replay(capture)
    assert [each.difference for each in verification.suites if each.difference or each.equal != each.cases] == []
    assert {each.suite for each in verification.suites} <= set(HOPPER)


def test_there_is_a_capture_of_every_suite():
    recorded = {recording.suite for path in GOLDEN for recording in Capture.read(path).recordings}
    assert set(HOPPER) <= recorded


@pytest.mark.usefixtures("predicting")
@pytest.mark.parametrize("suites", FEW_OR_QUICK)
def test_a_card_that_agrees_is_reported_and_captured(suites, tmp_path, capsys):
    assert run(["verify", "--count", "4", *suites, "--save", str(tmp_path / "a.npz"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(each["suite"], each["cases"], each["equal"]) for each in printed["suites"]] == [
        (name, 4, 4) for name in suites
    ]
    assert run(["verify", "--replay", str(tmp_path / "a.npz")]) == 0
    shown = capsys.readouterr().out
    assert "a capture of stand-in" in shown
    assert f"in all {4 * len(suites)} cases" in shown
    assert run(["verify", "--replay", str(tmp_path / "a.npz"), "-q"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f" in all {4 * len(suites)} cases (stand-in).\n")
    assert shown.startswith(said)
    assert Value.from_dict(printed).to_dict() == own_data(printed)


@pytest.mark.usefixtures("predicting")
def test_a_card_that_is_lost_says_where_what_was_right_and_how_to_go_on(monkeypatch, capsys):
    whole = CardInChildren.outcomes

    def outcomes(card, suite, *arguments, **options):
        if suite == "bulk":
            raise DeviceError("The driver finds no card.")
        return whole(card, suite, *arguments, **options)

    monkeypatch.setattr(CardInChildren, "outcomes", outcomes)
    assert run(["verify", "encode", "bulk", "mbarriers", "--count", "3", "--seed", "5"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "driver finds no card." in said
    assert "in 3 of 3 cases" in said
    assert "tilescope verify bulk mbarriers --seed 5" in said


@pytest.mark.parametrize("suites", FEW_OR_QUICK)
def test_a_card_that_differs_is_told_in_words_with_status_1(suites, predicting, tmp_path, capsys):
    predicting("WRONG")
    path = tmp_path / "a.npz"
    assert run(["verify", *suites, "--count", "2", "--save", str(path), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)
    assert not any(each["equal"] for each in first["suites"])  # one wrong byte is enough, whatever it is of
    assert re.search(r"\d+ of \d+ cases \(stand-in\), first in \w+: ", first["answer"])
    told = {each["suite"]: each["difference"] for each in first["suites"]}
    place = r"shared memory, line \d+, byte \d+: card 0x\w+, ours 0x\w+ \(1 of \d+ differ\)"
    assert all(re.match(rf"case 0: {place}", told[name]) for name in ("loads", "im2col"))
    assert "wavefronts: card 0x" in told["banks"]
    assert "lane 31, register" in told["ldmatrix"] or "shared memory, line" in told["ldmatrix"]
    told.pop("approx", None)  # its sums name no place
    assert all("(1 of " in difference for difference in told.values())
    again = replay(Capture.read(path))  # the bytes of cases that differ are kept, so the words are the same
    assert [each.difference for each in again.suites] == [each["difference"] for each in first["suites"]]


def test_one_case_runs_again_with_its_own_number(predicting, capsys):
    predicting("WRONG")
    assert run(["verify", "mbarriers", "--seed", "4", "--only", "3", "--json"]) == 1
    (suite,) = json.loads(capsys.readouterr().out)["suites"]
    (case,) = suite_named("mbarriers").cases(4, 4, "sm_90")[3:]
    assert suite["cases"] == 1
    assert suite["difference"].startswith("case 3: ")
    assert str(case)[:60] in suite["difference"]


def test_the_program_of_a_note_is_shown_line_by_line():
    made = SuiteResult(
        suite="kernels", cases=1, equal=0, difference="case 0", seconds=1.0, note="The smallest:\n.version 8.7\nret;"
    )
    facts = {"card": "stand-in", "arch": "sm_90", "driver": "0", "cuda": "0", "date": "2026-01-01"}
    shown = draw_verification(Verification(**facts, seed=1, replayed=False, suites=(made,))).text().splitlines()
    first = shown.index("kernels: The smallest:")
    assert [line.split() for line in shown[first + 1 :] if line.strip()][:2] == [
        ["1", ".version", "8.7"],
        ["2", "ret;"],
    ]


def test_cases_are_the_same_in_any_count_and_differ_by_seed():
    loads = suite_named("loads")
    assert loads.cases(3, 7, "sm_90") == loads.cases(9, 7, "sm_90")[:3]
    assert loads.cases(3, 7, "sm_90") != loads.cases(3, 8, "sm_90")


@pytest.mark.parametrize("name", SUITE_NAMES)
def test_cases_are_plain_data_and_their_prediction_is_stable(name):
    suite = suite_named(name)
    for case in suite.cases(5, 1, arch_of(name)):
        assert json.loads(json.dumps(case)) == case
        assert suite.expected(case) == suite.expected(json.loads(json.dumps(case)))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "name", ["encode", "loads", "gather4", "scatter4", "stores", "reductions", "tcgen05", "tensor_memory"]
)
def test_a_newer_architecture_draws_what_only_it_has(name):
    cases = suite_named(name).cases(200, 1, "sm_100")
    text = json.dumps(cases)
    assert "sm_100" in text or name in ("tcgen05", "tensor_memory")
    if name == "loads":
        assert "16u4_align16b" in text
        assert "128B_ATOM_32B" in text
    for case in cases[:30]:
        suite_named(name).predict(case)


def test_faults_are_predicted_with_their_numbers():
    faults = suite_named("faults")
    seen = {faults.expected(case) for case in faults.cases(120, 1, "sm_90")}
    assert seen == {Outcome(b"done"), *(Outcome(ended=f"error {code}") for code in (715, 716, 719))}


def test_a_file_that_is_no_capture_is_refused(tmp_path):
    for name, content in (("a.npz", b"PK nonsense"), ("b.npz", b""), ("c.npz", b"{}")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RuleError, match="verify --save"):
            Capture.read(tmp_path / name)
        assert run(["verify", "--replay", str(tmp_path / name)]) == 2
    np.savez(tmp_path / "d.npz", header=np.frombuffer(json.dumps({"format": 99}).encode(), np.uint8))
    with pytest.raises(RuleError, match="format 99"):
        Capture.read(tmp_path / "d.npz")


def test_without_a_card_there_is_one_sentence_and_status_3(capsys):
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a card")
    with pytest.raises(DeviceError, match=r"^This.*NVIDIA GPU.*\.$") as refused:
        verify(["encode"], count=1)
    for command in ("verify", "bench"):
        assert run([command]) == 3
        assert capsys.readouterr().err.strip() == str(refused.value)


def test_a_lost_card_leaves_the_suites_before_it_in_the_file(predicting, monkeypatch, tmp_path, capsys):
    predicting()
    asked = CardInChildren.outcomes

    def outcomes(card, suite, cases, **options):
        if suite == "stores":
            raise DeviceError("The card fell off the bus.")
        return asked(card, suite, cases, **options)

    monkeypatch.setattr(CardInChildren, "outcomes", outcomes)
    saved = tmp_path / "card.npz"
    assert run(["verify", "loads", "stores", "--count", "3", "--save", str(saved)]) == 3
    printed = capsys.readouterr().err
    assert "stand-in: 2 suites, about 1 minute." in printed
    assert f"{saved} has the suites before the card was lost" in printed.replace("\n", " ")
    assert [recording.suite for recording in Capture.read(saved).recordings] == ["loads"]


def test_the_outlook_says_what_is_skipped_and_why():
    chosen = [suite_named(name) for name in SUITE_NAMES]
    here = [suite for suite in chosen if Arch.named("sm_120").has(suite.feature)]
    said = outlook("RTX 5090", "sm_120", chosen, here)
    assert said.startswith(f"RTX 5090: {len(here)} suites, about ")
    skipped = said.partition("Skipped: ")[2]
    for name in ("wgmma", "tcgen05", "tensor_memory", "shifts", "pair_exits"):
        assert f"{name} (sm_120 has no " in skipped
    assert "loads" not in skipped


@pytest.mark.usefixtures("predicting")
def test_suites_that_the_card_cannot_run_are_named_at_the_end(capsys):
    assert run(["verify", "--count", "1", "loads", "tcgen05", "shifts"]) == 0
    assert "Left out, for what sm_90 does not have: tcgen05 and shifts." in capsys.readouterr().out


# approx has 8 million inputs a case; kernels need sm_90
PREDICTED = [name for name in SUITE_NAMES if name not in ("approx", "kernels") and suite_named(name).judge is None]


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_120"])
def test_every_case_that_is_drawn_for_blackwell_is_predicted(arch, name):
    suite = suite_named(name)
    if Arch.named(arch).has(suite.feature):
        for case in suite.cases(8, 1, arch):
            assert suite.expected(case).digest or suite.expected(case).ended


@pytest.mark.usefixtures("predicting")
def test_a_case_that_tilescope_refuses_costs_no_other_case(monkeypatch, tmp_path, capsys):
    """A stranger's run is not lost to a mistake of ours."""
    loads = suite_named("loads")

    def refuse(_case, _outcome):
        raise RuleError([Violation("a-rule", "error", "case", "what", "a limit", "A fix.")])

    refusing = replace(loads, judge=refuse)
    monkeypatch.setattr(
        "tilescope.gpu.verify.verification.suite_named", lambda name: {"loads": refusing}.get(name) or suite_named(name)
    )
    assert run(["verify", "--count", "2", "loads", "ldmatrix", "--save", str(tmp_path / "a.npz"), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [(each["suite"], each["equal"]) for each in printed["suites"]] == [("loads", 0), ("ldmatrix", 2)]
    assert printed["suites"][0]["difference"].startswith("case 0: tilescope refuses the case: a-rule: what; a limit")
    assert [each.suite for each in Capture.read(tmp_path / "a.npz").recordings] == ["loads", "ldmatrix"]
