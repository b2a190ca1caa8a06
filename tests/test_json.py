"""docs/json.md says what commands print, and JSON that an older version wrote is read."""

import importlib.util
import json
from pathlib import Path

import pytest

from tilescope.cli import run
from tilescope.value import JSON_VERSION, Value, own_data

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("json_page", HERE / "json_page.py")
json_page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(json_page)

WRITE = "python tests/json_page.py"
NOT_STORED = {"tensor_memory"}  # 128 x 512 cells: 130 KB of zeros
ROWS_BY_NAME = {"rule", "card"}  # from_dict gives the row of this version, whatever was written of it
OWN_FORM = {"kernel_description", "pipeline"}  # as it is written in a file: what is not there is left out
STORED = [
    pytest.param(kind, sample, id=f"{file.stem} {kind}")
    for file in sorted(json_page.SAMPLES.glob("*.json"))
    for kind, sample in json.loads(file.read_text("utf-8")).items()
]


def test_the_page_is_what_the_values_say():
    assert json_page.PAGE.read_text("utf-8") == json_page.page(), f"docs/json.md is stale: {WRITE}"


def test_every_field_of_every_kind_has_a_meaning():
    unsaid = [
        f"{kind}.{field.name}"
        for kind, cls in json_page.kinds().items()
        for field in json_page.described_fields(kind, cls)
        if not field.meaning.removesuffix(" For reading only.")
    ]
    assert unsaid == [], "write a comment behind the field"


def test_everything_that_commands_add_has_a_meaning():
    added = {key for _, _, beside in json_page.printed_table() for key in beside}
    assert added - set(json_page.TABLE["extra"]) == set(), "add it to extra of tests/json_fields.toml"


def test_every_kind_has_a_stored_sample():
    stored = {kind for kind, _ in (param.values for param in STORED)}
    assert set(json_page.kinds()) - stored - NOT_STORED == set(), f"store one: {WRITE}, or its table of samples"


def kept(told, read):
    """What `read` has of what was `told`, without what follows from the rest: fields may have been added since."""
    if isinstance(told, dict) and isinstance(read, dict):
        derived = getattr(json_page.kinds().get(told.get("kind")), "_derived", ())
        return {name: kept(value, read.get(name)) for name, value in told.items() if name not in derived}
    if isinstance(told, list) and isinstance(read, list) and len(told) == len(read):
        return [kept(*pair) for pair in zip(told, read, strict=True)]
    return read


@pytest.mark.parametrize(("kind", "sample"), STORED)
def test_what_a_version_wrote_is_read(kind, sample):
    value = Value.from_dict(sample)
    assert value.kind == kind
    told = json.loads(json.dumps(value.to_dict()))
    if kind in ROWS_BY_NAME:
        assert told["name"] == sample["name"]
    else:
        expected = own_data(sample)
        assert kept(expected, told) == kept(expected, expected)


@pytest.mark.parametrize(("kind", "sample"), STORED)
def test_the_page_names_the_fields_that_json_has(kind, sample):
    named = {field.name for field in json_page.described_fields(kind, json_page.kinds()[kind])}
    written = set(own_data(sample)) - {"kind"}
    assert written <= named
    if kind not in OWN_FORM:
        assert set(Value.from_dict(sample).to_dict()) - {"kind"} == named


def test_a_command_says_the_version_first_and_objects_within_do_not(capsys):
    assert run(["check", "--type", "bf16", "--dims", "64,64", "--box", "64,8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed)[:2] == ["kind", "version"]
    assert printed["version"] == JSON_VERSION == 1
    assert "version" not in printed["tensor_map"]
