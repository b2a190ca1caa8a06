"""The drawing of what a run costs: lines with their source, the worst access by bank, copies by map, operands."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from tilescope import view
from tilescope.machine.report.run import InstructionCount, KernelRun
from tilescope.machine.report.run_costs import CopyTraffic, OperandRead, WorstAccess

COLUMN = WorstAccess(
    op="ld.b32",
    wavefronts=4,
    least_wavefronts=1,
    block=(1, 0, 0),
    warp=2,
    lane_address=(*range(0x400, 0x600, 128), *(None,) * 28),
    lanes=(0, 1, 2, 3),
    bank=0,
)


def counted(line, source, warps, **costs):
    text = "mov.u32 %r1, 0;"
    return InstructionCount(ptx_line=line, source_line=source, ptx_text=text, threads=32 * warps, warps=warps, **costs)


def a_run(*instructions, traffic=(), operands=()):
    return KernelRun(
        entry="turn",
        outcome="finished",
        grid=(2, 1, 1),
        block=(96, 1, 1),
        cluster=(1, 1, 1),
        blocks_run=2,
        steps=3,
        inexact=(),
        findings=(),
        instructions=instructions,
        copies=(),
        barriers=(),
        maps=(),
        printed="",
        basis="measured",
        traffic=traffic,
        operands=operands,
    )


RUN = a_run(
    counted(10, "a.cu:3", 90),
    counted(11, "a.cu:4", 6, wavefronts=24, least_wavefronts=6, worst=COLUMN),
    counted(12, "a.cu:5", 6, sectors=192, least_sectors=24),
    counted(13, "a.cu:5", 6, sectors=24, least_sectors=24),
    counted(14, None, 6, wavefronts=6, least_wavefronts=6),
)


def drawn(run, texts, **options):
    return view.draw(run, texts=texts, **options)


def test_lines_stand_worst_first_with_their_source():
    texts = {"a.cu:4": "    x = tile[`t`][0];", "a.cu:5": "out[t * 8] = x;"}
    table = drawn(RUN, texts)["lines"]
    assert table.headings == ("line", "warps", "wavefronts / least", "sectors / least", "source")
    assert table.rows == (
        ("a.cu:5", "12", "-", "216 / 48", "`out[t * 8] = x;`"),
        ("a.cu:4", "6", "24 / 6", "-", "`x = tile['t'][0];`"),
        ("a.cu:3", "90", "-", "-", ""),
        ("no source line", "6", "6", "-", ""),
    )


def test_without_any_source_there_is_no_column_for_it():
    drawing = drawn(RUN, {})
    assert drawing["lines"].headings == ("line", "warps", "wavefronts / least", "sectors / least")
    assert "\na.cu:5             12                   -         216 / 48\n" in drawing.text()


def test_the_worst_access_is_drawn_by_bank(wording):
    grid = drawn(RUN, {})["worst"]
    assert "Most conflicts: ld.b32 of a.cu:4" in grid.title
    assert "lanes of warp 2 of block (1, 0" in grid.title
    assert "0) by bank" in grid.title
    wording("the worst access is drawn by bank", grid.title)


def test_a_run_without_conflicts_has_no_banks_to_show():
    named = dict(drawn(a_run(counted(1, "a.cu:1", 1)), {}).named)
    assert list(named) == ["outcome", "lines"]


def test_lines_beyond_the_first_20_are_counted_unless_all_are_asked_for():
    run = a_run(*(counted(line, f"a.cu:{line}", 1) for line in range(1, 30)))
    assert drawn(run, {})["lines"].notes[-1] == "The first 20 of 29 lines."
    assert len(drawn(run, {}, all_lines=True)["lines"].rows) == 29


def test_copies_and_operands_stand_below():
    traffic = CopyTraffic(
        map_number=0,
        direction="load",
        boxes=2,
        requests=96,
        bytes=96 * 128,
        least_request_bytes=128,
        l2_promotion="128B",
        swizzle="64B",
    )
    operand = OperandRead(
        ptx_line=40,
        source_line=None,
        operand="B",
        rows=128,
        k=16,
        element_bits=16,
        major="MN",
        swizzle="128B",
        leading_bytes=4096,
        stride_bytes=1024,
        base_offset=0,
        first_start=0x8400,
        starts=4,
        reads=24,
    )
    drawing = drawn(a_run(traffic=(traffic,), operands=(operand,)), {})
    assert drawing["traffic"].rows == (("map 0", "load", "2", "96", "128", "12288", "64B", "128B"),)
    assert drawing["operands"].rows == (
        ("PTX line 40", "B", "1", "24", "128 x 16", "16", "MN", "128B", "4096", "1024", "0", "0x8400"),
    )


def test_the_picture_has_the_lines():
    picture = ET.fromstring(drawn(RUN, {"a.cu:5": "out[t * 8] = x;"}).svg())
    said = "".join(picture.itertext())
    assert "216 / 48" in said
    assert "out[t * 8] = x;" in said


def test_operands_of_one_line_that_differ_by_their_start_alone_are_one_row():
    first = OperandRead(
        ptx_line=40,
        source_line="mm.py:10",
        operand="A",
        rows=64,
        k=16,
        element_bits=16,
        major="K",
        swizzle="128B",
        leading_bytes=0,
        stride_bytes=1024,
        base_offset=0,
        first_start=0x420,
        starts=3,
        reads=24,
    )
    second = replace(first, ptx_line=44, first_start=0x400, reads=12)
    other = replace(first, ptx_line=48, stride_bytes=512)
    rows = drawn(a_run(operands=(first, second, other)), {})["operands"].rows
    assert [(row[2], row[3], row[9], row[11]) for row in rows] == [
        ("2", "36", "1024", "0x400"),
        ("1", "24", "512", "0x420"),
    ]
