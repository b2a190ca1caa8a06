"""The page that runs a kernel: what it shows, what it links, and what it refuses before or while it runs."""

import html
import random
import re
from pathlib import Path

import pytest

from tilescope.errors import RuleError
from tilescope.machine.launch.described_launch import run_launch
from tilescope.questions.run_examples import EXAMPLES
from tilescope.questions.run_page import RUN_FORM
from tilescope.web.form import filled_form
from tilescope.web.pages import PAGES
from tilescope.web.rendering import render_form

ROOT = Path(__file__).parents[2]
PTX = RUN_FORM.presets["ptx"]
LAUNCH = RUN_FORM.presets["launch"]
HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
PLAIN = "[launch]\ngrid = [1]\nblock = [32]\n"
ARRAY = '[[argument]]\nkind = "array"\ntype = "f32"\nshape = [{shape}]\n'


def asked(client, ptx=PTX, launch=LAUNCH, ending="", **fields):
    return client.get(f"/run{ending}", params={"ptx": ptx, "launch": launch, **fields})


def refusal(client, **fields):
    """The rules that a refused page names, and its words."""
    answer = asked(client, **fields)
    assert answer.status_code == 422, answer.text[:2000]
    return re.findall(r"</b> (?:<a[^>]*>)?<code>([^<]*)</code>", answer.text), html.unescape(answer.text)


def test_the_sample_shows_its_outcome_its_finding_its_lines_and_shared_memory(client):
    page = html.unescape(asked(client).text)
    assert "shift finished, with 1 error" in page
    assert "shift.cu:12 thread" in page
    assert "<code>run-race</code>" in page
    assert "At <code>shift.cu:12, PTX line 47 (ld.shared.f32 %f3, [%r9])</code>" in page
    assert "What ran, by source line" in page
    assert "Lines of 128 bytes" in page
    assert "element (0, 8) of the tensor" in page
    assert "float32" in page


def test_marked_lines_and_findings_lead_to_each_other(client):
    page = asked(client).text
    assert re.findall(r'<tr id="(line-\d+)" class="(\w+)"', page) == [("line-42", "error"), ("line-47", "error")]
    assert re.findall(r'<a href="#(line-\d+)">', page) == ["line-47", "line-42"]
    assert page.count('<a href="#finding-1">') == 2
    assert page.count('id="finding-1"') == 1


def test_the_text_opens_at_the_line_of_the_worst_finding(client):
    assert re.findall(r'<tr id="(line-\d+)" class="\w+" data-opens data-line="47"', asked(client).text) == ["line-47"]


def test_a_field_has_as_many_rows_as_its_sample_has_lines(client):
    rows = dict(re.findall(r'<textarea id="field-(\w+)" name="\w+" rows="(\d+)"', asked(client).text))
    assert rows == {"ptx": "30", "launch": str(LAUNCH.count("\n") + 2)}


def test_the_text_stands_beside_the_answer_with_the_warps_that_ran_it(client):
    rows = re.findall(
        r'<td class="right">(\d+)</td><td class="right">(\d*)</td>.*?<code>(.*?)</code>', asked(client).text
    )
    assert len(rows) == len(PTX.splitlines())
    assert rows[46] == ("47", "8", "    ld.shared.f32 %f3, [%r9];")
    assert rows[42][1] == ""  # .loc is no instruction


def test_a_finding_has_its_tested_fix_as_a_button(client):
    page = asked(client)
    links = [
        html.unescape(link)
        for link in re.findall(r'<a class="button cure" href="([^"]*)">Apply the fix</a>', page.text)
    ]
    assert len(links) == 1
    cured = client.get(links[0])
    assert "0 errors" in html.unescape(cured.text) or "with 1 error" not in cured.text
    assert "bar.sync 0;\n    ld.shared.f32 %f3" in html.unescape(cured.text)


def test_no_fix_is_tried_for_a_long_text(client, monkeypatch):
    monkeypatch.setattr("tilescope.machine.kernel_launch.try_remedies", None)
    page = asked(client, ptx=PTX + "\n// a comment" * 2500)
    assert page.status_code == 200
    assert '<span class="fix">Put bar.sync (__syncthreads) between them.</span>' in page.text
    assert "--no-remedies" in page.text


def test_a_cured_kernel_has_no_findings(client):
    cured = PTX.replace("    .loc 1 12 0\n", "    .loc 1 12 0\n    bar.sync 0;\n")
    page = asked(client, ptx=cured).text
    assert 'class="violations"' not in page
    assert 'id="line-' not in page


def test_line_ends_of_a_browser_are_line_ends(client):
    page = asked(client, ptx=PTX.replace("\n", "\r\n"), launch=LAUNCH.replace("\n", "\r\n")).text
    assert 'id="line-47"' in page


def test_a_moment_of_shared_memory_is_drawn(client):
    page = html.unescape(asked(client, draw="smem", smem_at="42").text)
    assert "right before PTX line 42 runs" in page


def test_without_a_picture_its_moment_does_not_matter(client):
    assert asked(client, draw="lines", smem_at="42").status_code == 200


def test_what_a_template_names_is_not_read(client):
    assert asked(client, launch=LAUNCH.replace("[launch]\n", '[launch]\nptx = "/etc/passwd"\n')).status_code == 200


@pytest.mark.parametrize("kind", ["array", "map"])
def test_a_file_is_refused_and_not_opened(client, monkeypatch, kind):
    monkeypatch.setattr("builtins.open", None)
    launch = PLAIN + f'[[argument]]\nkind = "{kind}"\nfile = "/etc/passwd"\n'
    rules, page = refusal(client, launch=launch)
    assert rules == ["page-limit"]
    assert "argument 0: the file '/etc/passwd'" in page


def test_a_file_hidden_in_a_type_is_refused(client, monkeypatch):
    monkeypatch.setattr("numpy.load", None)
    launch = PLAIN + '[[argument]]\nkind = "array"\ntype = "f32@/etc/passwd"\nshape = [1]\n'
    assert asked(client, ptx=f"{HEAD}.entry k(.param .u64 a) {{ ret; }}", launch=launch).status_code == 422


@pytest.mark.parametrize(
    ("ptx", "launch", "what"),
    [
        ("(.param .u64 a) { ret; }", PLAIN + ARRAY.format(shape=2_000_000), "8000000 bytes of arrays"),
        ("(.param .u64 a, .param .u64 b) { ret; }", PLAIN + 2 * ARRAY.format(shape=600_000), "4800000 bytes of arrays"),
        ("(.param .u64 a) { ret; }", PLAIN + ARRAY.format(shape="999999, 999999, 999999"), "bytes of arrays"),
        ("() { .local .b8 a[524288]; ret; }", PLAIN.replace("32", "64"), "33554432 bytes of local memory"),
        (
            "() { ret; }",
            PLAIN.replace("32", "1024") + "smem_bytes = 232448\ncluster = [4]\n",
            "bytes of shared memory",
        ),
        ("() { ret; }", PLAIN.replace("32", "1024") + "cluster = [8]\n", "8192 threads of a cluster"),
    ],
)
def test_what_takes_much_memory_is_refused_before_it_is_made(client, ptx, launch, what):
    rules, page = refusal(client, ptx=f"{HEAD}.visible .entry k{ptx}", launch=launch)
    assert rules == ["page-limit"]
    assert what in page


def test_variables_of_the_module_are_memory_too(client):
    rules, page = refusal(client, ptx=f"{HEAD}.global .b8 g[1073741824]; .entry k() {{ ret; }}", launch=PLAIN)
    assert rules == ["page-limit"]
    assert "1073741824 bytes of arrays" in page


LOOPS = {
    "an endless loop": "A: add.u32 %r1, %r1, 1; bra A;",
    "a loop of stores": "A: add.u32 %r1, %r1, 1; st.shared.u32 [s], %r1; fence.proxy.async; bra A;",
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("threads", [32, 1024])
def test_a_run_that_does_not_end_is_refused(client, body, threads):
    ptx = f"{HEAD}.entry k() {{ .shared .b8 s[1024]; .reg .b32 %r1; {body} ret; }}"
    rules, page = refusal(client, ptx=ptx, launch=PLAIN.replace("32", str(threads)))
    assert rules == ["page-limit"]
    assert "most 100000 steps" in page


@pytest.mark.slow
def test_a_kernel_of_many_races_is_answered(client):
    race = "st.shared.u32 [%r2], %r1; ld.shared.u32 %r3, [s+256];\n"
    ptx = f"""{HEAD}.entry k() {{ .shared .align 128 .b8 s[4096]; .reg .b32 %r<4>;
        mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
        {race * 400} ret; }}"""
    assert asked(client, ptx=ptx, launch=PLAIN.replace("32", "1024").replace("[1]", "[20]")).status_code in (200, 422)


def test_a_grid_of_millions_is_refused(client):
    rules, _ = refusal(client, ptx=f"{HEAD}.entry k() {{ ret; }}", launch=PLAIN.replace("[1]", "[2147483647]"))
    assert rules == ["page-limit"]


def test_a_run_that_its_own_launch_stops_is_an_answer(client):
    ptx = f"{HEAD}.entry k() {{ .reg .b32 %r1; A: add.u32 %r1, %r1, 1; bra A; }}"
    answer = asked(client, ptx=ptx, launch=PLAIN + "max_steps = 500\n", ending=".json")
    assert answer.json()["outcome"] == "stopped"


def test_a_text_that_is_too_long_is_refused():
    form = filled_form(PAGES["run"], {"ptx": PTX + "x" * 2_000_000})
    with pytest.raises(RuleError, match=r"2,?000,?000 characters") as caught:
        form.asked()
    assert [violation.rule for violation in caught.value.violations] == ["page-limit"]


def test_a_long_text_is_taken(client):
    assert asked(client, ptx=PTX + "\n// a comment" * 1500).status_code == 200


@pytest.mark.parametrize("ptx", ["", "x", "\x00", ".version", "{" * 5000, HEAD * 300, f"{HEAD}.entry k() {{ bra x; }}"])
@pytest.mark.parametrize(
    "launch", [PLAIN, "", "[[argument]]", "a = " + "[" * 2000, '[launch]\ngrid = "x"', "[launch]\ngrid = [-1]"]
)
def test_texts_that_are_no_kernel_or_no_launch_are_refused(client, ptx, launch):
    rules, page = refusal(client, ptx=ptx, launch=launch)
    assert rules
    assert "Traceback" not in page


@pytest.mark.parametrize("seed", range(30))
def test_damaged_texts_are_answered_or_refused(client, markup_problems, seed):
    draw = random.Random(seed)
    words = [*re.findall(r"[\w.%]+", PTX), "-1", "0", "4294967295", "[", "]", ";", "{", "}", "1073741824", "@"]

    def damaged(text):
        pieces = re.split(r"(\W)", text)
        for _ in range(draw.randrange(1, 4)):
            pieces[draw.randrange(len(pieces))] = draw.choice(words)
        return "".join(pieces)

    launch = damaged(LAUNCH) if seed % 3 == 0 else LAUNCH
    answer = asked(client, ptx=damaged(PTX), launch=launch)
    assert answer.status_code in (200, 422), answer.text[:500]
    assert markup_problems(answer.text) == []


def test_markup_in_a_text_stays_text(client, markup_problems):
    page = asked(client, ptx=PTX + "\n// <script>alert(1)</script> </textarea>").text
    assert "<script>alert" not in page
    assert markup_problems(page) == []


def test_a_step_shows_its_state_and_is_what_the_command_prints(client):
    page = html.unescape(asked(client, smem_at="10", thread="0").text)
    assert "Step 10 of 37: threads 0 of block (0, 0, 0) ran" in page
    assert 'id="step-range" min="0" max="37" value="10"' in page
    assert "--draw state --at 10 --thread 0" in page
    data = asked(client, ending=".json", smem_at="10").json()["extra"]["state"]
    assert (data["step"], data["steps"]) == (10, 37)
    assert data["pending"][0]["bytes"] == 1024


def test_a_step_that_does_not_exist_is_refused_with_the_range(client):
    rules, page = refusal(client, smem_at="38")
    assert rules == ["argument-range"]
    assert "steps 0 to 37 were recorded" in page


@pytest.mark.parametrize("step", ["x", "-1", "1e3", "9" * 40, "\u0663", "10:2", "<script>", "0x10"])
def test_a_step_that_is_no_number_is_refused(client, step):
    _, page = refusal(client, smem_at=step)
    assert "Traceback" not in page
    assert "a step is a number" in page


def test_the_steps_of_a_run_are_recorded_once(client, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "tilescope.questions.run_page.run_launch",
        lambda *said, **options: calls.append(1) or run_launch(*said, **options),
    )
    text = PTX + "\n// a text of its own"
    for step in ("3", "9", "20"):
        assert asked(client, ptx=text, smem_at=step).status_code == 200
    assert len(calls) == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.rule)
def test_an_example_is_wrong_or_right_as_it_says(client, example):
    wrong = client.get(f"/run?example={example.rule}.fail", follow_redirects=True)
    assert f"<code>{example.rule}</code>" in wrong.text, wrong.text[:500]
    right = client.get(f"/run?example={example.rule}.pass", follow_redirects=True)
    assert right.status_code == 200
    assert f"<code>{example.rule}</code>" not in right.text


def test_every_mistake_of_a_how_to_page_is_an_example_under_its_title():
    pages = [path.read_text("utf-8") for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    named = {rule for page in pages for rule in re.findall(r"run-[a-z-]+[a-z]", page)}
    assert named - {example.rule for example in EXAMPLES} == set()
    titles = {page.partition("\n")[0].removeprefix("# ") for page in pages}
    assert {example.how_to for example in EXAMPLES} <= titles


def test_an_example_that_does_not_exist_is_refused(client):
    answer = client.get("/run?example=../../etc/passwd")
    assert answer.status_code == 422
    assert "run-race" in answer.text


def test_of_a_long_text_the_lines_around_findings_are_listed():
    text = PTX + "\n// a comment that makes the text long" * 50_000
    assert len(text) > 1_800_000
    status, page = render_form(filled_form(PAGES["run"], {"ptx": text}))
    assert status == 200
    assert 'id="line-47"' in page
    count = text.count("\n") + 1
    assert f"of {count} lines: those around findings" in page
    assert page.count("<tr") < 1000


def test_a_step_of_a_text_of_two_megabytes_is_a_small_answer(client):
    text = PTX + "\n// a comment that fills the text" * 56_000
    assert 1_800_000 < len(text) <= 2_000_000
    own = {"origin": "http://127.0.0.1:8765"}
    whole = client.post("/run", json={"ptx": text, "launch": LAUNCH}, headers=own)
    assert whole.status_code == 200
    assert len(whole.text) > len(text)
    assert 'id="short"' in whole.text  # the text for a talk needs no link
    assert 'id="copy-picture"' not in whole.text
    part = client.post(
        "/run", json={"ptx": text, "launch": LAUNCH, "smem_at": "10"}, headers=own | {"tilescope-part": "answer"}
    )
    assert "Step 10 of 37" in part.text
    assert len(part.text) < 150_000


def test_short_texts_come_back_whole_whoever_asks(client):
    page = client.get("/run", headers={"tilescope-part": "answer"}).text
    assert page == client.get("/run").text
