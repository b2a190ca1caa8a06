"""The drawing of a run: its outcome, printf's text, arrays, findings and lines."""

import xml.etree.ElementTree as ET

import pytest

from tilescope import view
from tilescope.errors import Violation
from tilescope.machine.launch.described_launch import OutputArray
from tilescope.machine.report.outcome import outcome_sentence
from tilescope.machine.report.run import InstructionCount, KernelRun

FAULT = Violation("fault", "error", "line 7", "a load at 0x10", "no array lies there", "Place one.")
ADVICE = Violation("advice", "note", "line 8", "a barrier", "nobody needs it", "Leave it out.")


def counted(line, source, warps):
    return InstructionCount(
        ptx_line=line, source_line=source, ptx_text="mov.u32 %r1, 0;", threads=32 * warps, warps=warps
    )


def a_run(**changes):
    facts = {
        "entry": "scale",
        "outcome": "finished",
        "grid": (4, 2, 1),
        "block": (64, 1, 1),
        "cluster": (1, 1, 1),
        "blocks_run": 8,
        "steps": 24,
        "inexact": (),
        "findings": (),
        "instructions": (
            counted(10, "a.cu:3", 16),
            counted(11, "a.cu:4", 16),
            counted(12, "a.cu:4", 8),
            counted(13, None, 0),
        ),
        "copies": (),
        "barriers": (),
        "maps": (),
        "printed": "",
        "basis": "measured",
    }
    return KernelRun(**(facts | changes))


def test_a_run_is_drawn_whole():
    output = OutputArray(
        argument=2,
        name="out",
        data_type="f32",
        shape=(8, 4),
        changed=3,
        first=(1.5, 2.0, "nan"),
        least=-1.0,
        most=2.0,
        nans=1,
    )
    assert view.draw(a_run(findings=(ADVICE,)), outputs=(output,), lines=True).text(80).splitlines() == [
        "scale: grid 4 x 2, block 64",
        "",
        "scale finished: 8 blocks of 64 threads, 40 warp instructions. Every bit of the",
        "result is the card's.",
        "",
        "Arrays that changed",
        "argument  array      changed  first changed  least  most  NaN",
        "2 out     f32 8 x 4        3  1.5, 2, nan       -1     2    1",
        "",
        "Good to know",
        "advice  A barrier.",
        "        Nobody needs it.",
        "fix     Leave it out.",
        "",
        "What ran, by source line",
        "line    instructions  warp executions  share",
        "a.cu:4             2               24   60 %",
        "a.cu:3             1               16   40 %",
    ]


@pytest.mark.parametrize(
    ("changes", "piece"),
    [
        ({"inexact": ("ex2.approx.f32", "rcp.approx.f32")}, "ex2.approx.f32 and rcp.approx.f32"),
        ({"basis": "documented"}, "8 blocks of 64 threads"),
        ({"findings": (FAULT,)}, "with 1 error: 8 blocks"),
        ({"outcome": "hang", "blocks_run": 1}, "hangs: 1 block of 64 threads"),
        ({"outcome": "fault", "blocks_run": 0, "findings": (FAULT,)}, "fault: 0 blocks of 64 threads"),
        ({"outcome": "stopped", "blocks_run": 2}, "stopped before its end: 2 blocks"),
    ],
)
def test_the_outcome_is_a_sentence(changes, piece, wording):
    sentence = outcome_sentence(a_run(**changes), 0.25)
    assert sentence.startswith("scale ")
    assert piece in sentence
    assert "40 warp instructions, 0.25 s." in sentence
    wording(f"outcome: {changes.get('outcome', next(iter(changes)))}", sentence)


def test_what_printf_wrote_keeps_its_blanks():
    drawn = str(a_run(printed="a =   1\n  b `c`\n"))
    assert drawn.endswith("\nprintf\na =   1\n  b 'c'")


def test_a_cluster_is_named_in_the_title():
    assert view.draw(a_run(cluster=(2, 1, 1))).title == "scale: grid 4 x 2, block 64, cluster 2"


def test_without_source_lines_the_lines_of_ptx_are_listed():
    drawn = view.draw(a_run(instructions=(counted(10, None, 3), counted(12, None, 1))), lines=True).text()
    assert "PTX line 10" in drawn
    assert "no source line" not in drawn


def test_what_has_no_source_line_is_one_row_where_the_text_names_sources():
    rows = (counted(9, "a.cu:1", 1), counted(10, None, 3), counted(12, None, 1))
    drawn = view.draw(a_run(instructions=rows), lines=True).text()
    assert "no source line             2                4   80 %" in drawn


def test_a_notebook_gets_a_picture_and_a_short_line():
    shown = a_run(findings=(FAULT,), printed="x < 1\n")._repr_mimebundle_()
    assert shown["text/plain"].startswith("KernelRun(entry='scale', outcome='finished'")
    assert ET.fromstring(shown["image/svg+xml"]).tag.endswith("svg")


def test_plain_data_leads_back_to_the_run():
    run = a_run(findings=(FAULT,), inexact=("ex2.approx.f32",))
    assert KernelRun.from_dict(run.to_dict()) == run
