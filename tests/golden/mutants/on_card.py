"""Run the mutants beside this file on a card, each with many seeds of delays: python on_card.py OUTPUT_FOLDER [options]

Stands in a folder that build.py makes (cubins, mutants.json, arrays, record.py); needs numpy, ml_dtypes and a driver. Says
for every mutant: right (the recorded bytes, whatever the seed), wrong, hang or fault. A child process runs mutants one
after another; where one hangs or faults, the child ends and another goes on. Writes OUTPUT_FOLDER/verdicts.json, and prints
the mutants that were not found without a card and are not right on one: there must be none.
"""

# ruff: noqa: T201  a report is printed

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from kernel_arrays import element_type
from record import Card

HERE = Path(__file__).parent
START_SECONDS = 30  # for a process to reach the card
TOLERANCE = 2e-3  # of .approx functions


class DelayedCard(Card):
    """A card whose kernels sleep by a seed; 0: not at all."""

    seed = 0

    def prepare(self, module):
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"tilescope_delays")
        self.call("cuMemcpyHtoD_v2", address, ctypes.byref(ctypes.c_uint32(self.seed)), ctypes.c_size_t(4))


def is_right(launch, found, expected):
    """Whether arrays are the recorded ones; scratch memory may hold anything."""
    for number, described in enumerate(launch["arrays"]):
        if described.get("is_scratch"):
            continue
        held, wanted = found[number], expected[f"after{number}"]
        dtype = element_type(described["type"])
        if not launch["exact"] and dtype.kind in "fV":
            pair = held.view(dtype).astype(np.float64), wanted.view(dtype).astype(np.float64)
            if not np.isclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True).all():
                return False
        elif not np.array_equal(held, wanted):
            return False
    return True


def child(numbers, seeds):
    """Run mutants; a line before and after each."""
    rows = {row["number"]: row for row in json.loads((HERE / "mutants.json").read_text())}
    card = DelayedCard()
    archives = {}
    for number in numbers:
        row = rows[number]
        name = row["kernel"]
        if name not in archives:
            with np.load(HERE / f"{name}.npz") as archive:
                archives[name] = {
                    key: np.ascontiguousarray(archive[key]).view(np.uint8).reshape(-1) for key in archive.files
                }
        expected = archives[name]
        before = [expected[f"before{index}"] for index in range(len(row["launch"]["arrays"]))]
        cubin = (HERE / f"{number:04}.cubin").read_bytes()
        wrong = []
        for seed in range(seeds + 1):
            print("begin", number, seed, flush=True)
            card.seed = seed * 0x9E3779B1 & 0xFFFFFFFF
            try:
                found = card.run(cubin, row["launch"], before)
            except RuntimeError as reason:
                print("fault", number, seed, str(reason).replace(" ", "_"), flush=True)
                return  # the context is gone
            if not is_right(row["launch"], found, expected):
                wrong.append(seed)
        print("done", number, len(wrong), *wrong, flush=True)


def attempted(numbers, seeds, seconds, log):
    """Run mutants in one process: their verdicts. It ends with the last one, or with one that hangs or faults."""
    command = [sys.executable, __file__, "--child", str(seeds), *map(str, numbers)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        size, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.02)
            if log.stat().st_size > size:
                size, since = log.stat().st_size, time.monotonic()
            if time.monotonic() - since > (seconds if size else START_SECONDS):
                process.kill()
                process.wait()
    return verdicts_of(log.read_text().splitlines(), seeds)


def verdicts_of(lines, seeds):
    """What a child wrote, by the number of the mutant."""
    verdicts, begun = {}, None
    for line in lines:
        words = line.split()
        if not words or words[0] not in {"begin", "done", "fault"}:
            continue
        number = int(words[1])
        if words[0] == "begin":
            begun = (number, int(words[2]))
        elif words[0] == "done":
            wrong = [int(word) for word in words[3:]]
            verdicts[number] = {"verdict": "wrong" if wrong else "right", "runs": seeds + 1, "seeds": wrong}
        else:
            verdicts[number] = {"verdict": "fault", "seeds": [int(words[2])], "reason": words[3]}
    if begun is not None and begun[0] not in verdicts:
        verdicts[begun[0]] = {"verdict": "hang", "seeds": [begun[1]]}
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="without an end of a launch: a hang")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds; what is left then is not run")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    rows = json.loads((HERE / "mutants.json").read_text())
    left = [row["number"] for row in rows]
    verdicts = {}
    end = time.monotonic() + asked.budget
    log = asked.output / "child.log"
    while left and time.monotonic() < end:
        found = attempted(left[:40], asked.seeds, asked.seconds, log)
        if not found:
            sys.exit(f"the card was not reached: {log.read_text()[-2000:]}")
        verdicts |= found
        left = [number for number in left if number not in verdicts]
    told = []
    for row in rows:
        shown = {key: row[key] for key in ("number", "kernel", "mutant", "kind", "is_found")}
        told.append(shown | verdicts.get(row["number"], {"verdict": "not run"}))
    (asked.output / "verdicts.json").write_text(json.dumps(told, indent=1))
    log.unlink(missing_ok=True)
    print(Counter(row["verdict"] for row in told))
    for row in told:
        if not row["is_found"] and row["verdict"] not in {"right", "not run"}:
            print(f"{row['verdict']:6} {row['kernel']}: {row['mutant']} (seeds {row['seeds'][:5]})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child([int(word) for word in sys.argv[3:]], int(sys.argv[2]))
    else:
        main()
