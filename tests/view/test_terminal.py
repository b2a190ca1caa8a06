"""What a terminal prints, compared whole."""

import re

import pytest

from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Beside, Entry, Legend, pieces, words
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.palette import CHUNK_COLOURS, ROLES
from tilescope.view.ruler import BitField, BitRuler
from tilescope.view.table import Table

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def printed(*parts, width=60):
    return "\n" + Drawing("", {"parts": parts}).text(width)


def test_a_grid_with_headers_labels_and_spans(parts):
    assert (
        printed(parts["spanning"]())
        == """
Spans
             part a rather wide header   z
  row byte column    0      1      2     3
first  0x0        ─── wide ────    x    y*
  2nd 0x80           a   ───── wider ─────"""
    )


def test_a_grid_too_wide_is_cut_between_groups():
    cells = tuple(Cell(str(bank), bank) for bank in range(16))
    tiers = (Tier.of("chunk", range(4), span=4), Tier.of("bank", range(16)))
    grid = Grid("Banks", tiers, (Row(("0",), cells), Row(("1",), cells[::-1], ruled=True)), ("line",), ("A note.",))
    assert (
        printed(grid, width=40)
        == """
Banks
     chunk ──── 0 ────  ──── 1 ────
line  bank  0  1  2  3   4  5  6  7
   0        0  1  2  3   4  5  6  7
           ─────────────────────────
   1       15 14 13 12  11 10  9  8

     chunk ──── 2 ────  ──── 3 ────
line  bank  8  9 10 11  12 13 14 15
   0        8  9 10 11  12 13 14 15
           ─────────────────────────
   1        7  6  5  4   3  2  1  0
A note."""
    )


def test_a_grid_without_groups_is_cut_between_columns():
    grid = Grid("", (Tier.of("", "abcdef"),), (Row((), tuple(Cell(str(n)) for n in range(6))),))
    assert printed(grid, width=8) == "\na b c d\n0 1 2 3\n\ne f\n4 5"


def test_groups_start_where_the_headers_of_the_first_tier_do():
    row = Row((), tuple(Cell(str(n)) for n in range(4)))
    assert Grid("", (Tier.of("", "ab", span=2), Tier.of("", "abcd")), (row,)).group_starts == {2}
    assert Grid("", (Tier.of("", "abcd"),), (row,)).group_starts == frozenset()
    assert Grid("", (), (row,)).group_starts == frozenset()


def test_parts_stand_side_by_side_while_they_fit():
    one = Grid("One", (), (Row(("a",), (Cell("1"), Cell("2"))), Row(("b",), (Cell("3"), Cell("4!")))))
    pair = Beside({"left": one, "right": one, "below": "and words below them"})
    assert (
        printed(pair, width=30)
        == """
One        One
a  1  2    a  1  2
b  3 4!    b  3 4!

and words below them"""
    )


def test_a_table_of_facts_wraps_its_last_column():
    facts = Table(
        (("rule", "`c ^ (l % 8)` for chunk c of line l, as words that go on"), ("period", "8")), title="Facts"
    )
    assert (
        printed(facts, width=34)
        == """
Facts
rule    c ^ (l % 8) for chunk c of
        line l, as words that go
        on
period  8"""
    )


def test_a_table_with_headings_aligns_its_columns():
    table = Table(
        (("128B", "1", "4552"), ("none", "12", "61")), ("mode", "boxes", "GB/s"), align="lrr", notes=("On a card.",)
    )
    assert (
        printed(table)
        == """
mode  boxes  GB/s
128B      1  4552
none     12    61
On a card."""
    )


def test_a_legend_wraps_between_entries(wording):
    legend = Legend(
        (Entry("one lane", 1, sample="1"), Entry("a collision", 2, "collision", "2"), Entry("a gap", "gap")), "Key"
    )
    wording("a legend wraps between entries", printed(legend, width=36))


def test_a_bit_ruler_of_one_word():
    fields = (
        BitField(0, 13, "start / 16", "0x40", "0x400"),
        BitField(49, 51, "base offset", "0"),
        BitField(62, 63, "swizzle", "1", "128B", mark="collision"),
    )
    assert (
        printed(BitRuler("A descriptor", fields), width=80)
        == """
A descriptor
63    56      48      40      32      24      16       8       0
cc··········[b]···································[-start / 16-]

key  bits   field        value  meaning
a    0-13   start / 16   0x40   0x400
b    49-51  base offset  0
c    62-63  swizzle!     1      128B"""
    )


def test_a_bit_ruler_of_many_words_gathers_the_empty_ones():
    fields = (BitField(28, 35, "across"), BitField(64, 64, "flag", "1"), BitField(65, 66, "two"))
    assert (
        printed(BitRuler("Words", fields, bits=192, row_bits=32, notes=("A note.",)), width=48)
        == """
Words
          31    24      16       8       0
word 0    [a-]····························
word 1    ····························[a-]
word 2    ·····························bba
words 3-5 no named bits

word    key  bits   field   value  meaning
word 0  a    28-31  across
word 1  a    0-3    across
word 2  a    0      flag    1
word 2  b    1-2    two
A note."""
    )


def test_a_wide_terminal_gives_each_bit_more_room(parts):
    drawn = printed(parts["instruction"](), width=100).splitlines()[2:4]
    assert drawn == [
        " 31                   24                      16                       8                       0",
        "[-------------------N / 8-------------------]·····················[A type-]···[-c--]···[b][-a--]",
    ]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("", []),
        ("one two", [(("one", False),), (("two", False),)]),
        ("Use `a ^ b`.", [(("Use", False),), (("a ^ b", True), (".", False))]),
        ("(`f`) or`g`", [(("(", False), ("f", True), (")", False)), (("or", False), ("g", True))]),
        ("`a` `b`", [(("a", True),), (("b", True),)]),
        ("  spaced   out ", [(("spaced", False),), (("out", False),)]),
    ],
)
def test_code_between_backticks_keeps_its_spaces_and_neighbours(text, cut):
    assert [tuple(pieces(word)) for word in words(text)] == cut


def test_no_line_is_wider_than_the_terminal_but_where_it_cannot_be_broken(sample):
    for width in (80, 120):
        assert max(map(len, sample.text(width).splitlines())) <= width


def coloured(drawing, width):
    """What a terminal of many colours gets."""
    from rich.console import Console

    console = Console(width=width, color_system="truecolor", force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(drawing)
    return captured.get()


def test_colour_changes_nothing_but_colour(sample):
    said = ESCAPE.sub("", coloured(sample, 100))
    assert [line.rstrip() for line in said.splitlines()] == sample.text(100).splitlines()


def test_rich_knows_every_style_of_the_palette():
    from rich.style import Style

    for colour in (*CHUNK_COLOURS, *ROLES.values()):
        style = Style.parse(colour.terminal)
        assert not colour.terminal or style
        if " on " in colour.terminal:
            assert (style.color.name, style.bgcolor.name) == (colour.ink, colour.fill)


def test_cells_have_their_colours_and_collisions_are_red():
    from rich.console import Console

    cells = (Cell("0", 0), Cell("9", 9), Cell("x", "fill"), Cell("c", 2, "collision"))
    drawing = Drawing("", {"grid": Grid("", (), (Row((), cells),))})
    segments = [segment for line in Console(width=80).render_lines(drawing) for segment in line]
    shown = [
        (segment.text.strip(), segment.style.color.name, segment.style.bgcolor.name, bool(segment.style.bold))
        for segment in segments
        if segment.text.strip() and segment.style
    ]
    colours = (CHUNK_COLOURS[0], CHUNK_COLOURS[1], ROLES["fill"], ROLES["collision"])
    expected = [(colour.ink, colour.fill, number == 3) for number, colour in enumerate(colours)]
    assert shown == [(text, *colour) for text, colour in zip(("0", "9", "x", "c!"), expected, strict=True)]


def test_a_sentence_beside_wide_columns_stays_readable():
    table = Table([("word " * 8, "yes", "a sentence " * 6)], ("one", "", "why"))
    lines = Drawing("", {"table": table}).text(60).splitlines()
    assert max(map(len, lines)) <= 60
    assert max(len(line[line.rindex("  ") :].strip()) for line in lines[:3]) >= 16


def test_a_table_that_becomes_records_leaves_out_what_is_empty():
    wide = Table([("a" * 30, "", "b" * 30)], ("first", "second", "third"))
    assert "second" not in Drawing("", {"table": wide}).text(40)
