"""What the package says of itself is one thing: pyproject.toml, the table of extras, the pages and the files around them agree."""

import re
import tomllib
from pathlib import Path

import pytest

import tilescope
from tilescope.extras import EXTRAS, extra_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OPTIONAL = PROJECT["optional-dependencies"]
PAGE = (ROOT / "docs" / "installing.md").read_text("utf-8")


def package_of(requirement):
    """The name in a requirement: "numba" of "numba>=0.61"."""
    return re.match(r"[\w.-]+", requirement)[0]


def test_the_extras_in_the_code_are_those_of_the_package():
    in_code = {extra.name: [package.name for package in extra.packages] for extra in EXTRAS}
    in_project = {name: [package_of(each) for each in needs] for name, needs in OPTIONAL.items() if name in in_code}
    assert in_code == in_project
    assert set(OPTIONAL) == {*in_code, "docs", "all", "dev"}
    small = [name for name in in_code if name != "triton"]  # 260 MB, for those who write Triton
    assert OPTIONAL["all"] == [f"tilescope[{','.join(small)}]"]


def test_the_page_has_one_table_of_extras_which_is_the_packages():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(OPTIONAL)
    told = {name: (packages, serves) for name, packages, serves in rows}
    for extra in EXTRAS:
        assert told[extra.name] == (", ".join(package.name for package in extra.packages), extra.serves)


@pytest.mark.parametrize(
    ("module", "extra"),
    [("starlette.applications", "web"), ("cuda.bindings", "gpu"), ("numba", "fast"), ("numpy", None), ("torch", None)],
)
def test_a_missing_module_leads_to_its_extra(module, extra):
    assert extra_of(module) == extra


def test_one_version():
    assert tilescope.__version__ == "0.1.0"
    assert re.search(r'^version: "?0\.1\.0"?$', (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert "## 0.1.0" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "tilescope-0.1.0-py3-none-any.whl" in PAGE


def test_the_changelog_is_read_in_two_minutes():
    words = (ROOT / "CHANGELOG.md").read_text("utf-8").split()
    assert len(words) < 600  # 250 words a minute, and a pause


def test_the_versions_of_python_are_those_that_are_run():
    versions = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"


def test_a_citation_has_what_the_format_demands():
    """Of the Citation File Format 1.2.0: cff-version, message, title and authors are required, and each author has a name."""
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    keys = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    assert {"cff-version", "message", "title", "authors"} <= set(keys)
    assert len(keys) == len(set(keys))
    assert "cff-version: 1.2.0\n" in text
    assert re.search(r"^authors:\n  - (?:name|family-names|given-names): \S", text, re.MULTILINE)
    assert f"license: {PROJECT['license']}\n" in text


@pytest.mark.parametrize("name", ["a-wrong-answer.yml", "a-mistake.yml", "a-wish.yml"])
def test_reports_of_mistakes_ask_for_what_is_needed(name):
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text("utf-8")
    assert form.startswith("name: ")
    for part in ("description: ", "body:", "- type: textarea"):
        assert part in form
    if name != "a-wish.yml":
        assert "tilescope verify --environment" in form
        assert "required: true" in form


def test_security_says_where_to_write():
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    for word in ("Supported", "Reporting", "private"):
        assert word in text
