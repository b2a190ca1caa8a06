"""The files of the package that a data race crosses, from the first instruction to its finding with a tested fix: one name in each line.

A kernel runs twice, and only calls in the second run count: what is found once for a program is kept.
"""

import sys
from pathlib import Path

import numpy as np

import tilescope as ts

PACKAGE = Path(ts.__file__).parent
REVERSE = Path(__file__).parent.parent / "examples" / "reverse.ptx"


def run_race(kernel):
    """Run a kernel that lacks a barrier; its only finding has a fix."""
    run = kernel.run(grid=1, block=64, args=[np.arange(64, dtype=np.float32)])
    assert [(finding.rule, finding.change is not None) for finding in run.findings] == [("run-race", True)]


def find_files():
    """The files whose functions are called."""
    kernel = ts.Kernel(REVERSE.read_text("utf-8"))
    run_race(kernel)
    files = set()

    def note_call(frame, event, _argument):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note_call)
    run_race(kernel)
    sys.setprofile(None)
    paths = [Path(file) for file in files]
    return sorted(str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE))


if __name__ == "__main__":
    sys.stdout.write("\n".join(find_files()))
