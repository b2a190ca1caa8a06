import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # modules beside the tests

CHILD = (sys.executable, str(Path(__file__).parent / "predicting_child.py"))


@pytest.fixture
def predicting(monkeypatch):
    """Children that do what tilescope says stand in for the card; called with "WRONG", something else."""
    from tilescope.gpu.driver import isolation

    def stand_in(*arguments):
        monkeypatch.setattr(isolation, "COMMAND", (*CHILD, *arguments))
        monkeypatch.setattr(isolation, "compile_kernels", lambda *_: b"")

    stand_in()
    return stand_in
