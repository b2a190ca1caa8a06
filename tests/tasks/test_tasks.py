"""Twenty-four tasks of people who write kernels, done as somebody would who has read the README alone.

A task is a file beside this one: its docstring is the situation, `solve(desk)` is what is typed, and asserts what the
answer has to say. `IS_SLOW` marks those that start compilers and other programs.
"""

import importlib.util
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith(("conftest", "test_")))


def loaded(path):
    spec = importlib.util.spec_from_file_location(f"task_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case(path):
    task = loaded(path)
    marks = [pytest.mark.slow] if getattr(task, "IS_SLOW", False) else []
    return pytest.param(task, id=path.stem, marks=marks)


@pytest.mark.parametrize("task", [case(path) for path in FILES])
def test_a_new_user_solves(task, desk):
    task.solve(desk)


class WrongDesk:
    """The desk of a user whose tilescope has every digit wrong."""

    def __init__(self, desk):
        self.folder = desk.folder
        self.require = desk.require
        self.write = desk.write
        self._type = desk.type

    def type(self, line):
        said = self._type(line)
        return type(said)(said.status, wrong(said.out), wrong(said.err))


def wrong(text):
    return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), text)


WITHOUT_COMMANDS = {"kernel_test_in_pytest", "python_in_a_notebook", "code_that_compiles"}


@pytest.mark.parametrize("task", [case(path) for path in FILES if path.stem not in WITHOUT_COMMANDS])
def test_a_wrong_answer_fails(task, desk):
    with pytest.raises((AssertionError, ValueError)):  # ValueError: a document that is JSON no more
        task.solve(WrongDesk(desk))


def test_every_task_is_told():
    assert len(FILES) == 24
    for path in FILES:
        assert (loaded(path).__doc__ or "").strip(), path.name
