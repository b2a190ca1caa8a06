"""Sentences made of facts, and rules told by them."""

import pytest

from tilescope.errors import MisalignedAddressError, RuleError, Wording
from tilescope.sentence import UNITS, counted, fact_names, fill_template, format_hex, format_value, listed


@pytest.mark.parametrize(
    ("template", "facts", "sentence"),
    [
        ("no facts at all [0]", {}, "no facts at all [0]"),
        ("box[{axis}] = {extent}", {"axis": 0, "extent": 512}, "box[0] = 512"),
        (
            "{address:#x} {word:#018x} {count:,}",
            {"address": 64, "word": 1, "count": 4096},
            "0x40 0x0000000000000001 4,096",
        ),
        ("{bytes:.15g} bytes", {"bytes": 2.5}, "2.5 bytes"),
        ("{stages:stage}", {"stages": 1}, "1 stage"),
        ("{stages:stage}", {"stages": 3}, "3 stages"),
        ("{tiles:k tile}", {"tiles": 0}, "0 k tiles"),
        ("{copies:copy|copies}", {"copies": 1}, "1 copy"),
        ("{copies:copy|copies}", {"copies": 2}, "2 copies"),
        ("{tile: x }", {"tile": (64, 32)}, "64 x 32"),
        ("{types:, }", {"types": ["s8", "u8"]}, "s8, u8"),
        ("{types:and}", {"types": ("s8", "u8", "b1")}, "s8, u8 and b1"),
        ("{types:or}", {"types": ("s8",)}, "s8"),
        ("dims = {dims}", {"dims": (64, 64)}, "dims = (64, 64)"),
        ("{time:us} {size:MB} {share:%}", {"time": 7.372, "size": 2_500_000, "share": 0.5}, "7.37 us 2.50 MB 50 %"),
        ("card {name!r}", {"name": "H20"}, "card 'H20'"),
        ("an integer: {number}", {"number": 1 << 300}, "an integer: an integer of 301 bits"),
        ("at {number:#x}", {"number": 1 << 300}, "at an integer of 301 bits"),
        ("a tile[[ of {rows:row}]]", {"rows": 8}, "a tile of 8 rows"),
        ("a tile[[ of {rows:row}]]", {"rows": 0}, "a tile"),
        ("a tile[[ of {rows:row}]]", {"rows": None}, "a tile"),
        ("a tile[[ of {rows:row}]]", {}, "a tile"),
        ("a tile[[ of {rows} x {columns}]][[, {note}]]", {"rows": 8, "columns": 0, "note": "cut"}, "a tile, cut"),
        ("braces {{}} stay", {}, "braces {} stay"),
        ("braces {{{count}}} stay", {"count": 1}, "braces {1} stay"),
    ],
)
def test_a_template_makes_a_sentence_of_facts(template, facts, sentence):
    assert fill_template(template, facts) == sentence


def test_a_fact_that_is_missing_is_a_mistake_of_the_caller():
    with pytest.raises(KeyError):
        fill_template("box[{axis}]", {})


def test_a_unit_of_ones_own():
    assert fill_template("on {card:an}", {"card": "H200"}, {**UNITS, "an": lambda name: f"an {name}"}) == "on an H200"


def test_the_facts_of_a_template_are_known_without_filling_it():
    assert fact_names("box[{axis}] = {extent:#x}[[, of {most}]], {axis}") == ("axis", "extent", "most")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (counted(1, "entry", "entries"), "1 entry"),
        (counted(0, "entry", "entries"), "0 entries"),
        (listed([]), ""),
        (listed(["A"]), "A"),
        (listed(["A", "B"]), "A and B"),
        (listed([1, 2, 3], "or"), "1, 2 or 3"),
        (format_value("x" * 100), "'" + "x" * 78 + "…"),
        (format_value([1 << 20000]), "a list that cannot be printed"),
        (format_hex(255), "0xff"),
    ],
)
def test_pieces_of_sentences(made, sentence):
    assert made == sentence


TOLD = Wording("box-range", "warning", "box[{axis}]", "box[{axis}] = {extent}", "1 to {most}", "Use {most}.")


def test_a_violation_holds_its_facts_and_not_its_texts():
    violation = TOLD.violation(axis=1, extent=512, most=256, fix="not used", change={"box": (64, 256)})
    assert (violation.rule, violation.severity, violation.argument) == ("box-range", "warning", "box[1]")
    assert str(violation) == "box-range: box[1] = 512; 1 to 256. Use 256."
    assert dict(violation.values) == {"axis": 1, "extent": 512, "most": 256}
    assert dict(violation.change) == {"box": (64, 256)}


def test_a_case_is_told_otherwise_and_stays_the_same_rule():
    empty = TOLD.worded(found="no box", fix="")
    assert str(empty.violation(axis=0, extent=0, most=256)) == "box-range: no box; 1 to 256. "
    assert TOLD.found == "box[{axis}] = {extent}"


def test_what_the_chip_answers_is_a_fault():
    address = Wording("smem-address", "error", "address", "{address:#x}", "a multiple of 128", "Use 0.", code=716)
    assert isinstance(address.error(address=64), MisalignedAddressError)
    assert type(TOLD.error(axis=0, extent=0, most=256)) is RuleError
