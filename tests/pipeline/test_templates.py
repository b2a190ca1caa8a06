"""Templates are proven and name the words of CUTLASS and CuTe DSL; a description's TOML is read back as the same pipeline."""

import json
import tomllib

import pytest
from descriptions import RIGHT

import tilescope as ts
from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.toml_text import template_names, template_text, toml_text

NAMES = (
    "cooperative-store",
    "flash-attention-3",
    "multicast-cluster",
    "ping-pong",
    "producer-consumers",
    "split-k",
    "two-block-tcgen05",
)


def read(text):
    return Pipeline.from_text(text.encode(), "kernel.toml")


def test_there_is_a_template_for_every_common_kernel():
    assert template_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_proven(name):
    found = ts.simulate(read(template_text(name)))
    assert found.sentence.startswith("Proven for every order: ")
    assert found.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_template_names_the_words_of_cutlass_and_cute_dsl(name):
    comments = "\n".join(line.partition("#")[2] for line in template_text(name).splitlines())
    pipeline = "PipelineTmaUmma" if "tcgen05" in name else "PipelineTmaAsync"
    assert all(word in comments for word in (pipeline, "CooperativeGroup", "CuTe DSL"))
    if "sync = 1" in template_text(name):
        assert "NamedBarrier" in comments


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_printed_as_it_is_and_runs_from_a_file(name, tmp_path, capsys):
    assert run(["pipeline", "--template", name]) == 0
    printed = capsys.readouterr().out
    assert printed == template_text(name)
    path = tmp_path / "kernel.toml"
    path.write_text(printed)
    assert run(["pipeline", str(path)]) == 0


def test_an_unknown_template_is_refused_with_the_names(capsys):
    with pytest.raises(RuleError, match=r"known: cooperative-store, .*two-block-tcgen05"):
        template_text("stream-k")
    assert run(["pipeline", "--template", "pingpong"]) == 2
    assert "Did you mean ping-pong?" in capsys.readouterr().err
    assert run(["pipeline", "128x64", "bf16", "--template", "ping-pong"]) == 2
    assert "leave the words out" in capsys.readouterr().err
    assert run(["pipeline"]) == 2
    assert "--template" in capsys.readouterr().err


def test_one_wrong_number_of_a_template_is_found():
    """A template is a start for changes: the commonest are noticed in each."""
    for name in NAMES:
        wrong = template_text(name).replace("% 2 ^ 1", "% 2")
        assert ts.simulate(read(wrong)).verdict == "mistake", name


@pytest.mark.parametrize("name", RIGHT)
def test_planned_pipelines_are_read_back_from_their_toml(name):
    pipeline = Pipeline.from_dict(RIGHT[name]())
    assert read(toml_text(pipeline)) == pipeline


@pytest.mark.parametrize("name", NAMES)
def test_templates_are_read_back_from_their_toml(name):
    pipeline = read(template_text(name))
    assert read(toml_text(pipeline)) == pipeline


@pytest.mark.parametrize(
    "text", ['a "quoted" \\ name', "tab\tnew\nline", "\x7f\x00", "é ✓ 🙂", "", "# no comment", "'"]
)
def test_any_text_is_written_so_that_toml_reads_it_back(text):
    data = {
        "name": text,
        "constants": {text: 3, "plain-key": -1},
        "barriers": {"größe": {"count": 2}},
        "slots": {"a": {"bytes": 16, "stages": 2}},
        "registers": 168,
        "cluster": [2, 1],
        "roles": [
            {
                "name": text,
                "mask": 2,
                "steps": [
                    {"loop": "i", "count": 2, "start": "rank", "steps": [{"loop": "j", "count": 1, "steps": []}]},
                    {"expect": "größe", "bytes": 16, "arrive": False, "when": "rank == 0"},
                    {"read": ["a[0]", "a[1]"], "tile": 0},
                ],
            }
        ],
    }
    pipeline = Pipeline.from_dict(data)
    written = toml_text(pipeline)
    assert read(written) == pipeline
    assert tomllib.loads(written)["roles"][0]["name"] == text


DESCRIBED = ["pipeline", "64x64", "bf16", "--stages", "2", "--direction", "store", "--steps", "4", "--describe"]
EPILOGUE = """\
name = "64x64 bfloat16, 2 stages, stored"
constants = {STAGES = 2, k_tiles = 4}

[slots]
c = {stages = 2, bytes = 8192}

[[roles]]
name = "epilogue"
threads = 128
steps = [
    {loop = "i", count = "k_tiles", steps = [
        {wait_group = "bulk", pending = 1, read = true},
        {sync = 0},
        {write = ["c[i % STAGES]"]},
        {fence = "proxy.async"},
        {sync = 0},
        {store = ["c[i % STAGES]"], bytes = 8192},
        {commit = "bulk"},
    ]},
    {wait_group = "bulk", pending = 0, read = true},
]
"""


def test_describe_prints_toml_as_the_documentation_writes_it(capsys):
    assert run(DESCRIBED) == 0
    assert capsys.readouterr().out == EPILOGUE
    assert run([*DESCRIBED, "--json"]) == 0
    assert Pipeline.from_dict(json.loads(capsys.readouterr().out)) == read(EPILOGUE)
