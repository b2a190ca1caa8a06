"""Commands from a cold start, against importing numpy: python benchmarks/start_up.py"""

import os
import subprocess
import sys
from functools import partial

from ratio import Work, print_ratios, run

KEEPS_BYTECODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def started(*arguments):
    """Start Python with its bytecode cache, as for an installed package. The first round is not timed."""
    command = [sys.executable, *arguments]
    return partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, env=KEEPS_BYTECODE)


def main():
    print_ratios(
        "start-up",
        Work('python -c "import numpy"', started("-c", "import numpy")),
        Work('python -c "pass"', started("-c", "pass")),
        Work('python -c "import tilescope"', started("-c", "import tilescope")),
        Work('python -c "from tilescope import Swizzle"', started("-c", "from tilescope import Swizzle")),
        Work('python -c "from tilescope import Kernel"', started("-c", "from tilescope import Kernel")),
        Work("tilescope --help", started("-m", "tilescope", "--help")),
        Work("tilescope swizzle 128B", started("-m", "tilescope", "swizzle", "128B"), goal=1.6),
        Work("tilescope swizzle 128B --json", started("-m", "tilescope", "swizzle", "128B", "--json")),
        rounds=9,
    )


if __name__ == "__main__":
    run(main)
