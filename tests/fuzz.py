"""Property tests on random cases, round after round: python tests/fuzz.py [SECONDS] [--seed N] [ARGUMENT…]

./test draws the same cases every time. Here, each round runs all property tests once with the seed that it prints, and
the next round increments the seed. Rounds continue for about SECONDS, or until one fails, which gives exit status 1:

    .venv/bin/python tests/fuzz.py                  two minutes, from a random seed on
    .venv/bin/python tests/fuzz.py 600 tests/tma    ten minutes of the tests in tests/tma
    .venv/bin/python tests/fuzz.py --seed 4711      the whole round of that seed: a failure is reproduced

Further arguments are pytest's. Pin a failing case as an `@example` above its test.
"""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 120
TESTS = Path(__file__).parent
# The time after which no further test of a round begins: seconds, as time.time() has them.
UNTIL = "TILESCOPE_FUZZ_UNTIL"


def property_tests():
    """The files in which something is drawn: collecting the others takes longer than a short run."""
    return [
        str(path) for path in sorted(TESTS.rglob("test_*.py")) if "from hypothesis import" in path.read_text("utf-8")
    ]


def one_round(seed, arguments, until=None):
    """pytest's exit status."""
    where = [] if any(Path(argument.partition("::")[0]).exists() for argument in arguments) else property_tests()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "hypothesis and not slow"]
    command += ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *arguments, *where]
    environment = os.environ | ({} if until is None else {UNTIL: str(until)})
    return subprocess.run(command, cwd=TESTS.parent, env=environment, check=False).returncode


def fuzz(seconds, seed, arguments):
    """Exit status of all rounds: 0, or that of the first which fails."""
    until = None if seconds is None else time.time() + seconds
    while True:
        say(f"== seed {seed}")
        if status := one_round(seed, arguments, until):
            say(
                f"Seed {seed} failed. To see it again: {' '.join(['.venv/bin/python tests/fuzz.py --seed', str(seed), *arguments])}"
            )
            return status
        if until is None or time.time() >= until:
            return 0
        seed += 1


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments):
    seconds = seed = None
    if arguments and re.fullmatch(r"\d+", arguments[0]):
        seconds, *arguments = arguments
        seconds = int(seconds)
    if arguments[:1] == ["--seed"]:
        if len(arguments) < 2 or not re.fullmatch(r"\d+", arguments[1]):
            return "--seed takes a number, which an earlier run has printed: tests/fuzz.py --seed 4711"
        seed, arguments = int(arguments[1]), arguments[2:]
    if seed is None:
        seed, seconds = random.randrange(10**6), SECONDS if seconds is None else seconds
    try:
        return fuzz(seconds, seed, arguments)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
