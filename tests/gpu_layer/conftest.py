import sys
from pathlib import Path

import pytest

CHILD = (sys.executable, str(Path(__file__).parent / "predicting_child.py"))


@pytest.fixture
def predicting(monkeypatch):
    """Children that do what tilescope says stand in for the card; called with "WRONG", something else."""
    from tilescope.gpu import benchmark, verification

    def stand_in(*arguments):
        for module in (verification, benchmark):
            monkeypatch.setattr(module, "COMMAND", (*CHILD, *arguments))
            monkeypatch.setattr(module, "compiled", lambda *_: b"")

    stand_in()
    return stand_in
