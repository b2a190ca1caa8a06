"""Which mutants of the recorded kernels are found: python tests/machine/mutants_table.py [-o FILE] [-s SEED] [NAME …]

Runs every mutant of every recorded kernel (or of those named) from the card's arrays. A mutant is found where its run
does not finish, or has an error among its findings. Beside it stands whether the arrays are still the card's. Prints a
table by kind and the mutants that were not found, and writes all of them as JSON (mutants.json). A mutant that was not
found and leaves wrong bytes is marked WRONG: those are the ones to explain first. One whose line the right kernel never
comes to is left out of the count, and marked so in the JSON. One whose copies are pending when the block ends, and that is right
otherwise, has a note: an H200 keeps the memory. It has a column of its own, and is not among those found.
"""

# ruff: noqa: T201  a table is printed

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from kernel_recording import NAMES, recording, run_with
from kernel_recording import kernel as recorded_kernel

from tilescope.errors import RuleError

STEPS_BEYOND = 20  # a mutant may take this many times the steps of the right kernel


def judged(name, mutant, max_steps, seed=None):
    """What came of a mutant: its outcome, the rules it broke, and whether the bytes are the card's."""
    began = time.perf_counter()
    told = {"kernel": name, "mutant": mutant.name, "kind": mutant.kind, "line": mutant.line}
    try:
        run, arrays = run_with(mutant.kernel, name, seed=seed, max_steps=max_steps, advice="none")
    except RuleError as refusal:
        rules = [violation.rule for violation in refusal.violations]
        told |= {"outcome": "refused", "errors": rules, "notes": [], "is_right": False}
    else:
        errors = sorted({finding.rule for finding in run.findings if finding.severity == "error"})
        others = sorted({finding.rule for finding in run.findings if finding.severity != "error"})
        is_right = run.outcome == "finished" and not list(recording(name).differences(arrays))
        told |= {"outcome": run.outcome, "errors": errors, "notes": others, "is_right": is_right}
    told["is_found"] = told["outcome"] != "finished" or bool(told["errors"])
    told["seconds"] = round(time.perf_counter() - began, 3)
    return told


def judged_mutants(name, seed=None):
    """Every mutant of a recorded kernel, judged one after another."""
    right, _ = run_with(recorded_kernel(name), name, findings=False)
    reached = {row.ptx_line for row in right.instructions if row.threads}
    for mutant in recorded_kernel(name).mutants():
        row = judged(name, mutant, right.steps * STEPS_BEYOND + 10_000, seed)
        yield row | {"is_reached": mutant.line is None or mutant.line in reached}


def is_noted_at_end(row):
    """Whether a mutant has a note about copies that are pending at the end of a block, and nothing else is wrong with it."""
    return not row["is_found"] and row["is_right"] and "run-block-end" in row["notes"]


def table(rows):
    """By kind: how many there are, were found, and were not found although their bytes are wrong."""
    rows = [row for row in rows if row["is_reached"]]
    kinds = Counter(row["kind"] for row in rows)
    found = Counter(row["kind"] for row in rows if row["is_found"])
    wrong = Counter(row["kind"] for row in rows if not row["is_found"] and not row["is_right"])
    at_end = Counter(row["kind"] for row in rows if is_noted_at_end(row))
    lines = [f"{'kind':12} {'mutants':>8} {'found':>8} {'block end':>10} {'not found':>10} {'… and wrong':>12}"]
    for kind in [*kinds, None]:
        every, known, noted, bad = (
            counts.total() if kind is None else counts[kind] for counts in (kinds, found, at_end, wrong)
        )
        lines.append(f"{kind or 'all':12} {every:8} {known:8} {noted:10} {every - known - noted:10} {bad:12}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recorded kernels; all where none is named")
    parser.add_argument("-o", "--output", type=Path, default=Path("mutants.json"))
    parser.add_argument("-s", "--seed", type=int, help="asynchronous work at random times")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(NAMES)
    if unknown:
        sys.exit(f"no recording is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    rows = []
    for name in asked.names or NAMES:
        every = list(judged_mutants(name, asked.seed))
        rows += every
        of_kernel = [row for row in every if row["is_reached"]]
        found = sum(row["is_found"] for row in of_kernel)
        seconds = sum(row["seconds"] for row in of_kernel)
        print(f"{name}: {found} of {len(of_kernel)} found, {seconds:.1f} s", flush=True)
        for row in of_kernel:
            if not row["is_found"]:
                state = "clean" if row["is_right"] else "WRONG"
                state = "block end" if is_noted_at_end(row) else state
                print(f"    {state:9}  {row['kind']:12} {row['mutant']}")
        asked.output.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
