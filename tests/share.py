"""One run of pytest on all cores: collect once, fork, and let each process take the next file that no other has taken.

    python tests/share.py [ARGUMENT OF PYTEST…]

xdist, which ./test ARGUMENT… uses, collects in every process and sends a report of each test to another process. On 3,624
tests of twelve folders, `pytest -n 2 --dist loadfile` needs 72 seconds of CPU time and this runner 56, because most tests
take milliseconds. A process claims a file by making a folder of its name, which succeeds once. The first process prints while
it runs; the output of the others follows at the end.
"""

import itertools
import os
import sys
import tempfile
from pathlib import Path

import pytest

# What starts browsers, compilers and servers comes first: whoever ends early then finds a short file to begin.
LONG = {"browser", "emitter", "gpu_layer", "machine", "watch", "web"}


class Sharing:
    """Runs the tests of one session in several processes."""

    def __init__(self, folder, processes):
        self.folder, self.processes = Path(folder), processes
        self.is_mine, self.others, self.session = {}, {}, None

    def claimed(self, path):
        """Whether this process runs the tests of a file: it was the first to ask."""
        if path not in self.is_mine:
            try:
                (self.folder / str(path).replace(os.sep, " ")).mkdir()
            except FileExistsError:
                self.is_mine[path] = False
            else:
                self.is_mine[path] = True
        return self.is_mine[path]

    def forked(self, config):
        """Start the other processes; the number of the process in which this returns."""
        sys.stdout.flush()
        for number in range(1, self.processes):
            log = self.folder / f"log {number}"
            process = os.fork()
            if not process:
                self.others = {}
                write_to(log, config.pluginmanager.getplugin("capturemanager"))
                return number
            self.others[process] = log
        return 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """pytest's own loop, over the items of claimed files; what is torn down depends on the item that follows."""
        self.session = session
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly:
            return True
        items = sorted(session.items, key=lambda item: LONG.isdisjoint(item.path.parts))
        begin = len(items) * self.forked(session.config) // self.processes
        mine = (item for item in items[begin:] + items[:begin] if self.claimed(item.path))
        for item, following in itertools.pairwise(itertools.chain(mine, [None])):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def pytest_unconfigure(self):
        """Wait for the processes that this one started: what they printed follows, and one that failed fails the run."""
        for process, log in self.others.items():
            _, status = os.waitpid(process, 0)
            sys.stdout.flush()
            sys.stdout.buffer.write(log.read_bytes())
            if status and not self.session.exitstatus:
                self.session.exitstatus = pytest.ExitCode.TESTS_FAILED


def write_to(log, captured):
    """Let a forked process write to a file; what its tests print is kept apart from the tests of its parent."""
    captured.stop_global_capturing()
    with log.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    captured.start_global_capturing()
    captured.suspend_global_capture()


def main(arguments, processes):
    first = os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        status = pytest.main(["-p", "no:logging", *arguments], plugins=[Sharing(folder, processes)])
        if os.getpid() != first:
            sys.stdout.flush()
            os._exit(status)  # the folder is the first one's to remove
    return status


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -m pytest` has it: what lies beside this file is not found by its name
    sys.exit(main(sys.argv[1:], len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()))
