"""Make a folder in which mutants of recorded kernels run on a card with delays: python build.py FOLDER [options]

    python tests/machine/mutants_table.py -o mutants.json         which mutants are found here
    python tests/golden/mutants/build.py FOLDER --table mutants.json --found 100
    (on the machine with the card)  python FOLDER/on_card.py OUTPUT --seeds 20

FOLDER gets every mutant of the table that was not found here, and so many that were found, evenly chosen; each unchanged
kernel, too, since delays must not change what is right. Needs ptxas (the nvidia-cuda-nvcc wheel) and tilescope; no card.
"""

# ruff: noqa: T201  a report is printed

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
MACHINE_TESTS = HERE.parents[1] / "machine"
sys.path.insert(0, str(MACHINE_TESTS))

from kernel_recording import argument, kernel, recording  # noqa: E402
from mutant_delays import delayed  # noqa: E402

import tilescope as ts  # noqa: E402
from tilescope.machine.edits.mutations import replace_swizzle  # noqa: E402

UNCHANGED = "unchanged"


def ptxas():
    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    return next(path for root in roots for path in root.glob("*/bin/ptxas"))


def chosen(rows, found):
    """The mutants that were not found, and `found` of those that were."""
    rows = [row for row in rows if row["is_reached"]]
    missed = [row for row in rows if not row["is_found"]]
    others = [row for row in rows if row["is_found"]]
    step = max(1, len(others) // found) if found else 0
    return missed + (others[::step][:found] if found else [])


def launch_of(name, changed):
    """The launch of a recording; a map in it may have another swizzle."""
    launch = json.loads(json.dumps(recording(name).launch)) | {"entry": changed.entry}
    if changed.changed_map is not None:
        parameter = launch["params"][changed.changed_map]
        addresses = [256] * len(launch["arrays"])
        parameter["swizzle"] = replace_swizzle(argument(parameter, addresses)).swizzle.name
    return launch


def assembled(number, name, changed, folder):
    """The cubin of a kernel with delays; what ptxas says where it refuses."""
    source = folder / f"{number:04}.ptx"
    text = re.sub(r"^\s*\.loc[^\n]*", "", delayed(changed), flags=re.MULTILINE)  # recordings have no debug strings
    source.write_text(text)
    target = "sm_90" if recording(name).launch.get("arch") == "sm_90" else changed.module.target
    command = [ptxas(), f"-arch={target}", "-o", folder / f"{number:04}.cubin", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    source.unlink()
    return done.stderr if done.returncode else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", type=Path, required=True, help="what mutants_table.py wrote")
    parser.add_argument("--found", type=int, default=100, help="mutants that were found here")
    parser.add_argument("--kernels", nargs="*", help="only mutants of these kernels")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = json.loads(asked.table.read_text())
    if asked.kernels:
        rows = [row for row in rows if row["kernel"] in asked.kernels]
    rows = chosen(rows, asked.found)
    names = sorted({row["kernel"] for row in rows})
    rows = [{"kernel": name, "mutant": UNCHANGED, "kind": UNCHANGED, "is_found": False} for name in names] + rows
    mutants = {name: {mutant.name: mutant for mutant in kernel(name).mutants()} for name in names}

    def made(numbered):
        number, row = numbered
        name = row["kernel"]
        changed = kernel(name)
        if row["mutant"] != UNCHANGED:
            mutant = mutants[name][row["mutant"]]
            has_other_map = mutant.kernel.changed_map is not None
            changed = mutant.kernel if has_other_map else ts.Kernel(mutant.ptx, changed.entry)
        refusal = assembled(number, name, changed, asked.folder)
        if refusal:
            print(f"{name}: {row['mutant']}: {refusal}")
            return None
        return row | {"number": number, "launch": launch_of(name, changed)}

    with ThreadPoolExecutor(2) as pool:
        listed = [row for row in pool.map(made, enumerate(rows)) if row is not None]
    (asked.folder / "mutants.json").write_text(json.dumps(listed))
    for name in names:
        found = recording(name)
        before = {f"before{number}": held for number, held in enumerate(found.before)}
        after = {f"after{number}": held for number, held in enumerate(found.after)}
        np.savez_compressed(asked.folder / f"{name}.npz", **before, **after)
    shutil.copy(HERE / "on_card.py", asked.folder)
    shutil.copy(HERE.parent / "kernels_own" / "record.py", asked.folder)
    shutil.copy(MACHINE_TESTS / "kernel_arrays.py", asked.folder)
    print(f"{len(listed)} of {len(rows)} kernels in {asked.folder}")


if __name__ == "__main__":
    main()
