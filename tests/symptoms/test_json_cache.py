"""What takes long to make is kept in the user's cache folder, and nothing depends on it."""

import pytest

from tilescope.symptoms import json_cache
from tilescope.symptoms.json_cache import cached_json


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(json_cache, "find_cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def never_made():
    raise AssertionError("it is kept already")


@pytest.mark.usefixtures("folder")
def test_it_is_made_once():
    made = {"words": ["tile", "swizzle"]}
    assert cached_json("words", [b"a text"], lambda: made) == made
    assert cached_json("words", [b"a text"], never_made) == made


def test_another_text_is_made_anew_and_replaces_the_old_one(folder):
    cached_json("words", [b"a text"], lambda: ["old"])
    cached_json("tables", [b"a text"], lambda: ["another thing"])
    assert cached_json("words", [b"another text"], lambda: ["new"]) == ["new"]
    assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == ["tables", "words"]


def test_what_somebody_spoiled_is_made_anew(folder):
    cached_json("words", [b"a text"], lambda: ["right"])
    (file,) = folder.iterdir()
    file.write_text('["ri')
    assert cached_json("words", [b"a text"], lambda: ["right"]) == ["right"]
    assert cached_json("words", [b"a text"], never_made) == ["right"]


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(json_cache, "find_cache_folder", lambda: tmp_path / "file" / "cache")
    assert cached_json("words", [b"a text"], lambda: ["made"]) == ["made"]
    assert cached_json("words", [b"a text"], lambda: ["made again"]) == ["made again"]


def test_a_user_without_a_home_directory_has_no_cache(monkeypatch):
    """As in a container that runs under a number which no table of users has."""

    def find_no_home(*_arguments, **_options):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_cache_path", find_no_home)
    made = []
    assert [cached_json("nowhere", [b"text"], lambda: made.append(1) or {"a": 1}) for _ in range(2)] == [{"a": 1}] * 2
    assert len(made) == 2
