"""Right kernels, and the same with one mistake: what the findings of a run must tell apart.

A file of pairs/ is a kernel and its mistakes. A line belongs to the right kernel and to every wrong one, unless it says otherwise:

    bar.sync 0;              // not in no-barrier          the mistake no-barrier leaves this line out
    mov.u32 parity, 0;       // only in parity-stuck       the mistake parity-stuck has this line

    st.shared.u32 [at], v;   // found in no-barrier        the finding about no-barrier names this line; of several one is enough

A reason may follow behind a colon. Lines left out stay as empty lines, so that a finding's PTX line is the line of the file. A line has
one mark of each kind at most, the one about findings last.

`pair_table` and the tables that it joins say how each kernel is launched and which rules a mistake breaks, `pair_arrays` what it must
leave in memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pair_arrays import Case, Maker
from pair_findings import Finding

import tilescope as ts
from tilescope.machine.run_arguments import Advice

FOLDER = Path(__file__).parent / "pairs"
SEEDS = (None, 1, 2)
MAX_STEPS = 200_000  # for a mistake that does not end

_NAMES = r"(?P<mistakes>[a-z0-9-]+(?:, [a-z0-9-]+)*)(?::|\s*$|\s*//)"
_MARK = re.compile(r"//\s*(?P<kind>not|only) in " + _NAMES)
_FOUND_MARK = re.compile(r"//\s*found in " + _NAMES)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A right kernel with its mistakes, and the finding that each must get."""

    name: str
    make: Maker
    mistakes: Mapping[str, Finding]
    block: int = 128
    grid: int = 1
    cluster: int | None = None

    @property
    def text(self) -> str:
        """The file: the right kernel and all that is wrong."""
        return (FOLDER / f"{self.name}.ptx").read_text()


def mistakes_of(text: str) -> set[str]:
    """The mistakes that a file marks by lines of theirs, or by lines that they lack."""
    return {name for line in text.splitlines() if (mark := _MARK.search(line)) for name in mark["mistakes"].split(", ")}


def found_lines(text: str, mistake: str) -> set[int]:
    """The lines that a finding about a mistake may name; empty: any."""
    return {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if (mark := _FOUND_MARK.search(line)) and mistake in mark["mistakes"].split(", ")
    }


def variant(text: str, mistake: str | None = None) -> str:
    """The right kernel of a file, or the one with a mistake."""
    return "\n".join(line if _belongs(line, mistake) else "" for line in text.splitlines()) + "\n"


def _belongs(line: str, mistake: str | None) -> bool:
    mark = _MARK.search(line)
    if mark is None:
        return True
    is_named = mistake in mark["mistakes"].split(", ")
    return is_named if mark["kind"] == "only" else not is_named


def run(pairs: Pairs, kernel: ts.Kernel, seed: int | None, *, advice: Advice = "none") -> tuple[ts.KernelRun, Case]:
    """Run a kernel of the table with numbers from a seed."""
    memory = ts.Memory()
    case = pairs.make(np.random.default_rng(17 if seed is None else seed))
    args = [argument(memory) if callable(argument) else argument for argument in case.args]
    result = kernel.run(
        pairs.grid,
        pairs.block,
        args,
        memory=memory,
        cluster=pairs.cluster,
        seed=seed,
        max_steps=MAX_STEPS,
        advice=advice,
    )
    return result, case
