"""One run of pytest on all cores: as many processes, each of which begins the files that no other has begun.

    python tests/share.py [ARGUMENT OF PYTEST…]

xdist, which ./test ARGUMENT… uses, hands out single tests and reports every one of them to a further process: with thousands
of tests that take a millisecond, it needs more time than they do. Here a process claims a file by making a folder of its
name, which succeeds once. The first process prints while it runs, the others' lines follow at the end.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments, processes):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", *arguments, f"--share={folder}"]
        first = subprocess.Popen(command)
        while first.poll() is None and not Path(folder, "collected").exists():
            time.sleep(0.05)  # what it has compiled, the others need not compile again
        logs = [Path(folder, f"log {number}") for number in range(1, processes)]
        others = [
            subprocess.Popen(
                [*command, f"--share-from={number}/{processes}"], stdout=log.open("wb"), stderr=subprocess.STDOUT
            )
            for number, log in enumerate(logs, 1)
        ]
        statuses = [process.wait() for process in (first, *others)]
        for log in logs:
            sys.stdout.flush()
            sys.stdout.buffer.write(log.read_bytes())
    return max(map(abs, statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()))
