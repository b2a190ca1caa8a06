"""`tilescope explain`: every topic can be found, by every spelling, and says what the tables say."""

import io
import json

import pytest

from tilescope.arch import ARCH
from tilescope.cli import run
from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError
from tilescope.questions import topic_questions
from tilescope.rule import RULES
from tilescope.swizzle import SWIZZLE
from tilescope.symptoms import CAUSE, SYMPTOM, TERMS
from tilescope.symptoms.topic import fold_name
from tilescope.tensor_map import field_topics
from tilescope.tensor_map.replacement import REPLACE
from tilescope.value import Value

NAMES = [name for _, names in topic_questions.index().groups for name in names]
SPELLINGS = [(alias, term.name) for term in TERMS for alias in term.aliases]


def explained(*words):
    assert run(["explain", *words]) == 0


def test_all_topics_are_listed(capsys):
    explained()
    listed = " ".join(capsys.readouterr().out.split())
    tables = (TERMS, SWIZZLE, DATA_TYPE, ARCH, RULES, field_topics.topics(), CAUSE, SYMPTOM)
    assert len(NAMES) == sum(map(len, tables))
    assert all(name in listed for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_topic_listed_is_found_by_its_name(name, capsys):
    explained(name)
    shown = capsys.readouterr().out
    first, _, title, blank, *text = shown.splitlines()
    assert first.startswith(f"{name}: ")
    assert (title, blank) == (name, "")
    is_long = name in RULES or name in SYMPTOM or name == REPLACE
    assert 1 <= len(text) <= (70 if is_long else 36 if name in CAUSE else 20)
    assert [line for line in text if len(line) > 80 and len(line.split()) > 3] == []  # a long word stands alone


@pytest.mark.parametrize(("alias", "name"), SPELLINGS)
def test_other_spellings_lead_to_the_same_topic(alias, name):
    assert topic_questions.find(alias).name == name


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("k_major", "K-major"),
        ("K MAJOR", "K-major"),
        ("  Base   Offset ", "base offset"),
        ("cu_tensor_map_swizzle_64b", "64B"),
        ("half", "float16"),
        (".bf16", "bfloat16"),
        ("sm_90a", "sm_90"),
        ("12.0", "sm_120"),
        ("xor:2,5,3", "xor:2,5,3"),
    ],
)
def test_case_and_separators_do_not_matter(spelled, name):
    assert topic_questions.find(spelled).name == name


@pytest.mark.parametrize(
    ("argument", "field"),
    [
        ("globalDim", "dims[i]"),
        ("globaldim[1]", "dims[i]"),
        ("globalStrides", "strides_bytes[i]"),
        ("tensorRank", "rank"),
        ("tensorDataType", "data_type"),
        ("globalAddress", "address"),
        ("pixelBoxLowerCorner", "lower_corner[i]"),
        ("pixelBoxUpperCorner", "upper_corner[i]"),
        ("channelsPerPixel", "channels_per_pixel"),
    ],
)
def test_the_arguments_of_the_driver_lead_to_their_fields(argument, field):
    assert topic_questions.find(argument).name == f"field {field}"


@pytest.mark.parametrize(
    ("argument", "term"),
    [
        ("boxDim", "box"),
        ("elementStrides", "element stride"),
        ("l2Promotion", "L2 promotion"),
        ("oobFill", "out-of-bounds fill"),
    ],
)
def test_other_arguments_of_the_driver_are_terms(argument, term):
    assert topic_questions.find(argument).name == term


def test_words_need_no_quotes(capsys):
    explained("base", "offset")
    assert capsys.readouterr().out.startswith("base offset:")


def test_no_spelling_means_two_things():
    others = [name for group, names in topic_questions.index().groups if group != "causes" for name in names]
    spelled = [fold_name(alias) for alias, _ in SPELLINGS] + [fold_name(name) for name in others]
    assert len(spelled) == len(set(spelled))


def test_a_cause_that_is_spelled_like_a_term_says_what_the_term_means():
    terms = {fold_name(spelling): term for term in TERMS for spelling in (term.name, *term.aliases)}
    shared = {name: terms[fold_name(name)] for name in CAUSE if fold_name(name) in terms}
    assert {"parity", "base-offset", "lane-quarter"} <= set(shared)
    for name, term in shared.items():
        assert CAUSE[name].term == term.name, name
        assert topic_questions.find(name).meaning == term.meaning
        assert dict(topic_questions.find(name).facts)["as a cause"] == CAUSE[name].mechanism


def test_what_to_read_next_exists():
    for name in NAMES:
        for other in getattr(topic_questions.find(name), "see", ()):  # rules have none
            assert topic_questions.find(other).name == other


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("swizle", "swizzle"),
        ("lb0", "LBO"),
        ("bflot16", "bfloat16"),
        ("sm_99", "sm_90"),
        ("wavfront", "wavefront"),
        ("driver version insufficient", "toolkit-version"),
    ],
)
def test_an_unknown_topic_gets_the_nearest_on_stdout(typed, meant, capsys):
    assert run(["explain", typed]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "unknown-name" not in shown.out
    assert meant in shown.out.split("one of these?")[1]


@pytest.mark.parametrize("typed", ["zzzzqqqq", "x" * 5000, "\x00"])
def test_what_is_near_nothing_points_to_the_list(typed, capsys):
    assert run(["explain", typed]) == 1
    said = capsys.readouterr().out
    assert "tilescope explain lists" in said
    assert len(said) < 600


def test_what_is_near_is_plain_data(capsys):
    assert run(["explain", "swizle", "--json"]) == 1
    near = Value.from_dict(json.loads(capsys.readouterr().out))
    assert near.topics == ("swizzle",)
    assert near.question == "swizle"


def test_a_dash_reads_stdin(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"NVRM: Xid (PCI:0000:31:00): 79, pid=1896\n")))
    explained("-")
    assert capsys.readouterr().out.startswith("Xid 79: The card no longer")


def test_an_empty_stdin_is_said_so(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert run(["explain", "-"]) == 2
    assert "stdin holds no words" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["swizzle", "128B", "bfloat16", "sm_90", "box-range", "box[0]", None])
def test_json_gives_the_topic_back(name, capsys):
    assert run(["explain", *([name] if name else []), "--json"]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert found == (topic_questions.find(name) if name else topic_questions.index())


@pytest.mark.parametrize("row", SWIZZLE.values(), ids=str)
def test_a_mode_says_its_limits(row):
    said = topic_questions.find(row.name).meaning
    assert all(name in said for name in row.architectures)
    assert row.basis in said
    if row.span_bytes:
        assert f"at most {row.span_bytes} bytes" in said


@pytest.mark.parametrize("row", DATA_TYPE.values(), ids=lambda row: row.name)
def test_a_data_type_says_how_it_travels(row):
    said = topic_questions.find(row.name).meaning
    assert f" of {row.bits} bit" in said
    assert f"`.{row.ptx}`" in said
    if row.driver_code is None:
        assert f"moves it as {row.tma_name}." in said
    else:
        assert f"is {row.driver_code}, that of PTX {row.ptx_code}." in said
        assert ("NaN" in said) == row.is_float


@pytest.mark.parametrize("row", ARCH.values(), ids=lambda row: row.name)
def test_an_architecture_says_what_it_has(row):
    said = topic_questions.find(row.name).meaning
    for feature in row.features:
        listed = f" {feature.replace('_', ' ')}"
        assert (listed + "," in said or listed + "." in said) == row.has(feature), feature
    assert f"{row.smem_per_block_bytes // 1024} KiB a block" in said


def test_numbers_in_the_glossary_are_those_of_the_tables():
    for name, span in (("32B", 32), ("64B", 64), ("96B", 96), ("128B", 128)):
        assert SWIZZLE[name].span_bytes == span
    said = topic_questions.find("period").meaning
    assert "2 for 32B, 4 for 64B, 8 for 128B" in said
    assert [SWIZZLE[name].period_lines for name in ("32B", "64B", "128B")] == [2, 4, 8]
    assert "256, 512 and 1024 bytes" in said
    assert [SWIZZLE[name].repeat_bytes for name in ("32B", "64B", "128B")] == [256, 512, 1024]
    assert "128B is 1 in bits 62-63 for wgmma" in topic_questions.find("matrix descriptor").meaning
    assert "2 in bits 61-63 for tcgen05" in topic_questions.find("matrix descriptor").meaning
    assert (SWIZZLE["128B"].wgmma_code, SWIZZLE["128B"].tcgen05_code) == (1, 2)
    assert [name for name, row in ARCH.items() if row.has("tcgen05")] == ["sm_100", "sm_103", "sm_110"]


def test_an_unknown_topic_is_a_rule_error():
    with pytest.raises(RuleError):
        topic_questions.find("nonsense of some length")
