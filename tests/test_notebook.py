"""What a notebook shows: pictures that fit a cell, tables for what has no picture, and a trace that answers to the mouse."""

import json
import re
import sys
import types
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import tilescope as ts
from tilescope.html_table import MAX_ROWS, html_table
from tilescope.value import rows_table

CELL_WIDTH = 960  # pixels in a window of 1100
SMALL_TRACE = ts.trace(ts.TensorMap("bf16", (64, 16), (128,), (64, 8), swizzle="128B"), (0, 4))
PLAN = ts.plan((128, 64), "bf16").best
DRAWN = [
    ts.Swizzle.named("64B"),
    ts.Layout((64, 64), 16, swizzle="128B"),
    ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B"),
    SMALL_TRACE,
    ts.bank_report("ld.b32", np.arange(32) * 128),
    ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B"),
    ts.fragment("wgmma.m64n256k16", "D", "f32"),
    PLAN,
    ts.simulate(ts.plan_pipeline(PLAN, stages=4)),
    ts.Mbarrier(1),
]
WITHOUT_DRAWING = [ts.Card.named("H200"), ts.DataType.named("bf16"), ts.Problem((128, 64), "bf16"), PLAN.costs]


class Cells(HTMLParser):
    """The texts of the cells of a table."""

    def __init__(self):
        super().__init__()
        self.texts = []
        self.inside = False

    def handle_starttag(self, tag, attrs):
        if tag in ("td", "th"):
            self.inside = True
            self.texts.append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def cells(html):
    parser = Cells()
    parser.feed(html)
    return parser.texts


@pytest.mark.parametrize("value", DRAWN, ids=lambda value: value.kind)
def test_a_picture_is_no_wider_than_a_cell_of_a_notebook(value):
    drawn = value._repr_mimebundle_()["image/svg+xml"]
    assert float(ET.fromstring(drawn).get("width")) <= CELL_WIDTH
    assert all(float(scale) >= 0.8 for scale in re.findall(r"scale\(([0-9.]+)\)", drawn))  # its texts can be read


def test_a_narrow_picture_is_as_it_is_elsewhere():
    value = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    assert value._repr_mimebundle_()["image/svg+xml"] == value.svg()


@pytest.mark.parametrize("value", WITHOUT_DRAWING, ids=lambda value: value.kind)
def test_what_has_no_drawing_is_a_table_of_its_fields(value):
    shown = value._repr_mimebundle_()
    assert "image/svg+xml" not in shown
    assert cells(shown["text/html"])[0::2] == [name for name in value.to_dict() if name in cells(shown["text/html"])]


def test_violations_are_a_table():
    broken = ts.TensorMap.check("bf16", (4096, 1000), (8200,), (128, 64), swizzle="128B")
    texts = cells(rows_table(broken))
    assert texts[:6] == ["severity", "rule", "where", "found", "limit", "fix"]
    assert texts[6:9] == ["error", "stride-alignment", "strides_bytes[0]"]
    assert len(texts) == 6 * (1 + len(broken)) == 18
    assert cells(broken[1]._repr_html_()) == texts[:6] + texts[12:]


def test_rows_of_one_kind_are_a_table_without_columns_that_say_nothing():
    reasons = cells(rows_table(PLAN.reasons))
    assert len(reasons) % (len(PLAN.reasons) + 1) == 0
    assert rows_table([ts.SWIZZLE["64B"], ts.ARCH["sm_90"]]) is None
    assert rows_table("text") is None


def test_a_long_table_is_cut_and_says_so():
    shown = html_table(["n"], [[str(n)] for n in range(MAX_ROWS + 7)])
    assert len(cells(shown)) == 1 + MAX_ROWS
    assert shown.endswith("<p>… 7 more</p>")


def test_text_is_escaped_and_code_is_code():
    assert "<td" in html_table([], [["a"]])
    assert "&lt;b&gt; and <code>x &lt; y</code>" in html_table([], [["<b> and `x < y`"]])


def test_a_trace_has_a_slider_over_its_rows():
    shown = SMALL_TRACE._repr_mimebundle_()["text/html"]
    assert 'max="8"' in shown
    steps = json.loads(re.search(r'data-steps="([^"]*)"', shown)[1].replace("&quot;", '"'))
    assert steps[0] == ["0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7", "row 0 of the copy: coordinates (0, 4)"]
    assert shown.count('data-link="3.2"') == 2  # in the tensor, and in shared memory
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")  # nothing to load


def test_any_drawing_can_be_had_as_html_and_nothing_else():
    assert 'type="range"' in ts.Swizzle.named("128B").html()
    assert 'type="range"' not in ts.Mbarrier(1).html()
    with pytest.raises(ts.RuleError, match="has no drawing"):
        ts.Card.named("H200").html()


def test_source_code_is_shown_line_by_line():
    source = ts.snippet(PLAN, "address-python")
    told = []
    source._repr_pretty_(types.SimpleNamespace(text=told.append), cycle=False)
    assert told == [str(source)]
    assert isinstance(ts.emit(PLAN, "triton"), str)


def test_what_is_no_value_says_what_it_is():
    memory = ts.Memory()
    memory.place(np.zeros(100, np.float32))
    assert repr(memory) == "<Memory: 1 array, 400 bytes>"
    assert repr(ts.RULES) == f"<the rule book: {len(ts.RULES)} rules by name>"


def test_lists_are_shown_as_tables_where_ipython_runs(monkeypatch):
    shown_by = {}
    formatter = types.SimpleNamespace(for_type=shown_by.__setitem__)
    shell = types.SimpleNamespace(display_formatter=types.SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    ts._show_rows_as_tables()
    assert {*shown_by} == {list, tuple}
    assert shown_by[list]([*PLAN.reasons]) == rows_table(PLAN.reasons)
    assert shown_by[tuple]((1, 2)) is None
