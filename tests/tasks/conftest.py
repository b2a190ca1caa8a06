"""A user's desk: an empty folder, the command line in it, and files that the user has at hand."""

import shlex
from typing import NamedTuple

import pytest

from tilescope.cli import run


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str

    @property
    def first(self):
        """The line that answers."""
        return self.out.partition("\n")[0]

    @property
    def text(self):
        """Everything that was printed, without line breaks: a terminal's width is no part of an answer."""
        return " ".join(f"{self.out} {self.err}".split())


class Desk:
    """A folder in which a user types commands."""

    def __init__(self, folder, capfd, require):
        self.folder = folder
        self.require = require
        self._capfd = capfd

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def type(self, line):
        """Run `tilescope …`, as a shell takes it."""
        program, *words = shlex.split(line)
        assert program == "tilescope"
        self._capfd.readouterr()
        status = run(words)
        return Said(status, *self._capfd.readouterr())


@pytest.fixture
def desk(tmp_path, monkeypatch, capfd, require):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Desk(tmp_path, capfd, require)
